//! From the results of the arms to sentences, and to a verdict on the article's claim. Pure.

use super::plan::{KIB, MIB, Schedule, Syncer, Trial, When};
use super::values::{Price, blocks, factor, knee, price};
use crate::claim::{Claim, Holds};
use crate::result::ArmResult;
use crate::stats;
use crate::units;
use crate::warning::Kind;

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
    let all: Vec<(Schedule, &ArmResult)> =
        schedules.iter().copied().zip(arms).filter(|(_, arm)| arm.valid).collect();
    let find =
        |when: When| all.iter().find(|(schedule, _)| schedule.when == when).map(|(_, arm)| *arm);
    let Some(end) = find(When::End) else {
        return (Vec::new(), None);
    };
    let sweep = |syncer: Syncer| -> Vec<(u64, &ArmResult)> {
        let interval = |&(schedule, arm): &(Schedule, _)| match schedule.when {
            When::Every(bytes) if schedule.syncer == syncer => Some((bytes, arm)),
            _ => None,
        };
        all.iter().filter_map(interval).collect()
    };
    let (writer, background) = (sweep(Syncer::Writer), sweep(Syncer::Background));
    let mut answer = Vec::new();
    answer.extend(knee_in_words(Syncer::Writer, end, &writer));
    answer.extend(knee_in_words(Syncer::Background, end, &background));
    let speed = |arm: &ArmResult| arm.values.get("throughput_mib_s").copied();
    if let Some((end, never)) = speed(end).zip(find(When::Never).and_then(speed)) {
        answer.push(format!(
            "Writing {} with one sync at the end runs at {end:.0} MiB/s, with none at {never:.0} MiB/s.",
            units::bytes(trial.bytes)
        ));
    }
    let claim = claim(end, &writer);
    answer.extend(claim.as_ref().map(Claim::in_words));
    (answer, claim)
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
    // Each sync wakes this thread up, so if it has to wait for a CPU, syncs look dear.
    let busy = |arm: &ArmResult| arm.warnings.iter().any(|warning| warning.kind == Kind::Noisy);
    let but = if too_few {
        ", of too few trials to judge"
    } else if busy(end) || busy(beyond) {
        ", as far as a busy machine can tell; measure again on a quiet one"
    } else {
        ""
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
    let here = format!("{}, and {tanks}{but}", ARTICLE_FACTORS.map(beside).join(", "));
    Some(Claim { article: 4, claim, claimed_ns: None, here, verdict })
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::Promise;

    use super::super::plan::{WRITE_BYTES, schedules, trial};
    use super::super::values::trials;
    use super::*;
    use crate::experiment::Profile;
    use crate::result::Machine;
    use crate::summary::Summary;
    use crate::warning::Warning;

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
    fn a_busy_machine_or_too_few_trials_make_no_plain_verdict() {
        let trial = trial(Profile::Quick);
        let schedules = schedules(trial.bytes);
        let arms: Vec<_> =
            schedules.iter().map(|schedule| arm(*schedule, 3_000_000, 1_000_000)).collect();
        let busy = |mut arm: ArmResult| {
            arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 % of the time for a CPU"));
            arm
        };
        let noisy: Vec<_> = arms.iter().cloned().map(busy).collect();
        let said = answer(&schedules, &noisy, trial).0.join("\n");
        assert!(said.contains("as far as a busy machine can tell"), "{said}");
        let few = |mut arm: ArmResult| {
            arm.summaries[0].block_p50_ns.truncate(7);
            arm
        };
        let few: Vec<_> = arms.into_iter().map(few).collect();
        let said = answer(&schedules, &few, trial).0.join("\n");
        assert!(said.contains("too few trials to judge"), "{said}");
        assert!(!said.contains("as far as a busy machine"), "{said}");
    }
}
