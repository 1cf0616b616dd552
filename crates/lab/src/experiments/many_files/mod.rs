//! What do N small files cost, and how do you pay less?
//!
//! Source: "fsync is Costly, But Don't Avoid It". It writes 200 B to each of its files, with and
//! without an fsync, and then tries direct I/O and `io_uring`. Its four programs are
//! measured beside ways that it does not try (syncing later, syncing together, fewer files). Its
//! `io_uring` program is measured twice: as printed, where nothing ties an fsync to its write, and
//! linked.
//!
//! A sample is the time for all files. They are created and opened before it and removed after it,
//! untimed, as in the article; so a block is one sample.
//!
//! `experiment.rs` has the question and the run, `way.rs` the ways to write and sync, `files.rs`
//! how one is measured, `values.rs` goes from samples to values, and `answer.rs` to sentences.

mod answer;
mod experiment;
mod files;
mod values;
mod way;

pub(super) use experiment::ManyFiles;
