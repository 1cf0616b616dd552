//! What a profile asks for: how wide the groups are, and what they write.

use std::time::Duration;

use plimsoll_sync::SyncMethod;

use crate::experiment::Profile;

pub(super) const MEASURE: &str = "time to durable";
pub(super) const RECORD_BYTES: usize = 200;
/// Records that a file holds before it is written over.
pub(super) const RECORDS: u64 = 64 * 1024;
pub(super) const METHOD: SyncMethod =
    if cfg!(target_os = "linux") { SyncMethod::Fdatasync } else { SyncMethod::ORDINARY };

const QUICK: [usize; 5] = [1, 4, 16, 64, 256];
pub(super) const FULL: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Which writer syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncs {
    /// Each writer for itself, through a handle of its own.
    Private,
    /// One writer at a time, for all who wrote meanwhile.
    Shared,
}

pub(super) fn widths(profile: Profile) -> &'static [usize] {
    if profile == Profile::Quick { &QUICK } else { &FULL }
}

pub(super) const fn block_time(profile: Profile) -> Duration {
    Duration::from_millis(if matches!(profile, Profile::Quick) { 60 } else { 200 })
}

pub(super) fn arm_name(syncs: Syncs, writers: usize) -> String {
    match syncs {
        Syncs::Private => format!("private/{writers}"),
        Syncs::Shared => format!("shared/{writers}"),
    }
}
