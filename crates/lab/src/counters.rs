//! What the kernel counts while a block runs: our own time, everybody's, and the device's.
//!
//! Reading needs no privilege. Each part may be missing (another system, an old kernel, a container
//! that hides it): then it is `None`, and reports say nothing that depends on it.

use std::fs;
use std::time::Instant;

use crate::device::Device;
pub use crate::device::DeviceCounts;

/// From this much time on, CPU time that is counted in ticks of 10 ms says something.
const TICKS_MEAN_SOMETHING_NS: u64 = 250_000_000;
/// USER_HZ has been 100 on every Linux architecture in use for two decades.
const TICKS_PER_SECOND: u64 = 100;

/// Reads the counters, at the start and at the end of a block.
#[derive(Debug)]
pub struct Counters {
    devices: Vec<Device>,
    ticks_per_second: u64,
}

/// Counters at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    at: Instant,
    cpu_ns: Option<u64>,
    run_queue_ns: Option<u64>,
    pressure: Pressure,
    machine: Option<MachineTicks>,
    process_ticks: Option<u64>,
    device: Option<DeviceCounts>,
}

/// What happened between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct Elapsed {
    /// Time that passed.
    pub wall_ns: u64,
    /// Time the measuring thread ran on a CPU, in user space and in the kernel.
    pub cpu_ns: Option<u64>,
    /// Time for which that thread was ready to run and had to wait for a CPU.
    pub run_queue_ns: Option<u64>,
    /// Time in which any process waited for a CPU, for I/O or for memory (PSI, "some").
    pub pressure: Pressure,
    /// Time that the hypervisor gave to other guests, over all CPUs.
    pub steal_ns: Option<u64>,
    /// CPU time of all processes, this one included, over all CPUs. In ticks of 10 ms.
    pub machine_cpu_ns: Option<u64>,
    /// CPU time of this process, over all CPUs. In ticks of 10 ms.
    pub process_cpu_ns: Option<u64>,
    /// Requests that the device completed.
    pub device: Option<DeviceCounts>,
}

/// Microseconds of pressure stall information (kernel, Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Waiting for a CPU.
    pub cpu_us: Option<u64>,
    /// Waiting for I/O.
    pub io_us: Option<u64>,
    /// Waiting for memory.
    pub memory_us: Option<u64>,
}

/// Pages of all processes that the kernel has yet to write (proc(5), `/proc/meminfo`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirtyPages {
    /// Waiting to be written back.
    pub dirty_bytes: u64,
    /// On their way to a device.
    pub writeback_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MachineTicks {
    busy: u64,
    steal: u64,
}

impl Counters {
    /// Counts for this thread, this machine and these devices.
    #[must_use]
    pub fn new(devices: Vec<Device>) -> Self {
        Self { devices, ticks_per_second: TICKS_PER_SECOND }
    }

    /// Reads the counters. Takes some tens of microseconds, so never call it inside a timed
    /// operation.
    #[must_use]
    pub fn read(&self) -> Reading {
        let file = |path: &str| fs::read_to_string(path).ok();
        let pressure = |path: &str| file(path).as_deref().and_then(parse_pressure);
        let machine = file("/proc/stat").as_deref().and_then(parse_machine);
        let process_ticks = file("/proc/self/stat").as_deref().and_then(parse_process);
        let pressure = Pressure {
            cpu_us: pressure("/proc/pressure/cpu"),
            io_us: pressure("/proc/pressure/io"),
            memory_us: pressure("/proc/pressure/memory"),
        };
        // These come last, in this order, so that reading the files above is not counted as work of
        // the block.
        let device = self.device_counts();
        let run_queue_ns = run_queue_ns();
        let cpu_ns = cpu_ns();
        let at = Instant::now();
        Reading { at, cpu_ns, run_queue_ns, pressure, machine, process_ticks, device }
    }

    /// What happened since `start`.
    #[must_use]
    pub fn since(&self, start: &Reading) -> Elapsed {
        // The clock and the thread come first, for the same reason.
        let wall_ns = nanoseconds(start.at.elapsed());
        let (cpu_ns, run_queue_ns) = (cpu_ns(), run_queue_ns());
        let device = self.device_counts();
        let now = Reading { cpu_ns, run_queue_ns, device, ..self.read() };
        let minus = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let own_ticks = minus(now.process_ticks, start.process_ticks);
        let busy = minus(now.machine.map(|m| m.busy), start.machine.map(|m| m.busy));
        let steal = minus(now.machine.map(|m| m.steal), start.machine.map(|m| m.steal));
        Elapsed {
            wall_ns,
            cpu_ns: minus(now.cpu_ns, start.cpu_ns),
            run_queue_ns: minus(now.run_queue_ns, start.run_queue_ns),
            pressure: Pressure {
                cpu_us: minus(now.pressure.cpu_us, start.pressure.cpu_us),
                io_us: minus(now.pressure.io_us, start.pressure.io_us),
                memory_us: minus(now.pressure.memory_us, start.pressure.memory_us),
            },
            steal_ns: steal.map(|ticks| self.ticks_to_ns(ticks)),
            machine_cpu_ns: busy.map(|ticks| self.ticks_to_ns(ticks)),
            process_cpu_ns: own_ticks.map(|ticks| self.ticks_to_ns(ticks)),
            device: now.device.zip(start.device).map(|(now, then)| now - then),
        }
    }

    fn device_counts(&self) -> Option<DeviceCounts> {
        let mut sum = DeviceCounts::default();
        for device in &self.devices {
            sum += device.counts()?;
        }
        (!self.devices.is_empty()).then_some(sum)
    }

    fn ticks_to_ns(&self, ticks: u64) -> u64 {
        ticks * (1_000_000_000 / self.ticks_per_second)
    }
}

impl DirtyPages {
    /// Reads what is dirty now. Takes some tens of microseconds.
    #[must_use]
    pub fn now() -> Option<Self> {
        parse_dirty(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    /// All bytes that are not on a device yet.
    #[must_use]
    pub const fn sum_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }
}

impl Elapsed {
    /// Adds what happened in another block. A count that either lacks is missing from the sum.
    pub fn add(&mut self, other: &Self) {
        let plus = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        self.wall_ns += other.wall_ns;
        self.cpu_ns = plus(self.cpu_ns, other.cpu_ns);
        self.run_queue_ns = plus(self.run_queue_ns, other.run_queue_ns);
        self.pressure.cpu_us = plus(self.pressure.cpu_us, other.pressure.cpu_us);
        self.pressure.io_us = plus(self.pressure.io_us, other.pressure.io_us);
        self.pressure.memory_us = plus(self.pressure.memory_us, other.pressure.memory_us);
        self.steal_ns = plus(self.steal_ns, other.steal_ns);
        self.machine_cpu_ns = plus(self.machine_cpu_ns, other.machine_cpu_ns);
        self.process_cpu_ns = plus(self.process_cpu_ns, other.process_cpu_ns);
        self.device = self.device.zip(other.device).map(|(mut sum, more)| {
            sum += more;
            sum
        });
    }

    /// CPU time of all other processes. Ticks are coarse, so this is `None` for short times. Ask it
    /// of a sum over blocks only: the errors of single blocks would not cancel out.
    #[must_use]
    pub fn others_cpu_ns(&self) -> Option<u64> {
        let known = self.wall_ns >= TICKS_MEAN_SOMETHING_NS;
        let others = self.machine_cpu_ns?.saturating_sub(self.process_cpu_ns?);
        known.then_some(others)
    }

    /// The sum over blocks.
    #[must_use]
    pub fn sum<'a>(blocks: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut blocks = blocks.into_iter();
        let Some(first) = blocks.next() else {
            return Self::default();
        };
        blocks.fold(*first, |mut sum, block| {
            sum.add(block);
            sum
        })
    }
}

/// A duration in nanoseconds. Saturates after five centuries.
#[must_use]
pub fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn cpu_ns() -> Option<u64> {
    plimsoll_sync::thread_cpu_time().map(nanoseconds)
}

fn run_queue_ns() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok().as_deref().and_then(parse_run_queue)
}

/// `cpu_ns run_delay_ns timeslices` (kernel, Documentation/scheduler/sched-stats.rst). The first is
/// only brought up to date when threads switch, so it is not used.
fn parse_run_queue(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// `some avg10=0.00 avg60=0.41 avg300=0.21 total=1004541`
fn parse_pressure(psi: &str) -> Option<u64> {
    psi.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1.trim().parse().ok()
}

/// `cpu user nice system idle iowait irq softirq steal …`
fn parse_machine(stat: &str) -> Option<MachineTicks> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks.as_slice() else {
        return None;
    };
    Some(MachineTicks { busy: user + nice + system + irq + softirq, steal })
}

/// User and system ticks of the process. Its name, in parentheses, may contain anything.
/// CPU time that a process has used, over all CPUs. In ticks of 10 ms.
#[must_use]
pub fn cpu_ns_of(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(parse_process(&stat)? * (1_000_000_000 / TICKS_PER_SECOND))
}

fn parse_process(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// `Dirty:              1234 kB` and `Writeback:            56 kB`, among others.
fn parse_dirty(meminfo: &str) -> Option<DirtyPages> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(DirtyPages { dirty_bytes: bytes("Dirty:")?, writeback_bytes: bytes("Writeback:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_own_formats() {
        assert_eq!(parse_run_queue("197787 36224 1\n"), Some(36_224));
        let psi = "some avg10=0.00 avg60=0.41 avg300=0.21 total=1004541\nfull avg10=0 total=3\n";
        assert_eq!(parse_pressure(psi), Some(1_004_541));
        let stat = "cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        assert_eq!(parse_machine(stat), Some(MachineTicks { busy: 73, steal: 8 }));
        let own = "42 (a ) b) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 0 0 20 0 1";
        assert_eq!(parse_process(own), Some(12));
        let meminfo = "MemTotal: 24684000 kB\nDirty:              1234 kB\nWriteback:            56 kB\n\
                       AnonPages: 7 kB\nWritebackTmp:          0 kB\n";
        let dirty = DirtyPages { dirty_bytes: 1234 << 10, writeback_bytes: 56 << 10 };
        assert_eq!(parse_dirty(meminfo), Some(dirty));
    }

    #[test]
    fn cpu_time_of_others_is_taken_from_sums_and_not_from_blocks() {
        // A block of 100 ms in which our own tick was counted, and one in which the machine's was.
        let block = |machine_ms: u64, process_ms: u64| Elapsed {
            wall_ns: 200_000_000,
            machine_cpu_ns: Some(machine_ms * 1_000_000),
            process_cpu_ns: Some(process_ms * 1_000_000),
            ..Elapsed::default()
        };
        let (ours, machines) = (block(0, 20), block(20, 0));
        assert_eq!(Elapsed::sum([&ours, &machines]).others_cpu_ns(), Some(0));
        assert_eq!(ours.others_cpu_ns(), None, "too short for ticks of 10 ms");
    }

    #[test]
    fn what_is_missing_is_unknown_and_not_zero() {
        assert_eq!(parse_run_queue(""), None);
        assert_eq!(parse_pressure("full total=1"), None);
        assert_eq!(parse_machine("intr 1 2 3"), None);
        assert_eq!(parse_process(""), None);
        assert_eq!(parse_dirty("Dirty: 1 kB\n"), None);
        assert_eq!(parse_dirty("Dirty: 1 kB\nWriteback: 2\n"), None);
        assert_eq!(parse_dirty(&format!("Dirty: {} kB\nWriteback: 2 kB\n", u64::MAX)), None);
        let known = Elapsed { cpu_ns: Some(1), ..Elapsed::default() };
        assert_eq!(Elapsed::sum([&known, &Elapsed::default()]).cpu_ns, None);
        assert_eq!(Elapsed::sum([&known, &known]).cpu_ns, Some(2));
    }
}
