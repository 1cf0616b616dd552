//! The bytes of one file as somebody sees them: the kernel, or whoever reads the medium.
//!
//! Pages that were never written are absent and read as zeros, so a file of any length is small.
//! Pages are shared until written: a clone costs a counter.
//!
//! Invariant of bytes that are read from: no byte beyond its length is other than zero. The medium
//! may hold more, put there before the length that shows it.

use std::ops::Range;
use std::sync::Arc;

use super::page::{ALL_SECTORS, PAGE, Page, SECTOR_BYTES, page_part, pieces};
use super::pages::Pages;
use super::ranges::Ranges;

#[derive(Debug, Clone, Default)]
pub(crate) struct SparseBytes {
    pub(crate) len: u64,
    pages: Pages,
    pub(crate) blocks: Ranges,
}

impl SparseBytes {
    /// Fills as much of `buf` as the file reaches.
    pub(crate) fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> usize {
        let left = self.len.saturating_sub(byte_offset);
        let bytes = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        for piece in pieces(byte_offset, bytes) {
            let target = &mut buf[piece.buf];
            match self.pages.get(piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.inside]),
                None => target.fill(0),
            }
        }
        bytes
    }

    /// Puts bytes into one page and returns the page as it is now.
    pub(crate) fn put(&mut self, page: u64, inside: Range<usize>, bytes: &[u8]) -> Arc<Page> {
        if let Ok(whole) = <&Page>::try_from(bytes) {
            let whole = Arc::new(*whole);
            self.set(page, Arc::clone(&whole));
            return whole;
        }
        let shared = self.page_mut(page);
        Arc::make_mut(shared)[inside].copy_from_slice(bytes);
        Arc::clone(shared)
    }

    /// Puts whole sectors of `content` into a page.
    pub(crate) fn put_sectors(&mut self, page: u64, content: &Arc<Page>, sectors: u8) {
        if sectors == ALL_SECTORS {
            self.set(page, Arc::clone(content));
            return;
        }
        let target = Arc::make_mut(self.page_mut(page));
        for sector in (0..8).filter(|sector| sectors & (1 << sector) != 0) {
            let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            target[bytes.clone()].copy_from_slice(&content[bytes]);
        }
    }

    /// Makes whole pages zeros, with blocks.
    pub(crate) fn zero(&mut self, pages: Range<u64>) {
        self.forget(pages.clone());
        self.blocks.insert(pages);
    }

    /// Makes whole pages zeros, without blocks.
    pub(crate) fn punch(&mut self, pages: Range<u64>) {
        self.forget(pages.clone());
        self.blocks.remove(pages);
    }

    /// Sets the length and makes everything beyond it zeros, without blocks.
    pub(crate) fn cut(&mut self, len: u64) {
        let whole = len.div_ceil(PAGE);
        self.forget(whole..u64::MAX);
        self.blocks.cut(whole);
        let inside = page_part(len);
        if inside > 0 && self.pages.get(len / PAGE).is_some() {
            let last = self.page_mut(len / PAGE);
            if last[inside..].iter().any(|&byte| byte != 0) {
                Arc::make_mut(last)[inside..].fill(0);
            }
        }
        self.len = len;
    }

    /// Whether a byte beyond `len` is other than zero.
    pub(crate) fn reaches_beyond(&self, len: u64) -> bool {
        let (first, inside) = (len / PAGE, page_part(len));
        self.pages.iter(first..u64::MAX).any(|(page, content)| {
            let start = if page == first { inside } else { 0 };
            content[start..].iter().any(|&byte| byte != 0)
        })
    }

    /// The pages that were written, of these numbers, in order.
    pub(crate) fn pages_in(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter(numbers).map(|(number, page)| (number, &**page))
    }

    /// A page that was written.
    pub(crate) fn page(&self, number: u64) -> Option<&Arc<Page>> {
        self.pages.get(number)
    }

    /// Numbers of the pages that the two do not share, in order. Their bytes may be the same.
    pub(crate) fn unshared(&self, other: &Self) -> Vec<u64> {
        self.pages.unshared(&other.pages)
    }

    fn page_mut(&mut self, page: u64) -> &mut Arc<Page> {
        self.blocks.insert(page..page + 1);
        self.pages.page_mut(page)
    }

    fn set(&mut self, page: u64, content: Arc<Page>) {
        self.blocks.insert(page..page + 1);
        self.pages.set(page, content);
    }

    fn forget(&mut self, pages: Range<u64>) {
        self.pages.remove(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut file = SparseBytes::default();
        file.put(0, 0..6, b"abcdef");
        file.len = 6;
        file.cut(3);
        file.len = 6;
        let mut buf = [9; 8];
        assert_eq!(file.read_at(&mut buf, 0), 6);
        assert_eq!(&buf, b"abc\0\0\0\x09\x09");
    }
}
