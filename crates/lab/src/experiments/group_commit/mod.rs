//! How many durable records per second with K writers sharing one sync?
//!
//! Source: the question behind every log with more than one client (group commit; `DeWitt` et al.,
//! "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984). Writers that each
//! sync for themselves are measured beside writers of whom one syncs for all who came meanwhile.
//!
//! Each writer is a closed loop: its next record comes when the one before is durable.
//!
//! `experiment.rs` has the question and the run, `plan.rs` the arms, `arm.rs` how one is measured,
//! `shared_log.rs` the log that its writers share, and `answer.rs` makes the sentences.

mod answer;
mod arm;
mod experiment;
mod plan;
mod shared_log;

pub(crate) use answer::best_width;
pub(super) use experiment::GroupCommit;
