//! From what the arms showed to sentences, and to a verdict on the article's claim. Pure.

use super::race::{self, Target};
use super::values::Found;
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::layout::Layout;
use crate::units;
use crate::verdict;
use crate::warning::busy_stamp;

/// If fewer writes than this met a sync, no answer is given.
const OVERLAPPED_MIN: usize = 40;

/// The answer is no if a smaller share of syncs than this held a write up, and yes if a larger
/// share than the other did.
const NO_BELOW: f64 = 0.02;
const YES_ABOVE: f64 = 0.5;

/// What the arms of one layout show that sync the writer's own file. The headline and the claim are
/// both made from it.
struct Shown<'a> {
    /// The arms, in their order.
    arms: Vec<&'a Found>,
    /// The one of them whose syncs held most writes up.
    worst: &'a Found,
    /// The arms that sync another file at the same rate.
    beside: Vec<&'a Found>,
    /// What that comes to.
    effect: Effect,
}

/// Whether syncs hold writes up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Too few writes met a sync.
    Unknown,
    /// Next to none do, or no more than syncs of another file do by chance.
    Absent,
    /// Some do.
    Sometimes,
    /// Most do.
    Present,
}

pub(super) fn answer(found: &[Found], claim: Option<&Claim>) -> Vec<String> {
    let found: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
    let shown = [Layout::Overwritten, Layout::Append].map(|layout| (layout, shown(&found, layout)));
    let headline = |(layout, shown): &(Layout, Option<Shown<'_>>)| {
        shown.as_ref().map(|shown| shown.headline(*layout))
    };
    let mut answer: Vec<String> = shown.iter().filter_map(headline).collect();
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

/// The article's claim, held against the arms of the headline for a growing file.
pub(super) fn article(found: &[&Found]) -> Option<Claim> {
    let shown = shown(found, Layout::Append)?;
    let (verdict, here) = match shown.effect {
        Effect::Unknown => (Holds::Undecided, "too few writes met a sync".to_owned()),
        Effect::Absent => (Holds::DoesNotHold, shown.held()),
        Effect::Sometimes => (Holds::InPart, shown.held()),
        Effect::Present => (Holds::Holds, shown.held()),
    };
    let claim = "a write waits for a sync in another thread".to_owned();
    let claim = Claim::new(Article::DifferentThread, claim, here, verdict);
    let too_few = (shown.effect == Effect::Unknown)
        .then(|| "syncs are short here, or the time was: give it a longer --budget".to_owned());
    Some(claim.unless(too_few).of_arms(&shown.rests_on()))
}

/// How many syncs held a write up on each layout, for a line of a screen.
pub(super) fn in_short(found: &[Found]) -> Option<String> {
    let found: Vec<&Found> = found.iter().filter(|found| found.arm.valid).collect();
    let mut of = Vec::new();
    let part = |(layout, words): (Layout, &str)| {
        let shown = shown(&found, layout).filter(|shown| shown.effect != Effect::Unknown)?;
        of.extend(shown.rests_on());
        let Found { held, syncs, .. } = *shown.worst;
        let held =
            if held == 0 { "no sync".to_owned() } else { format!("{held} of {syncs} syncs") };
        Some(format!("{words}: {held} held a write up"))
    };
    let layouts = [(Layout::Append, "growing file"), (Layout::Overwritten, "written blocks")];
    let parts: Vec<String> = layouts.into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.join("; ") + busy_mark_of(&of))
}

fn shown<'a>(found: &[&'a Found], layout: Layout) -> Option<Shown<'a>> {
    let of = |targets: &[Target]| -> Vec<&'a Found> {
        let is = |found: &&&Found| found.layout == layout && targets.contains(&found.target);
        found.iter().filter(is).filter(|found| found.syncs > 0).copied().collect()
    };
    let arms = of(&[Target::SameDescriptor, Target::OtherDescriptor]);
    let beside = of(&[Target::OtherFile]);
    let worst = worst(&arms)?;
    let overlapped: usize = arms.iter().map(|found| found.overlapped).sum();
    let by_chance = beside.iter().map(|found| found.held_share()).fold(0.0, f64::max);
    let effect = match worst.held_share() {
        _ if overlapped < OVERLAPPED_MIN => Effect::Unknown,
        share if share > YES_ABOVE => Effect::Present,
        share if share < NO_BELOW || share <= 2.0 * by_chance => Effect::Absent,
        _ => Effect::Sometimes,
    };
    Some(Shown { arms, worst, beside, effect })
}

fn worst<'a>(arms: &[&'a Found]) -> Option<&'a Found> {
    let by_share = |a: &&&Found, b: &&&Found| {
        a.held_share().total_cmp(&b.held_share()).then(a.held.cmp(&b.held))
    };
    arms.iter().max_by(by_share).copied()
}

impl<'a> Shown<'a> {
    /// The arms from which the effect was found. Where nothing was held up, that is all of them.
    fn rests_on(&self) -> Vec<&'a ArmResult> {
        let own: &[&'a Found] =
            if self.worst.held == 0 { &self.arms } else { std::slice::from_ref(&self.worst) };
        own.iter().chain(&self.beside).map(|found| &found.arm).collect()
    }

    /// Whether syncs of the writer's own file hold its writes up.
    fn headline(&self, layout: Layout) -> String {
        let what = match layout {
            Layout::Append => "a growing file",
            _ => "a file whose blocks are written already",
        };
        let overlapped: usize = self.arms.iter().map(|found| found.overlapped).sum();
        let verdict = match self.effect {
            Effect::Unknown => {
                return format!(
                    "Cannot say, for {what}: only {overlapped} writes met a sync; syncs are short \
                     here, or the budget was."
                );
            }
            Effect::Absent => "No",
            Effect::Sometimes => "Sometimes",
            Effect::Present => "Yes",
        };
        if let Some(why) = verdict::disturbed(&self.rests_on()) {
            let found = if self.worst.held > 0 { self.worst_in_words() } else { self.held() };
            return format!("Not known here, for {what}, because {why}; {found}.");
        }
        if self.worst.held > 0 {
            return format!("{verdict}, for {what}: in the worst arm {}.", self.worst_in_words());
        }
        let syncs: usize = self.arms.iter().map(|found| found.syncs).sum();
        let slowest = self.arms.iter().filter_map(|found| found.slowest_beside_a_sync()).max();
        format!(
            "{verdict}, for {what}: {overlapped} writes met one of {syncs} syncs of the same file, and \
             none was held up ({}); the slowest took {}.",
            named(&self.arms),
            slowest.map_or_else(|| "–".to_owned(), units::time)
        )
    }

    /// `(fsync, same descriptor/append) 3 of 410 syncs held a write up; the slowest write ...`
    fn worst_in_words(&self) -> String {
        let Found { held, syncs, arm, .. } = self.worst;
        let busy = busy_stamp(arm.is_noisy());
        let by_chance =
            if self.effect == Effect::Absent { self.of_another_file() } else { String::new() };
        let slowest = self.worst.slowest_beside_a_sync();
        let slowest = slowest.map_or_else(|| "–".to_owned(), units::time);
        let sync = arm.summaries[race::SYNC].p50_ns.map_or_else(String::new, |p50| {
            format!("; a sync took {} at the median", units::time(p50))
        });
        format!(
            "({}{busy}) {held} of {syncs} syncs held a write up{by_chance}; the slowest write beside \
             one took {slowest}{sync}",
            arm.name
        )
    }

    /// `3 of 410 syncs held a write up (fsync, same descriptor/append), of another file none (...)`
    fn held(&self) -> String {
        let Found { held, syncs, arm, .. } = self.worst;
        let own = if *held > 0 {
            format!("{held} of {syncs} syncs held a write up ({})", arm.name)
        } else {
            let syncs: usize = self.arms.iter().map(|found| found.syncs).sum();
            format!("none of {syncs} syncs held a write up ({})", named(&self.arms))
        };
        own + &self.of_another_file()
    }

    /// `, of another file 8 of 100 (fsync, other file/append)`
    fn of_another_file(&self) -> String {
        match worst(&self.beside) {
            Some(Found { held: 0, .. }) => {
                format!(", of another file none ({})", named(&self.beside))
            }
            Some(Found { held, syncs, arm, .. }) => {
                format!(", of another file {held} of {syncs} ({})", arm.name)
            }
            None => String::new(),
        }
    }
}

/// `fsync, same descriptor/append and 4 more arms`
fn named(arms: &[&Found]) -> String {
    match arms {
        [] => String::new(),
        [one] => one.arm.name.clone(),
        [first, _] => format!("{} and 1 more arm", first.arm.name),
        [first, more @ ..] => format!("{} and {} more arms", first.arm.name, more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm_result::ArmResult;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

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
        assert!(
            answer.contains(
                "here 97 of 100 syncs held a write up (OtherDescriptor/append): holds here."
            ),
            "{answer}"
        );
    }

    #[test]
    fn nothing_is_said_of_syncs_that_no_write_met() {
        let mut lone = found(Target::OtherDescriptor, Layout::Append, 0);
        lone.overlapped = 3;
        let answer = answer_of(&[lone]).join("\n");
        assert!(answer.contains("Cannot say, for a growing file"), "{answer}");
        assert!(
            answer.contains("too few writes met a sync: not known here, because syncs are short"),
            "{answer}"
        );
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

    /// The headline once said that 11 of 12 syncs held a write up, of one arm, and the claim that
    /// none did, of another.
    #[test]
    fn the_claim_is_judged_on_the_arm_of_the_headline() {
        let mut same = found(Target::SameDescriptor, Layout::Append, 11);
        same.syncs = 12;
        let other = found(Target::OtherDescriptor, Layout::Append, 20);
        let file = found(Target::OtherFile, Layout::Append, 0);
        let answer = answer_of(&[same, other, file]).join("\n");
        let headline = "Yes, for a growing file: in the worst arm (SameDescriptor/append) 11 of 12 \
                        syncs held a write up";
        assert!(answer.contains(headline), "{answer}");
        let here = "here 11 of 12 syncs held a write up (SameDescriptor/append), of another file none \
                    (OtherFile/append): holds here.";
        assert!(answer.contains(here), "{answer}");
    }

    #[test]
    fn syncs_that_hold_no_more_than_those_of_another_file_are_no_effect_in_either_place() {
        let same = found(Target::SameDescriptor, Layout::Append, 10);
        let file = found(Target::OtherFile, Layout::Append, 8);
        let answer = answer_of(&[same, file]).join("\n");
        let headline = "No, for a growing file: in the worst arm (SameDescriptor/append) 10 of 100 \
                        syncs held a write up, of another file 8 of 100 (OtherFile/append);";
        assert!(answer.contains(headline), "{answer}");
        assert!(answer.contains("8 of 100 (OtherFile/append): does not hold here."), "{answer}");
    }

    #[test]
    fn nothing_is_said_of_another_file_where_none_was_synced() {
        let answer = answer_of(&[
            found(Target::SameDescriptor, Layout::Append, 0),
            found(Target::OtherDescriptor, Layout::Append, 0),
        ])
        .join("\n");
        let none = "none was held up (SameDescriptor/append and 1 more arm)";
        assert!(answer.contains(none), "{answer}");
        let here = "here none of 200 syncs held a write up (SameDescriptor/append and 1 more arm): \
                    does not hold here.";
        assert!(answer.contains(here), "{answer}");
    }

    /// "Yes" and "holds here" were said of arms that were stamped as busy.
    #[test]
    fn a_busy_machine_gives_no_verdict_in_either_place() {
        for held in [90, 0] {
            let mut busy = found(Target::SameDescriptor, Layout::Append, held);
            busy.arm.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
            let short = in_short(std::slice::from_ref(&busy)).unwrap();
            assert!(short.ends_with(" held a write up ?"), "{short}");
            let answer = answer_of(&[busy]).join("\n");
            let why = "because SameDescriptor/append was measured on a busy machine: stop";
            assert!(
                answer.contains(&format!("Not known here, for a growing file, {why}")),
                "{answer}"
            );
            assert!(answer.ends_with("measure again."), "{answer}");
            assert!(answer.contains(&format!(": not known here, {why}")), "{answer}");
            assert!(!answer.contains("Yes") && !answer.contains("hold here"), "{answer}");
        }
    }
}
