//! From the results of the arms to sentences, and to verdicts on the article's claims. Pure.

use std::time::Duration;

use super::values::{TOO_EARLY, find, total};
use super::way::{BASELINE, DIRECT, DIRECT_BYTES, FILES, LINKED, RECORD_BYTES, TRAP, Way};
use crate::arm_result::{ArmResult, all_busy, busy_mark_of};
use crate::claim::{Article, Claim, Holds};
use crate::counters::nanoseconds;
use crate::units;
use crate::warning::busy_stamp;

/// The article's figures.
const ARTICLE_WRITES: Duration = Duration::from_micros(430);
const ARTICLE_EACH: Duration = Duration::from_millis(154);
const ARTICLE_DIRECT: Duration = Duration::from_millis(153);
const ARTICLE_URING: Duration = Duration::from_millis(30);

/// The article's claim holds if durable files cost at least so many times the mere writes.
const COSTLY_FROM: f64 = 10.0;
/// Direct I/O makes a difference if it changes the time by more than this share.
const DIFFERENCE: f64 = 0.2;

/// What many files cost, and what fewer save, for a line of a screen.
pub(super) fn in_short(arms: &[(Way, ArmResult)]) -> Option<String> {
    let each = find(arms, BASELINE)?;
    let baseline = total(each)?;
    let mut of = vec![each];
    let mut text = format!("{FILES} files, each synced {}", units::time(baseline));
    let best = cheapest_arm(arms).filter(|(way, ..)| *way != BASELINE && !rivals_busy(arms));
    if let Some((_, arm, best)) = best {
        text += &format!(", at best {}", units::time(best));
        of.push(arm);
    }
    if let Some((arm, one)) = find(arms, Way::OneFile).and_then(|arm| Some((arm, total(arm)?))) {
        text += &format!(", as one file {}", units::time(one));
        of.push(arm);
    }
    Some(text + busy_mark_of(&of))
}

/// The arms that write as many files and promise as much as the baseline.
fn rivals(arms: &[(Way, ArmResult)]) -> impl Iterator<Item = &(Way, ArmResult)> {
    let promise = find(arms, BASELINE).map(|arm| &arm.promise);
    let is_rival = move |(way, arm): &&(Way, ArmResult)| {
        arm.valid && Some(&arm.promise) == promise && *way != Way::OneFile
    };
    arms.iter().filter(is_rival)
}

/// Whether all of them were measured on a busy machine.
fn rivals_busy(arms: &[(Way, ArmResult)]) -> bool {
    all_busy(rivals(arms).map(|(_, arm)| arm))
}

/// The cheapest of them.
fn cheapest_arm(arms: &[(Way, ArmResult)]) -> Option<(Way, &ArmResult, u64)> {
    rivals(arms)
        .filter_map(|(way, arm)| Some((*way, arm, total(arm)?)))
        .min_by_key(|&(.., total)| total)
}

pub(super) fn answer(arms: &[(Way, ArmResult)], claims: &[Claim]) -> Vec<String> {
    let total = |way| find(arms, way).and_then(total);
    let mut answer = Vec::new();
    if let Some(baseline) = total(BASELINE) {
        let is_busy = find(arms, BASELINE).is_some_and(ArmResult::is_noisy);
        answer.push(format!(
            "{FILES} files of {RECORD_BYTES} B, each written and synced, cost {} here ({} a file){}.",
            units::time(baseline),
            units::time(baseline / FILES as u64),
            busy_stamp(is_busy)
        ));
        answer.extend(cheapest(arms, baseline));
        if let Some(one) = total(Way::OneFile) {
            answer.push(format!(
                "The same records in one file with one sync: {}, {}. Fewer files beat every way to \
                 sync many.",
                units::time(one),
                times_as_fast(baseline, one)
            ));
        }
    }
    answer.extend(trap(arms));
    answer.extend(claims.iter().map(Claim::in_words));
    answer
}

/// The cheapest way to write as many files, and what it gives away.
fn cheapest(arms: &[(Way, ArmResult)], baseline: u64) -> Option<String> {
    let (way, arm, best) = cheapest_arm(arms)?;
    if rivals_busy(arms) {
        return Some("The cheapest way is not known here: the machine was busy.".to_owned());
    }
    if way == BASELINE {
        return Some("No other way to sync as many files is cheaper here.".to_owned());
    }
    let but = match way {
        Way::Syncfs => " It waits for everything that is dirty on the filesystem, not only yours.",
        _ => "",
    };
    let ties = |(other, rival): &&(Way, ArmResult)| {
        *other != way && rival.summaries[0].differs_from(&arm.summaries[0]) == Some(false)
    };
    let ties = match rivals(arms).filter(ties).count() {
        0 => String::new(),
        ways => format!(" (no difference seen from {ways} of the others)"),
    };
    Some(format!(
        "The cheapest way that promises as much: {}, in {}, {}{ties}{}.{but}",
        arm.name,
        units::time(best),
        times_as_fast(baseline, best),
        busy_stamp(arm.is_noisy())
    ))
}

fn trap(arms: &[(Way, ArmResult)]) -> Option<String> {
    let arm = find(arms, TRAP)?;
    let early = arm.values.get(TOO_EARLY)?;
    Some(format!(
        "Unlinked io_uring requests promise nothing: {early:.0} of {} fsyncs were done before their \
         own write was.",
        arm.durable_operations
    ))
}

/// What the article claims, what is found here, and whether the claim holds.
pub(super) fn claims(arms: &[(Way, ArmResult)]) -> Vec<Claim> {
    let total = |way| find(arms, way).and_then(total);
    let article = |time: Duration| units::time(nanoseconds(time));
    let claim = |claim, here, verdict, way| {
        let of: Vec<&ArmResult> =
            [BASELINE, way].into_iter().filter_map(|way| find(arms, way)).collect();
        Claim::new(Article::Costly, claim, here, verdict).of_arms(&of)
    };
    let mut claims = Vec::new();
    let Some(each) = total(BASELINE) else { return claims };
    if let Some(writes) = total(Way::Write) {
        let here = units::ratio(each, writes);
        let verdict = if here >= COSTLY_FROM { Holds::Holds } else { Holds::DoesNotHold };
        let claimed = format!(
            "syncing each file costs {} where writing costs {} ({:.0} times)",
            article(ARTICLE_EACH),
            article(ARTICLE_WRITES),
            ARTICLE_EACH.as_secs_f64() / ARTICLE_WRITES.as_secs_f64()
        );
        let here = format!("{} and {} ({here:.0} times)", units::time(each), units::time(writes));
        claims.push(claim(claimed, here, verdict, Way::Write));
    }
    if let Some(direct) = total(DIRECT) {
        let verdict = match units::ratio(direct, each) {
            share if share < 1.0 - DIFFERENCE => Holds::DoesNotHold,
            _ => Holds::Holds,
        };
        let claimed = format!(
            "O_DIRECT gains nothing ({} against {})",
            article(ARTICLE_DIRECT),
            article(ARTICLE_EACH)
        );
        let here = format!(
            "{} against {}, with {DIRECT_BYTES} B, because {RECORD_BYTES} B cannot be written so",
            units::time(direct),
            units::time(each)
        );
        claims.push(claim(claimed, here, verdict, DIRECT));
    }
    if let Some(linked) = total(LINKED) {
        let claimed = ARTICLE_EACH.as_secs_f64() / ARTICLE_URING.as_secs_f64();
        let verdict = match units::ratio(each, linked) {
            gain if gain >= 0.8 * claimed => Holds::Holds,
            gain if gain > 1.0 + DIFFERENCE => Holds::InPart,
            _ => Holds::DoesNotHold,
        };
        let claimed =
            format!("io_uring is {claimed:.0} times as fast ({})", article(ARTICLE_URING));
        let here = format!(
            "{}, with each fsync linked to its write, is {}",
            units::time(linked),
            times_as_fast(each, linked)
        );
        claims.push(claim(claimed, here, verdict, LINKED));
    }
    claims
}

/// `4.4 times as fast`
fn times_as_fast(baseline: u64, total: u64) -> String {
    format!("{} times as fast", units::figure(units::ratio(baseline, total)))
}

#[cfg(test)]
mod tests {
    use super::super::values::tests::arm;
    use super::super::values::with_speedup;
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::warning::{Kind, Warning};

    #[cfg(target_os = "linux")]
    fn answer_of(arms: &[(Way, ArmResult)]) -> Vec<String> {
        answer(arms, &claims(arms))
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_article_holds_where_figures_are_as_on_its_machine() {
        let answer = answer_of(&with_speedup(vec![
            arm(Way::Write, 430),
            arm(BASELINE, 154_000),
            arm(DIRECT, 153_000),
            arm(LINKED, 30_000),
            arm(TRAP, 29_000),
            arm(Way::Syncfs, 20_000),
            arm(Way::OneFile, 2_000),
        ]))
        .join("\n");
        assert!(answer.contains("358 times): holds here"), "{answer}");
        assert!(answer.contains("cannot be written so: holds here."), "{answer}");
        assert!(answer.contains("5.13 times as fast: holds here."), "{answer}");
        assert!(answer.contains("promises as much: all writes, then one syncfs"), "{answer}");
        assert!(answer.contains("3 of 2000 fsyncs were done before"), "{answer}");
        assert!(answer.contains("one file with one sync: 2.00 ms, 77 times as fast"), "{answer}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_busy_baseline_gives_no_verdict() {
        let mut arms = vec![arm(Way::Write, 430), arm(BASELINE, 154_000), arm(Way::OneFile, 2_000)];
        let short = "100 files, each synced 154 ms, as one file 2.00 ms";
        assert_eq!(in_short(&arms).unwrap(), short);
        arms[1].1.warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        assert_eq!(in_short(&arms).unwrap(), format!("{short} ?"));
        let answer = answer_of(&arms).join("\n");
        assert!(answer.contains("a file), on a busy machine."), "{answer}");
        assert!(answer.contains("The cheapest way is not known here: the machine was"), "{answer}");
        let unknown = "358 times): not known here, because write and fsync each was measured on a busy \
                       machine: stop what else runs, and measure again.";
        assert!(answer.contains(unknown), "{answer}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_trap_and_invalid_arms_are_never_the_cheapest_way() {
        let mut syncfs = arm(Way::Syncfs, 1);
        syncfs.1.valid = false;
        let pool = arm(Way::Pool, 3_500);
        let arms = [arm(BASELINE, 7_000), arm(TRAP, 2), syncfs, arm(LINKED, 3_500), pool];
        let answer = answer_of(&arms).join("\n");
        let tied = "promises as much: io_uring, linked, in 3.50 ms, 2 times as fast (no difference \
                    seen from 1 of the others).";
        assert!(answer.contains(tied), "{answer}");
        assert!(answer.contains("2 times as fast: holds here in part"), "{answer}");
    }
}
