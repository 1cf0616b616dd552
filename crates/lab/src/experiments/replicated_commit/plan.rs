//! The arms, and what a profile asks for.

use std::time::Duration;

use plimsoll_sync::SyncMethod;

use crate::experiment::{Profile, Setup};

pub(super) const MEASURE: &str = "time to acknowledgement";
pub(super) const RECORD_BYTES: usize = 200;
/// How often a topic that is acknowledged from memory is synced behind. The article says 10 to 30 seconds;
/// this is so often that every block pays for its own syncs, and none for those of another.
pub(super) const SYNC_BEHIND: Duration = Duration::from_millis(100);
/// How long all voters of a cluster must have been well before it acknowledges from memory.
pub(super) const GUARD: Duration = Duration::from_secs(10);

pub(super) const DISK_SYNC: &str = "disk-sync";
pub(super) const ROUND_TRIP: &str = "round-trip";

/// What an acknowledgement waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// One broker has it in memory.
    OneMemory,
    /// One broker synced it.
    OneDisk,
    /// Two of three brokers have it in memory.
    QuorumMemory,
    /// Two of three brokers synced it.
    QuorumDisks,
}

/// One thing that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spec {
    /// The lab's own writer syncs a record: no broker on this disk can be faster.
    DiskSync,
    /// Bytes go to another thread and back: no broker on this network can be faster.
    RoundTrip,
    /// So many writers, each waiting for its acknowledgement.
    Acknowledged(Way, usize),
}

impl Way {
    pub(super) const ALL: [Self; 4] =
        [Self::OneMemory, Self::OneDisk, Self::QuorumMemory, Self::QuorumDisks];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OneMemory => "one-memory",
            Self::OneDisk => "one-disk",
            Self::QuorumMemory => "quorum-memory",
            Self::QuorumDisks => "quorum-disks",
        }
    }

    /// Whether it takes three brokers.
    pub(super) const fn is_quorum(self) -> bool {
        matches!(self, Self::QuorumMemory | Self::QuorumDisks)
    }

    /// Whether it waits for a sync.
    pub(super) const fn is_synced(self) -> bool {
        matches!(self, Self::OneDisk | Self::QuorumDisks)
    }

    /// The topic that is acknowledged so.
    pub(super) const fn topic(self) -> &'static str {
        if self.is_synced() { "from-disk" } else { "from-memory" }
    }
}

impl Spec {
    pub(super) fn name(self) -> String {
        match self {
            Self::DiskSync => DISK_SYNC.to_owned(),
            Self::RoundTrip => ROUND_TRIP.to_owned(),
            Self::Acknowledged(way, writers) => arm_name(way, writers),
        }
    }
}

pub(super) fn arm_name(way: Way, writers: usize) -> String {
    format!("{}/{writers}", way.name())
}

pub(super) fn specs(profile: Profile) -> Vec<Spec> {
    let of_way = |way| writers(profile).iter().map(move |&n| Spec::Acknowledged(way, n));
    let floors = [Spec::DiskSync, Spec::RoundTrip];
    floors.into_iter().chain(Way::ALL.into_iter().flat_map(of_way)).collect()
}

pub(super) fn writers(profile: Profile) -> &'static [usize] {
    if profile == Profile::Quick { &[1, 64] } else { &[1, 16, 64] }
}

pub(super) const fn block_time(profile: Profile) -> Duration {
    Duration::from_millis(if matches!(profile, Profile::Quick) { 300 } else { 500 })
}

/// The article's call, or what stands in for it.
pub(super) fn method(setup: &Setup<'_>) -> SyncMethod {
    let fdatasync = SyncMethod::Fdatasync;
    if setup.works(fdatasync) { fdatasync } else { SyncMethod::ORDINARY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_with_one_writer_and_with_many_beside_both_floors() {
        for profile in [Profile::Quick, Profile::Full, Profile::Article] {
            let names: Vec<String> = specs(profile).into_iter().map(Spec::name).collect();
            for way in ["one-memory", "one-disk", "quorum-memory", "quorum-disks"] {
                for writers in ["1", "64"] {
                    assert!(names.contains(&format!("{way}/{writers}")), "{names:?}");
                }
            }
            assert!(
                names.contains(&DISK_SYNC.to_owned()) && names.contains(&ROUND_TRIP.to_owned())
            );
        }
    }

    #[test]
    fn a_block_is_longer_than_what_is_synced_behind_waits() {
        for profile in [Profile::Quick, Profile::Full] {
            assert!(block_time(profile) >= 2 * SYNC_BEHIND, "it would not pay for its syncs");
        }
    }
}
