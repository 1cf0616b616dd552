//! Where the time of an operation went. Pure.
//!
//! Each part is a sum over blocks, divided by the number of operations; the parts add up to the
//! mean. The kernel counts the device's time in whole milliseconds, so a part needs many blocks to
//! be good, and nothing is said of a single operation.
//!
//! Time that no counter explains is attributed to the kernel and the filesystem: locks, the
//! journal's thread, completions. It is a remainder, and reports call it one.

use serde::{Deserialize, Serialize};

use crate::counters::Elapsed;
use crate::units;

/// Nanoseconds per operation, by where they went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribution {
    /// The mean time of an operation, with what measuring costs: the sum of all parts.
    pub mean_ns: u64,
    /// Running on a CPU, in user space and in system calls.
    pub own_cpu_ns: u64,
    /// Ready to run, waiting for a CPU.
    pub run_queue_ns: u64,
    /// The device wrote. Unknown where it cannot be counted.
    pub device_write_ns: Option<u64>,
    /// The device flushed. Unknown where it cannot be counted.
    pub device_flush_ns: Option<u64>,
    /// The rest: journal, locks, completions; and the device, where it cannot be counted.
    pub kernel_and_filesystem_ns: u64,
    /// Time for which the device worked while the thread did something else. No part above counts
    /// it.
    pub device_overlapped_ns: u64,
}

impl Attribution {
    /// The parts of the time that `operations` took one after the other, or `None` if the kernel
    /// does not count a thread's time.
    #[must_use]
    pub fn of(elapsed: &Elapsed, operations: u64) -> Option<Self> {
        let (cpu, run_queue) = (elapsed.cpu_ns?, elapsed.run_queue_ns?);
        if operations == 0 {
            return None;
        }
        let cpu = cpu.min(elapsed.wall_ns);
        let run_queue = run_queue.min(elapsed.wall_ns - cpu);
        let waited = elapsed.wall_ns - cpu - run_queue;
        let write = elapsed.device.map(|device| device.write_ms * 1_000_000);
        let flush = elapsed.device.map(|device| device.flush_ms * 1_000_000);
        let device = write.unwrap_or(0) + flush.unwrap_or(0);
        // More device time than we waited: it worked for somebody else, or while we did not wait.
        let counted = device.min(waited);
        let share = |part: Option<u64>| part.map(|part| scale(part, counted, device) / operations);
        Some(Self {
            mean_ns: elapsed.wall_ns / operations,
            own_cpu_ns: cpu / operations,
            run_queue_ns: run_queue / operations,
            device_write_ns: share(write),
            device_flush_ns: share(flush),
            kernel_and_filesystem_ns: (waited - counted) / operations,
            device_overlapped_ns: (device - counted) / operations,
        })
    }

    /// The parts with their names, largest first.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        let rest = if self.device_write_ns.is_some() {
            "kernel and filesystem"
        } else {
            "kernel, filesystem and device"
        };
        let mut parts = vec![
            ("own CPU", self.own_cpu_ns),
            ("waiting for a CPU", self.run_queue_ns),
            ("device write", self.device_write_ns.unwrap_or(0)),
            ("device flush", self.device_flush_ns.unwrap_or(0)),
            (rest, self.kernel_and_filesystem_ns),
        ];
        parts.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        parts
    }

    /// `52 % device flush, 30 % own CPU, …`, without parts below one percent.
    #[must_use]
    pub fn in_words(&self) -> String {
        let words = |&(name, ns): &(&str, u64)| {
            let share = units::ratio(ns, self.mean_ns);
            (share >= 0.01).then(|| format!("{} {name}", units::percent(share)))
        };
        self.parts().iter().filter_map(words).collect::<Vec<_>>().join(", ")
    }

    /// The share of the time that the thread waited for a CPU.
    #[must_use]
    pub fn run_queue_share(&self) -> f64 {
        units::ratio(self.run_queue_ns, self.mean_ns)
    }
}

/// `part` of `whole`, scaled to `counted`.
fn scale(part: u64, counted: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let scaled = u128::from(part) * u128::from(counted) / u128::from(whole);
    u64::try_from(scaled).expect("no more than `counted`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceCounts;

    fn elapsed(wall_us: u64, cpu_us: u64, queue_us: u64, device: Option<(u64, u64)>) -> Elapsed {
        let device = device.map(|(write_ms, flush_ms)| DeviceCounts {
            write_ms,
            flush_ms,
            ..DeviceCounts::default()
        });
        let (cpu_ns, run_queue_ns) = (Some(cpu_us * 1000), Some(queue_us * 1000));
        Elapsed { wall_ns: wall_us * 1000, cpu_ns, run_queue_ns, device, ..Elapsed::default() }
    }

    fn sum(parts: &Attribution) -> u64 {
        parts.parts().iter().map(|part| part.1).sum()
    }

    #[test]
    fn the_parts_add_up_to_the_mean() {
        let parts =
            Attribution::of(&elapsed(100_000, 20_000, 10_000, Some((30, 25))), 1000).unwrap();
        assert_eq!(parts.mean_ns, 100_000);
        assert_eq!(parts.device_write_ns, Some(30_000));
        assert_eq!(parts.device_flush_ns, Some(25_000));
        assert_eq!(parts.kernel_and_filesystem_ns, 15_000);
        assert_eq!(sum(&parts), parts.mean_ns);
        assert!(parts.in_words().starts_with("30 % device write, 25 % device flush, 20 % own CPU"));
    }

    #[test]
    fn a_device_that_worked_for_others_is_not_charged_to_us() {
        let parts = Attribution::of(&elapsed(100_000, 90_000, 0, Some((60, 20))), 1000).unwrap();
        assert_eq!(sum(&parts), parts.mean_ns);
        assert_eq!(parts.device_overlapped_ns, 70_000);
        assert_eq!(parts.device_write_ns, Some(7_500));
    }

    #[test]
    fn a_device_that_is_not_counted_stays_in_the_remainder() {
        let parts = Attribution::of(&elapsed(100_000, 20_000, 0, None), 1000).unwrap();
        assert_eq!(parts.device_flush_ns, None);
        assert!(parts.in_words().contains("80 % kernel, filesystem and device"));
    }

    #[test]
    fn nothing_is_said_without_counters_or_operations() {
        assert_eq!(Attribution::of(&Elapsed { wall_ns: 5, ..Elapsed::default() }, 1), None);
        assert_eq!(Attribution::of(&elapsed(100, 1, 1, None), 0), None);
    }
}
