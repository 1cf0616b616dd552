//! What was asked of the disk, and how it ended, in the order in which the disk saw it.

use std::fmt;
use std::sync::Arc;

/// One thing that happened at the disk. Requests are numbered from 0 as they arrive; marks and ends
/// have no number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A write arrived, with the bytes that the disk took for it.
    Write {
        /// Where they go.
        byte_offset: u64,
        /// What goes there.
        bytes: Arc<[u8]>,
    },
    /// The host said that it no longer needs a range, which then reads as zeros.
    Discard {
        /// Where it begins.
        byte_offset: u64,
        /// How long it is.
        byte_count: u64,
    },
    /// A flush arrived.
    Flush,
    /// A request was answered.
    Ended {
        /// Which.
        request: u32,
        /// How.
        end: End,
    },
    /// The workload said something, such as what it is about to acknowledge.
    Mark(Arc<str>),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Done, as far as a volatile cache goes.
    Done,
    /// Refused with an error. Reads show nothing of it; after a power cut any of it may be there.
    Failed(Errno),
    /// Answered as done, and not done: a lost write, a dropped flush.
    Lied,
}

/// The error that a device answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// The usual one.
    Eio,
    /// A thinly provisioned device is full.
    Enospc,
    /// A cable, a network or a controller did not answer in time.
    Etimedout,
}

impl Errno {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Eio, Self::Enospc, Self::Etimedout];

    /// `EIO`
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eio => "EIO",
            Self::Enospc => "ENOSPC",
            Self::Etimedout => "ETIMEDOUT",
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
