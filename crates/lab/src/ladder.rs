//! How far a disk's word has been checked: the ladder of truth. Pure.
//!
//! 1. *claimed*: the call returned.
//! 2. *sent*: the kernel sent a flush (or a forced write) to the device for it, and counted it.
//! 3. *plausible*: what the device answered fits what a device can do.
//! 4. *survived*: the bytes were there after a power cut.
//!
//! Invariant: below the last rung, no disk is called safe. The best that can be said is that
//! nothing was found against its word.
//!
//! Invariant: no rung and no good word come from an arm that was measured on a busy machine, or from
//! arms that contradict each other. An alarm may: others add flushes, bytes and time, and never take
//! them away.

use std::borrow::Cow;

use plimsoll_sync::{Promise, SyncMethod};
use serde::{Deserialize, Serialize};

use crate::arm_result::ArmResult;
use crate::cache::{Cache, Reading};
use crate::device::DeviceFacts;
use crate::environment::Environment;
use crate::result::ExperimentResult;
use crate::units;
use crate::verdict;
use crate::warning::Kind;

/// Most disks turn 7,200 times a minute or less: half a turn takes 4.2 ms. In less time than this,
/// no spinning disk has written anything.
const SPINNING_NS_MIN: u64 = 1_000_000;
/// With at least so many flushes per operation, an operation holds a flush and takes as long.
const FLUSHES_MIN: f64 = 0.9;

/// How far the word of a disk was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// The call returned.
    Claimed,
    /// The kernel sent a flush or a forced write for it.
    Sent,
    /// What the device answered fits what a device can do.
    Plausible,
    /// The bytes were there after a power cut. Not tested by this version.
    Survived,
}

/// What kind of device gives such answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// A volatile cache, which is emptied when asked.
    HonestVolatileCache,
    /// A flush costs nothing: the cache survives power cuts, or it is a hypervisor's.
    ProtectedOrVirtualCache,
    /// The kernel sends no flush to the device.
    NoFlushReachesTheDevice,
    /// No device can answer so.
    Impossible,
    /// Too little is known.
    Unknown,
}

/// What was found about the word of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder {
    /// The highest rung that was reached.
    pub rung: Rung,
    /// What kind of device it is.
    pub grade: Grade,
    /// The reasons, as sentences with figures.
    pub reasons: Vec<String>,
    /// Why the grade is not known, and what to do; if it is, absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unknown_because: Option<String>,
    /// What these measurements cannot know.
    pub cannot_know: Vec<String>,
}

/// What is known of a disk, from the experiments.
#[derive(Debug, Clone, Default)]
struct Evidence {
    /// The arm whose flushes were counted.
    counted: Option<Counted>,
    /// If there is none: why not, and what to do.
    not_counted: String,
    /// The median of the cheapest durable write.
    durable_ns: Option<u64>,
    /// What the times of flushes say.
    flush: Option<Reading>,
    /// Whether bytes that were reported durable never reached the device.
    bytes_missing: bool,
}

/// A durable write whose flushes were counted.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// What it is, by its arm: `write of fsync/append/4KiB`.
    operation: String,
    /// Flushes per operation.
    flushes: f64,
    /// Its median.
    p50_ns: Option<u64>,
    /// Why it earns no rung, if it was not left in peace.
    disturbed: Option<String>,
}

impl Ladder {
    /// Judges one disk by its `results`, whichever experiments there are.
    #[must_use]
    pub fn of(environment: &Environment, results: &[ExperimentResult]) -> Self {
        judge(environment, &Evidence::of(results))
    }

    /// The verdict in one sentence.
    #[must_use]
    pub fn in_words(&self) -> Cow<'static, str> {
        if let (Grade::Unknown, Some(why)) = (self.grade, &self.unknown_because) {
            return format!(
                "What the word of this disk is worth is not known here, because {why}."
            )
            .into();
        }
        let said = match self.grade {
            Grade::HonestVolatileCache => {
                "The disk behaves as one with a volatile cache that is emptied when asked: nothing was \
                 found against its word."
            }
            Grade::ProtectedOrVirtualCache => {
                "A flush is free here: durability rests on the word of the device, or of your \
                 hypervisor."
            }
            Grade::NoFlushReachesTheDevice => {
                "No flush reaches the device: what is reported durable may be in a volatile cache."
            }
            Grade::Impossible => "What this disk answers cannot be: do not trust its word.",
            Grade::Unknown => "What the word of this disk is worth is not known here.",
        };
        Cow::Borrowed(said)
    }
}

impl Ladder {
    /// The same, but of no known grade.
    fn unknown(self, because: &str) -> Self {
        Self { grade: Grade::Unknown, unknown_because: Some(because.to_owned()), ..self }
    }
}

impl Rung {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Sent => "sent",
            Self::Plausible => "plausible",
            Self::Survived => "survived",
        }
    }
}

impl Evidence {
    fn of(results: &[ExperimentResult]) -> Self {
        let arms = |experiment: &str| {
            let result = results.iter().find(|result| result.experiment == experiment);
            result.map_or(&[][..], |result| &result.arms)
        };
        let promised = |arm: &&ArmResult| {
            // syncfs is left out: what it does depends on the filesystem, see docs/durability.md.
            let media = arm.promise == Promise::Media.name() && arm.payload_bytes > 0;
            media && arm.method != SyncMethod::Syncfs.name()
        };
        let sync_cost: Vec<&ArmResult> = arms("sync-cost").iter().filter(promised).collect();
        let missing = |arm: &&ArmResult| arm.warnings.iter().any(|w| w.kind == Kind::BytesMissing);
        let flush = arms("cache-flush");
        Self {
            counted: Counted::of(&sync_cost, flush),
            not_counted: not_counted(&sync_cost),
            durable_ns: sync_cost.iter().filter_map(|arm| arm.p50_ns()).min(),
            flush: Reading::of(flush),
            bytes_missing: sync_cost.iter().any(missing),
        }
    }
}

impl Counted {
    /// The plainest of `sync_cost` that was counted, and of several one that was left in peace. If
    /// none was, a flush of what was cached: where nothing was, a filesystem may send none.
    fn of(sync_cost: &[&ArmResult], flushes: &[ArmResult]) -> Option<Self> {
        let plain = [SyncMethod::ORDINARY, SyncMethod::Fdatasync].map(SyncMethod::name);
        let place = |arm: &ArmResult| plain.iter().position(|method| *method == arm.method);
        let counted = |what: &str, arm: &ArmResult| {
            let counted = Self {
                operation: format!("{what} of {}", arm.name),
                flushes: arm.per_operation?.flushes,
                p50_ns: arm.p50_ns(),
                disturbed: verdict::disturbed(&[arm]),
            };
            let place = place(arm);
            Some(((place.is_none(), counted.disturbed.is_some(), place), counted))
        };
        let writes = sync_cost.iter().filter_map(|arm| counted("write", arm));
        let plainest = writes.min_by_key(|(order, _)| *order);
        let cached = flushes.iter().filter(|arm| arm.payload_bytes > 0);
        let mut cached = cached.filter_map(|arm| counted("flush", arm));
        plainest.or_else(|| cached.next()).map(|(_, counted)| counted)
    }
}

/// Why no flushes were counted, and what to do.
fn not_counted(sync_cost: &[&ArmResult]) -> String {
    match sync_cost.first() {
        Some(arm) => format!(
            "what {} sends to the device is not counted: measure where the device under the \
             filesystem is known (--dir)",
            arm.name
        ),
        None => "no durable write was measured by itself: run sync-cost and cache-flush".to_owned(),
    }
}

fn judge(environment: &Environment, evidence: &Evidence) -> Ladder {
    let devices = &environment.devices;
    let virtual_machine =
        environment.virtualisation.as_ref().is_some_and(|maker| maker.starts_with("virtual"));
    let spinning = devices.iter().any(|device| device.rotational == Some(true)) && !virtual_machine;
    let fua = devices.iter().any(|device| device.fua == Some(true));
    let mut ladder = Ladder {
        rung: Rung::Claimed,
        grade: Grade::Unknown,
        reasons: Vec::new(),
        unknown_because: None,
        cannot_know: vec![
            "whether the bytes survive a power cut: nobody pulled the plug".to_owned(),
        ],
    };
    if evidence.bytes_missing {
        ladder.grade = Grade::Impossible;
        ladder.reasons.push("bytes were reported durable that never reached the device".to_owned());
        return ladder;
    }
    let Some(counted) = &evidence.counted else {
        return ladder.unknown(&evidence.not_counted);
    };
    let Counted { operation, flushes, .. } = counted;
    ladder.reasons.push(format!("the device counted {flushes:.2} flushes per {operation}"));
    let barriers_off = verdict::barriers_off(environment);
    if *flushes < FLUSHES_MIN && (!fua || barriers_off) {
        ladder.grade = Grade::NoFlushReachesTheDevice;
        ladder.reasons.push(why_no_flush(environment, barriers_off).to_owned());
        return ladder;
    }
    if counted.disturbed.is_none() {
        ladder.rung = Rung::Sent;
    }
    if spinning && evidence.durable_ns.is_some_and(|ns| ns < SPINNING_NS_MIN) {
        ladder.grade = Grade::Impossible;
        ladder.reasons.push(format!(
            "a durable write took {}, and a spinning disk needs milliseconds: a cache answered; if \
             it is a controller's with a battery, that is its word",
            units::time(evidence.durable_ns.unwrap_or_default())
        ));
        return ladder;
    }
    if let Some(why) = &counted.disturbed {
        return ladder.unknown(why);
    }
    let Some(flush) = &evidence.flush else {
        return ladder.unknown("what a flush costs was not measured: run cache-flush");
    };
    ladder.reasons.push(flush.took.clone());
    judge_flush(ladder, counted, flush, virtual_machine)
}

/// The likeliest reason why plain durable writes send no flush.
fn why_no_flush(environment: &Environment, barriers_off: bool) -> &'static str {
    let is_through = |d: &DeviceFacts| d.write_cache.as_deref() == Some("write through");
    if barriers_off {
        "the filesystem is mounted without barriers"
    } else if environment.devices.iter().any(is_through) {
        "the kernel takes the cache to be write-through; if the drive has a volatile one, set \
         queue/write_cache to 'write back'"
    } else {
        "nothing on the way asked for one"
    }
}

/// Grades a device by what its flushes say, if a write that holds one agrees.
fn judge_flush(
    mut ladder: Ladder,
    counted: &Counted,
    flush: &Reading,
    virtual_machine: bool,
) -> Ladder {
    if let Cache::NotKnown(why) = &flush.cache {
        return ladder.unknown(why);
    }
    let quicker = |ns: &u64| counted.flushes >= FLUSHES_MIN && *ns < flush.empty_ns / 2;
    if let Some(ns) = counted.p50_ns.filter(quicker) {
        return ladder.unknown(&format!(
            "a {} took {}, its flush in it, and a flush alone {}: one of them was held up; \
             measure sync-cost and cache-flush again, on a quiet machine",
            counted.operation,
            units::time(ns),
            units::time(flush.empty_ns)
        ));
    }
    ladder.rung = Rung::Plausible;
    match flush.cache {
        Cache::Emptied { .. } => ladder.grade = Grade::HonestVolatileCache,
        Cache::Free => {
            ladder.grade = Grade::ProtectedOrVirtualCache;
            let unknown = if virtual_machine {
                "whether the hypervisor passes flushes on: ask its operator, or cut its power"
            } else {
                "whether the device protects its cache: look for power-loss protection in its data \
                 sheet"
            };
            ladder.cannot_know.push(unknown.to_owned());
        }
        Cache::AsLong | Cache::NotKnown(_) => {
            let takes = match flush.same {
                true => "a flush takes as long whatever is cached",
                false => {
                    "a flush takes long, and no such difference as emptying a cache makes was seen"
                }
            };
            return ladder.unknown(&format!(
                "{takes}: look for power-loss protection in the device's data sheet, or ask who \
                 operates it"
            ));
        }
    }
    ladder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm_result::PerOperation;
    use crate::mount::Mount;
    use crate::summary::Summary;
    use crate::warning::Warning;

    fn on(
        write_cache: &str,
        options: &str,
        rotational: bool,
        virtualisation: Option<&str>,
    ) -> Environment {
        let device = DeviceFacts {
            write_cache: Some(write_cache.to_owned()),
            rotational: Some(rotational),
            fua: Some(false),
            ..DeviceFacts::default()
        };
        let mount = Mount { options: options.to_owned(), ..Mount::default() };
        Environment {
            mount: Some(mount),
            devices: vec![device],
            virtualisation: virtualisation.map(str::to_owned),
            ..Environment::default()
        }
    }

    fn evidence(flushes: f64, durable_ns: u64, empty_ns: u64, full_ns: u64) -> Evidence {
        let operation = "write of fsync/append/4KiB".to_owned();
        let counted = Counted { operation, flushes, p50_ns: Some(durable_ns), disturbed: None };
        Evidence {
            counted: Some(counted),
            durable_ns: Some(durable_ns),
            not_counted: String::new(),
            flush: Some(Reading::between(empty_ns, full_ns, 32 << 20)),
            bytes_missing: false,
        }
    }

    #[test]
    fn a_flush_that_grows_with_the_cache_is_honest() {
        // A consumer drive: 1 ms for nothing, 30 ms for 32 MiB.
        let drive = on("write back", "rw", false, None);
        let ladder = judge(&drive, &evidence(1.0, 1_500_000, 1_000_000, 30_000_000));
        assert_eq!((ladder.rung, ladder.grade), (Rung::Plausible, Grade::HonestVolatileCache));
    }

    #[test]
    fn a_flush_that_is_free_rests_on_somebodys_word() {
        let guest = on("write back", "rw", true, Some("virtual: unknown hypervisor"));
        let ladder = judge(&guest, &evidence(1.0, 31_000, 15_000, 16_000));
        assert_eq!((ladder.rung, ladder.grade), (Rung::Plausible, Grade::ProtectedOrVirtualCache));
        assert!(ladder.cannot_know.iter().any(|what| what.contains("hypervisor")), "{ladder:?}");
    }

    #[test]
    fn no_flush_is_found_with_its_cause() {
        for (write_cache, options, cause) in
            [("write back", "rw,nobarrier", "barriers"), ("write through", "rw", "write_cache")]
        {
            let ladder =
                judge(&on(write_cache, options, false, None), &evidence(0.0, 9_000, 1_000, 1_000));
            assert_eq!(ladder.grade, Grade::NoFlushReachesTheDevice);
            assert_eq!(ladder.rung, Rung::Claimed);
            assert!(ladder.reasons.iter().any(|reason| reason.contains(cause)), "{ladder:?}");
        }
    }

    #[test]
    fn a_spinning_disk_that_is_faster_than_its_turn_is_impossible() {
        let disk = on("write back", "rw", true, None);
        let ladder = judge(&disk, &evidence(1.0, 90_000, 15_000, 16_000));
        assert_eq!(ladder.grade, Grade::Impossible);
        let honest = judge(&disk, &evidence(1.0, 9_000_000, 4_000_000, 200_000_000));
        assert_eq!(honest.grade, Grade::HonestVolatileCache);
    }

    #[test]
    fn bytes_that_never_arrived_are_impossible() {
        let missing = Evidence { bytes_missing: true, ..evidence(1.0, 1, 1, 1) };
        let ladder = judge(&on("write back", "rw", false, None), &missing);
        assert_eq!(ladder.grade, Grade::Impossible);
    }

    /// The results of sync-cost and cache-flush: a plain durable write with its flush, and flushes
    /// with nothing and with 32 MiB cached, on a busy machine or not.
    fn measured(durable_ns: u64, flush_ns: [u64; 2], is_busy: bool) -> Vec<ExperimentResult> {
        let arm = |name: &str, method: SyncMethod, payload_bytes, p50_ns| {
            let summary = Summary { n: 400, p50_ns: Some(p50_ns), ..Summary::default() };
            let mut arm = ArmResult::of_summary(name, summary);
            method.name().clone_into(&mut arm.method);
            arm.payload_bytes = payload_bytes;
            arm.per_operation =
                Some(PerOperation { flushes: 1.0, device_writes: 1.0, device_kib: 4.0 });
            arm.warnings.extend(is_busy.then(|| Warning::new(Kind::Noisy, "waited 66 %")));
            arm
        };
        let result = |experiment: &str, arms| ExperimentResult {
            experiment: experiment.to_owned(),
            arms,
            ..ExperimentResult::empty()
        };
        let flush = |bytes, ns| {
            arm(&format!("{} cached", units::bytes(bytes)), SyncMethod::DirectFdatasync, bytes, ns)
        };
        vec![
            result(
                "sync-cost",
                vec![arm("fsync/append/4KiB", SyncMethod::ORDINARY, 4096, durable_ns)],
            ),
            result("cache-flush", vec![flush(0, flush_ns[0]), flush(32 << 20, flush_ns[1])]),
        ]
    }

    /// A flush of 3.27 ms that was the scheduler's once made an honest volatile cache of a device
    /// whose flush is free.
    #[test]
    fn a_busy_machine_earns_no_rung_and_no_verdict() {
        let drive = on("write back", "rw", false, None);
        let ladder = Ladder::of(&drive, &measured(3_300_000, [3_270_000, 3_200_000], true));
        assert_eq!((ladder.rung, ladder.grade), (Rung::Claimed, Grade::Unknown), "{ladder:?}");
        let said = ladder.in_words();
        let whole = "not known here, because fsync/append/4KiB was measured on a busy machine: stop \
                     what else runs, and measure again";
        assert!(said.contains(whole), "{said}");
        let mut half = measured(1_500_000, [1_000_000, 30_000_000], false);
        half[1].arms[1].warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        let ladder = Ladder::of(&drive, &half);
        assert_eq!((ladder.rung, ladder.grade), (Rung::Sent, Grade::Unknown), "{ladder:?}");
        assert!(ladder.in_words().contains("32 MiB cached was measured on a busy"), "{ladder:?}");
    }

    #[test]
    fn arms_that_contradict_each_other_earn_no_verdict() {
        let drive = on("write back", "rw", false, None);
        let ladder = Ladder::of(&drive, &measured(31_000, [3_270_000, 40_000_000], false));
        assert_eq!((ladder.rung, ladder.grade), (Rung::Sent, Grade::Unknown), "{ladder:?}");
        let said = ladder.in_words();
        assert!(said.contains("fsync/append/4KiB took 31.0 µs, its flush in it"), "{said}");
        let ladder = Ladder::of(&drive, &measured(4_000_000, [3_270_000, 16_000], false));
        assert_eq!((ladder.rung, ladder.grade), (Rung::Sent, Grade::Unknown), "{ladder:?}");
        let said = ladder.in_words();
        assert!(
            said.contains("3.27 ms with nothing cached and only 16.0 µs with 32 MiB"),
            "{said}"
        );
    }

    /// A disk behind a network takes a millisecond for every flush, whatever it does then.
    #[test]
    fn a_flush_that_takes_long_whatever_is_cached_is_not_known_to_empty_a_cache() {
        let disk = on("write back", "rw", false, None);
        let mut results = measured(1_400_000, [1_200_000, 1_210_000], false);
        let ladder = Ladder::of(&disk, &results);
        assert_eq!((ladder.rung, ladder.grade), (Rung::Plausible, Grade::Unknown), "{ladder:?}");
        assert!(ladder.in_words().contains("no such difference as emptying a"), "{ladder:?}");
        for arm in &mut results[1].arms {
            arm.summaries[0].block_p50_ns = (0..12).map(|block| 1_200_000 + block).collect();
        }
        let ladder = Ladder::of(&disk, &results);
        assert!(ladder.in_words().contains("as long whatever is cached"), "{ladder:?}");
    }

    /// "Flushes cannot be counted here" once stood beside a table that counted them, of fdatasync.
    #[test]
    fn the_flushes_of_what_was_run_are_counted_and_named() {
        let drive = on("write back", "rw", false, None);
        let mut results = measured(31_000, [15_000, 16_000], false);
        "fdatasync/overwritten/4KiB".clone_into(&mut results[0].arms[0].name);
        SyncMethod::Fdatasync.name().clone_into(&mut results[0].arms[0].method);
        let ladder = Ladder::of(&drive, &results);
        assert_eq!(ladder.rung, Rung::Plausible, "{ladder:?}");
        let counted = "the device counted 1.00 flushes per write of fdatasync/overwritten/4KiB";
        assert_eq!(ladder.reasons[0], counted);
        results[0].arms[0].per_operation = None;
        let said = Ladder::of(&drive, &results[..1]).in_words();
        assert!(said.contains("because what fdatasync/overwritten/4KiB sends to the"), "{said}");
        let flushes_alone = Ladder::of(&drive, &results[1..]);
        assert_eq!(flushes_alone.rung, Rung::Plausible, "{flushes_alone:?}");
        let counted = "the device counted 1.00 flushes per flush of 32 MiB cached";
        assert_eq!(flushes_alone.reasons[0], counted);
        let said = Ladder::of(&drive, &[]).in_words();
        assert!(said.contains("because no durable write was measured by itself: run"), "{said}");
    }

    /// A filesystem need not send a flush where nothing was written. "No flush reaches the device" was
    /// once concluded from that.
    #[test]
    fn a_flush_of_nothing_is_no_evidence() {
        let drive = on("write back", "rw", false, None);
        let mut results = measured(31_000, [1_000, 30_000_000], false).split_off(1);
        results[0].arms[0].per_operation.as_mut().unwrap().flushes = 0.0;
        let ladder = Ladder::of(&drive, &results);
        assert_eq!((ladder.rung, ladder.grade), (Rung::Sent, Grade::Unknown), "{ladder:?}");
        let why = "with nothing cached the device counted 0.00 flushes each and with 32 MiB 1.00";
        assert!(ladder.in_words().contains(why), "{ladder:?}");
        results[0].arms.truncate(1);
        let ladder = Ladder::of(&drive, &results);
        assert_eq!((ladder.rung, ladder.grade), (Rung::Claimed, Grade::Unknown), "{ladder:?}");
    }

    #[test]
    fn a_plain_arm_that_was_left_in_peace_is_taken_before_a_busy_one() {
        let drive = on("write back", "rw", false, None);
        let mut results = measured(31_000, [15_000, 16_000], false);
        let quiet =
            ArmResult { name: "fsync/overwritten/4KiB".into(), ..results[0].arms[0].clone() };
        results[0].arms[0].warnings.push(Warning::new(Kind::Noisy, "waited 66 %"));
        results[0].arms.push(quiet);
        let ladder = Ladder::of(&drive, &results);
        assert_eq!(ladder.rung, Rung::Plausible, "{ladder:?}");
        assert!(ladder.reasons[0].contains("fsync/overwritten/4KiB"), "{ladder:?}");
    }

    #[test]
    fn without_evidence_nothing_is_said_and_nothing_is_ever_called_safe() {
        let ladder = judge(&Environment::default(), &Evidence::default());
        assert_eq!((ladder.rung, ladder.grade), (Rung::Claimed, Grade::Unknown));
        for grade in [
            Grade::HonestVolatileCache,
            Grade::ProtectedOrVirtualCache,
            Grade::NoFlushReachesTheDevice,
            Grade::Impossible,
            Grade::Unknown,
        ] {
            let said = Ladder { grade, ..ladder.clone() };
            assert!(!said.in_words().contains("safe"), "{grade:?}");
            assert!(!said.cannot_know.is_empty());
        }
    }
}
