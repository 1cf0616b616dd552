//! Bytes of which only the pages that were written take memory: a file of the disk in memory, a whole
//! block device.

pub(crate) mod image;
pub(crate) mod pages;
pub(crate) mod ranges;
