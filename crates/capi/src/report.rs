//! [`Marks`], [`Recovery`], [`Stats`]: what a log says of itself, as C takes it.

use std::ffi::{c_char, c_void};

use plimsoll_log as log;

use crate::code::text;

/// Bytes that are passed in: a record, or a piece of one.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    /// Where they are; may be NULL if there are none.
    pub bytes: *const c_void,
    /// How many.
    pub len: usize,
}

/// A record that was read.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Its number.
    pub index: u64,
    /// What was appended; the reader's, until its next call. Never NULL.
    pub bytes: *const c_void,
    /// How many bytes.
    pub len: usize,
}

/// How far a log is: durable <= written <= last_index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// The oldest record; one more than the newest if there is none.
    pub first_index: u64,
    /// The newest that was accepted.
    pub last_index: u64,
    /// The last that the kernel has.
    pub written: u64,
    /// The last that is durable.
    pub durable: u64,
}

/// What opening a log found, and did about it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Recovery {
    /// sizeof(plimsoll_recovery)
    pub struct_bytes: usize,
    /// There was no log: this one is new.
    pub created: bool,
    /// The log was closed, and nothing happened since.
    pub clean: bool,
    /// An unfinished last write was cut off. News, not an error: nothing in the log says that any of it was
    /// durable.
    pub torn: bool,
    /// Durable records are lost, and were given up by accept_loss.
    pub lost: bool,
    /// Files that were not part of the log any more, or not yet, and were removed.
    pub discarded_files: u32,
    /// The oldest record.
    pub first_index: u64,
    /// The newest. Everything up to it is durable now.
    pub last_index: u64,
    /// Records that were found in the ring's file and in no segment.
    pub replayed: u64,
    /// If torn: where the first record begins that is not there in whole.
    pub torn_byte_offset: u64,
    /// If lost: the first of them, as far as is known.
    pub lost_first: u64,
    /// If lost: the last of them, as far as is known.
    pub lost_last: u64,
    /// If torn or lost: the file.
    pub segment: [c_char; 32],
    /// If torn or lost: what is wrong there.
    pub damage: [c_char; 128],
    /// Why the ring's file could not be used, if it held anything; otherwise empty.
    pub ring_ignored: [c_char; 256],
}

/// A distribution, of nanoseconds or of what is counted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Distribution {
    /// How many were counted.
    pub n: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are no larger.
    pub p99: u64,
    /// 999 of 1000 are no larger.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// What a log did since it was opened. Quantiles are right to 1 %.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stats {
    /// sizeof(plimsoll_stats)
    pub struct_bytes: usize,
    /// Records appended.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Bytes written to segments.
    pub written_bytes: u64,
    /// Age of the oldest record that the kernel has and that is not durable.
    pub lag_ns: u64,
    /// Bytes that are held in the ring.
    pub ring_bytes: u64,
    /// The largest record that this log takes.
    pub max_record_bytes: u64,
    /// Files of the log.
    pub segments: u64,
    /// Segments that were filled.
    pub rotations: u64,
    /// Segments that failed and were replaced.
    pub failovers: u64,
    /// Appends, one in 64, and all that waited for room: copying into the ring, with the wait. So its upper
    /// quantiles are of more than the appends of a log that waits often; stall_ns has those alone.
    pub append_ns: Distribution,
    /// Writes to segments.
    pub write_ns: Distribution,
    /// Syncs.
    pub sync_ns: Distribution,
    /// Records that became durable by one sync.
    pub group_records: Distribution,
    /// Bytes in the ring, when the writer came to take some.
    pub occupancy_bytes: Distribution,
    /// Appends that waited for room.
    pub stall_ns: Distribution,
    /// How records are made durable here: o_direct+rwf_dsync, say.
    pub method: [c_char; 64],
    /// How segments are prepared here: zeroed, reserved or growing.
    pub layout: [c_char; 32],
}

impl Marks {
    /// The later mark is read later, so that none overtakes the next.
    pub(crate) fn of(log: &log::Log) -> Self {
        let first_index = log.first_index();
        let durable = log.durable();
        let written = log.written().max(durable);
        Self { first_index, last_index: log.last_index().max(written), written, durable }
    }
}

impl Recovery {
    pub(crate) fn of(found: &log::Recovery) -> Self {
        let torn = found.torn_tail.as_ref();
        let lost = found.lost.as_ref();
        let lost_records = lost.map_or(0..=0, |lost| lost.records.clone());
        let segment = torn.map(|torn| &torn.segment).or(lost.map(|lost| &lost.segment));
        let damage = torn.map(|torn| torn.damage).or(lost.map(|lost| lost.damage));
        Self {
            struct_bytes: size_of::<Self>(),
            created: found.created,
            clean: found.clean,
            torn: torn.is_some(),
            lost: lost.is_some(),
            discarded_files: u32::try_from(found.discarded.len()).unwrap_or(u32::MAX),
            first_index: found.first_index,
            last_index: found.last_index,
            replayed: found.replayed,
            torn_byte_offset: torn.map_or(0, |torn| torn.byte_offset),
            lost_first: *lost_records.start(),
            lost_last: *lost_records.end(),
            segment: text(segment.map_or("", String::as_str)),
            damage: text(&damage.map_or_else(String::new, |damage| damage.to_string())),
            ring_ignored: text(found.ring_ignored.as_deref().unwrap_or("")),
        }
    }
}

impl Distribution {
    const fn of(found: log::Distribution) -> Self {
        let log::Distribution { n, p50, p99, p999, max } = found;
        Self { n, p50, p99, p999, max }
    }
}

impl Stats {
    pub(crate) fn of(log: &log::Log) -> Self {
        let found = log.stats();
        Self {
            struct_bytes: size_of::<Self>(),
            records: found.records,
            payload_bytes: found.payload_bytes,
            written_bytes: found.written_bytes,
            lag_ns: found.lag_ns,
            ring_bytes: found.ring_bytes,
            max_record_bytes: log.max_record_bytes(),
            segments: found.segments,
            rotations: found.rotations,
            failovers: found.failovers,
            append_ns: Distribution::of(found.append_ns),
            write_ns: Distribution::of(found.write_ns),
            sync_ns: Distribution::of(found.sync_ns),
            group_records: Distribution::of(found.group_records),
            occupancy_bytes: Distribution::of(found.occupancy_bytes),
            stall_ns: Distribution::of(found.stall_ns),
            method: text(&found.method),
            layout: text(&found.layout),
        }
    }
}
