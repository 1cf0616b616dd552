//! What it takes to measure every arm once, whatever the budget: an estimate, from what the blocks do and
//! how fast the disk is while nothing is measured.

use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Dir, SyncMethod};

use crate::layout::noise;

/// What is written at once to see how fast the disk takes bytes: a run needs so much room at least.
pub(crate) const PIECE_BYTES: u64 = 8 << 20;
const PAGE: u64 = 4096;
/// So many syncs and pieces are timed, but for no longer than this.
const TIMES: u32 = 32;
const TIME_MAX: Duration = Duration::from_millis(300);
const FILE: &str = "speed";

/// A block of an arm: how long it is, and what is done around it and beyond.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OneBlock {
    /// The most time that is measured.
    pub time: Duration,
    /// Syncs beside that: to prepare, to settle, and those that outlast the time.
    pub syncs: u64,
    /// Bytes that are written and synced beside that.
    pub bytes: u64,
}

/// What every arm measured once takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Least {
    blocks: Duration,
    syncs: u64,
    bytes: u64,
}

/// How fast a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Speed {
    /// The time of a small write and its sync.
    pub sync: Duration,
    /// The time of a MiB, written and synced.
    pub mib: Duration,
}

impl Least {
    /// Of so many arms, each with two blocks, as the first is thrown away, and `bytes` that are made
    /// before them.
    #[must_use]
    pub(crate) fn of(arms: usize, block: OneBlock, bytes: u64) -> Self {
        let blocks = 2 * u32::try_from(arms).unwrap_or(u32::MAX / 2);
        Self {
            blocks: block.time.saturating_mul(blocks),
            syncs: block.syncs * u64::from(blocks),
            bytes: block.bytes.saturating_mul(u64::from(blocks)).saturating_add(bytes),
        }
    }

    /// The same for a part of the arms.
    #[must_use]
    pub(crate) fn of_part(self, wanted: u64, all: u64) -> Self {
        let part = |whole: u64| whole.saturating_mul(wanted) / all.max(1);
        let blocks = self.blocks.mul_f64(crate::units::ratio(wanted, all));
        Self { blocks, syncs: part(self.syncs), bytes: part(self.bytes) }
    }

    /// About how long that takes on a disk.
    #[must_use]
    pub(crate) fn on(self, disk: Speed) -> Duration {
        let times = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let syncs = disk.sync.saturating_mul(times(self.syncs));
        self.blocks + syncs + disk.mib.saturating_mul(times(self.bytes >> 20))
    }
}

impl Speed {
    /// Asks the disk of a directory. Takes a moment, and leaves nothing there.
    pub(crate) fn of(dir: &dyn Dir) -> plimsoll_sync::Result<Self> {
        let method = SyncMethod::ORDINARY;
        let file = dir.create(FILE, method.access())?;
        let mut page = AlignedBuf::zeroed(usize::try_from(PAGE).expect("small"), file.alignment());
        noise(&mut page, 0);
        let write_and_sync = |bytes: u64| {
            (0..bytes / PAGE).try_for_each(|number| file.write_at(&page, number * PAGE))?;
            file.sync(method).map(|_kept| ())
        };
        // The first of each makes blocks, as arms do that are thrown away.
        let mib = typical(&|| write_and_sync(PIECE_BYTES))?
            / u32::try_from(PIECE_BYTES >> 20).expect("few");
        let sync = typical(&|| write_and_sync(PAGE))?;
        drop(file);
        dir.remove(FILE)?;
        Ok(Self { sync, mib })
    }
}

/// The mean of some times: many of them take as long in all.
fn typical(act: &dyn Fn() -> plimsoll_sync::Result<()>) -> plimsoll_sync::Result<Duration> {
    let begun = Instant::now();
    let mut times = 0;
    while times == 0 || (times < TIMES && begun.elapsed() < TIME_MAX) {
        act()?;
        times += 1;
    }
    Ok(begun.elapsed() / times)
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::OsDir;

    use super::*;

    #[test]
    fn what_every_arm_takes_once_grows_with_what_the_disk_takes() {
        let ms = Duration::from_millis;
        let block = OneBlock { time: ms(10), syncs: 3, bytes: 1 << 20 };
        let least = Least::of(5, block, 20 << 20);
        let fast = Speed { sync: Duration::ZERO, mib: Duration::ZERO };
        assert_eq!(least.on(fast), ms(100), "two blocks of each");
        assert_eq!(least.on(Speed { sync: ms(5), mib: ms(2) }), ms(100 + 150 + 60));
        assert_eq!(least.of_part(1, 5).on(Speed { sync: ms(5), mib: ms(2) }), ms(20 + 30 + 12));
    }

    #[test]
    fn a_disk_that_was_asked_has_times_and_keeps_nothing() {
        let tmp = tempfile::tempdir().unwrap();
        let speed = Speed::of(&OsDir::open(tmp.path()).unwrap()).unwrap();
        assert!(speed.sync > Duration::ZERO && speed.mib > Duration::ZERO, "{speed:?}");
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 0);
    }
}
