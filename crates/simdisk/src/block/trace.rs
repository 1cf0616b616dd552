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
    /// What was run.
    pub command: Vec<String>,
    /// How it ended: a status, or `killed`.
    pub ended: String,
    /// Faults that the disk was told to have.
    pub faults: Vec<String>,
    /// The latency model, if there was one.
    pub latency: Option<String>,
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
