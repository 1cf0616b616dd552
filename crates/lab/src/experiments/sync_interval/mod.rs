//! How much may stay unsynced before it costs you, and how little before it costs you more?
//!
//! Source: "Wait Before You Sync": 1 GiB of 4 KiB writes, with an fdatasync never, once
//! at the end, or every 100 MiB down to every 16 KiB; the median of twenty trials. On its drive a
//! sync every 1 MiB costs 4.8 times one sync at the end, and the article draws a line at 10 MiB.
//!
//! That line depends on the drive: it lies where a sync costs as much as writing what it covers. So
//! it is measured here, beside the other side of the bargain: how many bytes a power cut may take,
//! and how long they stay at risk.
//!
//! `experiment.rs` has the question and the run, `plan.rs` the arms, `arm.rs` how one is measured,
//! `values.rs` goes from trials to values and the knee, and `answer.rs` to sentences.

mod answer;
mod arm;
mod experiment;
mod plan;
mod values;

pub(super) use experiment::SyncInterval;
