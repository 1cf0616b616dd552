//! From what the arms showed to sentences, and to a verdict on the article's claim. Pure.

use super::race::{self, Target};
use super::values::Found;
use crate::claim::{Claim, Holds};
use crate::layout::Layout;
use crate::units;

/// If fewer writes than this met a sync, no answer is given.
const OVERLAPPED_MIN: usize = 40;

/// The answer is no if a smaller share of syncs than this held a write up, and yes if a larger
/// share than the other did.
const NO_BELOW: f64 = 0.02;
const YES_ABOVE: f64 = 0.5;

pub(super) fn answer(found: &[Found], claim: Option<&Claim>) -> Vec<String> {
    let found: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
    let mut answer = Vec::new();
    for layout in [Layout::Overwritten, Layout::Append] {
        answer.extend(answer_for(&found, layout));
    }
    let control = found.iter().filter(|found| found.target == Target::Nothing);
    let slow: usize = control.clone().map(|found| found.slow_writes).sum();
    let writes: usize = control.map(|found| found.arm.summaries[race::FREE].n).sum();
    if writes > 0 {
        answer.push(format!(
            "With no sync anywhere, {slow} of {writes} writes were as slow: that much is the machine."
        ));
    }
    let every_write =
        |found: &&&Found| found.target == Target::EveryWrite && found.layout == Layout::Append;
    if let Some(p50) = found.iter().find(every_write).and_then(|found| found.arm.p50_ns()) {
        answer.push(format!("With O_SYNC instead, each write takes {}.", units::time(p50)));
    }
    answer.extend(claim.map(Claim::in_words));
    answer
}

/// Whether syncs of the writer's own file hold its writes up.
fn answer_for(found: &[&Found], layout: Layout) -> Option<String> {
    let same = |found: &&&Found| {
        let same = [Target::SameDescriptor, Target::OtherDescriptor].contains(&found.target);
        found.layout == layout && same && found.syncs > 0
    };
    let arms = || found.iter().filter(same);
    let worst = arms().max_by_key(|found| found.held)?;
    let what = match layout {
        Layout::Append => "a growing file",
        _ => "a file whose blocks are written already",
    };
    let overlapped: usize = arms().map(|found| found.overlapped).sum();
    if overlapped < OVERLAPPED_MIN {
        return Some(format!(
            "Cannot say, for {what}: only {overlapped} writes met a sync; syncs are short here, or the \
             budget was."
        ));
    }
    let verdict = match worst.held_share() {
        share if share < NO_BELOW => "No",
        share if share > YES_ABOVE => "Yes",
        _ => "Sometimes",
    };
    if worst.held > 0 {
        let (name, words) = (&worst.arm.name, in_words(worst));
        return Some(format!("{verdict}, for {what}: in the worst arm ({name}) {words}."));
    }
    let syncs: usize = arms().map(|found| found.syncs).sum();
    let slowest = arms().filter_map(|found| found.slowest_beside_a_sync()).max();
    let slowest = slowest.map_or_else(|| "–".to_owned(), units::time);
    Some(format!(
        "{verdict}, for {what}: {overlapped} writes met one of {syncs} syncs of the same file, and none \
         was held up; the slowest took {slowest}."
    ))
}

/// `3 of 410 syncs held a write up; the slowest write beside one took …`
fn in_words(found: &Found) -> String {
    let slowest = found.slowest_beside_a_sync().map_or_else(|| "–".to_owned(), units::time);
    let sync = found.arm.summaries[race::SYNC].p50_ns.map_or_else(String::new, |p50| {
        format!("; a sync took {} at the median", units::time(p50))
    });
    let (held, syncs) = (found.held, found.syncs);
    format!(
        "{held} of {syncs} syncs held a write up; the slowest write beside one took {slowest}{sync}"
    )
}

/// The article's claim, held against the same syncs of another file, which hold writes up by
/// chance.
pub(super) fn article(found: &[&Found]) -> Option<Claim> {
    let arms = |target: Target| {
        found.iter().filter(move |found| found.target == target && found.layout == Layout::Append)
    };
    let worst = arms(Target::OtherDescriptor).max_by_key(|found| found.held)?;
    let control = arms(Target::OtherFile).map(|found| found.held_share()).fold(0.0, f64::max);
    let (share, percent) = (worst.held_share(), units::percent(worst.held_share()));
    let held = format!("{percent} of syncs held a write up");
    let (verdict, here) = if worst.overlapped < OVERLAPPED_MIN / 2 {
        (Holds::Undecided, "too few writes met a sync".to_owned())
    } else if share > YES_ABOVE {
        (Holds::Holds, held)
    } else if share < NO_BELOW || share <= 2.0 * control {
        let beside = units::percent(control);
        (Holds::DoesNotHold, format!("{held}, syncs of another file {beside}"))
    } else {
        (Holds::InPart, held)
    };
    let claim = "a write waits for a sync in another thread".to_owned();
    Some(Claim { article: 1, claim, claimed_ns: None, here, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ArmResult;
    use crate::summary::Summary;

    fn found(target: Target, layout: Layout, held: usize) -> Found {
        let summary = |measure: &&str| Summary {
            measure: (*measure).to_owned(),
            n: 1000,
            p50_ns: Some(2_000),
            max_ns: Some(900_000),
            ..Summary::default()
        };
        let arm = ArmResult {
            summaries: race::MEASURES.iter().map(summary).collect(),
            ..ArmResult::of_summary(&format!("{target:?}/{layout}"), Summary::default())
        };
        Found { target, layout, syncs: 100, held, overlapped: 500, slow_writes: 3, arm }
    }

    fn answer_of(found: &[Found]) -> Vec<String> {
        let valid: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
        answer(found, article(&valid).as_ref())
    }

    #[test]
    fn the_answer_follows_the_share_of_syncs_that_held_a_write() {
        let answer = answer_of(&[
            found(Target::Nothing, Layout::Append, 0),
            found(Target::OtherDescriptor, Layout::Append, 97),
            found(Target::SameDescriptor, Layout::Overwritten, 0),
            found(Target::OtherFile, Layout::Overwritten, 100),
        ])
        .join("\n");
        assert!(answer.contains("No, for a file whose blocks are written already"), "{answer}");
        assert!(answer.contains("Yes, for a growing file"), "{answer}");
        assert!(answer.contains("3 of 1000 writes were as slow"), "{answer}");
        assert!(answer.contains("here 97 % of syncs held a write up: holds here."), "{answer}");
    }

    #[test]
    fn nothing_is_said_of_syncs_that_no_write_met() {
        let mut lone = found(Target::OtherDescriptor, Layout::Append, 0);
        lone.overlapped = 3;
        let answer = answer_of(&[lone]).join("\n");
        assert!(answer.contains("Cannot say, for a growing file"), "{answer}");
        assert!(answer.contains("too few writes met a sync: not decided here"), "{answer}");
    }

    /// One of 48 syncs once made an answer of "sometimes".
    #[test]
    fn a_single_sync_that_held_a_write_up_is_chance() {
        let mut once = found(Target::OtherDescriptor, Layout::Append, 1);
        once.syncs = 10;
        let answer = answer_of(&[once]).join("\n");
        assert!(
            answer.contains("No, for a growing file") && answer.contains("1 of 10"),
            "{answer}"
        );
        assert!(answer.contains("does not hold here"), "{answer}");
    }

    #[test]
    fn an_arm_that_contradicts_its_promise_is_in_no_answer() {
        let mut invalid = found(Target::OtherDescriptor, Layout::Append, 97);
        invalid.arm.valid = false;
        assert!(answer_of(&[invalid]).is_empty());
    }
}
