//! [`Options`]: what a node is opened with.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_log::{Policy, Ring};

use super::acked::Acked;
use crate::groups;

/// The part of a disk that is a segment, of a disk that is small: each of three shards has one, and the next ready.
const SEGMENTS: u64 = 64;
const SEGMENT_BYTES_MIN: u64 = 4 << 20;

/// What a node is opened with. The defaults are right for most.
#[derive(Debug, Clone)]
pub struct Options {
    /// A directory on tmpfs, such as `/dev/shm/plimsoll`, for records that were acknowledged and are
    /// not with the kernel yet: they outlive the process there, at the speed of memory. Without one
    /// an acknowledgement waits for the kernel.
    pub memory: Option<PathBuf>,
    /// When records of topics that do not ask for more are synced: every second, or 64 MiB, unless set.
    pub flush: Policy,
    /// Bytes that may be acknowledged and not durable, of each shard; a power of two. A ring that a crash
    /// left in memory is opened as it is: its size holds until a run has ended in order.
    pub ring_bytes: u64,
    /// Bytes of the newest records that are served from memory, of each shard.
    pub tail_bytes: usize,
    /// Bytes of the disk that records leave free, or a quarter of it if that is less: what deletes them has
    /// to be written too. While less is free records are refused.
    pub reserve_bytes: u64,
    /// Bytes of the log after which a chapter ends; less where the reserve would not have room for it.
    pub chapter_bytes: u64,
    /// How long a chapter stays open at most.
    pub chapter_age: Duration,
    /// How long it rests from one scrub to the next, which reads all chapters past the page cache; `None`: it never does.
    /// The first begins an hour after the start, or after so long if that is less.
    pub scrub_every: Option<Duration>,
    /// Whether a topic that is asked for, and is not there, is made.
    pub auto_create: bool,
    /// Partitions of a topic for which no number is given.
    pub partitions: u32,
    /// Partitions of all topics together, at most: each takes memory.
    pub partitions_max: usize,
    /// What groups may be.
    pub groups: groups::Settings,
    /// How old a record may become before it is durable, where a topic says `plimsoll.flush=auto`: the knee
    /// that the lab measured on this disk. Without one that setting is refused.
    pub knee: Option<Duration>,
    /// Whether what it leads is handed over to whoever is preferred to lead it, once all has been well for a while.
    pub spreads_leaders: bool,
    /// What is done where a majority may have forgotten what it acknowledged.
    pub on_majority_dirty: OnMajorityDirty,
    /// Whether a majority of the voters may stand in one failure domain, and acknowledge from memory all the same.
    pub allows_one_domain: bool,
    /// How many nodes vote in each shard, where there are so many: the others get all of it, and do not vote. It should be the
    /// same on all nodes: whoever leads a shard decides.
    pub replication_factor: usize,
    /// Its seat in a cluster; none: it is alone.
    pub seat: Option<Seat>,
}

/// What is done where a majority may have forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnMajorityDirty {
    /// Nothing: an operator decides.
    #[default]
    Refuse,
    /// After ten seconds the shard goes on with what the disks have.
    AutoFence,
}

/// A node's seat in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The id of the cluster, 32 hexadecimal digits: a new directory takes it, and one of another cluster is
    /// refused.
    pub cluster: String,
    /// Which of the members this node is. It is the same at every start of its directory, and never
    /// another directory's.
    pub node: u64,
    /// Where the members find each other, as `host:port`. One of them [founded](super::found) the cluster.
    pub members: BTreeMap<u64, String>,
    /// Where this node listens for the others.
    pub listen: SocketAddr,
    /// Where clients find this node.
    pub clients: (String, u16),
    /// The failure domain that it is in.
    pub rack: Option<String>,
}

/// Bytes of the ring of a shard that has little to say.
pub(super) const SMALL_RING_BYTES: u64 = 8 << 20;

impl Options {
    /// The log of a shard of records, on a disk of so many bytes.
    pub(super) fn log(
        &self,
        ring: Ring,
        policy: Policy,
        total_bytes: u64,
    ) -> plimsoll_log::Options {
        let (ring_bytes, segment_bytes) = (self.ring_bytes, segment_bytes(total_bytes));
        let options = plimsoll_log::Options::default();
        plimsoll_log::Options { policy, ring, ring_bytes, segment_bytes, ..options }
    }

    /// Bytes that the log of a shard of records takes at most before they are durable, where it is bounded: twice what makes a
    /// sync due (decision 0017), and no more than a ring has that is promised to have all of it.
    pub(super) fn unsynced_max(&self, promise: Promise) -> Option<u64> {
        let twice = match self.flush {
            Policy::Interval { max_bytes, .. } => Some(max_bytes.saturating_mul(2)),
            Policy::Always | Policy::Never => None,
        };
        match promise {
            Promise::Memory => {
                Some(twice.map_or(self.ring_bytes, |twice| twice.min(self.ring_bytes)))
            }
            Promise::Kernel => twice,
        }
    }
}

/// Bytes of a segment where the disk has so many: all shards make one and the next ready, and most of a small disk is to be the records'.
fn segment_bytes(total_bytes: u64) -> u64 {
    let most = plimsoll_log::Options::default().segment_bytes;
    let mebibytes = (total_bytes / SEGMENTS) >> 20;
    (mebibytes << 20).clamp(SEGMENT_BYTES_MIN, most)
}

/// The log of a shard that has little to say.
pub(super) fn small_log(acked: Option<&Acked>) -> plimsoll_log::Options {
    let durable = acked.map_or(0, Acked::last);
    plimsoll_log::Options {
        ring_bytes: SMALL_RING_BYTES,
        durable,
        ..plimsoll_log::Options::default()
    }
}

/// What an acknowledgement survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// A crash of the process: it is in memory that outlives it.
    Memory,
    /// A crash of the process: it is with the kernel.
    Kernel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: None,
            flush: Policy::everysec(),
            ring_bytes: 32 << 20,
            tail_bytes: 64 << 20,
            reserve_bytes: 768 << 20,
            chapter_bytes: 512 << 20,
            chapter_age: Duration::from_secs(3600),
            scrub_every: Some(Duration::from_secs(7 * 24 * 3600)),
            auto_create: true,
            partitions: 1,
            partitions_max: 200_000,
            groups: groups::Settings::default(),
            knee: None,
            spreads_leaders: true,
            on_majority_dirty: OnMajorityDirty::default(),
            allows_one_domain: false,
            replication_factor: 3,
            seat: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three shards made segments of 64 MiB each on a disk of 300, which took no record then (a trial).
    #[test]
    fn segments_leave_a_small_disk_to_the_records() {
        for (total_mib, mib) in [(40, 4), (300, 4), (1024, 16), (4096, 64), (1 << 30, 64)] {
            assert_eq!(segment_bytes(total_mib << 20), mib << 20, "{total_mib} MiB");
        }
        assert_eq!(segment_bytes(u64::MAX), 64 << 20);
    }
}
