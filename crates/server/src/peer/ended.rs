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
    #[error("the other side refuses: {}", said(*.0))]
    Refusing(u16),
    #[error(transparent)]
    Greeting(#[from] Malformed),
    #[error(transparent)]
    Frame(#[from] BadFrame),
    #[error("nothing was heard, or nothing taken, for too long")]
    Silent,
}

/// What a verdict of the other side comes to.
fn said(code: u16) -> String {
    match Reason::of(code) {
        Some(Reason::Unknown) => "it does not know this broker: it has only just started, or this one was removed from the \
                                  cluster, or is not taken in yet (`plimsoll cluster join`)"
            .to_owned(),
        Some(reason) => reason.to_string(),
        None => format!("reason {code}, which only a later version knows"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was removed and started again was told a number.
    #[test]
    fn who_is_refused_is_told_why() {
        let why = |code| Ended::Refusing(code).to_string();
        assert!(why(6).contains("was removed from the cluster"), "{}", why(6));
        assert_eq!(why(1), "the other side refuses: it is of another cluster");
        assert_eq!(why(99), "the other side refuses: reason 99, which only a later version knows");
    }
}
