//! What does an acknowledgement cost from one disk's sync, from a quorum's memory, from a quorum's
//! disks?
//!
//! Source: "Wait Before You Sync": durability comes from a replicated log whose records are
//! checksummed, and a disk's sync has no place in the path of a write; it belongs in the background,
//! every 10 to 30 seconds or 100 MiB. The article times syncs of one file and no replicated log. Here
//! both are timed, by brokers of this program: one alone, and three that are one cluster, each from
//! memory and from disks, in turns.
//!
//! | file | what |
//! | --- | --- |
//! | `experiment.rs` | the question and how a run goes |
//! | `plan.rs` | the arms, and what a profile asks for |
//! | `brokers.rs` | brokers as processes: started, watched, ended |
//! | `status.rs` | what a broker says of itself |
//! | `fleet.rs` | all brokers of a run, and their topics |
//! | `producers.rs` | an arm: writers that wait for acknowledgements |
//! | `round_trip.rs` | an arm: a round trip over loopback |
//! | `arm.rs` | which of these an arm is |
//! | `answer.rs` | from the results to sentences and verdicts: pure |

mod answer;
mod arm;
mod brokers;
mod experiment;
mod fleet;
mod plan;
mod producers;
mod round_trip;
mod status;

pub(super) use experiment::ReplicatedCommit;
