//! What else differs between two results, so that a change need not be the disk's. Pure.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::environment::Environment;
use crate::result::ExperimentResult;

/// Something other than a figure that differs between the runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// What: `kernel`, `mount options`, `profile of sync-cost`.
    pub what: String,
    /// How it was in the old run.
    pub old: String,
    /// How it is in the new run.
    pub new: String,
}

/// The conditions in which two results were measured and which differ.
#[must_use]
pub(crate) fn that_differ(old: &ExperimentResult, new: &ExperimentResult) -> Vec<Condition> {
    let mut conditions = of_environments(&old.environment, &new.environment);
    let mut differ = |what: &str, old: &str, new: &str| {
        if old != new {
            let what = what.to_owned();
            conditions.push(Condition { what, old: old.to_owned(), new: new.to_owned() });
        }
    };
    differ(&format!("profile of {}", old.experiment), &old.profile, &new.profile);
    let without = |from: &[String], of: &[String]| {
        let missing: Vec<&str> =
            of.iter().filter(|p| !from.contains(p)).map(String::as_str).collect();
        missing.join(", ")
    };
    differ(
        &format!("parameters of {}", old.experiment),
        &without(&new.parameters, &old.parameters),
        &without(&old.parameters, &new.parameters),
    );
    conditions
}

/// What differs between two environments and matters. Memory, free space and the directory do not.
fn of_environments(old: &Environment, new: &Environment) -> Vec<Condition> {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let facts = |environment: &Environment| {
        let mount = environment.mount.clone().unwrap_or_default();
        let devices: Vec<String> = environment
            .devices
            .iter()
            .map(|device| {
                let parts = [&device.model, &device.write_cache, &device.scheduler];
                let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
                format!("{} ({})", device.name, parts.join(", "))
            })
            .collect();
        [
            ("plimsoll version", environment.plimsoll.clone()),
            ("system", environment.system.clone()),
            ("kernel", known(&environment.kernel)),
            ("CPU", format!("{} × {}", environment.cpus, known(&environment.cpu))),
            ("CPU governor", known(&environment.cpu_governor)),
            ("machine", known(&environment.virtualisation)),
            ("filesystem", mount.filesystem),
            ("device", devices.join(", ")),
            ("limits of dirty memory", environment.dirty_limits.join(", ")),
        ]
    };
    let mut conditions = Vec::new();
    for ((what, old), (_, new)) in facts(old).into_iter().zip(facts(new)) {
        if old != new {
            conditions.push(Condition { what: what.to_owned(), old, new });
        }
    }
    let options = |environment: &Environment| -> BTreeSet<String> {
        let mount = environment.mount.clone().unwrap_or_default();
        mount.options.split(',').filter(|o| !o.is_empty()).map(str::to_owned).collect()
    };
    let (old, new) = (options(old), options(new));
    if old != new {
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
            a.difference(b).cloned().collect::<Vec<_>>().join(",")
        };
        let what = "mount options".to_owned();
        conditions.push(Condition { what, old: only(&old, &new), new: only(&new, &old) });
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Mount;

    #[test]
    fn what_else_differs_between_the_runs_is_named() {
        let json = include_str!("../../testdata/result-v1-sync-cost.json");
        let old = ExperimentResult::parse(json).unwrap();
        let mut new = old.clone();
        new.environment.kernel = Some("7.0.0".to_owned());
        let options = "rw,noatime,discard".to_owned();
        let mount = old.environment.mount.clone().unwrap();
        new.environment.mount = Some(Mount { options, ..mount });
        new.environment.free_bytes = Some(1);
        new.profile = "full".to_owned();
        let named: Vec<String> = that_differ(&old, &new)
            .iter()
            .map(|c| format!("{}: {} → {}", c.what, c.old, c.new))
            .collect();
        let expected = [
            "kernel: 6.18.0 → 7.0.0",
            "mount options: relatime → noatime",
            "profile of sync-cost: quick → full",
        ];
        assert_eq!(named, expected);
    }
}
