//! Bytes of which only the pages that were written take memory: a file of the disk in memory, a whole
//! block device.

mod bytes;
mod page;
mod pages;
mod ranges;

pub(crate) use bytes::SparseBytes;
pub(crate) use page::{
    PAGE, PAGE_BYTES, Page, SECTOR_BYTES, page_part, pages_of, pieces, sectors_of,
};
pub(crate) use ranges::Ranges;
