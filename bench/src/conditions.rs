//! What a trial was measured in: what a flush cost just before and after it, and what the kernel counted
//! meanwhile. A disk may have phases in which every flush takes milliseconds; a figure from inside one
//! must be seen as such.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use plimsoll_lab::counters::{Counters, Elapsed};
use plimsoll_sync::{Access, Allocation, Dir, File, OsDir, SyncMethod};
use serde::{Deserialize, Serialize};

const PROBES: usize = 15;
const FILE_BYTES: u64 = 1 << 20;

/// Writes and syncs a block of its own, to see what that costs now.
pub(crate) struct Probe {
    file: Arc<dyn File>,
    at: u64,
}

impl Probe {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let dir = OsDir::open(dir)?;
        let file = dir.create("probe", Access::default())?;
        file.allocate(0, FILE_BYTES, Allocation::Zeroed)?;
        file.sync(SyncMethod::Fsync)?;
        Ok(Self { file, at: 0 })
    }

    /// Median time of a durable 4 KiB write into written space (write, fdatasync), in microseconds.
    pub(crate) fn flush_us(&mut self) -> Result<f64> {
        let mut took = Vec::new();
        for _ in 0..PROBES {
            self.at = (self.at + 4096) % FILE_BYTES;
            let begun = Instant::now();
            self.file.write_at(&[1; 4096], self.at)?;
            self.file.sync(SyncMethod::Fdatasync)?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        Ok((took[PROBES / 2].as_secs_f64() * 1e7).round() / 10.0)
    }
}

/// Conditions of a trial.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Conditions {
    pub(crate) flush_us_before: f64,
    pub(crate) flush_us_after: f64,
    /// Load of the last minute.
    pub(crate) load: f64,
    /// Share of the time in which somebody waited for a CPU, for I/O (PSI, "some").
    pub(crate) cpu_pressure: Option<f64>,
    pub(crate) io_pressure: Option<f64>,
    /// CPU time that the hypervisor gave to others, of all CPUs.
    pub(crate) steal: Option<f64>,
    /// What the device did, opening and closing of the engine included.
    pub(crate) flushes: Option<u64>,
    pub(crate) write_bytes: Option<u64>,
}

impl Conditions {
    pub(crate) fn of(counted: &Elapsed) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "shares")]
        let share = |us: Option<u64>| {
            Some((us? as f64 * 1e6 / counted.wall_ns.max(1) as f64).round() / 1000.0)
        };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            cpu_pressure: share(counted.pressure.cpu_us),
            io_pressure: share(counted.pressure.io_us),
            steal: share(counted.steal_ns.map(|ns| ns / 1000)),
            flushes: counted.device.map(|device| device.flushes),
            write_bytes: counted.device.map(|device| device.write_bytes),
            ..Self::default()
        }
    }
}

/// Counts while a trial runs.
pub(crate) fn counting<T>(counters: &Counters, run: impl FnOnce() -> T) -> (T, Conditions) {
    let start = counters.read();
    let result = run();
    (result, Conditions::of(&counters.since(&start)))
}
