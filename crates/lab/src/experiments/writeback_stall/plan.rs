//! What a profile asks for: sizes, rates, and the arms.

use std::time::Duration;

use crate::experiment::Profile;
use crate::runner::Size;
use crate::units;

/// What is measured, in the order of a block's lists.
pub(super) const MEASURES: [&str; 3] = ["write and sync", "write", "sync"];
pub(super) const WRITE: usize = 1;
pub(super) const SYNC: usize = 2;

pub(super) const MIB: u64 = 1 << 20;
/// What the random writer writes at a time.
pub(super) const PAGE: u64 = 4096;

/// The small file: what the article says, and what its program does.
pub(super) const WRITE_BYTES: [u64; 2] = [PAGE, MIB];

/// The big file takes at most one part in so many of memory and of free space.
const SHARE: u64 = 8;

/// A block may begin when less than this is dirty.
pub(super) const CALM_BYTES: u64 = 64 * MIB;

/// Sizes and rates of a profile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The size of the big file, unless memory or the disk is small.
    pub(super) file_bytes: u64,
    /// Whether the big file has that size in any case.
    file_is_fixed: bool,
    /// After so many pages the random writer starts writeback itself and waits for it.
    pub(super) push_pages: Option<u64>,
    pub(super) write_every: Duration,
    pub(super) size: Size,
    /// How long to wait at most for what others left dirty.
    pub(super) calm: Duration,
}

pub(super) const fn plan(profile: Profile) -> Plan {
    let ms = Duration::from_millis;
    let quick = Plan {
        file_bytes: 256 * MIB,
        file_is_fixed: false,
        push_pages: Some(2048),
        write_every: ms(12),
        // Twenty operations carry a median, and short blocks a comparison.
        size: Size { operations: 20, time: ms(300) },
        calm: ms(200),
    };
    match profile {
        Profile::Quick => quick,
        Profile::Full => Plan {
            file_bytes: 1024 * MIB,
            write_every: ms(25),
            size: Size { operations: 40, time: ms(1250) },
            ..quick
        },
        Profile::Article => Plan {
            file_bytes: 8192 * MIB,
            file_is_fixed: true,
            push_pages: None,
            write_every: ms(1000),
            size: Size { operations: 60, time: ms(61_000) },
            calm: ms(10_000),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SmallWrite {
    pub(super) torture: bool,
    pub(super) write_bytes: u64,
}

impl SmallWrite {
    /// `torture/4KiB`.
    pub(super) fn name(self) -> String {
        let kind = if self.torture { "torture" } else { "quiet" };
        format!("{kind}/{}", units::bytes(self.write_bytes).replace(' ', ""))
    }
}

pub(super) fn small_writes(profile: Profile) -> Vec<SmallWrite> {
    let sizes = if profile == Profile::Article { &WRITE_BYTES[1..] } else { &WRITE_BYTES[..] };
    let arms =
        |&write_bytes: &u64| [false, true].map(|torture| SmallWrite { torture, write_bytes });
    sizes.iter().flat_map(arms).collect()
}

/// The size of the big file, with so much memory and free space.
pub(super) fn file_bytes(plan: Plan, memory_bytes: Option<u64>, free_bytes: Option<u64>) -> u64 {
    if plan.file_is_fixed {
        return plan.file_bytes;
    }
    let share = [memory_bytes, free_bytes].into_iter().flatten().min().map(|bytes| bytes / SHARE);
    let bytes = plan.file_bytes.min(share.unwrap_or(u64::MAX));
    (bytes / MIB).max(1) * MIB
}

pub(super) fn payload_len(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a write is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_big_file_is_small_where_memory_or_the_disk_is() {
        let quick = plan(Profile::Quick);
        let gib = 1024 * MIB;
        assert_eq!(file_bytes(quick, Some(24 * gib), Some(70 * gib)), 256 * MIB);
        assert_eq!(file_bytes(quick, Some(gib), Some(70 * gib)), 128 * MIB);
        assert_eq!(file_bytes(quick, Some(24 * gib), Some(100 * MIB + 5)), 12 * MIB);
        assert_eq!(file_bytes(quick, None, Some(0)), MIB);
        assert_eq!(file_bytes(quick, None, None), 256 * MIB);
        assert_eq!(file_bytes(plan(Profile::Article), Some(gib), None), 8 * gib);
    }
}
