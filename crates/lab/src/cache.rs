//! What the times of flushes say of a device's cache. Pure.
//!
//! One reading, for the answer of cache-flush and for the [`crate::ladder`]: a flush that takes
//! longer the more is cached empties a cache; one that costs nothing empties none that we can see;
//! one that takes long whatever is cached says nothing of a cache.
//!
//! Invariant: busy arms, and arms that contradict each other, are read as not known, and so are arms
//! of which only one sent a flush to the device.

use crate::arm_result::ArmResult;
use crate::units;
use crate::verdict;

/// A cache that seems to be emptied faster than this is not emptied: no single device writes so
/// fast.
const EMPTIED_GIB_S_MAX: f64 = 16.0;
/// A flush that takes so long does something, however much was cached.
const FLUSH_WORKS_NS: u64 = 300_000;
/// A flush that takes so many times as long as one with more cached was held up by something else.
const HELD_UP: u64 = 2;
/// With at least so many counted for each, a flush was sent to the device.
const SENT_MIN: f64 = 0.9;

/// What the flushes of a run say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// Their times, as a clause: `a flush took ... with nothing cached and ... with 32 MiB`.
    pub took: String,
    /// The median with nothing cached; zero if it is not known.
    pub empty_ns: u64,
    /// Whether no difference between the two was measured.
    pub same: bool,
    /// What they say of the cache.
    pub cache: Cache,
}

/// What a device does with its cache when it is asked to flush.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cache {
    /// The flush takes longer the more is cached, as if it were emptied at this speed.
    Emptied {
        /// GiB per second.
        gib_s: f64,
    },
    /// The flush costs next to nothing, or so little more with something cached that no cache was
    /// emptied.
    Free,
    /// The flush takes long, and no such difference was seen as emptying a cache makes.
    AsLong,
    /// Not known, for a reason that can follow `because` and says what to do.
    NotKnown(String),
}

impl Reading {
    /// Reads the arms of cache-flush; `None` if flushes with nothing and with something cached were
    /// not both measured.
    #[must_use]
    pub(crate) fn of(arms: &[ArmResult]) -> Option<Self> {
        let empty = arms.iter().find(|arm| arm.payload_bytes == 0)?;
        let most = arms.iter().max_by_key(|arm| arm.payload_bytes)?;
        if most.payload_bytes == 0 {
            return None;
        }
        let Some((empty_ns, most_ns)) = empty.p50_ns().zip(most.p50_ns()) else {
            let why = "there are too few flushes for a median: give it a longer --budget";
            let cache = Cache::NotKnown(why.to_owned());
            return Some(Self {
                took: "too few flushes were timed".to_owned(),
                empty_ns: 0,
                same: false,
                cache,
            });
        };
        let mut reading = Self::between(empty_ns, most_ns, most.payload_bytes);
        let unknown = verdict::disturbed(&[empty, most]).or_else(|| not_sent(empty, most));
        if let Some(why) = unknown.or_else(|| held_up(arms)) {
            reading.cache = Cache::NotKnown(why);
        } else if empty.summaries[0].differs_from(&most.summaries[0]) == Some(false) {
            reading.same = true;
            reading.cache = without_growth(empty_ns, most_ns);
        }
        Some(reading)
    }

    /// Reads two flushes by their times alone: with nothing cached, and with so many bytes.
    #[must_use]
    pub(crate) fn between(empty_ns: u64, full_ns: u64, cached_bytes: u64) -> Self {
        let took = format!(
            "a flush took {} with nothing cached and {} with {}",
            units::time(empty_ns),
            units::time(full_ns),
            units::bytes(cached_bytes)
        );
        let cache = emptied_at_gib_s(empty_ns, full_ns, cached_bytes)
            .map_or_else(|| without_growth(empty_ns, full_ns), |gib_s| Cache::Emptied { gib_s });
        Self { took, empty_ns, same: false, cache }
    }
}

/// The speed at which a cache was emptied, if a flush that took `empty_ns` with nothing cached and
/// `full_ns` with `cached_bytes` has emptied one: the times must differ, and a device be so fast.
#[must_use]
pub(crate) fn emptied_at_gib_s(empty_ns: u64, full_ns: u64, cached_bytes: u64) -> Option<f64> {
    let beyond = full_ns.checked_sub(empty_ns).filter(|&ns| ns > empty_ns / 2)?;
    let gib_s = units::ratio(cached_bytes, 1 << 30) / units::ratio(beyond, 1_000_000_000);
    (cached_bytes > 0 && gib_s <= EMPTIED_GIB_S_MAX).then_some(gib_s)
}

fn without_growth(empty_ns: u64, full_ns: u64) -> Cache {
    if empty_ns.min(full_ns) < FLUSH_WORKS_NS { Cache::Free } else { Cache::AsLong }
}

/// Why two flushes cannot be compared, if only that of `most` was sent: a filesystem need not send one
/// where nothing was written.
fn not_sent(empty: &ArmResult, most: &ArmResult) -> Option<String> {
    let (none, some) = (empty.per_operation?.flushes, most.per_operation?.flushes);
    (none < SENT_MIN && some >= SENT_MIN).then(|| {
        format!(
            "with nothing cached the device counted {none:.2} flushes each and with {} {some:.2}, so \
             their times cannot be compared: measure on another filesystem of this disk",
            units::bytes(most.payload_bytes)
        )
    })
}

/// Which flush was held up by something else than the cache, if one took much longer than another
/// with more cached.
fn held_up(arms: &[ArmResult]) -> Option<String> {
    let mut timed: Vec<(u64, u64)> =
        arms.iter().filter_map(|arm| Some((arm.payload_bytes, arm.p50_ns()?))).collect();
    timed.sort_unstable();
    let pairs = timed
        .iter()
        .enumerate()
        .flat_map(|(place, fewer)| timed[place + 1..].iter().map(move |more| (*fewer, *more)));
    let is_held_up = |&((_, fewer_ns), (_, more_ns)): &((u64, u64), (u64, u64))| {
        fewer_ns >= FLUSH_WORKS_NS && fewer_ns > more_ns.saturating_mul(HELD_UP)
    };
    let ((fewer, fewer_ns), (more, more_ns)) = pairs.into_iter().find(is_held_up)?;
    let cached = if fewer == 0 { "nothing".to_owned() } else { units::bytes(fewer) };
    Some(format!(
        "a flush took {} with {cached} cached and only {} with {}, so something else held it up: \
         measure again on a quiet machine",
        units::time(fewer_ns),
        units::time(more_ns),
        units::bytes(more)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn arm(bytes: u64, p50_ns: Option<u64>, spread_ns: u64) -> ArmResult {
        let block_p50_ns =
            p50_ns.map_or_else(Vec::new, |p50| (0..12).map(|b| p50 + b * spread_ns).collect());
        let summary = Summary { n: 48, p50_ns, block_p50_ns, ..Summary::default() };
        let mut arm = ArmResult::of_summary(&units::bytes(bytes), summary);
        arm.payload_bytes = bytes;
        arm
    }

    #[test]
    fn flushes_are_read_by_their_growth() {
        let read = |empty_ns, full_ns| Reading::between(empty_ns, full_ns, 32 << 20).cache;
        assert_eq!(read(1_000_000, 32_250_000), Cache::Emptied { gib_s: 1.0 });
        assert_eq!(read(15_000, 16_000), Cache::Free);
        assert_eq!(read(16_000, 900_000), Cache::Free, "no medium writes 32 MiB in a millisecond");
        assert_eq!(read(1_200_000, 1_300_000), Cache::AsLong);
    }

    #[test]
    fn a_difference_that_the_blocks_do_not_show_is_no_growth() {
        let mut arms = [arm(0, Some(2_000_000), 100_000), arm(32 << 20, Some(4_100_000), 100_000)];
        assert!(matches!(Reading::of(&arms).unwrap().cache, Cache::Emptied { .. }));
        arms[1].summaries[0].block_p50_ns = arms[0].summaries[0].block_p50_ns.clone();
        let reading = Reading::of(&arms).unwrap();
        assert_eq!((reading.same, reading.cache), (true, Cache::AsLong));
    }

    #[test]
    fn a_flush_that_something_else_held_up_is_named() {
        let arms =
            [arm(0, Some(15_000), 0), arm(4096, Some(3_270_000), 0), arm(8192, Some(16_000), 0)];
        let Cache::NotKnown(why) = Reading::of(&arms).unwrap().cache else { panic!("read") };
        assert!(why.contains("3.27 ms with 4 KiB cached and only 16.0 µs with 8 KiB"), "{why}");
    }

    #[test]
    fn what_was_not_measured_is_not_read() {
        assert_eq!(Reading::of(&[arm(0, Some(15_000), 0)]), None);
        let few = Reading::of(&[arm(0, None, 0), arm(4096, None, 0)]).unwrap();
        assert!(matches!(few.cache, Cache::NotKnown(why) if why.contains("--budget")));
    }
}
