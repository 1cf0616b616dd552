//! Reads a segment and says what is in it: its records, where they end and why, and what stands behind
//! that. From its beginning, or from near its end where it was [closed](Closed).

use std::ops::RangeInclusive;
use std::sync::Arc;

use plimsoll_sync::File;

use super::cursor::Cursor;
use super::damage::Damage;
use super::format::{BLOCK_BYTES, Decoded, FRAME_BYTES, Frame, Kind};
use super::header::Header;
use super::link::Link;
use super::sparse::SparseIndex;
use crate::error::Result;

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// The last record of a complete batch, or the one before the first if there is none.
    pub(crate) last_index: u64,
    /// Where it ends.
    pub(crate) records_end: u64,
    /// Where the last valid frame that belongs to the log ends.
    pub(crate) frames_end: u64,
    /// Records that were read.
    pub(crate) records: u64,
    /// The last record that this segment says was durable.
    pub(crate) durable: u64,
    /// What its marks say of its generation.
    pub(crate) generation_bits: Option<u32>,
    pub(crate) sparse: SparseIndex,
    pub(crate) stop: Stop,
    /// Whether valid frames of this segment stand behind the stop.
    pub(crate) more_behind: bool,
}

/// Where a segment ended when its log was closed, which is noted beside it. Everything up to there was
/// durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) log_id: u128,
    pub(crate) generation: u64,
    pub(crate) first_index: u64,
    pub(crate) salt: u64,
    pub(crate) last_index: u64,
    pub(crate) records_end: u64,
    pub(crate) frames_end: u64,
    pub(crate) sparse: SparseIndex,
}

/// Why the frames end where they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The segment is full.
    Sealed,
    /// Nothing was written there.
    Empty,
    /// Something was.
    Damaged { byte_offset: u64, damage: Damage },
    /// The next segment begins with the next record.
    Superseded,
}

impl Scanned {
    fn nothing(link: Link) -> Self {
        Self {
            last_index: link.first_index - 1,
            records_end: BLOCK_BYTES,
            frames_end: BLOCK_BYTES,
            records: 0,
            durable: link.durable,
            generation_bits: None,
            sparse: SparseIndex::default(),
            stop: Stop::Empty,
            more_behind: false,
        }
    }

    /// All up to this record is behind the cursor, or damaged.
    fn reaches(&mut self, last_index: u64, at: u64) {
        (self.last_index, self.records_end, self.frames_end) = (last_index, at, at);
    }

    fn meet_mark(&mut self, mark: &Frame) {
        self.durable = self.durable.max(mark.index);
        self.generation_bits = Some(mark.more);
    }

    /// What is wrong where the frames end, seen by who expected more of them.
    pub(crate) fn damage(&self) -> (u64, Damage) {
        match self.stop {
            Stop::Damaged { byte_offset, damage } => (byte_offset, damage),
            Stop::Sealed | Stop::Empty | Stop::Superseded => (self.frames_end, Damage::Empty),
        }
    }
}

/// The most that is read of a segment that was closed, where a mark stands at its end.
const CHECKED_BYTES: u64 = 128 << 10;

/// Reads the segment, no further than record `until`.
pub(crate) fn scan(file: Arc<dyn File>, header: Header, link: Link, until: u64) -> Result<Scanned> {
    let scanned = Scanned::nothing(link);
    scan_on(&mut Cursor::new(file, header), scanned, header, link, until)
}

/// The same, and passes over what is damaged of the records up to `durable`, if one behind that can be read or
/// begins the next segment.
pub(crate) fn scan_around(
    file: Arc<dyn File>,
    header: Header,
    link: Link,
    until: u64,
    durable: u64,
) -> Result<Scanned> {
    let mut cursor = Cursor::new(file, header);
    let mut scanned = Scanned::nothing(link);
    while scanned.last_index < durable {
        match cursor.peek()? {
            Decoded::Frame(frame)
                if frame.kind == Kind::Record && frame.index == scanned.last_index + 1 =>
            {
                scanned.sparse.note(frame.index, cursor.at());
                scanned.records += 1;
                cursor.skip(&frame);
                scanned.reaches(frame.index, cursor.at());
            }
            Decoded::Frame(frame) if matches!(frame.kind, Kind::Link | Kind::Mark | Kind::Pad) => {
                if frame.kind == Kind::Mark {
                    scanned.meet_mark(&frame);
                }
                cursor.skip(&frame);
                scanned.frames_end = cursor.at();
            }
            _ => {
                let missing = scanned.last_index + 1;
                let last = match record_behind(&mut cursor, missing..=durable + 1)? {
                    Some(behind) => behind - 1,
                    None if durable == until => until,
                    None => break,
                };
                scanned.reaches(last, cursor.at());
                // It is not written on.
                scanned.more_behind = true;
            }
        }
    }
    cursor.seek(scanned.frames_end);
    scan_on(&mut cursor, scanned, header, link, until)
}

/// The next of these records that can be read, at which the cursor is then.
fn record_behind(cursor: &mut Cursor, wanted: RangeInclusive<u64>) -> Result<Option<u64>> {
    let is_one = |frame: &Frame| frame.kind == Kind::Record && wanted.contains(&frame.index);
    let found = cursor.hunt(is_one, &mut false)?;
    Ok(found.map(|frame| frame.index))
}

/// Reads on from where the cursor is.
fn scan_on(
    cursor: &mut Cursor,
    mut scanned: Scanned,
    header: Header,
    link: Link,
    until: u64,
) -> Result<Scanned> {
    walk(cursor, &mut scanned, link, until)?;
    // Also where nothing seems to be missing: the first block of several that were written may be the
    // one that was lost.
    if !matches!(scanned.stop, Stop::Superseded | Stop::Sealed) {
        look_behind(cursor, &mut scanned, header)?;
    }
    Ok(scanned)
}

/// Reads the end of a segment that was closed, and what came behind. Where nothing did, nothing that was
/// written there can have been lost: the note is gone before anything is written.
pub(crate) fn scan_closed(
    file: Arc<dyn File>,
    header: Header,
    link: Link,
    closed: &Closed,
) -> Result<Scanned> {
    // The last records are read, or the mark behind them, so that an end that is missing is noticed.
    let (next, begin) = closed.sparse.last().unwrap_or((link.first_index, BLOCK_BYTES));
    let is_far = closed.frames_end.saturating_sub(begin) > CHECKED_BYTES;
    let by_mark = is_far && ends_with_mark(&file, header, closed)?;
    let mark_at = closed.frames_end.saturating_sub(FRAME_BYTES as u64);
    let (last_index, records_end, frames_end) = match by_mark {
        true => (closed.last_index, closed.records_end, mark_at),
        false => (next - 1, begin, begin),
    };
    let mut scanned = Scanned {
        last_index,
        records_end,
        frames_end,
        records: 0,
        durable: link.durable.max(closed.last_index),
        generation_bits: None,
        sparse: closed.sparse.clone(),
        stop: Stop::Empty,
        more_behind: false,
    };
    let bytes = closed.frames_end.saturating_sub(scanned.frames_end);
    let mut cursor = Cursor::for_lookup(file, header, bytes);
    cursor.seek(scanned.frames_end);
    walk(&mut cursor, &mut scanned, link, u64::MAX)?;
    let is_as_closed = scanned.stop == Stop::Empty
        && (scanned.last_index, scanned.frames_end) == (closed.last_index, closed.frames_end);
    if !is_as_closed {
        look_behind(&mut cursor, &mut scanned, header)?;
    }
    Ok(scanned)
}

/// The records that are read: one, or those of a batch.
struct Unit {
    /// Of a batch that is not complete yet: its next record, and how many come after that.
    next: Option<(u64, u32)>,
    /// Where it begins.
    at: u64,
}

impl Unit {
    fn is_whole(&self) -> bool {
        self.next.is_none()
    }

    /// Whether a record is the next one, behind `last`.
    fn takes(&mut self, frame: &Frame, at: u64, last: u64, until: u64) -> bool {
        let is_next = match self.next {
            None => frame.index == last + 1,
            Some(next) => (frame.index, frame.more) == next,
        };
        if self.is_whole() {
            self.at = at;
        }
        // A truncation may have cut a batch in two.
        let goes_on = frame.more > 0 && frame.index < until;
        self.next = goes_on.then(|| (frame.index + 1, frame.more.saturating_sub(1)));
        is_next
    }
}

/// Whether the mark stands there that a log writes when it is closed.
fn ends_with_mark(file: &Arc<dyn File>, header: Header, closed: &Closed) -> Result<bool> {
    let Some(at) = closed.frames_end.checked_sub(FRAME_BYTES as u64) else { return Ok(false) };
    let mut cursor = Cursor::for_lookup(Arc::clone(file), header, 0);
    cursor.seek(at);
    Ok(match cursor.peek()? {
        Decoded::Frame(frame) => frame.kind == Kind::Mark && frame.index == closed.last_index,
        _ => false,
    })
}

fn walk(cursor: &mut Cursor, scanned: &mut Scanned, link: Link, until: u64) -> Result<()> {
    let mut unit = Unit { next: None, at: scanned.frames_end };
    let mut sparse = scanned.sparse.clone();
    loop {
        if unit.is_whole() && scanned.last_index >= until {
            scanned.stop = Stop::Superseded;
            return Ok(());
        }
        let at = cursor.at();
        let damaged = |damage| Stop::Damaged { byte_offset: at, damage };
        let frame = match cursor.peek()? {
            Decoded::Frame(frame) => frame,
            Decoded::Empty if unit.is_whole() => {
                scanned.stop = Stop::Empty;
                return Ok(());
            }
            Decoded::Empty | Decoded::Needs(_) => {
                scanned.stop = Stop::Damaged { byte_offset: unit.at, damage: Damage::Batch };
                return Ok(());
            }
            Decoded::Bad(damage) => {
                scanned.stop = damaged(damage);
                return Ok(());
            }
        };
        match frame.kind {
            Kind::Record => {
                if !unit.takes(&frame, at, scanned.last_index, until) {
                    scanned.stop = damaged(Damage::Order);
                    return Ok(());
                }
                sparse.note(frame.index, at);
                cursor.skip(&frame);
                if unit.is_whole() {
                    scanned.records += frame.index - scanned.last_index;
                    scanned.last_index = frame.index;
                    scanned.records_end = cursor.at();
                    scanned.frames_end = cursor.at();
                    scanned.sparse.catch_up(&sparse);
                }
                continue;
            }
            _ if !unit.is_whole() => {
                scanned.stop = Stop::Damaged { byte_offset: unit.at, damage: Damage::Batch };
                return Ok(());
            }
            Kind::Link if at != BLOCK_BYTES || frame.index != link.first_index => {
                scanned.stop = damaged(Damage::Content("link"));
                return Ok(());
            }
            Kind::Link => scanned.records_end = at + frame.bytes() as u64,
            Kind::Mark => scanned.meet_mark(&frame),
            Kind::Pad => {}
            Kind::Seal => {
                cursor.skip(&frame);
                scanned.frames_end = cursor.at();
                scanned.stop = Stop::Sealed;
                return Ok(());
            }
        }
        cursor.skip(&frame);
        scanned.frames_end = cursor.at();
    }
}

/// Valid frames behind the stop: they could come back if something were written before them, and
/// their marks may say that what is damaged was durable.
fn look_behind(cursor: &mut Cursor, scanned: &mut Scanned, header: Header) -> Result<()> {
    cursor.seek(scanned.frames_end);
    let most = scanned.last_index.saturating_add(header.segment_bytes);
    let plausible = |frame: &Frame| match frame.kind {
        Kind::Mark => frame.payload_bytes == 0 && frame.index <= most,
        Kind::Record | Kind::Pad | Kind::Seal => frame.index <= most,
        Kind::Link => false,
    };
    let mut gave_up = false;
    while let Some(frame) = cursor.hunt(plausible, &mut gave_up)? {
        scanned.more_behind = true;
        if frame.kind == Kind::Mark {
            scanned.meet_mark(&frame);
        }
        cursor.skip(&frame);
    }
    scanned.more_behind |= gave_up;
    Ok(())
}
