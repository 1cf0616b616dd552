//! How far a disk's word has been checked: the ladder of truth. Pure.
//!
//! 1. *claimed*: the call returned.
//! 2. *sent*: the kernel sent a flush (or a forced write) to the device for it, and counted it.
//! 3. *plausible*: what the device answered fits what a device can do.
//! 4. *survived*: the bytes were there after a power cut.
//!
//! Invariant: below the last rung, no disk is called safe. The best that can be said is that
//! nothing was found against its word.

use plimsoll_sync::{Promise, SyncMethod};
use serde::{Deserialize, Serialize};

use crate::device::DeviceFacts;
use crate::environment::Environment;
use crate::result::{ArmResult, ExperimentResult};
use crate::units;
use crate::warning::Kind;

/// A cache that seems to be emptied faster than this is not emptied: no single device writes so
/// fast.
const EMPTIED_GIB_S_MAX: f64 = 16.0;
/// A flush that takes so long does something, however much was cached.
const FLUSH_WORKS_NS: u64 = 300_000;
/// Most disks turn 7,200 times a minute or less: half a turn takes 4.2 ms. In less time than this,
/// no spinning disk has written anything.
const SPINNING_NS_MIN: u64 = 1_000_000;

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
    /// What these measurements cannot know.
    pub cannot_know: Vec<String>,
}

/// What is known of a disk, from the experiments.
#[derive(Debug, Clone, Default)]
struct Evidence {
    /// Flushes per plain durable write.
    flushes: Option<f64>,
    /// The median of the cheapest durable write.
    durable_ns: Option<u64>,
    /// The median of a flush with nothing cached, that with the most cached, and how much that was.
    flush: Option<(u64, u64, u64)>,
    /// Whether bytes that were reported durable never reached the device.
    bytes_missing: bool,
}

impl Ladder {
    /// Judges one disk by its `results`, whichever experiments there are.
    #[must_use]
    pub fn of(environment: &Environment, results: &[ExperimentResult]) -> Self {
        judge(environment, &Evidence::of(results))
    }

    /// The verdict in one sentence.
    #[must_use]
    pub fn in_words(&self) -> &'static str {
        match self.grade {
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
            Grade::Unknown => "Too little could be measured here to judge the word of this disk.",
        }
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
        let plain = sync_cost.iter().find(|arm| arm.method == SyncMethod::ORDINARY.name());
        let flushes = plain.and_then(|arm| arm.per_operation).map(|device| device.flushes);
        let missing = |arm: &&ArmResult| arm.warnings.iter().any(|w| w.kind == Kind::BytesMissing);
        let flush = arms("cache-flush");
        let empty = flush.iter().find(|arm| arm.payload_bytes == 0);
        let most = flush.iter().max_by_key(|arm| arm.payload_bytes);
        let flush = empty
            .zip(most)
            .and_then(|(empty, most)| Some((empty.p50_ns()?, most.p50_ns()?, most.payload_bytes)));
        Self {
            flushes,
            durable_ns: sync_cost.iter().filter_map(|arm| arm.p50_ns()).min(),
            flush,
            bytes_missing: sync_cost.iter().any(missing),
        }
    }
}

/// Whether a flush that took `empty_ns` with nothing cached and `full_ns` with `cached_bytes` has
/// emptied a cache.
#[must_use]
pub fn empties(empty_ns: u64, full_ns: u64, cached_bytes: u64) -> bool {
    let beyond = full_ns.saturating_sub(empty_ns).max(1);
    let gib_s = units::ratio(cached_bytes, 1 << 30) / units::ratio(beyond, 1_000_000_000);
    cached_bytes > 0 && gib_s <= EMPTIED_GIB_S_MAX && full_ns > empty_ns + empty_ns / 2
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
        cannot_know: vec![
            "whether the bytes survive a power cut: nobody pulled the plug".to_owned(),
        ],
    };
    if evidence.bytes_missing {
        ladder.grade = Grade::Impossible;
        ladder.reasons.push("bytes were reported durable that never reached the device".to_owned());
        return ladder;
    }
    let Some(flushes) = evidence.flushes else {
        ladder.reasons.push("flushes cannot be counted here".to_owned());
        return ladder;
    };
    ladder.reasons.push(format!("the device counted {flushes:.2} flushes per plain durable write"));
    let barriers_off = crate::verdict::barriers_off(environment);
    if flushes < 0.9 && (!fua || barriers_off) {
        ladder.grade = Grade::NoFlushReachesTheDevice;
        ladder.reasons.push(why_no_flush(environment, barriers_off).to_owned());
        return ladder;
    }
    ladder.rung = Rung::Sent;
    if spinning && evidence.durable_ns.is_some_and(|ns| ns < SPINNING_NS_MIN) {
        ladder.grade = Grade::Impossible;
        ladder.reasons.push(format!(
            "a durable write took {}, and a spinning disk needs milliseconds: a cache answered; if \
             it is a controller's with a battery, that is its word",
            units::time(evidence.durable_ns.unwrap_or_default())
        ));
        return ladder;
    }
    let Some((empty_ns, full_ns, bytes)) = evidence.flush else {
        ladder.reasons.push("what a flush costs was not measured: run cache-flush".to_owned());
        return ladder;
    };
    judge_flush(&mut ladder, empty_ns, full_ns, bytes);
    if ladder.grade == Grade::ProtectedOrVirtualCache {
        let unknown = if virtual_machine {
            "whether the hypervisor passes flushes on: ask its operator, or cut its power"
        } else {
            "whether the device protects its cache: look for power-loss protection in its data sheet"
        };
        ladder.cannot_know.push(unknown.to_owned());
    }
    ladder
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

/// Grades a device by what its flush takes with nothing cached and with so many bytes cached.
fn judge_flush(ladder: &mut Ladder, empty_ns: u64, full_ns: u64, bytes: u64) {
    ladder.rung = Rung::Plausible;
    ladder.reasons.push(format!(
        "a flush took {} with nothing cached and {} with {}",
        units::time(empty_ns),
        units::time(full_ns),
        units::bytes(bytes)
    ));
    let works = empties(empty_ns, full_ns, bytes) || empty_ns.min(full_ns) >= FLUSH_WORKS_NS;
    ladder.grade = if works { Grade::HonestVolatileCache } else { Grade::ProtectedOrVirtualCache };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Mount;

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
        Evidence {
            flushes: Some(flushes),
            durable_ns: Some(durable_ns),
            flush: Some((empty_ns, full_ns, 32 << 20)),
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
