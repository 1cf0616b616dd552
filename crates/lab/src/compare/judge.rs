//! Pairs two states, holds each change against the yardstick, and gives the verdicts. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::comparison::{CannotCompare, Comparison, FORMAT, Row, Run, Runs, VERSION, Verdict};
use super::conditions::{self, Condition};
use super::pairing::{Compared, arms, experiments, missing, moods, of_arm, of_experiment, rows};
use super::together::{Nothing, together};
use super::yardstick::{self, Spread, Yardstick};
use crate::result::ExperimentResult;
use crate::stats;

/// Compares the runs of two states. A change of `fail_over` (a share) to the worse is too much, if
/// given.
pub fn compare(
    old: &[Run],
    new: &[Run],
    fail_over: Option<f64>,
) -> Result<Comparison, CannotCompare> {
    once_each(old, "OLD")?;
    once_each(new, "NEW")?;
    let (old_names, new_names) = (experiments(old), experiments(new));
    let shared: Vec<&String> = old_names.iter().filter(|name| new_names.contains(name)).collect();
    if shared.is_empty() {
        let (old, new) = (old_names.join(", "), new_names.join(", "));
        return Err(CannotCompare::NothingInCommon { old, new });
    }
    let mut only_in_old = missing(&old_names, &new_names);
    let mut only_in_new = missing(&new_names, &old_names);
    let (mut conditions, mut compared) = (Vec::new(), Vec::new());
    for name in shared {
        let (old, new) = (of_experiment(old, name), of_experiment(new, name));
        let (old_arms, new_arms) = (arms(&old), arms(&new));
        let of_experiment = |arm: String| format!("{name}: {arm}");
        only_in_old.extend(missing(&old_arms, &new_arms).into_iter().map(of_experiment));
        only_in_new.extend(missing(&new_arms, &old_arms).into_iter().map(of_experiment));
        add_conditions(&mut conditions, &old, &new);
        let (old_moods, new_moods) = (moods(&old), moods(&new));
        for arm in old_arms.iter().filter(|arm| new_arms.contains(arm)) {
            let (old, new) = (of_arm(&old, &old_moods, arm), of_arm(&new, &new_moods, arm));
            compared.extend(rows(name, &old, &new));
        }
    }
    let Judged { yardstick, together, smallest, rows } = judge(compared);
    Ok(Comparison {
        format: FORMAT,
        version: VERSION,
        fail_over,
        runs: Runs { old: old.len(), new: new.len() },
        yardstick,
        together,
        smallest,
        rows,
        only_in_old,
        only_in_new,
        conditions,
    })
}

/// Adds what else differs between the results of an experiment. Most experiments differ in the same
/// ways, so each condition is added once.
fn add_conditions(
    conditions: &mut Vec<Condition>,
    old: &[&ExperimentResult],
    new: &[&ExperimentResult],
) {
    for (old, new) in old.iter().flat_map(|old| new.iter().map(move |new| (old, new))) {
        for condition in conditions::that_differ(old, new) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
    }
}

/// Every row with its verdict, and what they were judged by.
struct Judged {
    yardstick: Yardstick,
    together: BTreeMap<String, f64>,
    smallest: Option<f64>,
    rows: Vec<Row>,
}

/// Judges all rows at once: the yardstick is made of all of them, and their p values are corrected
/// together.
fn judge(mut compared: Vec<Compared>) -> Judged {
    let told = || compared.iter().filter_map(|c| Some((&c.row, c.evidence.as_ref()?)));
    let changes = told().map(|(row, evidence)| (row.experiment.as_str(), evidence.change));
    let together = together(changes);
    let nothing = |row: &Row| Nothing::of(together.get(&row.experiment).copied());
    let spreads: Vec<Spread> = told().filter_map(|(_, evidence)| evidence.spread).collect();
    let apart: Vec<f64> =
        told().map(|(row, evidence)| evidence.change - nothing(row).centre).collect();
    let yardstick = Yardstick::of(&spreads, &apart);
    // The p value below which one measure alone would be called.
    let alone = (1.0 - stats::CONFIDENCE) / yardstick::number(apart.len().max(1));
    let mut smallest = Vec::new();
    for Compared { row, evidence } in &mut compared {
        let Some(evidence) = evidence else { continue };
        let nothing = nothing(row);
        let scale = yardstick.scale(evidence.spread, row.runs.old, row.runs.new);
        let called_from = (nothing.slowest + scale.reach(alone)).exp_m1();
        row.run_spread = Some(scale.run_spread);
        row.smallest = Some(called_from);
        let p_of_runs = scale.chance(nothing.beyond(evidence.change));
        row.p = Some(p_of_runs.max(evidence.p_of_blocks));
        smallest.push(called_from);
    }
    let mut rows: Vec<Row> = compared.into_iter().map(|compared| compared.row).collect();
    give_verdicts(&mut rows);
    let smallest = (!smallest.is_empty()).then(|| yardstick::median(smallest));
    Judged { yardstick, together, smallest, rows }
}

/// Corrects the p values for their number, and says of each row that has one what it means.
fn give_verdicts(rows: &mut [Row]) {
    let p_values: Vec<f64> = rows.iter().filter_map(|row| row.p).collect();
    let compared = rows.iter_mut().filter(|row| row.p.is_some());
    for (row, corrected) in compared.zip(stats::benjamini_hochberg(&p_values)) {
        row.corrected_p = Some(corrected);
        row.verdict = match row.change {
            _ if corrected >= 1.0 - stats::CONFIDENCE => Verdict::Same,
            Some(change) if change > 0.0 => Verdict::Slower,
            _ => Verdict::Faster,
        };
    }
}

fn once_each(runs: &[Run], side: &'static str) -> Result<(), CannotCompare> {
    for run in runs {
        let mut seen = BTreeSet::new();
        if let Some(again) = run.iter().find(|result| !seen.insert(&result.experiment)) {
            return Err(CannotCompare::Twice { experiment: again.experiment.clone(), side });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::super::together::SMALLEST;
    use super::*;
    use crate::arm_result::{ArmResult, PerOperation};
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    /// A real arm, to make others of.
    static TEMPLATE: LazyLock<ExperimentResult> = LazyLock::new(|| {
        let json = include_str!("../../testdata/result-v1-sync-cost.json");
        let mut result = ExperimentResult::parse(json).unwrap();
        let arm = &mut result.arms[0];
        (arm.per_operation, arm.warnings, arm.summaries) = (None, Vec::new(), Vec::new());
        result
    });

    /// An arm with these medians of blocks.
    fn arm(name: &str, mut block_p50_ns: Vec<u64>) -> ArmResult {
        block_p50_ns.sort_unstable();
        let p50_ns = Some(stats::quantile(&block_p50_ns, 0.5));
        let summary = Summary {
            measure: "time".to_owned(),
            n: 2000,
            p50_ns,
            block_p50_ns,
            ..Summary::default()
        };
        ArmResult { name: name.to_owned(), summaries: vec![summary], ..TEMPLATE.arms[0].clone() }
    }

    fn result(arms: Vec<ArmResult>) -> ExperimentResult {
        ExperimentResult { arms, ..TEMPLATE.clone() }
    }

    fn blocks(around: u64) -> Vec<u64> {
        (0..20).map(|block| around + block).collect()
    }

    /// A disk in a mood that changes from run to run: everything together, and each arm for itself,
    /// some a little and some a lot. Within a run blocks know nothing of it.
    struct MoodyDisk {
        rng: Pcg64Mcg,
        /// How far each arm moves from run to run.
        moods: Vec<f64>,
    }

    impl MoodyDisk {
        fn new(seed: u64, arms: usize) -> Self {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let moods = (0..arms).map(|_| 0.06 * (0.5 * normal(&mut rng)).exp()).collect();
            Self { rng, moods }
        }

        fn run(&mut self) -> Run {
            let together = 0.1 * normal(&mut self.rng);
            let arm_of = |(number, mood): (usize, &f64)| {
                let around = (together + mood * normal(&mut self.rng)).exp() * 50_000.0;
                let block = |_| {
                    let slow = if self.rng.random::<f64>() < 0.1 { 3.0 } else { 1.0 };
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a time"
                    )]
                    let ns = (around * slow * (0.05 * normal(&mut self.rng)).exp()) as u64;
                    ns
                };
                arm(&format!("arm-{number}"), (0..20).map(block).collect())
            };
            let moods = self.moods.clone();
            vec![result(moods.iter().enumerate().map(arm_of).collect())]
        }

        fn runs(&mut self, count: usize) -> Vec<Run> {
            (0..count).map(|_| self.run()).collect()
        }
    }

    fn normal(rng: &mut Pcg64Mcg) -> f64 {
        let (a, b): (f64, f64) = (rng.random(), rng.random());
        (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// The same runs, with some arms so many times slower.
    fn slowed(runs: &[Run], factor: u64, is: impl Fn(usize) -> bool) -> Vec<Run> {
        let mut runs = runs.to_vec();
        for arms in runs.iter_mut().flatten().map(|result| &mut result.arms) {
            for (number, arm) in arms.iter_mut().enumerate().filter(|(number, _)| is(*number)) {
                let blocks = &arm.summaries[0].block_p50_ns;
                let slow = blocks.iter().map(|ns| ns * factor).collect();
                *arm = self::arm(&format!("arm-{number}"), slow);
            }
        }
        runs
    }

    fn compared(old: ArmResult, new: ArmResult, fail_over: Option<f64>) -> Comparison {
        compare(&[vec![result(vec![old])]], &[vec![result(vec![new])]], fail_over).unwrap()
    }

    fn called(comparison: &Comparison) -> Vec<&str> {
        let differs = |row: &&Row| matches!(row.verdict, Verdict::Slower | Verdict::Faster);
        comparison.rows.iter().filter(differs).map(|row| row.arm.as_str()).collect()
    }

    /// Two quiet runs of one disk four minutes apart once had 21 of 279 measures called different,
    /// one by 92 %: blocks of a run do not know what differs from run to run.
    #[test]
    fn runs_of_one_moody_disk_say_no_difference() {
        for runs in [1, 2, 3] {
            let (mut with_any, mut by_blocks, mut rows) = (0, 0, 0);
            for seed in 0..40 {
                let mut disk = MoodyDisk::new(seed, 100);
                let (old, new) = (disk.runs(runs), disk.runs(runs));
                let comparison = compare(&old, &new, None).unwrap();
                with_any += usize::from(!called(&comparison).is_empty());
                rows += comparison.rows.len();
                let medians = |runs: &[Run], arm: usize| -> Vec<u64> {
                    let of = |run: &Run| run[0].arms[arm].summaries[0].block_p50_ns.clone();
                    runs.iter().flat_map(of).collect()
                };
                let differ =
                    |arm: &usize| stats::differ(&medians(&old, *arm), &medians(&new, *arm));
                by_blocks += (0..100).filter(|arm| differ(arm) == Some(true)).count();
            }
            assert!(by_blocks > rows / 4, "blocks alone: {by_blocks} of {rows}");
            // One in twenty is promised: of forty, more than six have a chance of 1.4 %.
            assert!(with_any <= 6, "{with_any} of 40 comparisons of {runs} runs a side");
        }
    }

    #[test]
    fn a_real_change_is_found_and_the_more_runs_the_smaller_it_may_be() {
        for (runs, factor, at_least) in [(1, 5, 36), (2, 3, 36), (3, 2, 34)] {
            let (mut found, mut others) = (0, 0);
            for seed in 0..40 {
                let mut disk = MoodyDisk::new(seed, 100);
                let old = disk.runs(runs);
                let new = slowed(&disk.runs(runs), factor, |arm| arm == 50);
                let comparison = compare(&old, &new, None).unwrap();
                found += usize::from(called(&comparison).contains(&"arm-50"));
                others += called(&comparison).iter().filter(|&&arm| arm != "arm-50").count();
            }
            assert!(found >= at_least, "{factor} times, {runs} runs: {found} of 40");
            assert!(others <= 8, "{factor} times, {runs} runs: {others} others");
        }
    }

    /// `barrier=0` against the default, or a drive for another.
    #[test]
    fn what_changes_half_of_the_arms_or_all_of_them_is_found_with_one_run_a_side() {
        for changed in [50, 100] {
            let (mut found, mut others) = (0, 0);
            for seed in 0..20 {
                let mut disk = MoodyDisk::new(seed, 100);
                let old = disk.runs(1);
                let new = slowed(&disk.runs(1), 4, |arm| arm < changed);
                let comparison = compare(&old, &new, Some(0.1)).unwrap();
                let is_changed =
                    |row: &&Row| row.arm["arm-".len()..].parse::<usize>().unwrap() < changed;
                found += comparison.failed().filter(is_changed).count();
                others += called(&comparison).len();
            }
            others -= found;
            assert!(found >= 20 * changed * 9 / 10, "{found} of {}", 20 * changed);
            assert!(others <= found / 20, "{others} others beside {found}");
        }
    }

    /// Two runs a side agree by luck for some arms; without drawing their variance toward that of
    /// the others, each such arm would be called changed.
    #[test]
    fn runs_that_agree_by_luck_do_not_make_a_difference_sure() {
        let mut disk = MoodyDisk::new(9, 100);
        let (mut old, mut new) = (disk.runs(2), disk.runs(2));
        for (runs, ns) in [(&mut old, 50_000), (&mut new, 57_000)] {
            for run in runs.iter_mut() {
                run[0].arms[7] = arm("arm-7", blocks(ns));
            }
        }
        let comparison = compare(&old, &new, None).unwrap();
        let row = &comparison.rows[7];
        assert_eq!(row.verdict, Verdict::Same, "{row:?}");
        assert!(row.run_spread.unwrap() > 0.02, "{row:?}");
        assert_eq!(comparison.yardstick.source, yardstick::Source::Runs);
    }

    /// Whole experiments moved by up to 30 % from run to run of one disk, which widened the
    /// yardstick of every measure in them.
    #[test]
    fn what_a_run_does_as_a_whole_is_not_in_the_yardstick() {
        let spread = |moods: [f64; 6]| {
            let mut disk = MoodyDisk::new(4, 100);
            let mut runs = disk.runs(6);
            for (run, mood) in runs.iter_mut().zip(moods) {
                for arm in &mut run[0].arms {
                    let summary = &mut arm.summaries[0];
                    let scaled = crate::units::ratio(summary.p50_ns.unwrap(), 1) * mood;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a time"
                    )]
                    let ns = scaled as u64;
                    summary.p50_ns = Some(ns);
                }
            }
            let (old, new) = runs.split_at(3);
            compare(old, new, None).unwrap().yardstick.spread
        };
        let (calm, moody) = (spread([1.0; 6]), spread([0.7, 1.0, 1.4, 1.3, 0.8, 1.0]));
        assert!((moody / calm - 1.0).abs() < 0.01, "{calm} {moody}");
    }

    #[test]
    fn what_is_said_to_be_the_smallest_change_is_called_and_a_smaller_one_is_not() {
        let mut disk = MoodyDisk::new(5, 100);
        let old = disk.runs(3);
        let comparison = compare(&old, &disk.runs(3), None).unwrap();
        let row = &comparison.rows[20];
        let (smallest, p50) = (row.smallest.unwrap(), row.old_p50_ns.unwrap());
        assert!(smallest > SMALLEST && smallest < 2.0, "{row:?}");
        assert_eq!(row.runs, Runs { old: 3, new: 3 });
        let verdict = |share: f64| {
            let mut disk = MoodyDisk::new(5, 100);
            let (old, mut new) = (disk.runs(3), disk.runs(3));
            let target = crate::units::ratio(p50, 1) * (1.0 + share);
            for run in &mut new {
                let summary = &mut run[0].arms[20].summaries[0];
                // Its runs scatter about the new median as they did about the old one.
                let factor = target / crate::units::ratio(row.new_p50_ns.unwrap(), 1);
                let scaled = |ns: u64| {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a time"
                    )]
                    let ns = (crate::units::ratio(ns, 1) * factor) as u64;
                    ns
                };
                summary.p50_ns = summary.p50_ns.map(scaled);
                summary.block_p50_ns.iter_mut().for_each(|ns| *ns = scaled(*ns));
            }
            compare(&old, &new, None).unwrap().rows[20].verdict
        };
        assert_eq!(verdict(smallest * 1.05), Verdict::Slower);
        assert_eq!(verdict(smallest * 0.9), Verdict::Same);
    }

    /// Two runs of one disk, minutes apart: the host had moved everything by a tenth.
    #[test]
    fn what_all_arms_did_together_is_the_machines_up_to_a_quarter() {
        let names: Vec<String> = (0..40).map(|number| format!("arm-{number}")).collect();
        let run = |factor: &dyn Fn(usize) -> u64| {
            let arms = names.iter().enumerate();
            let around = |number| 1000 * factor(number);
            vec![result(arms.map(|(number, name)| arm(name, blocks(around(number)))).collect())]
        };
        let old = [run(&|_| 100)];
        let drifted = compare(&old, &[run(&|number| 118 + number as u64 % 5)], None).unwrap();
        assert!(called(&drifted).is_empty(), "{:?}", drifted.together);
        assert!((drifted.together["sync-cost"].exp_m1() - 0.2).abs() < 0.01);
        let exception = run(&|number| if number == 7 { 400 } else { 118 + number as u64 % 5 });
        assert_eq!(called(&compare(&old, &[exception], None).unwrap()), ["arm-7"]);
        // Against the drift, what stood still has not become faster.
        let still = run(&|number| if number == 7 { 100 } else { 118 + number as u64 % 5 });
        assert!(called(&compare(&old, &[still], None).unwrap()).is_empty());
        let thrice = compare(&old, &[run(&|_| 300)], Some(0.1)).unwrap();
        assert_eq!(thrice.failed().count(), 40, "no mood explains three times");
    }

    #[test]
    fn faster_and_slower_are_told_apart_and_only_slower_fails() {
        let slower = compared(arm("a", blocks(1000)), arm("a", blocks(2000)), Some(0.1));
        assert_eq!(slower.rows[0].verdict, Verdict::Slower);
        assert!((slower.rows[0].change.unwrap() - 0.991).abs() < 0.01);
        assert_eq!((slower.failed().count(), slower.undecided().count()), (1, 0));
        let faster = compared(arm("a", blocks(2000)), arm("a", blocks(1000)), Some(0.1));
        assert_eq!(faster.rows[0].verdict, Verdict::Faster);
        assert_eq!(faster.failed().count(), 0);
    }

    #[test]
    fn a_slowdown_within_the_limit_or_without_one_does_not_fail() {
        for limit in [Some(1.5), None] {
            let comparison = compared(arm("a", blocks(1000)), arm("a", blocks(2000)), limit);
            assert_eq!(comparison.rows[0].verdict, Verdict::Slower);
            assert_eq!(comparison.failed().count(), 0);
        }
    }

    #[test]
    fn a_change_that_is_sure_and_too_small_to_matter_is_none() {
        let side = |ns| vec![vec![result(vec![arm("a", blocks(ns))])]; 30];
        let comparison = compare(&side(1000), &side(1040), Some(0.0)).unwrap();
        assert_eq!(comparison.rows[0].verdict, Verdict::Same);
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn a_change_on_a_busy_machine_is_undecided() {
        for busy_run in ["old", "new"] {
            let (mut old, mut new) = (arm("a", blocks(1000)), arm("a", blocks(2000)));
            let busy = if busy_run == "old" { &mut old } else { &mut new };
            busy.warnings.push(Warning::new(Kind::Noisy, "busy"));
            let comparison = compared(old, new, Some(0.1));
            assert_eq!((comparison.failed().count(), comparison.undecided().count()), (0, 1));
        }
    }

    #[test]
    fn an_invalid_arm_is_not_compared_and_takes_no_part_in_the_correction() {
        let invalid = ArmResult { valid: false, ..arm("a", blocks(2000)) };
        let comparison = compared(arm("a", blocks(1000)), invalid, Some(0.1));
        let row = &comparison.rows[0];
        assert_eq!((row.verdict, row.p, row.invalid.new), (Verdict::Invalid, None, true));
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn too_few_blocks_say_nothing() {
        let few = blocks(1000)[..7].to_vec();
        let comparison = compared(arm("a", few), arm("a", blocks(9000)), Some(0.1));
        assert_eq!(comparison.rows[0].verdict, Verdict::Unknown);
        assert_eq!(comparison.failed().count(), 0);
    }

    #[test]
    fn tails_differ_where_their_intervals_are_apart() {
        let with_p99 = |p99_ns, interval| {
            let mut arm = arm("a", blocks(1000));
            arm.summaries[0].p99_ns = Some(p99_ns);
            arm.summaries[0].p99_ci95_ns = interval;
            arm
        };
        let old = with_p99(2000, Some((1800, 2200)));
        let differs =
            |new: ArmResult| compared(old.clone(), new, None).rows[0].p99.unwrap().differs;
        assert_eq!(differs(with_p99(3000, Some((2900, 3100)))), Some(true));
        assert_eq!(differs(with_p99(1000, Some((900, 1100)))), Some(true));
        assert_eq!(differs(with_p99(2300, Some((2200, 2500)))), Some(false));
        assert_eq!(differs(with_p99(2300, None)), None);
    }

    #[test]
    fn flushes_and_bytes_are_told_when_they_change_by_more_than_a_tenth() {
        let counted = |flushes, device_kib| {
            let per_operation = Some(PerOperation { flushes, device_writes: 1.0, device_kib });
            ArmResult { per_operation, ..arm("a", blocks(1000)) }
        };
        let row = |old, new| compared(old, new, None).rows.remove(0);
        let doubled = row(counted(1.0, 8.0), counted(2.0, 8.5));
        assert_eq!((doubled.flushes, doubled.device_kib), (Some((1.0, 2.0)), None));
        let lost = row(counted(1.0, 8.0), counted(0.0, 4.0));
        assert_eq!((lost.flushes, lost.device_kib), (Some((1.0, 0.0)), Some((8.0, 4.0))));
        let nearly_nothing = row(counted(0.0, 0.0), counted(0.01, 0.2));
        assert_eq!((nearly_nothing.flushes, nearly_nothing.device_kib), (None, None));
    }

    #[test]
    fn what_only_one_run_has_is_named() {
        let old = [result(vec![arm("a", blocks(1)), arm("b", blocks(1))])];
        let mut other = result(vec![arm("x", blocks(1))]);
        other.experiment = "many-files".to_owned();
        let new = [other, result(vec![arm("b", blocks(1)), arm("c", blocks(1))])];
        let comparison = compare(&[old.into()], &[new.into()], None).unwrap();
        assert_eq!(comparison.rows.len(), 1);
        assert_eq!(comparison.only_in_old, ["sync-cost: a"]);
        assert_eq!(comparison.only_in_new, ["many-files", "sync-cost: c"]);
    }

    #[test]
    fn results_that_cannot_be_paired_are_refused() {
        let one = result(vec![arm("a", blocks(1))]);
        let other = ExperimentResult { experiment: "many-files".to_owned(), ..one.clone() };
        let refused = |old: &[ExperimentResult], new: &[ExperimentResult]| {
            compare(&[old.to_vec()], &[new.to_vec()], None).unwrap_err().to_string()
        };
        let nothing = refused(std::slice::from_ref(&one), &[other]);
        assert!(nothing.contains("sync-cost") && nothing.contains("many-files"), "{nothing}");
        let twice = refused(std::slice::from_ref(&one), &[one.clone(), one.clone()]);
        assert!(twice.contains("two results of sync-cost in NEW"), "{twice}");
    }
}
