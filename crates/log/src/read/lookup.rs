//! Where a record is in its segment: near it, by what is known of where records begin.

use std::ops::Range;
use std::sync::Arc;

use super::source::Source;
use crate::error::{Error, Result};
use crate::files::list::{Span, Whereabouts};
use crate::files::opened::Opened;
use crate::segment::ahead::PIECE_BYTES;
use crate::segment::cursor::Cursor;
use crate::segment::format::{BLOCK_BYTES, Decoded, FRAME_ALIGN, Kind};
use crate::segment::head::{read_header, segment_name};
use crate::segment::sparse::{Near, SPARSE_BYTES, SparseIndex};

/// The segment that covers a record, open; `None` if none does.
pub(super) fn find(source: &Source, index: u64) -> Result<Option<(Span, Arc<Opened>)>> {
    let mut found = source.find(index);
    loop {
        let Some(Whereabouts { span, opened, epoch }) = found else { return Ok(None) };
        if let Some(opened) = opened {
            return Ok(Some((span, opened)));
        }
        match open(source, span.first_index) {
            Ok(opened) => {
                let opened = Arc::new(opened);
                if let Source::Live(live) = source {
                    live.files.segments.keep(&opened, epoch);
                }
                return Ok(Some((span, opened)));
            }
            Err(error) => {
                source.refresh()?;
                source.check_range(index)?;
                found = source.find(index);
                // Retention or a cut may have taken it before it was open.
                let is_same = |found: &Whereabouts| {
                    (found.span.first_index, found.epoch) == (span.first_index, epoch)
                };
                if found.as_ref().is_some_and(is_same) {
                    return Err(error);
                }
            }
        }
    }
}

fn open(source: &Source, first_index: u64) -> Result<Opened> {
    let file = source.open(first_index)?;
    let records = first_index..=u64::MAX;
    let header = read_header(&*file, first_index)?
        .map_err(|damage| Error::corrupt(segment_name(first_index), 0, damage, records))?;
    Ok(Opened::new(first_index, header, file))
}

/// A cursor at a frame at or before a record's, and the index of the record that comes next there.
pub(super) fn cursor_at(
    source: &Source,
    span: Span,
    opened: &Opened,
    index: u64,
    is_long: bool,
) -> Result<(Cursor, u64)> {
    let near = near(source, span, opened, index)?;
    let mut cursor = Cursor::for_lookup(Arc::clone(&opened.file), opened.header, near.bytes);
    if matches!(source, Source::Live(live) if live.helps) {
        cursor = cursor.with_help(is_long);
    }
    if near.byte_offset > BLOCK_BYTES {
        // The index leads near; the frame there says which record it is.
        cursor.seek(near.byte_offset);
        match cursor.peek()? {
            Decoded::Frame(frame)
                if frame.kind == Kind::Record
                    && (span.first_index..=index).contains(&frame.index) =>
            {
                return Ok((cursor, frame.index));
            }
            _ => cursor.seek(BLOCK_BYTES),
        }
    }
    Ok((cursor, span.first_index))
}

/// Pieces of the segment behind `after` that two threads can read and check, as far as it is known where
/// frames begin.
pub(super) fn pieces(
    source: &Source,
    span: Span,
    opened: &Opened,
    after: u64,
) -> Result<Vec<Range<u64>>> {
    if let (Source::Live(live), None) = (source, span.last_index) {
        return Ok(live.files.segments.ranges(opened.header.salt, after, PIECE_BYTES));
    }
    let sealed = sealed(source, span, opened)?;
    Ok(sealed.map_or_else(Vec::new, |sparse| sparse.ranges(after, PIECE_BYTES)))
}

/// Where to begin to look for a record: at the segment's beginning if nothing else is known.
pub(super) fn near(source: &Source, span: Span, opened: &Opened, index: u64) -> Result<Near> {
    let header = opened.header;
    let frames = BLOCK_BYTES..header.segment_bytes;
    let from_the_beginning = match span.last_index {
        Some(last) => Near::among(span.first_index, last + 1, frames, index),
        None => Near { byte_offset: frames.start, bytes: SPARSE_BYTES },
    };
    let near = match source {
        _ if index == span.first_index => None,
        Source::Live(live) if span.last_index.is_none() => {
            live.files.segments.near(header.salt, index)
        }
        // As much as an index saves takes no longer than to find it.
        _ if header.segment_bytes <= 2 * SPARSE_BYTES => None,
        _ => sealed(source, span, opened)?.and_then(|sparse| sparse.before(index)),
    };
    Ok(near.unwrap_or(from_the_beginning))
}

/// What the seal of a segment says, if it has one and can be read.
fn sealed<'a>(source: &Source, span: Span, opened: &'a Opened) -> Result<Option<&'a SparseIndex>> {
    let Some(last) = span.last_index else { return Ok(None) };
    if opened.sealed.get().is_none() {
        let sparse = read_seal(source, last, opened)?;
        opened.sealed.get_or_init(|| sparse);
    }
    Ok(opened.sealed.get().and_then(Option::as_ref))
}

/// The sparse index of a segment that is sealed: the link of the next one says where its records end, and
/// the seal comes behind them. It is a help, not a truth: where it cannot be read, the segment is read
/// from its beginning.
fn read_seal(source: &Source, last: u64, opened: &Opened) -> Result<Option<SparseIndex>> {
    let Some(next) = source.span(last + 1).map(|span| span.first_index) else {
        return Ok(None);
    };
    let Ok(Ok(head)) = source.head(next) else {
        return Ok(None);
    };
    let header = opened.header;
    let Some(link) = head
        .link
        .filter(|link| link.previous_salt == header.salt && link.previous_end % FRAME_ALIGN == 0)
    else {
        return Ok(None);
    };
    let bytes = SparseIndex::seal_bytes_max(header.segment_bytes) as u64;
    let mut cursor = Cursor::for_lookup(Arc::clone(&opened.file), header, bytes);
    cursor.seek(link.previous_end);
    loop {
        match cursor.peek()? {
            Decoded::Frame(frame) if frame.kind == Kind::Seal => {
                let payload = cursor.payload(&frame);
                return Ok(SparseIndex::decode(payload, header.segment_bytes).ok());
            }
            Decoded::Frame(frame) if matches!(frame.kind, Kind::Mark | Kind::Pad) => {
                cursor.skip(&frame);
            }
            _ => return Ok(None),
        }
    }
}
