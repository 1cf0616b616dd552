//! The histories that a model is held against, each drawn from its seed.
//!
//! `PLIMSOLL_SEEDS=100000`, or from another than the first on, `PLIMSOLL_SEEDS=200..1000`, or
//! `PLIMSOLL_SEED=7` for one.

use std::ops::Range;
use std::panic::{UnwindSafe, catch_unwind};

/// Those that were asked for, or so many.
pub(crate) fn seeds(count: u64) -> Range<u64> {
    if let Some(seed) = number("PLIMSOLL_SEED") {
        return seed..seed + 1;
    }
    let Ok(asked) = std::env::var("PLIMSOLL_SEEDS") else { return 0..count };
    let (from, to) = asked.split_once("..").unwrap_or(("0", &asked));
    from.parse().unwrap()..to.parse().unwrap()
}

/// Whether one history is seen again: it need not meet all that many meet.
pub(crate) fn is_replay() -> bool {
    number("PLIMSOLL_SEED").is_some()
}

/// What a history tells. If it fails, the seed is told.
pub(crate) fn replayable<T>(seed: u64, history: impl FnOnce() -> T + UnwindSafe) -> T {
    catch_unwind(history).unwrap_or_else(|_| panic!("PLIMSOLL_SEED={seed} replays it"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}
