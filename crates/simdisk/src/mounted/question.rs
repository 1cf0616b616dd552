//! [`Question`]: all that what is found of a trace depends on. An answer to another question is none.

use serde::{Deserialize, Serialize};

use crate::block::Fault;

/// What was asked: all that the answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Hash of the trace: [`crate::block::Trace::id`].
    pub trace: String,
    /// Which filesystem is on it.
    pub filesystem: String,
    /// The line for the shell that checks each state.
    pub check: String,
    /// The files that it names, and how they looked: length and when they changed.
    pub check_files: Vec<String>,
    /// After so long a check counts as broken.
    pub check_limit_ms: u64,
    /// About so many states.
    pub states: usize,
    /// Modes of the samples.
    pub modes: Vec<String>,
    /// What the device writes at once.
    pub tear_bytes: u32,
    /// Up to so many pending writes all combinations are visited.
    pub exhaustive_writes: u32,
    /// For what is drawn.
    pub seed: u64,
    /// Whether no flush is believed.
    pub lying: bool,
    /// What the disk was told to do wrong when it was recorded.
    pub faults: Vec<String>,
    /// How much the device's cache is believed to hold, if not all.
    pub cache_bytes: Option<u64>,
    /// More options for the mount.
    pub mount_options: String,
    /// Of the kernel that mounts the states; the recording knows its own.
    pub kernel: String,
    /// Our version.
    pub plimsoll: String,
}

impl Question {
    /// The question of a line of JSON, if it is one.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Whether the disk says other than what it did, or is believed to. A fault that we do not know
    /// excuses nothing.
    #[must_use]
    pub fn disk_lies(&self) -> bool {
        let lies = |fault: &String| fault.parse::<Fault>().is_ok_and(|fault| fault.lies());
        self.lying || self.faults.iter().any(lies)
    }

    /// What of it is another than in the first line of some results.
    pub(super) fn differs(&self, line: &[u8]) -> Vec<String> {
        let now = serde_json::to_value(self).unwrap_or_default();
        let then = serde_json::from_slice::<serde_json::Value>(line).unwrap_or_default();
        let fields = now.as_object().into_iter().flatten();
        let differ = fields.filter(|(name, value)| then.get(name.as_str()) != Some(*value));
        differ.map(|(name, _)| name.replace('_', " ")).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn question(seed: u64) -> Question {
        Question {
            trace: "t".to_owned(),
            filesystem: "ext4".to_owned(),
            check: "true".to_owned(),
            check_files: vec!["/bin/true: 9 bytes".to_owned()],
            check_limit_ms: 60_000,
            states: 9,
            modes: vec![],
            tear_bytes: 4096,
            exhaustive_writes: 6,
            seed,
            lying: false,
            faults: vec![],
            cache_bytes: None,
            mount_options: String::new(),
            kernel: String::new(),
            plimsoll: String::new(),
        }
    }

    #[test]
    fn a_disk_that_fails_honestly_excuses_nothing() {
        let lies =
            |fault: &str| Question { faults: vec![fault.to_owned()], ..question(1) }.disk_lies();
        for honest in ["flush EIO nth=3", "write ENOSPC sticky", "read EIO", "no fault at all"] {
            assert!(!lies(honest), "{honest}");
        }
        let lying = ["write lost", "flush dropped", "write misdirected", "read flip"];
        for lying in lying.into_iter().chain(["read unreadable range=64KiB..68KiB"]) {
            assert!(lies(lying), "{lying}");
        }
    }
}
