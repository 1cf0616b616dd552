//! What do N small files cost, and how do you pay less?
//!
//! Source: article 3 ("fsync is Costly, But Don't Avoid It"). It writes 200 B to each of its files,
//! with and without an fsync, and then tries direct I/O and `io_uring`. Beside its four programs
//! stand the ways that it does not try (syncing later, syncing together, fewer files), and its
//! `io_uring` program twice: as printed, where nothing ties an fsync to its write, and linked.
//!
//! A sample is the time for all files. They are created and opened before it and removed after it,
//! untimed, as in the article; so a block is one sample.

mod answer;
mod experiment;
mod files;
mod values;
mod way;

pub(super) use experiment::ManyFiles;
