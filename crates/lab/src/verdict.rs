//! Whether an arm did what its method promises, and whether it was left in peace. Pure.
//!
//! A benchmark of syncing must check that it synced. The kernel counts the flushes and the bytes
//! that reached the device. An arm whose counts contradict its promise is marked invalid, because
//! what was measured is something else.

use plimsoll_sync::Promise;

use crate::arm_result::{ArmResult, Machine};
use crate::counters::Elapsed;
use crate::device::DeviceFacts;
use crate::environment::Environment;
use crate::units;
use crate::warning::{Kind, Warning};

/// With fewer flushes per durable operation than this, not every operation emptied the device's
/// cache. It is a little below one, as a flush may be counted in the next block.
const FLUSHES_MIN: f64 = 0.9;
/// With more flushes per durable operation than this, some are somebody else's: a journal needs
/// two, a filesystem that syncs everything needs some more.
const FLUSHES_MAX: f64 = 8.0;
/// With more flushes than this per operation that asked for none, somebody else flushed.
const FLUSHES_STRAY: f64 = 0.5;
/// If less than this share of its bytes reached the device, an operation did not write them.
const BYTES_MIN: f64 = 0.9;
/// From this multiple of the payload on, an operation writes much more than it was asked to.
const AMPLIFICATION: f64 = 8.0;
/// If an arm syncs nothing and the device writes so much more than it was asked to, somebody else
/// writes there.
const OTHERS_BYTES: u64 = 4 << 20;

/// The share of its time that an arm may wait for a CPU before its tail says little of the disk.
const RUN_QUEUE_MAX: f64 = 0.05;
/// The share of the time that the hypervisor may take away.
const STEAL_MAX: f64 = 0.02;
/// How many CPUs others may use. This includes the journal and the interrupt handlers that serve
/// our own writes.
const OTHERS_CPUS_MAX: f64 = 0.5;
/// The share of the time in which processes may wait for memory.
const MEMORY_MAX: f64 = 0.01;

/// What an arm asked of the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// What each operation was promised.
    pub promise: Promise,
    /// How many operations.
    pub operations: u64,
    /// Bytes of each that had to reach the device before it returned.
    pub bytes: u64,
    /// Whether a write that is forced to the medium (FUA) may stand in for the flush: only if the
    /// write is its own sync and bypasses the page cache.
    pub may_use_fua: bool,
    /// How many syncs one operation holds; each of them may flush.
    pub syncs: u64,
}

impl Asked {
    /// Operations that each write `bytes` and sync once, by a call.
    #[must_use]
    pub(crate) const fn new(promise: Promise, operations: u64, bytes: u64) -> Self {
        Self { promise, operations, bytes, may_use_fua: false, syncs: 1 }
    }
}

/// Holds the counts against the promise, on the devices and the mount of `environment`.
#[must_use]
pub(crate) fn check_promise(
    asked: Asked,
    elapsed: &Elapsed,
    environment: &Environment,
) -> Vec<Warning> {
    check_counts(asked, elapsed, &environment.devices, barriers_off(environment))
}

/// Whether the filesystem is mounted so that it sends no flushes.
#[must_use]
pub(crate) fn barriers_off(environment: &Environment) -> bool {
    let off = ["nobarrier", "barrier=0"];
    environment
        .mount
        .as_ref()
        .is_some_and(|mount| off.iter().any(|option| mount.has_option(option)))
}

fn check_counts(
    asked: Asked,
    elapsed: &Elapsed,
    devices: &[DeviceFacts],
    barriers_off: bool,
) -> Vec<Warning> {
    let Some(counts) = elapsed.device.filter(|_| asked.operations > 0) else {
        return Vec::new();
    };
    let flushes = units::ratio(counts.flushes, asked.operations);
    let mut warnings = Vec::new();
    match asked.promise {
        Promise::Media if flushes < FLUSHES_MIN => {
            warnings.extend(explain_missing_flushes(asked, flushes, devices, barriers_off));
        }
        Promise::Media if flushes > FLUSHES_MAX * units::ratio(asked.syncs, 1) => {
            let text = format!(
                "{flushes:.1} flushes per sync, more than any method causes: somebody else syncs on \
                 this device, so whether these syncs were flushed cannot be told; stop them and \
                 measure again"
            );
            warnings.push(Warning::new(Kind::OthersWrote, text));
        }
        Promise::Device | Promise::Nothing if flushes > FLUSHES_STRAY => {
            let text = format!(
                "{flushes:.2} flushes per operation that asked for none: somebody else syncs on \
                 this device; stop them and measure again"
            );
            warnings.push(Warning::new(Kind::OthersWrote, text));
        }
        _ => {}
    }
    let asked_bytes = asked.operations * asked.bytes;
    let written = units::ratio(counts.write_bytes, asked_bytes);
    let must_write = matches!(asked.promise, Promise::Media | Promise::Device | Promise::Ordering);
    if must_write && asked_bytes > 0 && written < BYTES_MIN {
        let text = format!(
            "the device wrote {} of the bytes that were reported durable: what was measured is not \
             what it claims to be",
            units::percent(written)
        );
        warnings.push(Warning::new(Kind::BytesMissing, text));
    }
    if must_write && written >= AMPLIFICATION && asked.bytes >= 4096 {
        let text = format!(
            "{} reach the device for {} asked for: the method writes other data along, or somebody \
             else writes to the device",
            units::bytes(counts.write_bytes / asked.operations),
            units::bytes(asked.bytes)
        );
        warnings.push(Warning::new(Kind::WriteAmplification, text));
    }
    if asked.promise == Promise::Nothing && counts.write_bytes > asked_bytes + OTHERS_BYTES {
        let text = format!(
            "the device wrote {} while nothing was synced: somebody else writes to it",
            units::bytes(counts.write_bytes)
        );
        warnings.push(Warning::new(Kind::OthersWrote, text));
    }
    warnings
}

fn explain_missing_flushes(
    asked: Asked,
    flushes: f64,
    devices: &[DeviceFacts],
    barriers_off: bool,
) -> Option<Warning> {
    let says = |cache: &str| devices.iter().any(|d| d.write_cache.as_deref() == Some(cache));
    let contradicted = |why: &str| {
        let text = format!(
            "{flushes:.2} flushes per sync: {why}, so a power cut may lose what was reported durable"
        );
        Some(Warning::new(Kind::PromiseContradicted, text))
    };
    if barriers_off {
        return contradicted("the filesystem is mounted without barriers (remount with barrier=1)");
    }
    if says("write through") && !says("write back") {
        let text = format!(
            "{flushes:.2} flushes per sync: the kernel takes the device's cache to be write-through \
             and sends none; if the drive does have a volatile cache, set queue/write_cache to \
             'write back'"
        );
        return Some(Warning::new(Kind::NoFlushSent, text));
    }
    if asked.may_use_fua && devices.iter().any(|device| device.fua == Some(true)) {
        // Such a write is forced to the medium, and no counter shows it.
        return None;
    }
    contradicted("nothing told the device to empty its cache")
}

/// Warns where an arm's figures say more about the machine than about the disk. Why it was busy before
/// the run, if it was, counts where the arm was too short to tell.
#[must_use]
pub(crate) fn check_noise(
    elapsed: &Elapsed,
    cpus: usize,
    busy_before: Option<&str>,
) -> Vec<Warning> {
    let wall = elapsed.wall_ns;
    let mut warnings = Vec::new();
    let mut noisy = |share: Option<f64>, limit: f64, text: &dyn Fn(String) -> String| {
        if let Some(share) = share.filter(|&share| share > limit) {
            warnings.push(Warning::new(Kind::Noisy, text(units::percent(share))));
        }
    };
    let of_wall = |ns: Option<u64>| Some(units::ratio(ns?, wall));
    noisy(of_wall(elapsed.run_queue_ns), RUN_QUEUE_MAX, &|share| {
        format!("waited {share} of the time for a CPU: the tail is the scheduler's, not the disk's")
    });
    noisy(of_wall(elapsed.steal_ns), STEAL_MAX, &|share| {
        format!("the hypervisor gave {share} of a CPU to others (steal)")
    });
    noisy(of_wall(elapsed.others_cpu_ns()), OTHERS_CPUS_MAX, &|share| {
        format!("other programs used {share} of a CPU, of {cpus} here; stop them and measure again")
    });
    let memory_ns = elapsed.pressure.memory_us.map(|us| us * 1000);
    noisy(of_wall(memory_ns), MEMORY_MAX, &|share| {
        format!("somebody waited {share} of the time for memory")
    });
    if let Some(because) = busy_before.filter(|_| elapsed.others_cpu_ns().is_none()) {
        let text = format!(
            "the machine was busy when the run began ({because}), and this was too short to tell \
             whether it still was"
        );
        warnings.push(Warning::new(Kind::Noisy, text));
    }
    warnings
}

/// Why `arms` can earn no verdict together, if any was not left in peace: a clause that can follow
/// `because` and says what to do.
#[must_use]
pub(crate) fn disturbed(arms: &[&ArmResult]) -> Option<String> {
    let causes = [
        (Kind::Noisy, "measured on a busy machine: stop what else runs"),
        (Kind::OthersWrote, "disturbed by others who wrote to the device: stop them"),
    ];
    causes.iter().find_map(|(kind, cause)| {
        let has = |arm: &&&ArmResult| arm.warnings.iter().any(|warning| warning.kind == *kind);
        let mut names: Vec<&str> = arms.iter().filter(has).map(|arm| arm.name.as_str()).collect();
        names.dedup();
        let were = if names.len() == 1 { "was" } else { "were" };
        let names = match names.as_slice() {
            [] => return None,
            [one] => (*one).to_owned(),
            [one, other] => format!("{one} and {other}"),
            [first, more @ ..] => format!("{first} and {} more arms", more.len()),
        };
        Some(format!("{names} {were} {cause}, and measure again"))
    })
}

/// Whether `machine`, as it was while nothing was measured, is too busy to measure on: which others,
/// as a clause. The limits are those of arms.
#[must_use]
pub(crate) fn busy_with_others(machine: &Machine, cpus: usize) -> Option<String> {
    let over = |share: Option<f64>, limit: f64| share.filter(|&share| share > limit);
    if let Some(share) = over(machine.others_cpu_share, OTHERS_CPUS_MAX) {
        let of = if cpus == 1 { "of 1 CPU".to_owned() } else { format!("of {cpus} CPUs") };
        return Some(format!("others use {} {of}", units::percent(share)));
    }
    if let Some(share) = over(machine.steal_share, STEAL_MAX) {
        let share = units::percent(share);
        return Some(format!("the hypervisor gives {share} of a CPU to others (steal)"));
    }
    let share = over(machine.memory_pressure_share, MEMORY_MAX)?;
    Some(format!("somebody waits {} of the time for memory", units::percent(share)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceCounts;

    fn device(write_cache: &str, fua: bool) -> Vec<DeviceFacts> {
        let write_cache = Some(write_cache.to_owned());
        vec![DeviceFacts { write_cache, fua: Some(fua), ..DeviceFacts::default() }]
    }

    fn counted(flushes: u64, write_bytes: u64) -> Elapsed {
        let counts = DeviceCounts { flushes, write_bytes, ..DeviceCounts::default() };
        Elapsed { wall_ns: 1_000_000, device: Some(counts), ..Elapsed::default() }
    }

    fn kinds(promise: Promise, elapsed: &Elapsed, devices: &[DeviceFacts], off: bool) -> Vec<Kind> {
        let asked = Asked { may_use_fua: true, ..Asked::new(promise, 100, 4096) };
        check_counts(asked, elapsed, devices, off).into_iter().map(|w| w.kind).collect()
    }

    const BYTES: u64 = 100 * 4096;

    #[test]
    fn a_sync_without_a_flush_contradicts_its_promise() {
        let found = kinds(Promise::Media, &counted(0, BYTES), &device("write back", false), false);
        assert_eq!(found, [Kind::PromiseContradicted]);
        assert!(Kind::PromiseContradicted.invalidates());
    }

    #[test]
    fn a_flush_each_keeps_the_promise() {
        let found =
            kinds(Promise::Media, &counted(100, BYTES), &device("write back", false), false);
        assert!(found.is_empty());
    }

    #[test]
    fn fua_may_stand_in_for_a_flush_unless_barriers_are_off() {
        let fua = device("write back", true);
        assert!(kinds(Promise::Media, &counted(0, BYTES), &fua, false).is_empty());
        let off = kinds(Promise::Media, &counted(0, BYTES), &fua, true);
        assert_eq!(off, [Kind::PromiseContradicted]);
    }

    #[test]
    fn fua_excuses_no_call_that_must_flush() {
        let asked = Asked::new(Promise::Media, 100, 4096);
        let found = check_counts(asked, &counted(0, BYTES), &device("write back", true), false);
        assert_eq!(found[0].kind, Kind::PromiseContradicted);
    }

    #[test]
    fn more_flushes_than_any_method_causes_are_somebody_elses() {
        let found =
            kinds(Promise::Media, &counted(15_000, BYTES), &device("write back", false), false);
        assert_eq!(found, [Kind::OthersWrote]);
    }

    #[test]
    fn a_device_said_to_be_write_through_is_taken_at_its_word_but_loudly() {
        let through = device("write through", false);
        let found = kinds(Promise::Media, &counted(0, BYTES), &through, false);
        assert_eq!(found, [Kind::NoFlushSent]);
    }

    #[test]
    fn bytes_that_never_reached_the_device_invalidate_the_arm() {
        let back = device("write back", false);
        let found = kinds(Promise::Media, &counted(100, 10), &back, false);
        assert_eq!(found, [Kind::BytesMissing]);
        assert!(kinds(Promise::Nothing, &counted(0, 0), &back, false).is_empty());
    }

    #[test]
    fn flushes_and_bytes_that_nobody_asked_for_are_somebody_elses() {
        let back = device("write back", false);
        assert_eq!(kinds(Promise::Device, &counted(90, BYTES), &back, false), [Kind::OthersWrote]);
        let busy = counted(0, BYTES + (5 << 20));
        assert_eq!(kinds(Promise::Nothing, &busy, &back, false), [Kind::OthersWrote]);
    }

    #[test]
    fn a_device_that_cannot_be_counted_is_not_judged() {
        assert!(kinds(Promise::Media, &Elapsed::default(), &[], false).is_empty());
    }

    #[test]
    fn a_machine_that_is_busy_before_anything_is_measured_is_named_with_its_share() {
        let machine = Machine { others_cpu_share: Some(2.01), ..Machine::default() };
        assert_eq!(busy_with_others(&machine, 2).unwrap(), "others use 201 % of 2 CPUs");
        let stolen = Machine { steal_share: Some(0.3), ..Machine::default() };
        assert!(busy_with_others(&stolen, 2).unwrap().contains("30 % of a CPU to others"));
        let quiet = Machine { others_cpu_share: Some(0.2), ..Machine::default() };
        assert_eq!(busy_with_others(&quiet, 2), None);
        assert_eq!(busy_with_others(&Machine::default(), 2), None, "unknown is not busy");
    }

    #[test]
    fn noise_is_named_by_its_cause() {
        let quiet = Elapsed {
            wall_ns: 1_000_000_000,
            run_queue_ns: Some(10_000_000),
            steal_ns: Some(0),
            machine_cpu_ns: Some(400_000_000),
            process_cpu_ns: Some(300_000_000),
            ..Elapsed::default()
        };
        assert!(check_noise(&quiet, 2, None).is_empty());
        let brief = Elapsed { wall_ns: 100_000_000, ..Elapsed::default() };
        assert!(check_noise(&brief, 2, None).is_empty());
        let unknown = check_noise(&brief, 2, Some("others use 201 % of 2 CPUs"));
        assert!(unknown[0].text.contains("(others use 201 % of 2 CPUs), and this was too short"));
        assert!(check_noise(&quiet, 2, Some("others use 201 % of 2 CPUs")).is_empty(), "it ended");
        let waited = check_noise(&Elapsed { run_queue_ns: Some(950_000_000), ..quiet }, 2, None);
        assert!(waited[0].text.contains("95 %") && waited[0].text.contains("CPU"));
        let stolen = check_noise(&Elapsed { steal_ns: Some(50_000_000), ..quiet }, 2, None);
        assert!(stolen[0].text.contains("hypervisor"));
        let busy = Elapsed { machine_cpu_ns: Some(2_100_000_000), ..quiet };
        let others = check_noise(&busy, 2, None);
        assert!(others[0].text.contains("180 %"));
    }
}
