//! The bytes of a whole disk, of which only the pages that were written take memory.

use std::ops::Range;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::sparse::{PAGE, PAGE_BYTES, Page, SparseBytes, pages_of, pieces};

static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A disk's content at one moment. A clone shares its pages until one of the two is written.
#[derive(Debug, Clone)]
pub struct Platter {
    content: SparseBytes,
}

impl Platter {
    /// A disk of zeros.
    #[must_use]
    pub fn new(disk_bytes: u64) -> Self {
        let mut content = SparseBytes::default();
        content.len = disk_bytes;
        Self { content }
    }

    /// How large the disk is.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.content.len
    }

    /// Whether a range lies on the disk.
    #[must_use]
    pub fn holds(&self, byte_offset: u64, byte_count: u64) -> bool {
        byte_offset.checked_add(byte_count).is_some_and(|end| end <= self.content.len)
    }

    /// Puts bytes there. They must lie on the disk.
    pub fn write(&mut self, byte_offset: u64, bytes: &[u8]) {
        assert!(self.holds(byte_offset, bytes.len() as u64), "a write beyond the end of the disk");
        for piece in pieces(byte_offset, bytes.len()) {
            self.content.put(piece.page, piece.inside, &bytes[piece.buf]);
        }
    }

    /// Fills `buf` from there; beyond the end are zeros.
    pub fn read(&self, byte_offset: u64, buf: &mut [u8]) {
        let read = self.content.read_at(buf, byte_offset);
        buf[read..].fill(0);
    }

    /// Makes a range zeros.
    pub fn discard(&mut self, byte_offset: u64, byte_count: u64) {
        assert!(self.holds(byte_offset, byte_count), "a discard beyond the end of the disk");
        let end = byte_offset + byte_count;
        let whole = byte_offset.div_ceil(PAGE)..end / PAGE;
        if whole.start >= whole.end {
            self.zero_bytes(byte_offset..end);
            return;
        }
        self.content.zero(whole.clone());
        self.zero_bytes(byte_offset..whole.start * PAGE);
        self.zero_bytes(whole.end * PAGE..end);
    }

    /// What was never written is zeros already, and takes no memory for it.
    fn zero_bytes(&mut self, range: Range<u64>) {
        let bytes = usize::try_from(range.end - range.start).expect("less than two pages");
        for piece in pieces(range.start, bytes) {
            if self.content.pages_in(piece.page..piece.page + 1).next().is_some() {
                self.content.put(piece.page, piece.inside, &ZEROS[..piece.buf.len()]);
            }
        }
    }

    /// The pages that are not all zeros, in order, with where they begin.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8; PAGE_BYTES])> {
        self.pages_in(0..self.disk_bytes())
    }

    /// Those that lie in a range or reach into it.
    pub fn pages_in(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8; PAGE_BYTES])> {
        let used = self.content.pages_in(pages_of(&range));
        let used = used.filter(|(_, page)| **page != ZEROS);
        used.map(|(number, page)| (number * PAGE, page))
    }

    /// As [`Platter::pages`], but neighbours are put together, up to `limit_bytes`.
    pub fn runs(&self, limit_bytes: usize, mut each: impl FnMut(u64, &[u8])) {
        let mut run = Vec::with_capacity(limit_bytes);
        let mut start = 0;
        for (byte_offset, page) in self.pages() {
            if start + run.len() as u64 != byte_offset || run.len() + PAGE_BYTES > limit_bytes {
                if !run.is_empty() {
                    each(start, &run);
                }
                run.clear();
                start = byte_offset;
            }
            run.extend_from_slice(page);
        }
        if !run.is_empty() {
            each(start, &run);
        }
    }

    /// Where this disk may differ from another of its size, in order and in whole pages. Pages that
    /// the two share are not looked at, so that of two states of one disk this is fast.
    #[must_use]
    pub fn changes(&self, other: &Self) -> Vec<Range<u64>> {
        let mut changes: Vec<Range<u64>> = Vec::new();
        for number in self.content.unshared(&other.content) {
            let start = number * PAGE;
            match changes.last_mut().filter(|last| last.end == start) {
                Some(last) => last.end += PAGE,
                None => changes.push(start..start + PAGE),
            }
        }
        changes
    }

    /// A hash of all its bytes, if `known` is that of `other`: only what the two do not share is looked
    /// at. Which disk has which hash depends on the one that was called 0 first.
    #[must_use]
    pub fn digest(&self, other: &Self, known: u64) -> u64 {
        let hash = |pages: Option<&Arc<Page>>, number| match pages {
            Some(page) if **page != ZEROS => XxHash3_64::oneshot_with_seed(number, &page[..]),
            _ => 0,
        };
        let changed = self.content.unshared(&other.content).into_iter();
        changed.fold(known, |digest, number| {
            let (now, then) = (self.content.page(number), other.content.page(number));
            digest.wrapping_sub(hash(then, number)).wrapping_add(hash(now, number))
        })
    }
}

impl PartialEq for Platter {
    /// Whether everybody who reads the two disks sees the same.
    fn eq(&self, other: &Self) -> bool {
        self.disk_bytes() == other.disk_bytes() && self.pages().eq(other.pages())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_discard_takes_no_memory() {
        let pages = |platter: &Platter| platter.content.pages_in(0..u64::MAX).count();
        let mut platter = Platter::new(1 << 40);
        for page in 1..100 {
            platter.discard(page * (1 << 30) - 1, 2);
        }
        assert_eq!(pages(&platter), 0, "a frame of 32 bytes took two pages");
        platter.write(0, &[7; PAGE_BYTES]);
        platter.discard(PAGE - 1, 2);
        let mut read = [9; PAGE_BYTES + 1];
        platter.read(0, &mut read);
        assert_eq!((pages(&platter), &read[PAGE_BYTES - 2..]), (1, &[7, 0, 0][..]));
    }

    proptest! {
        #[test]
        fn a_platter_is_an_array_of_bytes(
            steps in prop::collection::vec((0usize..40_000, 0usize..9_000, 0u8..4), 0..20)
        ) {
            let mut bytes = vec![0; 50_000];
            let mut platter = Platter::new(50_000);
            for (at, count, value) in steps {
                bytes[at..at + count].fill(value);
                if value == 0 {
                    platter.discard(at as u64, count as u64);
                } else {
                    platter.write(at as u64, &vec![value; count]);
                }
            }
            let mut read = vec![9; 50_000];
            platter.read(0, &mut read);
            prop_assert!(read == bytes);
            let mut copy = Platter::new(50_000);
            platter.runs(16 << 10, |at, run| {
                let fits = usize::try_from(50_000 - at).unwrap().min(run.len());
                copy.write(at, &run[..fits]);
            });
            prop_assert!(copy == platter);
        }

        #[test]
        fn two_platters_are_the_same_where_they_do_not_change(
            steps in prop::collection::vec((0u64..90_000, 0usize..9_000, 0u8..3), 0..12),
            common in 0usize..12,
        ) {
            let mut one = Platter::new(100_000);
            let mut both = Vec::new();
            for (number, (at, count, value)) in steps.into_iter().enumerate() {
                if number == common {
                    both.push(one.clone());
                }
                match value {
                    0 => one.discard(at, count as u64),
                    value => one.write(at, &vec![value; count]),
                }
            }
            let mut other = both.pop().unwrap_or_else(|| Platter::new(100_000));
            let base = other.clone();
            for change in one.changes(&other) {
                let end = change.end.min(100_000);
                let mut bytes = vec![0; usize::try_from(end - change.start).unwrap()];
                one.read(change.start, &mut bytes);
                other.write(change.start, &bytes);
            }
            let first = base.digest(&Platter::new(100_000), 0);
            prop_assert_eq!(one.digest(&base, first), one.digest(&Platter::new(100_000), 0));
            prop_assert_eq!(one.digest(&base, 7) == 7, one == base);
            prop_assert!(other == one);
            prop_assert!(one.changes(&one.clone()).is_empty());
        }
    }
}
