//! From the results of the arms to sentences, and to the width to aim for. Pure.

use super::plan::{Syncs, arm_name};
use crate::result::ArmResult;

pub(super) fn answer(arms: &[ArmResult]) -> Vec<String> {
    let records = |arm: &ArmResult| arm.values.get("records_per_s").copied().unwrap_or(0.0);
    let of = |kind: &str| {
        let arms = arms.iter().filter(move |arm| arm.valid && arm.name.starts_with(kind));
        arms.max_by(|a, b| records(a).total_cmp(&records(b)))
    };
    let mut answer = Vec::new();
    let alone = arms.iter().find(|arm| arm.name == arm_name(Syncs::Private, 1));
    let Some((alone, best)) = alone.zip(of("shared")) else { return answer };
    let width = best_width(arms)
        .map_or_else(String::new, |width| format!(" {width} writers already reach 90 % of that."));
    answer.push(format!(
        "One writer alone makes {:.0} records durable per second; {} sharing one sync make {:.0} \
         ({:.1} times).{width}",
        records(alone),
        best.values.get("writers").map_or(0.0, |&writers| writers),
        records(best),
        records(best) / records(alone).max(f64::EPSILON)
    ));
    if let Some(private) = of("private") {
        answer.push(format!(
            "Syncing each for itself, {} writers reach {:.0}: sharing is worth {:.1} times.",
            private.values.get("writers").map_or(0.0, |&writers| writers),
            records(private),
            records(best) / records(private).max(f64::EPSILON)
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
