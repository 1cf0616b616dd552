//! [`ArmResult`]: what was measured of one arm, as it is saved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attribution::Attribution;
use crate::counters::Elapsed;
use crate::summary::Summary;
use crate::units;
use crate::warning::{Kind, Warning, busy_mark};

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    /// Its name, unique in the experiment.
    pub name: String,
    /// How it syncs, by the name of the method.
    pub method: String,
    /// How its file is laid out.
    pub layout: String,
    /// What its operations were promised.
    pub promise: String,
    /// Bytes of one operation.
    pub payload_bytes: u64,
    /// How many blocks it was measured in.
    pub blocks: usize,
    /// How many operations asked for durability.
    pub durable_operations: u64,
    /// False if the counts contradict the promise: then do not use the figures.
    pub valid: bool,
    /// What was measured; the first summary leads.
    pub summaries: Vec<Summary>,
    /// What the device did per durable operation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_operation: Option<PerOperation>,
    /// Other values, by names that end in their unit: `at_risk_bytes`, `throughput_mib_s`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, f64>,
    /// What the machine did meanwhile.
    #[serde(default)]
    pub machine: Machine,
    /// Where the time went, for arms whose operations follow one another without a pause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attribution: Option<Attribution>,
    /// Stalls over time, for arms that are about stalls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub series: Option<Series>,
    /// Reasons to distrust it.
    pub warnings: Vec<Warning>,
}

/// What the device did for one durable operation, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PerOperation {
    /// Flush requests.
    pub flushes: f64,
    /// Write requests, without flushes.
    pub device_writes: f64,
    /// KiB written.
    pub device_kib: f64,
}

/// What the machine did while an arm was measured, as shares of that time. A share is absent if the
/// system does not count it, or if the time was too short for its ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Time for which the measuring thread waited for a CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_queue_share: Option<f64>,
    /// CPU time of all other processes: 1 is one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub others_cpu_share: Option<f64>,
    /// CPU time that the hypervisor gave to other guests: 1 is one CPU.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steal_share: Option<f64>,
    /// Time in which any process waited for a CPU (PSI, "some").
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_pressure_share: Option<f64>,
    /// Time in which any process waited for I/O (PSI, "some").
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub io_pressure_share: Option<f64>,
    /// Time in which any process waited for memory (PSI, "some").
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_pressure_share: Option<f64>,
}

/// Writes and syncs over time. Times count from the start of the arm and leave out the pauses
/// between its blocks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Width of a bucket of `writes`.
    pub bucket_ms: u64,
    /// The slowest write of each bucket: start of the bucket in milliseconds, time of the write in
    /// nanoseconds, whether a sync was in flight meanwhile.
    pub writes: Vec<(u64, u64, bool)>,
    /// Syncs: start in microseconds, time in nanoseconds, whether it held a write up.
    pub syncs: Vec<(u64, u64, bool)>,
    /// What the kernel had yet to write, for arms that are about writeback: when in milliseconds,
    /// dirty bytes, bytes under writeback.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub dirty: Vec<(u64, u64, u64)>,
}

impl ArmResult {
    /// An arm of which only this is known.
    #[cfg(test)]
    pub(crate) fn of_summary(name: &str, summary: Summary) -> Self {
        Self {
            name: name.to_owned(),
            method: String::new(),
            layout: String::new(),
            promise: "on stable media".to_owned(),
            payload_bytes: 4096,
            blocks: 0,
            durable_operations: 0,
            valid: true,
            summaries: vec![summary],
            per_operation: None,
            values: BTreeMap::new(),
            machine: Machine::default(),
            attribution: None,
            series: None,
            warnings: Vec::new(),
        }
    }

    /// The median of its leading measure.
    #[must_use]
    pub fn p50_ns(&self) -> Option<u64> {
        self.summaries.first()?.p50_ns
    }

    /// Whether it was measured on a busy machine.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.warnings.iter().any(|warning| warning.kind == Kind::Noisy)
    }
}

impl PerOperation {
    /// What the device did, divided by `operations`; `None` if that cannot be counted.
    #[must_use]
    pub fn of(elapsed: &Elapsed, operations: u64) -> Option<Self> {
        let counts = elapsed.device.filter(|_| operations > 0)?;
        Some(Self {
            flushes: units::ratio(counts.flushes, operations),
            device_writes: units::ratio(counts.writes, operations),
            device_kib: units::ratio(counts.write_bytes, operations * 1024),
        })
    }
}

impl Machine {
    /// The shares of `elapsed`.
    #[must_use]
    pub fn during(elapsed: &Elapsed) -> Self {
        let share = |ns: Option<u64>| Some(units::ratio(ns?, elapsed.wall_ns));
        let of_us = |us: Option<u64>| share(us.map(|us| us * 1000));
        Self {
            run_queue_share: share(elapsed.run_queue_ns),
            others_cpu_share: share(elapsed.others_cpu_ns()),
            steal_share: share(elapsed.steal_ns),
            cpu_pressure_share: of_us(elapsed.pressure.cpu_us),
            io_pressure_share: of_us(elapsed.pressure.io_us),
            memory_pressure_share: of_us(elapsed.pressure.memory_us),
        }
    }
}

/// The mark behind what was found in `arms`, if any of them was measured on a busy machine.
#[must_use]
pub(crate) fn busy_mark_of(arms: &[&ArmResult]) -> &'static str {
    busy_mark(arms.iter().any(|arm| arm.is_noisy()))
}

/// Whether every one of `arms` was measured on a busy machine: then none of them is called the best, as
/// that may be the one that was disturbed least.
#[must_use]
pub(crate) fn all_busy<'a>(arms: impl IntoIterator<Item = &'a ArmResult>) -> bool {
    let mut arms = arms.into_iter().peekable();
    arms.peek().is_some() && arms.all(ArmResult::is_noisy)
}
