//! The bytes of one file as somebody sees them: the kernel, or whoever reads the medium.
//!
//! Pages that were never written are absent and read as zeros, so a file of any length is small.
//! Pages are shared until written: a clone costs a counter.
//!
//! Invariant of an image that is read from: no byte beyond its length is other than zero. The image
//! of the medium may hold more, put there before the length that shows it.

use std::ops::Range;
use std::sync::Arc;

use super::pages::Pages;
use super::ranges::Ranges;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Which parts of a page are meant is one bit for each of its eight sectors of this size.
pub(crate) const SECTOR_BYTES: usize = 512;
const ALL_SECTORS: u8 = u8::MAX;

pub(crate) type Page = [u8; PAGE_BYTES];

#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    pub(crate) len: u64,
    pages: Pages,
    pub(crate) blocks: Ranges,
}

impl Image {
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

/// A part of a write or read that lies in one page.
pub(crate) struct Piece {
    pub(crate) page: u64,
    pub(crate) inside: Range<usize>,
    pub(crate) buf: Range<usize>,
}

/// The pages that `bytes` bytes at `byte_offset` touch, in order.
pub(crate) fn pieces(byte_offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = byte_offset + done as u64;
        let start = page_part(at);
        let take = (PAGE_BYTES - start).min(bytes - done);
        let buf = done..done + take;
        done += take;
        (take > 0).then_some(Piece { page: at / PAGE, inside: start..start + take, buf })
    })
}

/// The pages that a range of bytes touches.
pub(crate) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE..bytes.end.div_ceil(PAGE)
}

/// The sectors that a part of a page touches.
pub(crate) fn sectors_of(inside: &Range<usize>) -> u8 {
    let touched = |sector: &usize| {
        sector * SECTOR_BYTES < inside.end && (sector + 1) * SECTOR_BYTES > inside.start
    };
    (0..8).filter(touched).fold(0, |mask, sector| mask | 1 << sector)
}

/// Where in its page a byte offset lies.
pub(crate) fn page_part(byte_offset: u64) -> usize {
    usize::try_from(byte_offset % PAGE).expect("less than a page")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let mut image = Image::default();
        image.put(0, 0..6, b"abcdef");
        image.len = 6;
        image.cut(3);
        image.len = 6;
        let mut buf = [9; 8];
        assert_eq!(image.read_at(&mut buf, 0), 6);
        assert_eq!(&buf, b"abc\0\0\0\x09\x09");
    }

    #[test]
    fn a_sector_is_touched_by_one_byte_of_it() {
        assert_eq!(sectors_of(&(0..1)), 0b1);
        assert_eq!(sectors_of(&(511..513)), 0b11);
        assert_eq!(sectors_of(&(512..1024)), 0b10);
        assert_eq!(sectors_of(&(0..PAGE_BYTES)), ALL_SECTORS);
    }

    #[test]
    fn pieces_cover_a_range_once_and_in_order() {
        let all: Vec<_> = pieces(4090, 5000).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].inside, 4090..4096);
        assert_eq!(all[1].inside, 0..4096);
        assert_eq!(all[2].buf, 4102..5000);
    }
}
