//! How many durable records per second with K writers sharing one sync?
//!
//! Source: the question behind every log with more than one client (group commit; `DeWitt` et al.,
//! "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984). Writers that each
//! sync for themselves stand beside writers of which one syncs for all that came meanwhile.
//!
//! A closed loop per writer: its next record comes when the one before is durable.

mod answer;
mod arm;
mod experiment;
mod plan;
mod shared_log;

pub(crate) use answer::best_width;
pub(super) use experiment::GroupCommit;
