//! A piece of a record, read by itself: of a record of a mebibyte, the kibibyte that is wanted.
//!
//! The checksum of a frame covers the whole record, so a piece cannot be checked here: whoever reads pieces
//! has checksums of their own in what they append. The heads of the frames that lead to it are held against
//! the indexes that must stand there.

use super::Live;
use super::lookup;
use super::source::Source;
use crate::error::{Error, Result};
use crate::segment::damage::Damage;
use crate::segment::format::{BLOCK_BYTES, FRAME_BYTES, Frame, Kind};
use crate::segment::head::segment_name;

/// Reads bytes of a record from `offset` on into `buf`, and returns how many there were: fewer than asked
/// for only at the record's end.
pub(crate) fn read(live: &Live, index: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
    loop {
        let epoch = live.files.segments.epoch();
        let read = try_read(live, index, offset, buf);
        // A file that was taken away meanwhile may have been used again, and nothing here checks its bytes.
        let is_there = live.files.first_index() <= index;
        if is_there && live.files.segments.epoch() == epoch {
            return read;
        }
        Source::Live(live.clone()).check_range(index)?;
    }
}

fn try_read(live: &Live, index: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let source = Source::Live(live.clone());
    let written = live.marks.written.get();
    source.check_range(index)?;
    if index > written {
        let first_index = live.files.first_index();
        return Err(Error::OutOfRange { index, first_index, last_index: written });
    }
    let Some((span, opened)) = lookup::find(&source, index)? else {
        let (first_index, last_index) = (live.files.first_index(), written);
        return Err(Error::OutOfRange { index, first_index, last_index });
    };
    let near = lookup::near(&source, span, &opened, index)?;
    let mut at = near.byte_offset.max(BLOCK_BYTES);
    let mut expected = None;
    let name = || segment_name(span.first_index);
    loop {
        let mut head = [0; FRAME_BYTES];
        let held = opened.file.read_at(&mut head, at)?;
        let frame = if held == FRAME_BYTES { Frame::head(&head) } else { None };
        let frame = frame.filter(|frame| {
            let fits = at + frame.bytes() as u64 <= opened.header.segment_bytes;
            let is_next = expected.is_none_or(|expected| frame.index == expected);
            let leads_on = (span.first_index..=index).contains(&frame.index);
            fits && (frame.kind != Kind::Record || is_next && leads_on)
        });
        let Some(frame) = frame else {
            return Err(Error::corrupt(name(), at, Damage::Order, index..=index));
        };
        if frame.kind == Kind::Record {
            if frame.index == index {
                let left = u64::from(frame.payload_bytes).saturating_sub(offset);
                if left == 0 {
                    return Ok(0);
                }
                let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
                let from = at + FRAME_BYTES as u64 + offset;
                let read = opened.file.read_at(&mut buf[..bytes], from)?;
                let short = || Error::corrupt(name(), from, Damage::Short, index..=index);
                return if read == bytes { Ok(bytes) } else { Err(short()) };
            }
            expected = Some(frame.index + 1);
        }
        at += frame.bytes() as u64;
    }
}
