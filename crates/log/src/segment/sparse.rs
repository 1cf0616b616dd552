//! [`SparseIndex`]: where some records of a segment begin; the payload of its seal.

use std::ops::Range;

use super::damage::Damage;
use super::format::{BLOCK_BYTES, FRAME_ALIGN, frame_bytes, u64_at};

/// Bytes of an entry in a seal: index and byte offset.
const SEAL_ENTRY_BYTES: usize = 16;

/// Where some records of a segment begin, so that one can be found without reading all before it:
/// an index and the byte offset of its frame, for about every 64 KiB.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SparseIndex {
    entries: Vec<(u64, u64)>,
}

/// Where to begin to look for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Near {
    /// A frame begins here, at or before the record's.
    pub(crate) byte_offset: u64,
    /// So far behind it the record's end is, if records are alike.
    pub(crate) bytes: u64,
}

impl Near {
    /// In a stretch that begins with record `first` and ends before record `next`.
    pub(crate) fn among(first: u64, next: u64, stretch: Range<u64>, index: u64) -> Self {
        let bytes = u128::from(stretch.end.saturating_sub(stretch.start));
        let part = bytes * u128::from(index - first + 1) / u128::from(next - first);
        Self { byte_offset: stretch.start, bytes: u64::try_from(part).unwrap_or(u64::MAX) }
    }
}

/// Distance of two entries.
pub(crate) const SPARSE_BYTES: u64 = 64 << 10;

impl SparseIndex {
    /// Takes note of a record, if the last one noted is far enough away.
    pub(crate) fn note(&mut self, index: u64, byte_offset: u64) {
        let due = self.entries.last().is_none_or(|&(_, last)| byte_offset >= last + SPARSE_BYTES);
        if due {
            self.entries.push((index, byte_offset));
        }
    }

    /// The first record that is noted, and where its frame begins.
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.entries.first().copied()
    }

    /// The last record that is noted, and where its frame begins.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        self.entries.last().copied()
    }

    /// No more than so many entries: of more every second one goes, until they are few enough. The last one
    /// stays.
    pub(crate) fn thinned(&self, most: usize) -> Self {
        let step = self.entries.len().div_ceil(most.max(1)).next_power_of_two().max(1);
        let mut entries: Vec<_> = self.entries.iter().rev().copied().step_by(step).collect();
        entries.reverse();
        Self { entries }
    }

    /// How many records are noted.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds what a later state of the same index has more.
    pub(crate) fn catch_up(&mut self, later: &Self) {
        self.entries.extend_from_slice(&later.entries[self.entries.len()..]);
    }

    /// A place at or before the frame of a record; `None` before the first note.
    pub(crate) fn before(&self, index: u64) -> Option<Near> {
        let after = self.entries.partition_point(|&(noted, _)| noted <= index);
        let &(first, byte_offset) = self.entries.get(after.checked_sub(1)?)?;
        Some(match self.entries.get(after) {
            Some(&(next, end)) => Near::among(first, next, byte_offset..end, index),
            None => Near { byte_offset, bytes: SPARSE_BYTES },
        })
    }

    /// Ranges of frames behind `after`, in order, none longer than `most`: each begins and ends where a
    /// noted record does.
    pub(crate) fn ranges(&self, after: u64, most: u64) -> Vec<Range<u64>> {
        let from = self.entries.partition_point(|&(_, byte_offset)| byte_offset <= after);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for pair in self.entries[from..].windows(2) {
            let (start, end) = (pair[0].1, pair[1].1);
            match ranges.last_mut() {
                Some(last) if last.end == start && end - last.start <= most => last.end = end,
                _ if end - start <= most => ranges.push(start..end),
                _ => {}
            }
        }
        ranges
    }

    /// Where the records of a segment of this size must end, so that its seal still fits.
    pub(crate) fn records_end(segment_bytes: u64) -> u64 {
        segment_bytes - Self::seal_bytes_max(segment_bytes) as u64
    }

    /// The most bytes that the seal of a segment of this size takes.
    pub(crate) fn seal_bytes_max(segment_bytes: u64) -> usize {
        let entries = usize::try_from(segment_bytes / SPARSE_BYTES + 1).expect("a segment's");
        frame_bytes(entries * SEAL_ENTRY_BYTES)
    }

    /// The payload of a seal frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let fields = self.entries.iter().flat_map(|&(index, byte_offset)| [index, byte_offset]);
        fields.flat_map(u64::to_le_bytes).collect()
    }

    /// Reads it back: entries must ascend and lie in the segment.
    pub(crate) fn decode(payload: &[u8], segment_bytes: u64) -> Result<Self, Damage> {
        if !payload.len().is_multiple_of(SEAL_ENTRY_BYTES) {
            return Err(Damage::Content("seal"));
        }
        let entries: Vec<_> = payload
            .chunks_exact(SEAL_ENTRY_BYTES)
            .map(|entry| (u64_at(entry, 0), u64_at(entry, 8)))
            .collect();
        let ascends = entries.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
        let inside = entries.iter().all(|&(_, byte_offset)| {
            (BLOCK_BYTES..segment_bytes).contains(&byte_offset)
                && byte_offset.is_multiple_of(FRAME_ALIGN)
        });
        if ascends && inside { Ok(Self { entries }) } else { Err(Damage::Content("seal")) }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const END: u64 = 1 << 20;

    #[test]
    fn a_sparse_index_leads_to_a_place_before_each_record() {
        let mut sparse = SparseIndex::default();
        for record in 0..1000_u64 {
            sparse.note(record + 1, BLOCK_BYTES + record * 1000);
        }
        let sparse = SparseIndex::decode(&sparse.encode(), END).unwrap();
        assert_eq!(sparse.before(0), None);
        for index in 1..=1000 {
            let exact = BLOCK_BYTES + (index - 1) * 1000;
            let near = sparse.before(index).unwrap();
            let before = near.byte_offset;
            assert!((exact - before + 1..=SPARSE_BYTES + 1000).contains(&near.bytes), "{near:?}");
            assert!(before <= exact && exact - before < SPARSE_BYTES + 1000, "record {index}");
        }
        assert!(sparse.encode().len() <= SparseIndex::seal_bytes_max(END));
        assert!(SparseIndex::decode(&[0; 15], END).is_err());
        assert!(SparseIndex::decode(&[0xff; 16], END).is_err());
    }
}
