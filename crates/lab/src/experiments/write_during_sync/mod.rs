//! Does write(2) wait for a sync of the same file in another thread?
//!
//! Source: "fsync() on a different thread: apparently a useless trick": a write every
//! 100 ms, a sync every second, on a disk whose syncs took 40 ms. It found that the write which
//! met a sync took as long as the sync. On a fast disk its ten writes a second seldom meet a sync,
//! so the default here writes thousands of times a second and says of every write whether a sync
//! was in flight; the article's own rates are the profile `article`.
//!
//! It is an open loop: writes start at a fixed rate, however long the one before took, and the
//! measure "from intended start" includes the waiting (no coordinated omission).
//!
//! `experiment.rs` has the question and the run, `plan.rs` the arms, `race.rs` how one is measured,
//! `overlap.rs` says which writes met a sync, `values.rs` goes from a race to a result, and
//! `answer.rs` to sentences.

mod answer;
mod experiment;
mod overlap;
mod plan;
mod race;
mod values;

pub(super) use experiment::WriteDuringSync;
