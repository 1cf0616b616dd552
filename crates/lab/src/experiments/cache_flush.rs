//! Does a flush take longer the more the device has cached?
//!
//! Source: the plausibility of a disk, which experts judge by eye. A volatile cache that holds more
//! takes longer to empty; half a gibibyte that is on the medium after 60 µs would have travelled at
//! 8 TB/s. The answer is evidence for the third rung of the ladder ([`crate::ladder`]).
//!
//! Bytes bypass the page cache and go into the device's cache (`O_DIRECT`, untimed). Then one
//! fdatasync is timed, which has nothing to write and only flushes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_sync::{AlignedBuf, Promise, SyncMethod};

use crate::arm::Identity;
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::cache::{Cache, Reading};
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{LaidOut, Layout, noise};
use crate::least::OneBlock;
use crate::runner::{self, Arm, Block, Rule, Size, Watch};
use crate::units::{self, capitalised};

/// The experiment.
#[derive(Debug)]
pub(super) struct CacheFlush;

const MEASURE: &str = "time of the flush";
/// What is written in one piece.
const PIECE: u64 = 256 << 10;
/// Flushes of a block.
const SIZE: Size = Size { operations: 4, time: Duration::from_millis(400) };

const QUICK: [u64; 4] = [0, 256 << 10, 4 << 20, 32 << 20];
const FULL: [u64; 6] = [0, 256 << 10, 4 << 20, 32 << 20, 128 << 20, 512 << 20];

fn sizes(profile: Profile) -> &'static [u64] {
    if profile == Profile::Quick { &QUICK } else { &FULL }
}

impl Experiment for CacheFlush {
    fn name(&self) -> &'static str {
        "cache-flush"
    }

    fn question(&self) -> &'static str {
        "Does a flush take longer the more the device has cached?"
    }

    fn source(&self) -> &'static str {
        "the plausibility of a disk without pulling its plug; no article measures it"
    }

    fn explanation(&self) -> &'static str {
        "\
Some bytes are written past the page cache into the device's own cache, which is not timed. Then one
fdatasync is timed: it finds nothing to write and only makes the device flush. The arms differ in how
much was written before.

How to read it: if the flush takes longer the more is cached, at a speed that a medium can have, the
device has a volatile cache and empties it. If it takes next to nothing for nothing and for 32 MiB,
then the cache survives power cuts, or it was empty already because writes go through, or nobody
empties it. Which of these, no program inside the machine can see. If it takes long for both, that may
be the way to the device.

How it can mislead: a device may write its cache out by itself while more is being written, so that
little is left to flush; a hypervisor's cache is memory of another machine."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = if profile == Profile::Quick { 4 } else { 30 };
        let disk_bytes = sizes(profile).iter().map(|bytes| (*bytes).max(PIECE)).sum();
        let arms = sizes(profile).len();
        // What fills the cache before the last flush.
        let bytes = disk_bytes / arms as u64;
        let block = OneBlock { time: SIZE.time, syncs: 1, bytes };
        Cost::new(Duration::from_secs(seconds), disk_bytes, arms, block)
    }

    fn arm_names(&self, profile: Profile) -> Vec<String> {
        sizes(profile).iter().map(|&bytes| arm_name(bytes)).collect()
    }

    fn run(&self, setup: &Setup<'_>, watch: &Watch<'_>) -> Result<Measured> {
        if !setup.works(SyncMethod::DirectFdatasync) {
            return Ok(Measured { unavailable: setup.unavailable(), ..Measured::default() });
        }
        let mut arms = Vec::new();
        for &bytes in sizes(setup.profile) {
            watch.check()?;
            if setup.wants(&arm_name(bytes)) {
                arms.push(Flusher::create(setup, bytes)?);
            }
        }
        let rule = Rule {
            budget: setup.budget_left(),
            blocks_min: 12,
            precision: 0.02,
            samples: None,
            seed: setup.seed,
        };
        let blocks = runner::run(&mut arms, 1, SIZE, &rule, setup.counters, watch)?;
        let mut arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        add_speed(&mut arms);
        let (answer, in_short) = (answer(&arms), in_short(&arms));
        let parameters = vec![format!("piece_bytes={PIECE}")];
        Ok(Measured { parameters, answer, in_short, arms, ..Measured::default() })
    }
}

fn arm_name(cached_bytes: u64) -> String {
    format!("{} cached", units::bytes(cached_bytes))
}

/// Fills the device's cache, and times the flush.
struct Flusher {
    cached_bytes: u64,
    file: LaidOut,
    piece: AlignedBuf,
}

impl Flusher {
    fn create(setup: &Setup<'_>, cached_bytes: u64) -> plimsoll_sync::Result<Self> {
        let name = format!("cache-flush-{cached_bytes}");
        let pieces = (cached_bytes / PIECE).max(1);
        let method = SyncMethod::DirectFdatasync;
        let mut file =
            LaidOut::create(setup.dir, &name, method, Layout::Overwritten, PIECE, pieces)?;
        file.prepare(pieces)?;
        let len = usize::try_from(PIECE).expect("a piece is small");
        let mut piece = AlignedBuf::zeroed(len, file.file().alignment());
        noise(&mut piece, setup.seed);
        Ok(Self { cached_bytes, file, piece })
    }

    fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: arm_name(self.cached_bytes),
            method: SyncMethod::DirectFdatasync,
            layout: Layout::Overwritten,
            promise: Promise::Media,
            payload_bytes: self.cached_bytes,
            measures: &[MEASURE],
        };
        let cached = units::ratio(self.cached_bytes, 1);
        ArmResult {
            values: BTreeMap::from([("cached_bytes".to_owned(), cached)]),
            // The writes that fill the cache are not timed, but the counters include them.
            attribution: None,
            ..identity.result(blocks, |_operations| None, setup)
        }
    }
}

impl Arm for Flusher {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let file = Arc::clone(self.file.file());
        loop {
            for piece in 0..self.cached_bytes / PIECE {
                file.write_at(&self.piece, piece * PIECE)?;
            }
            let start = Instant::now();
            file.sync(SyncMethod::DirectFdatasync)?;
            let end = Instant::now();
            block.durable_operations += 1;
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }
}

/// The speed at which the cache was emptied, where it was: beyond what a flush of nothing costs, and
/// as the [`Reading`] of the two arms has it.
fn add_speed(arms: &mut [ArmResult]) {
    let Some(empty) = arms.iter().find(|arm| arm.payload_bytes == 0).cloned() else { return };
    for arm in arms.iter_mut().filter(|arm| arm.payload_bytes > 0) {
        let reading = Reading::of(&[empty.clone(), arm.clone()]);
        if let Some(Cache::Emptied { gib_s }) = reading.map(|reading| reading.cache) {
            arm.values.insert("emptied_at_gib_s".to_owned(), gib_s);
        }
    }
}

/// How long a flush took, for a line of a screen.
fn in_short(arms: &[ArmResult]) -> Option<String> {
    let mark = busy_mark_of(&arms.iter().collect::<Vec<_>>());
    Reading::of(arms).map(|reading| reading.took + mark)
}

fn answer(arms: &[ArmResult]) -> Vec<String> {
    let Some(Reading { took, same, cache, .. }) = Reading::of(arms) else { return Vec::new() };
    let took = capitalised(&took);
    match cache {
        Cache::Emptied { gib_s } => vec![
            format!("{took}: as if the cache were emptied at {} GiB/s.", units::figure(gib_s)),
            "It takes longer the more there is: a volatile cache, which is emptied.".to_owned(),
        ],
        Cache::Free => vec![
            match same {
                true => format!("{took}: next to nothing, and what is cached does not matter."),
                false => format!("{took}: no such difference as emptying a cache makes."),
            },
            "The cache survives power cuts, is empty already, or nobody empties it. No program inside \
             this machine can tell which."
                .to_owned(),
        ],
        Cache::AsLong => vec![
            match same {
                true => format!("{took}: as long whatever is cached."),
                false => format!("{took}: no such difference as emptying a cache makes."),
            },
            "Whether a cache is emptied cannot be told from that: the way to the device may take so \
             long."
                .to_owned(),
        ],
        Cache::NotKnown(why) => vec![format!("Not known here, because {why}."), format!("{took}.")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    fn answer_of(empty_ns: u64, full_ns: u64, is_busy: bool) -> (String, Vec<ArmResult>) {
        let arm = |bytes, p50_ns| {
            let summary = Summary { n: 400, p50_ns: Some(p50_ns), ..Summary::default() };
            let mut arm = ArmResult::of_summary(&arm_name(bytes), summary);
            arm.payload_bytes = bytes;
            arm.warnings.extend(is_busy.then(|| Warning::new(Kind::Noisy, "waited 66 %")));
            arm
        };
        let mut arms = vec![arm(0, empty_ns), arm(32 << 20, full_ns)];
        add_speed(&mut arms);
        (answer(&arms).join(" "), arms)
    }

    /// Two flushes of the same time once made a cache that was emptied "at 31250 GiB/s".
    #[test]
    fn no_speed_is_named_that_no_medium_has() {
        for (empty_ns, full_ns) in [(15_000, 16_000), (3_270_000, 3_270_000), (16_000, 30_000)] {
            let (said, arms) = answer_of(empty_ns, full_ns, false);
            assert!(!said.contains("GiB/s"), "{said}");
            assert!(arms.iter().all(|arm| arm.values.is_empty()), "{arms:?}");
        }
        let (said, arms) = answer_of(1_000_000, 32_250_000, false);
        assert!(said.contains("as if the cache were emptied at 1 GiB/s"), "{said}");
        assert!(said.contains("a volatile cache, which is emptied"), "{said}");
        assert!(arms[1].values.contains_key("emptied_at_gib_s"));
    }

    /// It was said of a flush that took twice as long with something cached.
    #[test]
    fn what_is_cached_does_not_matter_only_where_no_difference_was_measured() {
        for (empty_ns, full_ns) in [(43_700, 107_000), (1_200_000, 1_700_000)] {
            let (said, mut arms) = answer_of(empty_ns, full_ns, false);
            assert!(said.contains(": no such difference as emptying a cache makes."), "{said}");
            for claim in ["does not matter", "whatever is cached"] {
                assert!(!said.contains(claim), "{said}");
            }
            for arm in &mut arms {
                arm.summaries[0].block_p50_ns = (0..12).map(|block| empty_ns + block).collect();
            }
            let said = answer(&arms).join(" ");
            let same =
                said.contains("does not matter") || said.contains("as long whatever is cached");
            assert!(same, "{said}");
        }
    }

    #[test]
    fn a_busy_machine_makes_no_answer() {
        let (said, arms) = answer_of(1_000_000, 32_250_000, true);
        let whole = "Not known here, because 0 B cached and 32 MiB cached were measured on a busy \
                     machine: stop what else runs, and measure again. A flush took 1.00 ms with \
                     nothing cached and 32.2 ms with 32 MiB.";
        assert_eq!(said, whole);
        assert!(arms.iter().all(|arm| arm.values.is_empty()));
    }
}
