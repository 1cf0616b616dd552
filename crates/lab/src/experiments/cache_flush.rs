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
use crate::error::Result;
use crate::experiment::{Cost, Experiment, Measured, Profile, Setup};
use crate::layout::{LaidOut, Layout, noise};
use crate::result::ArmResult;
use crate::runner::{self, Arm, Block, Rule, Size, Watch};
use crate::units;

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
device has a volatile cache and empties it. If it takes the same for nothing and for 32 MiB, then the
cache survives power cuts, or it was empty already because writes go through, or nobody empties it.
Which of these, no program inside the machine can see.

How it can mislead: a device may write its cache out by itself while more is being written, so that
little is left to flush; a hypervisor's cache is memory of another machine."
    }

    fn cost(&self, profile: Profile) -> Cost {
        let seconds = if profile == Profile::Quick { 4 } else { 30 };
        let disk_bytes = sizes(profile).iter().map(|bytes| (*bytes).max(PIECE)).sum();
        Cost { budget: Duration::from_secs(seconds), disk_bytes }
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
            budget: setup.budget,
            blocks_min: 12,
            precision: 0.02,
            samples: None,
            seed: setup.seed,
        };
        let blocks = runner::run(&mut arms, 1, SIZE, &rule, setup.counters, watch)?;
        let mut arms: Vec<ArmResult> =
            arms.iter().zip(&blocks).map(|(arm, blocks)| arm.result(blocks, setup)).collect();
        add_speed(&mut arms);
        let answer = answer(&arms);
        let parameters = vec![format!("piece_bytes={PIECE}")];
        Ok(Measured { parameters, answer, arms, ..Measured::default() })
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

/// The speed at which the cache would have been emptied, beyond what a flush of nothing costs.
fn add_speed(arms: &mut [ArmResult]) {
    let empty = arms.iter().find(|arm| arm.payload_bytes == 0).and_then(ArmResult::p50_ns);
    for arm in arms.iter_mut().filter(|arm| arm.payload_bytes > 0) {
        if let Some((p50, empty)) = arm.p50_ns().zip(empty) {
            // A difference of less than a microsecond is too small to divide by.
            let beyond = p50.saturating_sub(empty).max(1_000);
            let gib_s =
                units::ratio(arm.payload_bytes, 1 << 30) / units::ratio(beyond, 1_000_000_000);
            arm.values.insert("emptied_at_gib_s".to_owned(), gib_s);
        }
    }
}

fn answer(arms: &[ArmResult]) -> Vec<String> {
    let empty = arms.iter().find(|arm| arm.payload_bytes == 0).and_then(ArmResult::p50_ns);
    let most = arms.iter().max_by_key(|arm| arm.payload_bytes);
    let Some(((most, p50), empty)) = most.and_then(|arm| Some((arm, arm.p50_ns()?))).zip(empty)
    else {
        return Vec::new();
    };
    let cached = units::bytes(most.payload_bytes);
    let speed = most.values.get("emptied_at_gib_s").copied().unwrap_or_default();
    let mut answer = vec![format!(
        "A flush takes {} with nothing cached and {} with {cached}: as if the cache were emptied at \
         {} GiB/s.",
        units::time(empty),
        units::time(p50),
        units::figure(speed.round())
    )];
    answer.push(
        match crate::ladder::empties(empty, p50, most.payload_bytes) {
            true => "It takes longer the more there is: a volatile cache, which is emptied.",
            false => {
                "What is cached does not matter: the cache survives power cuts, is empty already, or \
                 nobody empties it. No program inside this machine can tell which."
            }
        }
        .to_owned(),
    );
    answer
}
