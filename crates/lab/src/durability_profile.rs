//! What an engine can load: the best way to sync on this disk, per promise, and how much may stay
//! unsynced. Pure, but for saving.
//!
//! A profile is made from saved results and from nothing else; docs/durability-profile.md describes
//! the file. It says which figures it rests on, so that a program can judge whether it still fits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_sync::Promise;
use serde::{Deserialize, Serialize};

use crate::arm_result::ArmResult;
use crate::environment::Environment;
use crate::error::Result;
use crate::ladder::Ladder;
use crate::result::{ExperimentResult, save_json};

/// What the file says it is.
pub const FORMAT: &str = "plimsoll-durability-profile";
/// Version of the format that this program writes.
pub const VERSION: u32 = 1;
/// The name of the file.
pub const FILE: &str = "durability-profile.json";

/// What was found about a disk, in the form that a program wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DurabilityProfile {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// When the first of the experiments began, in UTC (RFC 3339).
    pub measured_at: String,
    /// What it was measured on: a profile fits no other place.
    pub environment: Environment,
    /// How far the disk's word was checked.
    pub ladder: Ladder,
    /// The best way for each promise class, by the name of the class. Valid arms only, 4 KiB.
    pub best: BTreeMap<String, Way>,
    /// How much may stay unsynced, and what that costs, fewest bytes first.
    pub loss_window: Vec<LossPoint>,
    /// The fewest bytes at risk that cost under a tenth more than one sync at the end; with the
    /// syncs in a background thread, if that was measured.
    pub knee: Option<LossPoint>,
    /// How many writers should share a sync.
    pub group_commit: Option<GroupWidth>,
    /// Whether any of it was measured on a busy machine: measure again before relying on it.
    pub noisy: bool,
}

/// One way to make a write durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The sync method.
    pub method: String,
    /// How the file should be laid out.
    pub layout: String,
    /// The median time of 4 KiB.
    pub p50_ns: u64,
    /// The 99th percentile; absent if too few samples were taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ns: Option<u64>,
    /// Whether it rests on an arm that was measured on a busy machine.
    #[serde(default)]
    pub noisy: bool,
}

/// A point of the loss-window curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossPoint {
    /// The arm it comes from.
    pub arm: String,
    /// Bytes that a power cut may take.
    pub at_risk_bytes: f64,
    /// How long a byte stays unsynced, at the median.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at_risk_ms: Option<f64>,
    /// How fast the writer writes at that interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub throughput_mib_s: Option<f64>,
    /// The 99th percentile of the time for 1 MiB; absent if too few samples were taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ns_per_mib: Option<u64>,
    /// Whether it rests on an arm that was measured on a busy machine.
    #[serde(default)]
    pub noisy: bool,
}

/// How many writers should share a sync.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GroupWidth {
    /// The fewest writers that reach nine tenths of the highest rate.
    pub writers: u64,
    /// Records that they make durable per second.
    pub records_per_s: f64,
    /// Whether it rests on an arm that was measured on a busy machine.
    #[serde(default)]
    pub noisy: bool,
}

impl DurabilityProfile {
    /// The profile of one place, from its `results`; `None` if there are none. What was not
    /// measured is absent.
    #[must_use]
    pub fn of(results: &[ExperimentResult]) -> Option<Self> {
        let first = results.first()?;
        let arms = |experiment: &str| {
            let result = results.iter().find(|result| result.experiment == experiment);
            result.map_or(&[][..], |result| &result.arms)
        };
        let mut loss_window: Vec<LossPoint> = arms("sync-interval")
            .iter()
            .filter(|arm| arm.valid)
            .filter_map(LossPoint::of)
            .collect();
        loss_window.sort_by(|a, b| a.at_risk_bytes.total_cmp(&b.at_risk_bytes));
        let is_knee = |arm: &&ArmResult| arm.values.contains_key("is_knee");
        // The knee of the background thread comes after that of the writing thread, so take the
        // last.
        let knee =
            arms("sync-interval").iter().filter(is_knee).filter_map(LossPoint::of).next_back();
        let end = arms("sync-interval").iter().find(|arm| arm.name == "end");
        // It is a knee because of what one sync at the end costs.
        let end_noisy = end.is_some_and(ArmResult::is_noisy);
        let knee = knee.map(|knee| LossPoint { noisy: knee.noisy || end_noisy, ..knee });
        Some(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            measured_at: first.started_at.clone(),
            environment: first.environment.clone(),
            ladder: Ladder::of(&first.environment, results),
            best: best(arms("sync-cost")),
            loss_window,
            knee,
            group_commit: group_width(arms("group-commit")),
            noisy: results.iter().flat_map(|result| &result.arms).any(ArmResult::is_noisy),
        })
    }

    /// Saves as [`FILE`] in `dir`. Durable on return, and never half-written.
    pub fn save(&self, dir: &Path) -> Result<PathBuf> {
        save_json(dir, FILE, self)
    }
}

impl LossPoint {
    fn of(arm: &ArmResult) -> Option<Self> {
        let value = |name: &str| arm.values.get(name).copied();
        Some(Self {
            arm: arm.name.clone(),
            at_risk_bytes: value("at_risk_bytes")?,
            at_risk_ms: value("at_risk_ms"),
            throughput_mib_s: value("throughput_mib_s"),
            p99_ns_per_mib: arm.summaries.first()?.p99_ns,
            noisy: arm.is_noisy(),
        })
    }
}

fn best(arms: &[ArmResult]) -> BTreeMap<String, Way> {
    let mut best = BTreeMap::new();
    for promise in Promise::ALL {
        let of_class = arms
            .iter()
            .filter(|arm| arm.valid && arm.promise == promise.name() && arm.payload_bytes == 4096);
        let lowest = of_class.filter_map(|arm| Some((arm, arm.p50_ns()?))).min_by_key(|way| way.1);
        if let Some((arm, p50_ns)) = lowest {
            let (method, layout) = (arm.method.clone(), arm.layout.clone());
            let p99_ns = arm.summaries[0].p99_ns;
            let way = Way { method, layout, p50_ns, p99_ns, noisy: arm.is_noisy() };
            best.insert(promise.name().to_owned(), way);
        }
    }
    best
}

fn group_width(arms: &[ArmResult]) -> Option<GroupWidth> {
    let writers = crate::experiments::best_width(arms)?;
    let arm = arms.iter().find(|arm| arm.name == format!("shared/{writers}"))?;
    // The width is one among all that share.
    let noisy = arms.iter().any(|arm| arm.name.starts_with("shared/") && arm.is_noisy());
    Some(GroupWidth { writers, records_per_s: *arm.values.get("records_per_s")?, noisy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;

    fn arm(name: &str, p50_ns: u64, values: &[(&str, f64)]) -> ArmResult {
        let summary = Summary { n: 100, p50_ns: Some(p50_ns), ..Summary::default() };
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let mut parts = name.split('/').map(str::to_owned);
        let (method, layout) = (parts.next().unwrap(), parts.next().unwrap_or_default());
        ArmResult { method, layout, values, ..ArmResult::of_summary(name, summary) }
    }

    fn result(experiment: &str, arms: Vec<ArmResult>) -> ExperimentResult {
        ExperimentResult { experiment: experiment.to_owned(), arms, ..ExperimentResult::empty() }
    }

    #[test]
    fn the_best_way_is_valid_and_of_its_class() {
        let mut lying = arm("fsync/append/4KiB", 10, &[]);
        lying.valid = false;
        let mut device = arm("o_direct/append/4KiB", 20, &[]);
        device.promise = Promise::Device.name().to_owned();
        let honest = arm("fdatasync/overwritten/4KiB", 50, &[]);
        let profile = DurabilityProfile::of(&[result("sync-cost", vec![lying, device, honest])]);
        let best = profile.unwrap().best;
        assert_eq!(best["on stable media"].method, "fdatasync");
        assert_eq!(best["handed to the device"].method, "o_direct");
    }

    #[test]
    fn the_loss_window_is_sorted_and_the_knee_of_the_background_wins() {
        let point = |name: &str, bytes: f64, knee: bool| {
            let mut values = vec![("at_risk_bytes", bytes), ("at_risk_ms", 2.0)];
            values.extend(knee.then_some(("is_knee", 1.0)));
            arm(name, 1000, &values)
        };
        let sweep = vec![
            point("1MiB", 1048576.0, false),
            point("64KiB", 65536.0, true),
            point("background/16KiB", 16384.0, true),
        ];
        let profile = DurabilityProfile::of(&[result("sync-interval", sweep)]).unwrap();
        let bytes: Vec<f64> = profile.loss_window.iter().map(|point| point.at_risk_bytes).collect();
        assert_eq!(bytes, [16384.0, 65536.0, 1048576.0]);
        assert_eq!(profile.knee.unwrap().arm, "background/16KiB");
    }

    #[test]
    fn the_width_is_the_fewest_writers_that_nearly_reach_the_most() {
        let group = [("shared/1", 10.0), ("shared/16", 95.0), ("shared/64", 100.0)];
        let arms = group.map(|(name, records)| arm(name, 1, &[("records_per_s", records)]));
        let profile = DurabilityProfile::of(&[result("group-commit", arms.to_vec())]).unwrap();
        assert_eq!(profile.group_commit.unwrap().writers, 16);
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        assert_eq!(DurabilityProfile::of(&[]), None);
        let profile = DurabilityProfile::of(&[result("sync-cost", Vec::new())]).unwrap();
        assert!(
            profile.best.is_empty() && profile.knee.is_none() && profile.group_commit.is_none()
        );
        let json = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<DurabilityProfile>(&json).unwrap(), profile);
    }
}
