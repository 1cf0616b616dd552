//! From the results of the arms to sentences, and to the width to aim for. Pure.

use super::plan::{Syncs, arm_name};
use crate::arm_result::{ArmResult, busy_mark_of};
use crate::warning::busy_stamp;

fn records(arm: &ArmResult) -> f64 {
    arm.values.get("records_per_s").copied().unwrap_or(0.0)
}

/// The valid arm of a kind that makes most records durable.
fn most<'a>(arms: &'a [ArmResult], kind: &str) -> Option<&'a ArmResult> {
    let arms = arms.iter().filter(|arm| arm.valid && arm.name.starts_with(kind));
    arms.max_by(|a, b| records(a).total_cmp(&records(b)))
}

/// One writer alone, and as many as share best.
fn alone_and_best(arms: &[ArmResult]) -> Option<(&ArmResult, &ArmResult)> {
    let alone = arms.iter().find(|arm| arm.name == arm_name(Syncs::Private, 1));
    alone.zip(most(arms, "shared"))
}

/// What sharing a sync is worth, for a line of a screen.
pub(super) fn in_short(arms: &[ArmResult]) -> Option<String> {
    let (alone, best) = alone_and_best(arms)?;
    Some(format!(
        "one writer {:.0} records/s, {} sharing one sync {:.0}{}",
        records(alone),
        best.values.get("writers").map_or(0.0, |&writers| writers),
        records(best),
        busy_mark_of(&[alone, best])
    ))
}

pub(super) fn answer(arms: &[ArmResult]) -> Vec<String> {
    let mut answer = Vec::new();
    let Some((alone, best)) = alone_and_best(arms) else { return answer };
    let width = best_width(arms)
        .map_or_else(String::new, |width| format!(" {width} writers already reach 90 % of that."));
    answer.push(format!(
        "One writer alone makes {:.0} records durable per second; {} sharing one sync make {:.0} \
         ({:.1} times){}.{width}",
        records(alone),
        best.values.get("writers").map_or(0.0, |&writers| writers),
        records(best),
        records(best) / records(alone).max(f64::EPSILON),
        busy_stamp(alone.is_noisy() || best.is_noisy())
    ));
    if let Some(private) = most(arms, "private") {
        answer.push(format!(
            "Syncing each for itself, {} writers reach {:.0}: sharing is worth {:.1} times{}.",
            private.values.get("writers").map_or(0.0, |&writers| writers),
            records(private),
            records(best) / records(private).max(f64::EPSILON),
            busy_stamp(private.is_noisy() || best.is_noisy())
        ));
    }
    answer
}

/// The fewest writers that reach nine tenths of the highest rate.
#[must_use]
pub(crate) fn best_width(arms: &[ArmResult]) -> Option<u64> {
    let shared = arms.iter().filter(|arm| arm.valid && arm.name.starts_with("shared/"));
    let points: Vec<(u64, f64)> = shared
        .filter_map(|arm| {
            let writers = arm.name.strip_prefix("shared/")?.parse().ok()?;
            Some((writers, *arm.values.get("records_per_s")?))
        })
        .collect();
    let most = points.iter().map(|point| point.1).max_by(f64::total_cmp)?;
    points.iter().filter(|point| point.1 >= 0.9 * most).map(|point| point.0).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::warning::{Kind, Warning};

    #[test]
    fn records_per_second_carry_the_stamp_of_a_busy_machine() {
        let arm = |name: &str, records_per_s, is_busy: bool| {
            let mut arm = ArmResult::of_summary(name, Summary::default());
            arm.values.insert("records_per_s".to_owned(), records_per_s);
            arm.warnings.extend(is_busy.then(|| Warning::new(Kind::Noisy, "waited 66 %")));
            arm
        };
        let said = |is_busy| {
            let arms = [("private/1", 10.0), ("private/4", 20.0), ("shared/4", 40.0)];
            answer(&arms.map(|(name, records)| arm(name, records, is_busy))).join(" ")
        };
        assert!(said(true).contains("make 40 (4.0 times), on a busy machine. 4"), "{}", said(true));
        assert!(said(true).ends_with("2.0 times, on a busy machine."), "{}", said(true));
        assert!(!said(false).contains("busy"), "{}", said(false));
    }
}
