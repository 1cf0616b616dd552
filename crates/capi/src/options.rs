//! [`Options`]: how a log is opened, and [`CrewOptions`]: what a crew has, as C says it.

use std::ffi::c_char;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_log as log;

use crate::code::{Refusal, Result};

/// When the log syncs on its own account. Whoever waits for more gets it, under any policy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum Policy {
    /// In the background: a sync is due once a record is as old as max_age_ns, or max_bytes are not
    /// durable. Appends wait where twice as much is not durable, or one is twice as old: no more than that
    /// a power cut may take. The default: a second, 64 MiB.
    Interval = 0,
    /// An append returns when the record is durable; one sync serves everybody who waits.
    Always = 1,
    /// Only when a segment is full, and at plimsoll_close.
    Never = 2,
}

/// How far a record must be when an append returns.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub enum Ack {
    /// What the policy gives: durable under PLIMSOLL_POLICY_ALWAYS, otherwise buffered.
    Policy = 0,
    /// In memory of this process. Survives nothing; a crash of the process where the ring is a file
    /// (ring_file).
    Buffered = 1,
    /// With the kernel. Survives a crash of the process.
    Written = 2,
    /// Covered by a good sync. Survives crashes and power cuts.
    Durable = 3,
}

/// A policy as C passes it: any number.
pub(crate) type PolicyNumber = u32;
/// A level as C passes it: any number.
pub(crate) type AckNumber = u32;
/// A bool as C passes it: any byte.
pub(crate) type Flag = u8;

/// Options as C gives them: numbers and pointers, so that any bytes are some, and the first says how many.
pub(crate) trait Given: Copy {
    /// As the header calls them, behind plimsoll_.
    const NAME: &'static str;
    /// How many bytes the first published version had: nobody has less of it.
    const BYTES_MIN: usize;
    /// All defaults.
    const DEFAULTS: Self;
}

/// How a log is opened. Set struct_bytes, leave what you do not care for 0: the defaults are right for
/// most.
///
/// plimsoll_options options = {.struct_bytes = sizeof options, .policy = PLIMSOLL_POLICY_ALWAYS};
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// sizeof(plimsoll_options)
    pub struct_bytes: usize,
    /// When the log syncs by itself.
    pub policy: PolicyNumber,
    /// Through the page cache also where the filesystem lets us past it (O_DIRECT).
    pub page_cache: Flag,
    /// Open although durable records are lost: cut the log before the first of them. For whoever has
    /// looked at `plimsoll log verify`.
    pub accept_loss: Flag,
    /// 0.
    pub reserved: [u8; 2],
    /// Of PLIMSOLL_POLICY_INTERVAL: age of the oldest record that is not durable; 0: a second.
    pub max_age_ns: u64,
    /// Of PLIMSOLL_POLICY_INTERVAL: bytes that are not durable; 0: 64 MiB.
    pub max_bytes: u64,
    /// Size of a segment file, a multiple of 4 KiB, 64 KiB to 1 GiB; 0: 64 MiB.
    pub segment_bytes: u64,
    /// Bytes of records that may be accepted and not yet durable, a power of two, 4 KiB to 512 MiB,
    /// whatever the size of a segment; 0: 32 MiB. The largest record is half of it.
    pub ring_bytes: u64,
    /// Index of the first record of a log that is made; 0: 1. A log that exists goes on where it is.
    pub first_index: u64,
    /// NULL, or a file on tmpfs (like /dev/shm/NAME) for the ring: then a record survives a crash of the
    /// process from the moment an append returns. One file for one log.
    pub ring_file: *const c_char,
}

/// What a crew has. Set struct_bytes, leave what you do not care for 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CrewOptions {
    /// sizeof(plimsoll_crew_options)
    pub struct_bytes: usize,
    /// Bytes of records that may be accepted and not yet durable, in all logs together; 0: 256 MiB. Who
    /// finds them used up waits, as with a ring that is full. A log has 64 KiB in any case.
    pub ring_bytes: u64,
    /// Threads for all logs, at most 1,024; 0: 4. One that waits for a disk serves no other log meanwhile.
    pub threads: u32,
    /// 0.
    pub reserved: u32,
}

impl Given for Options {
    const NAME: &'static str = "options";
    const BYTES_MIN: usize = std::mem::offset_of!(Self, ring_file) + size_of::<*const c_char>();
    const DEFAULTS: Self = Self {
        struct_bytes: size_of::<Self>(),
        policy: 0,
        page_cache: 0,
        accept_loss: 0,
        reserved: [0; 2],
        max_age_ns: 0,
        max_bytes: 0,
        segment_bytes: 0,
        ring_bytes: 0,
        first_index: 0,
        ring_file: std::ptr::null(),
    };
}

impl Given for CrewOptions {
    const NAME: &'static str = "crew_options";
    const BYTES_MIN: usize = std::mem::offset_of!(Self, reserved) + size_of::<u32>();
    const DEFAULTS: Self =
        Self { struct_bytes: size_of::<Self>(), ring_bytes: 0, threads: 0, reserved: 0 };
}

impl Options {
    pub(crate) fn set_policy(&mut self, policy: log::Policy) {
        match policy {
            log::Policy::Interval { max_age, max_bytes } => {
                self.policy = Policy::Interval as PolicyNumber;
                self.max_age_ns = u64::try_from(max_age.as_nanos()).unwrap_or(u64::MAX);
                self.max_bytes = max_bytes;
            }
            log::Policy::Always => self.policy = Policy::Always as PolicyNumber,
            log::Policy::Never => self.policy = Policy::Never as PolicyNumber,
        }
    }

    /// As the log takes them; its own check comes when it is opened. `ring_file` was read already.
    pub(crate) fn check(&self, ring_file: Option<PathBuf>) -> Result<log::Options> {
        if self.reserved != [0; 2] {
            return Err(Refusal::invalid("options.reserved must be 0"));
        }
        let policy = match self.policy {
            0 => log::Policy::Interval {
                max_age: Duration::from_nanos(or(self.max_age_ns, 1_000_000_000)),
                max_bytes: or(self.max_bytes, 64 << 20),
            },
            1 => log::Policy::Always,
            2 => log::Policy::Never,
            other => return Err(Refusal::invalid(format!("no policy has number {other}"))),
        };
        let defaults = log::Options::default();
        Ok(log::Options {
            policy,
            segment_bytes: or(self.segment_bytes, defaults.segment_bytes),
            ring_bytes: or(self.ring_bytes, defaults.ring_bytes),
            ring: ring_file.map_or(log::Ring::Memory, log::Ring::File),
            direct: self.page_cache == 0,
            first_index: or(self.first_index, defaults.first_index),
            accept_loss: self.accept_loss != 0,
            ..defaults
        })
    }
}

impl CrewOptions {
    /// As the log takes them; its own check comes when the crew starts.
    pub(crate) fn check(&self) -> Result<log::CrewOptions> {
        if self.reserved != 0 {
            return Err(Refusal::invalid("crew_options.reserved must be 0"));
        }
        let defaults = log::CrewOptions::default();
        let threads = match self.threads {
            0 => defaults.threads,
            threads => usize::try_from(threads).unwrap_or(usize::MAX),
        };
        Ok(log::CrewOptions { threads, ring_bytes: or(self.ring_bytes, defaults.ring_bytes) })
    }
}

/// What 0 means.
const fn or(value: u64, default: u64) -> u64 {
    if value == 0 { default } else { value }
}

/// The level of an append; `None` is what the policy gives.
pub(crate) fn ack(number: AckNumber) -> Result<Option<log::Ack>> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(log::Ack::Buffered)),
        2 => Ok(Some(log::Ack::Written)),
        3 => Ok(Some(log::Ack::Durable)),
        other => Err(Refusal::invalid(format!("no ack has number {other}"))),
    }
}

/// How far records are to be when they are read.
pub(crate) fn level(number: AckNumber) -> Result<log::Ack> {
    Ok(ack(number)?.unwrap_or(log::Ack::Written))
}

/// How far a record is to be when somebody has waited for it. It is named: what was meant to be durable
/// and says 0 would be less.
pub(crate) fn awaited(number: AckNumber) -> Result<log::Ack> {
    match ack(number)? {
        Some(level @ (log::Ack::Written | log::Ack::Durable)) => Ok(level),
        _ => Err(Refusal::invalid(
            "a wait is for PLIMSOLL_ACK_WRITTEN or PLIMSOLL_ACK_DURABLE: an append returns with less",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_first_version_has_its_size_for_ever() {
        assert_eq!(Options::BYTES_MIN, 64);
        assert_eq!(CrewOptions::BYTES_MIN, 24);
    }
}
