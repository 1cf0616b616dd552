//! [`Gap`]: where frames of a sealed segment cannot be read, and the bytes that stood there, put together
//! again from the records that are missing.
//!
//! A frame is a function of its place, the segment's salt, and its record. So a record that somebody else
//! still has makes the very bytes that were written here, and what survives of a frame says whether it is
//! that record: where the head is whole, its checksum covers index, length and payload.
//!
//! Marks may be missing too, and nobody else has those. What they said is not needed, as the segment is
//! durable; in their places come marks that say less.

use std::sync::Arc;

use plimsoll_sync::File;

use super::cursor::Cursor;
use super::damage::Damage;
use super::format::{BLOCK_BYTES, Decoded, FRAME_BYTES, Frame, Kind, hash, u64_at};
use super::header::Header;
use crate::error::Result;

/// A stretch of a segment in which no record can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Where it begins, and where what can be read again begins.
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// The first record that is missing, and the one behind the last.
    pub(crate) first: u64,
    pub(crate) next: u64,
    /// How many records of a batch follow the one before it.
    more_before: u32,
    /// Frames between that are whole, and no records: where they begin and end.
    kept: Vec<(u64, u64)>,
}

/// What of a segment that should have records `first` to `last` cannot be read. `records_end` is where the last
/// of them ends, if the next segment says so.
pub(crate) fn gaps(
    file: Arc<dyn File>,
    header: Header,
    (first, last): (u64, u64),
    records_end: Option<u64>,
) -> Result<std::result::Result<Vec<Gap>, Damage>> {
    let mut cursor = Cursor::new(file, header);
    let mut gaps = Vec::new();
    let (mut next, mut more) = (first, 0);
    while next <= last {
        match cursor.peek()? {
            Decoded::Frame(frame) if frame.kind == Kind::Record && frame.index == next => {
                (next, more) = (next + 1, frame.more);
                cursor.skip(&frame);
            }
            Decoded::Frame(frame) if matches!(frame.kind, Kind::Link | Kind::Mark | Kind::Pad) => {
                cursor.skip(&frame);
            }
            // What a segment follows no other node knows.
            _ if cursor.at() == BLOCK_BYTES => return Ok(Err(Damage::Content("link"))),
            _ => {
                let (at, mut kept) = (cursor.at(), Vec::new());
                let Some(behind) = behind(&mut cursor, (next, last), &mut kept)? else {
                    // Nothing tells where the records end that nothing follows.
                    let Some(end) = records_end.filter(|&end| end > at) else {
                        return Ok(Err(Damage::Missing));
                    };
                    kept.retain(|&(_, kept_end)| kept_end <= end);
                    gaps.push(Gap {
                        at,
                        end,
                        first: next,
                        next: last + 1,
                        more_before: more,
                        kept,
                    });
                    break;
                };
                let end = cursor.at();
                gaps.push(Gap { at, end, first: next, next: behind, more_before: more, kept });
                (next, more) = (behind, 0);
            }
        }
    }
    Ok(Ok(gaps))
}

/// The record that comes behind a gap, at which the cursor is then; `None` if only frames come that are none.
fn behind(
    cursor: &mut Cursor,
    (next, last): (u64, u64),
    kept: &mut Vec<(u64, u64)>,
) -> Result<Option<u64>> {
    let plausible = |frame: &Frame| match frame.kind {
        Kind::Record => (next..=last).contains(&frame.index),
        Kind::Mark => frame.payload_bytes == 0 && frame.index <= last,
        Kind::Seal => frame.index == last,
        Kind::Link | Kind::Pad => false,
    };
    let mut gave_up = false;
    while let Some(frame) = cursor.hunt(plausible, &mut gave_up)? {
        match frame.kind {
            Kind::Record => return Ok(Some(frame.index)),
            Kind::Seal => return Ok(Some(frame.index + 1)),
            _ => {
                kept.push((cursor.at(), cursor.at() + frame.bytes() as u64));
                cursor.skip(&frame);
            }
        }
    }
    Ok(None)
}

impl Gap {
    /// The bytes that stood in the gap, of which `old` is left, if these are the records that are missing.
    ///
    /// # Errors
    /// What shows that they are not.
    pub(crate) fn fill(
        &self,
        (salt, generation): (u64, u64),
        old: &[u8],
        mut record: impl FnMut(u64) -> Option<Vec<u8>>,
    ) -> std::result::Result<Vec<u8>, Damage> {
        let mut bytes = old.to_vec();
        let (mut index, mut more_before) = (self.first, self.more_before);
        let mut payload = None;
        let mut at = self.at;
        let stretches = self.kept.iter().copied().chain([(self.end, self.end)]);
        for (stretch_end, kept_end) in stretches {
            while at < stretch_end {
                let room = stretch_end - at;
                if index < self.next && payload.is_none() {
                    payload = Some(record(index).ok_or(Damage::Missing)?);
                }
                let place = Place { salt, gap: self, old, at, room };
                let fits = |payload: &Vec<u8>| {
                    let framed = place.frame(index, payload, more_before)?;
                    Ok(framed.filter(|_| !place.is_behind_a_mark(index, payload, more_before)))
                };
                let framed = payload.as_ref().map(fits).transpose()?.flatten();
                let framed = if let Some((framed, more)) = framed {
                    (index, more_before, payload) = (index + 1, more, None);
                    framed
                } else if room >= FRAME_BYTES as u64 {
                    let durable = self.first - 1;
                    Frame::mark(durable, generation).encode(salt, at, hash(&[])).to_vec()
                } else {
                    return Err(Damage::Order);
                };
                let from = place.offset();
                bytes[from..from + framed.len()].copy_from_slice(&framed);
                at += framed.len() as u64;
            }
            at = kept_end;
        }
        if index == self.next { Ok(bytes) } else { Err(Damage::Order) }
    }
}

/// A place in a gap, with room for so many bytes.
struct Place<'a> {
    salt: u64,
    gap: &'a Gap,
    old: &'a [u8],
    at: u64,
    room: u64,
}

impl Place<'_> {
    fn offset(&self) -> usize {
        usize::try_from(self.at - self.gap.at).expect("a gap was read into memory")
    }

    /// What is left of the head of a frame here.
    fn head(&self) -> Option<(u64, Frame)> {
        let head = self.old.get(self.offset()..)?.get(..FRAME_BYTES)?;
        Some((u64_at(head, 0), Frame::head(head)?))
    }

    /// The frame of a record here, and how many of its batch follow; `None` where it has no room.
    fn frame(
        &self,
        index: u64,
        payload: &[u8],
        more_before: u32,
    ) -> std::result::Result<Option<(Vec<u8>, u32)>, Damage> {
        let payload_bytes =
            u32::try_from(payload.len()).map_err(|_long| Damage::FrameLength(u32::MAX))?;
        let mut frame = Frame { kind: Kind::Record, index, payload_bytes, more: 0 };
        if frame.bytes() as u64 > self.room {
            return Ok(None);
        }
        let payload_hash = hash(payload);
        let encoded = |frame: &Frame| frame.encode(self.salt, self.at, payload_hash);
        let is_it = |frame: &Frame, checksum| u64_at(&encoded(frame), 0) == checksum;
        let left = self.head();
        let said = left.map(|(checksum, head)| (checksum, Frame { more: head.more, ..frame }));
        match said {
            Some((checksum, said)) if is_it(&said, checksum) => frame = said,
            _ => frame.more = more_before.saturating_sub(1),
        }
        if let Some((checksum, head)) = left
            && (head.kind, head.index, head.payload_bytes) == (Kind::Record, index, payload_bytes)
            && !is_it(&frame, checksum)
            && self.old[self.offset() + FRAME_BYTES..].get(..payload.len()) != Some(payload)
        {
            // The head is whole, and is the head of another record.
            return Err(Damage::FrameChecksum);
        }
        let mut bytes = encoded(&frame).to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(frame.bytes(), 0);
        Ok(Some((bytes, frame.more)))
    }

    /// Whether a mark was here, and the record's frame follows it.
    fn is_behind_a_mark(&self, index: u64, payload: &[u8], more_before: u32) -> bool {
        let mark_bytes = FRAME_BYTES as u64;
        if self.room <= mark_bytes || self.proves(index, payload, more_before) {
            return false;
        }
        let (at, room) = (self.at + mark_bytes, self.room - mark_bytes);
        Place { at, room, ..*self }.proves(index, payload, more_before)
    }

    /// Whether what is left here can only be the record's frame.
    fn proves(&self, index: u64, payload: &[u8], more_before: u32) -> bool {
        let left = self.old.get(self.offset()..).filter(|left| left.len() >= 8);
        let framed = self.frame(index, payload, more_before).ok().flatten();
        left.zip(framed).is_some_and(|(left, (bytes, _))| left[..8] == bytes[..8])
    }
}
