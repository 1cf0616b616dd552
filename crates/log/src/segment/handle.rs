//! [`Segment`]: what of a segment others than its writer need; [`Previous`]: where one ended, for the next.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use plimsoll_sync::File;

use super::head::segment_name;
use super::header::Header;
use super::link::Link;
use crate::shim::AtomicU64;

/// What of a segment others than its writer need: to sync it, and to follow it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    pub(crate) link: Link,
    pub(crate) file: Arc<dyn File>,
    /// Where its last record that the kernel has ends.
    pub(crate) end: AtomicU64,
}

/// Where the segment before ended, for the link of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) salt: u64,
    pub(crate) end: u64,
    pub(crate) first_index: u64,
    pub(crate) ordinal: u64,
}

/// What is there once a write has ended: the last record, where it ends in the segment, and where the
/// next one is in the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) index: u64,
    pub(crate) records_end: u64,
    pub(crate) position: u64,
}

impl Previous {
    /// What a segment with this link follows.
    pub(crate) fn of_link(link: &Link) -> Option<Self> {
        Some(Self {
            salt: link.previous_salt,
            end: link.previous_end,
            first_index: link.previous_first_index,
            ordinal: link.ordinal.checked_sub(1)?,
        })
    }
}

impl Segment {
    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        segment_name(self.link.first_index)
    }

    /// For the segment that follows this one, which must have a record.
    pub(crate) fn previous(&self) -> Previous {
        Previous {
            salt: self.header.salt,
            end: self.end.load(SeqCst),
            first_index: self.link.first_index,
            ordinal: self.link.ordinal,
        }
    }
}
