//! Pages and sectors: what is shared, and what a write touches.

use std::ops::Range;

pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Which parts of a page are meant is one bit for each of its eight sectors of this size.
pub(crate) const SECTOR_BYTES: usize = 512;
pub(super) const ALL_SECTORS: u8 = u8::MAX;

pub(crate) type Page = [u8; PAGE_BYTES];

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
