//! The experiments: a file or a folder each, named after its question.

mod cache_flush;
mod durable_rename;
mod full_flush;
mod group_commit;
mod many_files;
#[cfg(feature = "brokers")]
mod replicated_commit;
mod sync_cost;
mod sync_interval;
mod write_during_sync;
mod writeback_stall;

use crate::experiment::Experiment;

/// Every experiment, in the order in which they run.
pub const ALL: &[&dyn Experiment] = &[
    &sync_cost::SyncCost,
    &write_during_sync::WriteDuringSync,
    &writeback_stall::WritebackStall,
    &many_files::ManyFiles,
    &sync_interval::SyncInterval,
    &full_flush::FullFlush,
    &group_commit::GroupCommit,
    &durable_rename::DurableRename,
    &cache_flush::CacheFlush,
    #[cfg(feature = "brokers")]
    &replicated_commit::ReplicatedCommit,
];

pub(crate) use group_commit::best_width;

/// Those that run where none is named.
#[must_use]
pub fn unasked() -> Vec<&'static dyn Experiment> {
    ALL.iter().filter(|experiment| experiment.runs_unasked()).copied().collect()
}

/// The experiment of a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().find(|experiment| experiment.name() == name).copied()
}
