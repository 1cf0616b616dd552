//! What happens to small durable writes under heavy random writeback?
//!
//! Source: "buffered writeback torture program" (fsync-tester, 2011): one process writes
//! random pages of an 8 GiB file as fast as it can, another overwrites a small file once a second
//! and syncs it. On the xfs of the day one such write took 128.9 s. The article speaks of 4 KiB;
//! its program writes 1 MiB. It has no control and does not say how fast the random writer was:
//! here both are measured.
//!
//! What holds a write up is `balance_dirty_pages` in the kernel, once a good part of memory is
//! dirty, which takes a file of the article's size. The short profiles make the device busy
//! instead: their writer starts writeback itself, piece by piece, as the kernel's flusher would.
//!
//! `experiment.rs` has the question and the run, `plan.rs` the arms, `arm.rs` how one is measured,
//! `big_file.rs` the random writer; `values.rs` goes from blocks to values, and `answer.rs` to
//! sentences.

mod answer;
mod arm;
mod big_file;
mod experiment;
mod plan;
mod values;

pub(super) use experiment::WritebackStall;
