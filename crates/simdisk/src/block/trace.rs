//! A recording: the disk as it was, what was asked of it since, and where all that comes from.

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::platter::Platter;

/// A recording of a disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Where it comes from.
    pub about: About,
    /// The disk when the recording began; durable.
    pub base: Platter,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What happened once the workload had ended: what it had left in memory, sent by a sync that was not its
    /// own. It is there to explain; the power is not cut in it.
    pub aftermath: Vec<Event>,
}

impl Trace {
    /// What happened, and the aftermath.
    #[must_use]
    pub fn all_events(&self) -> Vec<Event> {
        self.events.iter().chain(&self.aftermath).cloned().collect()
    }
}

/// Where a recording comes from: what another needs to know to mount it, and to judge it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// `ext4`, `xfs` or `btrfs`.
    pub filesystem: String,
    /// How the filesystem was made: the program and its arguments.
    pub mkfs: Vec<String>,
    /// Options of the mount, with commas.
    pub mount_options: String,
    /// The directory that was copied to the disk first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What was run on the disk then, before it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// What was run.
    pub command: Vec<String>,
    /// How it ended: a status, or `killed`.
    pub ended: String,
    /// Faults that the disk was told to have.
    pub faults: Vec<String>,
    /// The latency model, if there was one.
    pub latency: Option<String>,
    /// Whether what nobody synced was written all the same, by and by and at the end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub write_back: bool,
    /// Which lines of what it printed are marks, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_on: Option<String>,
    /// Seed of the faults.
    pub seed: u64,
    /// Version of the kernel.
    pub kernel: String,
    /// Version of plimsoll.
    pub plimsoll: String,
    /// When, as RFC 3339.
    pub recorded_at: String,
    /// Only what was pending at the end was kept, so that the power can be cut there and nowhere before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub end_only: bool,
}
