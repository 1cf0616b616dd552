//! From the results of the arms to sentences, and to a verdict on the article's claim. Pure.

use super::plan::{KIB, MIB, Schedule, Syncer, Trial, When};
use super::values::{Price, blocks, factor, knee, looked_at, price, sweep, unknown_because};
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::stats;
use crate::units;
use crate::warning::busy_stamp;

/// The article's factors over one sync at the end, for an interval beyond its line and for its
/// smallest one.
const ARTICLE_FACTORS: [(u64, f64); 2] = [(MIB, 4.8), (16 * KIB, 169.0)];

/// From this factor on, syncing tanks performance: half of the time is spent on it.
const TANKS: f64 = 2.0;

pub(super) fn answer(
    schedules: &[Schedule],
    arms: &[ArmResult],
    trial: Trial,
) -> (Vec<String>, Option<Claim>) {
    let Some(end) = find(schedules, arms, When::End) else {
        return (Vec::new(), None);
    };
    let of = |syncer| sweep(schedules, arms, syncer);
    let (writer, background) = (of(Syncer::Writer), of(Syncer::Background));
    let mut answer = Vec::new();
    answer.extend(knee_in_words(Syncer::Writer, end, &writer));
    answer.extend(knee_in_words(Syncer::Background, end, &background));
    let speed = |arm: &ArmResult| arm.values.get("throughput_mib_s").copied();
    let never = find(schedules, arms, When::Never);
    if let Some((end_speed, never_speed)) = speed(end).zip(never.and_then(speed)) {
        answer.push(format!(
            "Writing {} with one sync at the end runs at {end_speed:.0} MiB/s, with none at \
             {never_speed:.0} MiB/s{}.",
            units::bytes(trial.bytes),
            busy_stamp(end.is_noisy() || never.is_some_and(ArmResult::is_noisy))
        ));
    }
    let claim = claim(end, &writer);
    answer.extend(claim.as_ref().map(Claim::in_words));
    (answer, claim)
}

/// The valid arm that syncs so often.
fn find<'a>(schedules: &[Schedule], arms: &'a [ArmResult], when: When) -> Option<&'a ArmResult> {
    let of = |(schedule, arm): &(&Schedule, &ArmResult)| schedule.when == when && arm.valid;
    schedules.iter().zip(arms).find(of).map(|(_, arm)| arm)
}

/// What syncing often costs, for a line of a screen.
pub(super) fn in_short(schedules: &[Schedule], arms: &[ArmResult]) -> Option<String> {
    let end = find(schedules, arms, When::End)?;
    let writer = sweep(schedules, arms, Syncer::Writer);
    let (mut of, mut parts) = (vec![end], Vec::new());
    let mib = writer.iter().find(|(bytes, _)| *bytes == MIB);
    for (bytes, arm) in mib.into_iter().chain(writer.last()) {
        parts.push(format!("every {} {:.2} times", units::bytes(*bytes), factor(arm)?));
        of.push(arm);
    }
    parts.dedup();
    let costs = parts.join(", ");
    (!parts.is_empty()).then(|| format!("a sync {costs} one at the end{}", busy_mark_of(&of)))
}

/// `Syncing every 64 KiB in the writing thread costs under 10 % …`
fn knee_in_words(thread: Syncer, end: &ArmResult, sweep: &[(u64, &ArmResult)]) -> Option<String> {
    let end_blocks = blocks(end);
    let place = match thread {
        Syncer::Writer => "in the writing thread",
        Syncer::Background => "in a background thread",
    };
    if sweep.is_empty() {
        return None;
    }
    if sweep.iter().all(|(_, arm)| stats::differ(end_blocks, blocks(arm)).is_none()) {
        let fewest = stats::BLOCKS_TO_COMPARE;
        return Some(format!(
            "Too few trials ({fewest} are needed) to name an interval {place}: give it more time \
             (--budget)."
        ));
    }
    if let Some(why) = unknown_because(&looked_at(end, sweep), sweep) {
        return Some(format!(
            "With syncs {place} it is not known here how much may stay unsynced, because {why}."
        ));
    }
    let trials: Vec<&[u64]> = sweep.iter().map(|(_, arm)| blocks(arm)).collect();
    let Some(knee) = knee(end_blocks, &trials) else {
        let (bytes, arm) = sweep.first()?;
        return Some(format!(
            "Every interval {place} costs 10 % or more over one sync at the end; the longest one, \
             {}, costs {:.2} times that.",
            units::bytes(*bytes),
            factor(arm)?
        ));
    };
    let (bytes, arm) = sweep[knee];
    let at_risk = Schedule { when: When::Every(bytes), syncer: thread }.at_risk_bytes(bytes);
    let mut text = format!(
        "Syncing every {} {place} costs under 10 % ({:.2} times one sync at the end), with at most {} \
         at risk, for {} ms at the median",
        units::bytes(bytes),
        factor(arm)?,
        units::bytes(at_risk),
        units::figure(arm.values.get("at_risk_ms").copied()?),
    );
    let below =
        sweep[knee + 1..].iter().find(|(_, arm)| price(end_blocks, blocks(arm)) == Price::Dear);
    let smallest = sweep.last().filter(|(smallest, _)| below.is_some_and(|(b, _)| b != smallest));
    let costs = |&(bytes, arm): &(u64, &ArmResult)| {
        Some(format!("every {} {:.2} times", units::bytes(bytes), factor(arm)?))
    };
    let below: Vec<String> = [below, smallest].into_iter().flatten().filter_map(costs).collect();
    if !below.is_empty() {
        text += &format!("; below, it costs: {}", below.join(", "));
    }
    Some(text + ".")
}

/// The article's claim, what was found here, and how they compare.
fn claim(end: &ArmResult, writer: &[(u64, &ArmResult)]) -> Option<Claim> {
    let find = |bytes: u64| Some(writer.iter().find(|(b, _)| *b == bytes)?.1);
    let here = |bytes: u64| factor(find(bytes)?);
    let beyond = find(ARTICLE_FACTORS[0].0)?;
    let too_few = stats::differ(blocks(end), blocks(beyond)).is_none();
    let verdict = match factor(beyond)? {
        _ if too_few => Holds::Undecided,
        factor if factor >= TANKS => Holds::Holds,
        factor if factor < 1.1 => Holds::DoesNotHold,
        _ => Holds::InPart,
    };
    let beside = |(bytes, theirs): (u64, f64)| {
        let ours = here(bytes).map_or_else(|| "not measured".to_owned(), |f| format!("{f:.2}"));
        format!(
            "every {} costs {ours} times one sync at the end, there {theirs}",
            units::bytes(bytes)
        )
    };
    let tanks = writer.iter().find(|(_, arm)| factor(arm).is_some_and(|factor| factor >= TANKS));
    let tanks = tanks.map_or_else(
        || "no interval doubles the time".to_owned(),
        |(bytes, _)| format!("the time doubles at {}", units::bytes(*bytes)),
    );
    let claim = "syncing more often than every 10 MiB or so tanks performance".to_owned();
    let here = format!("{}, and {tanks}", ARTICLE_FACTORS.map(beside).join(", "));
    let too_few = too_few.then(|| "there are too few trials: give it a longer --budget".to_owned());
    // Each sync wakes this thread up, so if it has to wait for a CPU, syncs look dear.
    let claim = Claim::new(Article::Wait, claim, here, verdict);
    let rests_on: Vec<&ArmResult> =
        [Some(end), Some(beyond), find(ARTICLE_FACTORS[1].0)].into_iter().flatten().collect();
    Some(claim.unless(too_few).unless(unknown_because(&rests_on, writer)))
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::Promise;

    use super::super::plan::{WRITE_BYTES, schedules, trial};
    use super::super::values::{mark_knees, trials};
    use super::*;
    use crate::arm_result::Machine;
    use crate::experiment::Profile;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    fn arm(schedule: Schedule, ns: u64, end_ns: u64) -> ArmResult {
        let summary = Summary { block_p50_ns: trials(ns), ..Summary::default() };
        let risk = units::ratio(schedule.at_risk_bytes(20 * MIB), 1);
        let values = [
            ("at_risk_bytes", risk),
            ("at_risk_ms", 1.5),
            ("throughput_mib_s", units::ratio(1_000_000_000, ns)),
            ("cost_over_end", units::ratio(ns, end_ns)),
        ];
        ArmResult {
            name: schedule.name(),
            method: "fdatasync".to_owned(),
            layout: "append".to_owned(),
            promise: Promise::Media.name().to_owned(),
            payload_bytes: WRITE_BYTES,
            blocks: 10,
            durable_operations: 10,
            valid: true,
            summaries: vec![summary; 3],
            per_operation: None,
            values: values.map(|(name, value)| (name.to_owned(), value)).into(),
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    /// The answer where a sync costs as much as writing so many bytes.
    fn answer_of(sync_costs_bytes: u64) -> String {
        let trial = trial(Profile::Quick);
        let schedules = schedules(trial.bytes);
        let cost = |schedule: &Schedule| match schedule.when {
            When::Never => 300_000,
            When::End => 1_000_000,
            When::Every(bytes) => 1_000_000 + 1_000_000 * sync_costs_bytes / bytes,
        };
        let arms: Vec<_> =
            schedules.iter().map(|schedule| arm(*schedule, cost(schedule), 1_000_000)).collect();
        answer(&schedules, &arms, trial).0.join("\n")
    }

    #[test]
    fn the_answer_names_the_knee_in_bytes_and_time_and_judges_the_claim() {
        let cheap_syncs = answer_of(8 * KIB);
        let knee = "every 128 KiB in the writing thread costs under 10 % (1.06 times one sync at the \
                    end), with at most 128 KiB at risk, for 1.50 ms at the median";
        assert!(cheap_syncs.contains(knee), "{cheap_syncs}");
        assert!(cheap_syncs.contains("every 64 KiB 1.12 times"), "{cheap_syncs}");
        assert!(cheap_syncs.contains("with at most 256 KiB"), "in the background: {cheap_syncs}");
        assert!(cheap_syncs.contains("does not hold here"), "{cheap_syncs}");
        assert!(cheap_syncs.contains("the time doubles at 4 KiB"), "{cheap_syncs}");
        let dear_syncs = answer_of(4 * MIB);
        assert!(dear_syncs.contains("Every interval"), "{dear_syncs}");
        assert!(dear_syncs.contains("here every 1 MiB costs 5.00 times"), "{dear_syncs}");
        assert!(dear_syncs.ends_with(": holds here."), "{dear_syncs}");
        assert!(answer_of(512 * KIB).contains("holds here in part"));
    }

    /// On a machine with no CPU to spare each sync once took a tick of 4 ms, and every 4 KiB cost
    /// 484 times one sync at the end, where it costs 11 times when the machine is left in peace.
    #[test]
    fn a_busy_machine_or_too_few_trials_make_no_verdict() {
        let trial = trial(Profile::Quick);
        let schedules = schedules(trial.bytes);
        let arms: Vec<_> =
            schedules.iter().map(|schedule| arm(*schedule, 3_000_000, 1_000_000)).collect();
        let busy = |mut arm: ArmResult| {
            arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 % of the time for a CPU"));
            arm
        };
        let noisy: Vec<_> = arms.iter().cloned().map(busy).collect();
        let cheap: Vec<_> =
            schedules.iter().map(|schedule| busy(arm(*schedule, 1_000_000, 1_000_000))).collect();
        for busy in [noisy, cheap] {
            let said = answer(&schedules, &busy, trial).0.join("\n");
            let knee = "With syncs in the writing thread it is not known here how much may stay \
                        unsynced, because end and ";
            assert!(said.contains(knee), "{said}");
            assert!(said.contains(": not known here, because end and "), "{said}");
            assert!(
                said.ends_with("busy machine: stop what else runs, and measure again."),
                "{said}"
            );
            assert!(!said.contains("costs under 10 %") && !said.contains("hold here"), "{said}");
            assert!(in_short(&schedules, &busy).unwrap().ends_with(" one at the end ?"));
        }
        let few = |mut arm: ArmResult| {
            arm.summaries[0].block_p50_ns.truncate(7);
            arm
        };
        let few: Vec<_> = arms.into_iter().map(few).collect();
        let said = answer(&schedules, &few, trial).0.join("\n");
        let unknown =
            "not known here, because there are too few trials: give it a longer --budget.";
        assert!(said.contains(unknown), "{said}");
    }

    /// A long interval that was held up by something else made syncing look dear.
    #[test]
    fn intervals_that_contradict_each_other_make_no_verdict_and_no_knee() {
        let trial = trial(Profile::Quick);
        let schedules = schedules(trial.bytes);
        let cost = |schedule: &Schedule| match schedule.when {
            When::Every(bytes) if bytes == MIB && schedule.syncer == Syncer::Writer => 5_000_000,
            _ => 1_000_000,
        };
        let mut arms: Vec<_> =
            schedules.iter().map(|schedule| arm(*schedule, cost(schedule), 1_000_000)).collect();
        let said = answer(&schedules, &arms, trial).0.join("\n");
        let why = "because every 1 MiB costs 5.00 times one sync at the end and every 512 KiB only 1.00 \
                   times, so something else held trials up: measure again on a quiet machine.";
        let knee = "in the writing thread it is not known here how much may stay unsynced,";
        assert!(said.contains(&format!("{knee} {why}")), "{said}");
        assert!(said.contains(&format!(": not known here, {why}")), "{said}");
        assert!(said.contains("in a background thread costs under 10 %"), "{said}");
        mark_knees(&schedules, &mut arms);
        let knees: Vec<&str> = arms
            .iter()
            .filter(|arm| arm.values.contains_key("is_knee"))
            .map(|arm| arm.name.as_str())
            .collect();
        assert_eq!(knees, ["4KiB/background"]);
    }

    #[test]
    fn what_syncing_often_costs_fits_a_line() {
        let trial = trial(Profile::Quick);
        let schedules = schedules(trial.bytes);
        let arms: Vec<_> =
            schedules.iter().map(|schedule| arm(*schedule, 1_500_000, 1_000_000)).collect();
        let said = in_short(&schedules, &arms).unwrap();
        assert_eq!(said, "a sync every 1 MiB 1.50 times, every 4 KiB 1.50 times one at the end");
    }
}
