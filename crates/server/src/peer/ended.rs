//! [`Ended`]: why a connection ends.

use std::io;

use super::frame::BadFrame;
use super::judge::Reason;
use crate::cursor::Malformed;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// We refuse it.
    #[error(transparent)]
    Refused(#[from] Reason),
    /// The other side does. This may be a number that only a later version knows.
    #[error("the other side refuses, for reason {0}")]
    Refusing(u16),
    #[error(transparent)]
    Greeting(#[from] Malformed),
    #[error(transparent)]
    Frame(#[from] BadFrame),
    #[error("nothing was heard, or nothing taken, for too long")]
    Silent,
}

impl Ended {
    /// What it counts as.
    pub(super) fn reason(&self) -> Option<Reason> {
        match self {
            Self::Io(_) | Self::Silent => None,
            Self::Refused(reason) => Some(*reason),
            Self::Refusing(code) => Reason::of(*code),
            Self::Frame(BadFrame::Oversized(_)) => Some(Reason::Oversized),
            Self::Frame(BadFrame::NotNext { .. }) => Some(Reason::Replayed),
            Self::Greeting(_) | Self::Frame(BadFrame::Damaged(_) | BadFrame::Elsewhere) => {
                Some(Reason::Damaged)
            }
        }
    }
}
