//! From what happened in the blocks of an arm to its values, its series and its warnings. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{CALM_BYTES, MIB, SmallWrite};
use crate::arm_result::{ArmResult, Series};
use crate::counters::{DirtyPages, nanoseconds};
use crate::experiment::Profile;
use crate::units;
use crate::warning::{Kind, Warning};

/// What happened in a block.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// What was dirty when it began.
    pub(super) dirty_at_start: Option<DirtyPages>,
    /// When each operation began, from the start of the block; the time of its write and of its
    /// sync.
    pub(super) operations: Vec<(Duration, Duration, Duration)>,
    /// When each operation ended, and what was dirty then.
    pub(super) dirty: Vec<(Duration, DirtyPages)>,
    pub(super) writer_mib_s: Option<f64>,
    pub(super) length: Duration,
}

pub(super) fn values(history: &[Trace]) -> BTreeMap<String, f64> {
    let mut rates: Vec<f64> = history.iter().filter_map(|trace| trace.writer_mib_s).collect();
    rates.sort_by(f64::total_cmp);
    let dirty = history.iter().flat_map(|trace| &trace.dirty);
    let most = |bytes: fn(&DirtyPages) -> u64| {
        dirty.clone().map(|(_, dirty)| bytes(dirty)).max().map(|bytes| units::ratio(bytes, MIB))
    };
    let values = [
        ("writer_mib_s", rates.get(rates.len() / 2).copied()),
        ("dirty_mib_max", most(|dirty| dirty.dirty_bytes)),
        ("writeback_mib_max", most(|dirty| dirty.writeback_bytes)),
    ];
    let known = |(name, value): (&str, Option<f64>)| Some((name.to_owned(), value?));
    values.into_iter().filter_map(known).collect()
}

/// Every write and sync, and what was dirty, with pauses between blocks left out.
pub(super) fn series(history: &[Trace], bucket: Duration) -> Series {
    let millis = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
    let bucket_ms = millis(bucket).max(1);
    let mut series = Series { bucket_ms, ..Series::default() };
    let mut base = Duration::ZERO;
    for trace in history {
        for &(at, write, sync) in &trace.operations {
            let (at_ms, ns) = (millis(base + at) / bucket_ms * bucket_ms, nanoseconds(write));
            // Writes that a stall delayed share a bucket; the slowest of them stays.
            match series.writes.last_mut().filter(|last| last.0 == at_ms) {
                Some(last) => last.1 = last.1.max(ns),
                None => series.writes.push((at_ms, ns, false)),
            }
            series.syncs.push((micros(base + at + write), nanoseconds(sync), false));
        }
        for &(at, DirtyPages { dirty_bytes, writeback_bytes }) in &trace.dirty {
            series.dirty.push((millis(base + at), dirty_bytes, writeback_bytes));
        }
        base += trace.length;
    }
    series
}

/// Warns if others had much dirty when blocks of the control began.
pub(super) fn restless(history: &[Trace]) -> Option<Warning> {
    let most =
        history.iter().filter_map(|trace| trace.dirty_at_start).map(|dirty| dirty.sum_bytes());
    let most = most.max().filter(|&bytes| bytes > CALM_BYTES)?;
    let text = format!(
        "{} were dirty when a quiet block began: somebody else writes, and the control is not quiet; \
         stop them and measure again",
        units::bytes(most)
    );
    Some(Warning::new(Kind::OthersWrote, text))
}

/// Takes from the arms `torture` the warning that the machine was busy, where their control was not: its
/// blocks lie between theirs, so what kept the machine busy was our own random writer. In the article's
/// profile the two are a minute each, one after the other, and the one says nothing of the other.
pub(super) fn take_our_own_noise(
    profile: Profile,
    small_writes: &[SmallWrite],
    arms: &mut [ArmResult],
) {
    if profile == Profile::Article {
        return;
    }
    let is_quiet = |write_bytes: u64| {
        let control = SmallWrite { torture: false, write_bytes };
        let place = small_writes.iter().position(|&write| write == control)?;
        Some(!arms.get(place)?.is_noisy())
    };
    let ours: Vec<bool> = small_writes
        .iter()
        .map(|write| write.torture && is_quiet(write.write_bytes) == Some(true))
        .collect();
    for (arm, _) in arms.iter_mut().zip(ours).filter(|(_, is_ours)| *is_ours) {
        arm.warnings.retain(|warning| warning.kind != Kind::Noisy);
    }
}

/// From about how many dirty bytes on the kernel holds writers up: midway between where it begins
/// to write back and where it stops them (kernel, mm/page-writeback.c, `dirty_freerun_ceiling`).
/// This is not exact, as the kernel takes shares of the memory that is available, not of all
/// memory.
pub(super) fn held_up_from(limits: &[String], memory_bytes: Option<u64>) -> Option<u64> {
    let value = |name: &str| -> Option<u64> {
        let of = |limit: &String| limit.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        limits.iter().find_map(of)
    };
    let bytes = |bytes: &str, ratio: &str| match value(bytes) {
        Some(bytes) if bytes > 0 => Some(bytes),
        _ => Some(memory_bytes? / 100 * value(ratio)?.min(100)),
    };
    let limit = bytes("dirty_bytes", "dirty_ratio")?;
    let background = bytes("dirty_background_bytes", "dirty_background_ratio")?;
    Some(limit.midpoint(background.min(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(operations: &[(u64, u64, u64)], rate: Option<f64>, dirty_mib: u64) -> Trace {
        let ms = Duration::from_millis;
        let dirty = DirtyPages { dirty_bytes: dirty_mib * MIB, writeback_bytes: MIB };
        Trace {
            dirty_at_start: Some(dirty),
            operations: operations.iter().map(|&(at, w, s)| (ms(at), ms(w), ms(s))).collect(),
            dirty: vec![(ms(5), dirty)],
            writer_mib_s: rate,
            length: ms(100),
        }
    }

    #[test]
    fn the_series_runs_on_from_block_to_block_and_keeps_the_slowest_write_of_a_bucket() {
        let history =
            [trace(&[(10, 25, 1), (36, 2, 1), (38, 1, 1)], None, 3), trace(&[(10, 1, 4)], None, 9)];
        let series = series(&history, Duration::from_millis(20));
        let ms = 1_000_000;
        assert_eq!(series.writes, [(0, 25 * ms, false), (20, 2 * ms, false), (100, ms, false)]);
        let syncs = [(35_000, ms), (38_000, ms), (39_000, ms), (111_000, 4 * ms)];
        assert_eq!(series.syncs, syncs.map(|(at, ns)| (at, ns, false)));
        assert_eq!(series.dirty, [(5, 3 * MIB, MIB), (105, 9 * MIB, MIB)]);
    }

    #[test]
    fn the_writers_rate_and_the_most_that_was_dirty_are_told() {
        let rates = [Some(100.0), Some(900.0), Some(200.0)];
        let history = rates.map(|rate| trace(&[], rate, 7));
        let values = values(&history);
        assert_eq!(values["writer_mib_s"], 200.0);
        assert_eq!((values["dirty_mib_max"], values["writeback_mib_max"]), (7.0, 1.0));
        assert!(!super::values(&[trace(&[], None, 7)]).contains_key("writer_mib_s"));
    }

    #[test]
    fn a_control_beside_somebody_elses_dirty_pages_is_not_quiet() {
        assert!(restless(&[trace(&[], None, 60)]).is_none());
        let warning = restless(&[trace(&[], None, 60), trace(&[], None, 500)]).unwrap();
        assert!(warning.text.contains("501 MiB"), "{warning}");
    }

    /// "Stop what else runs" was said of the experiment's own writer.
    #[test]
    fn the_random_writer_is_not_taken_for_somebody_else() {
        let small_writes = [false, true].map(|torture| SmallWrite { torture, write_bytes: 4096 });
        let arm = |is_noisy: bool| {
            let mut arm = ArmResult::of_summary("an arm", crate::summary::Summary::default());
            arm.warnings.extend(is_noisy.then(|| Warning::new(Kind::Noisy, "waited 66 %")));
            arm
        };
        for (control_is_noisy, noisy) in [(false, [false, false]), (true, [true, true])] {
            let mut arms = [arm(control_is_noisy), arm(true)];
            take_our_own_noise(Profile::Quick, &small_writes, &mut arms);
            assert_eq!(arms.map(|arm| arm.is_noisy()), noisy);
        }
        let mut alone = [arm(true)];
        take_our_own_noise(Profile::Quick, &small_writes[1..], &mut alone);
        assert!(alone[0].is_noisy(), "without a control it is not known whose noise it is");
        let mut in_turn = [arm(false), arm(true)];
        take_our_own_noise(Profile::Article, &small_writes, &mut in_turn);
        assert!(in_turn[1].is_noisy(), "nor where the control was another minute");
    }

    #[test]
    fn writers_are_held_up_midway_between_the_kernels_limits() {
        let limits = |limits: &[&str]| limits.iter().map(|&l| l.to_owned()).collect::<Vec<_>>();
        let ratios = limits(&[
            "dirty_background_bytes=0",
            "dirty_background_ratio=10",
            "dirty_bytes=0",
            "dirty_ratio=20",
        ]);
        assert_eq!(held_up_from(&ratios, Some(100 * MIB)), Some(15 * MIB));
        assert_eq!(held_up_from(&ratios, None), None);
        let bytes = limits(&["dirty_bytes=4000", "dirty_background_bytes=2000"]);
        assert_eq!(held_up_from(&bytes, None), Some(3000));
        assert_eq!(held_up_from(&[], Some(MIB)), None);
        assert_eq!(held_up_from(&limits(&["dirty_ratio=x"]), Some(MIB)), None);
    }
}
