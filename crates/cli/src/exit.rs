//! Exit statuses, one meaning each.

use std::process::ExitCode;

use plimsoll_lab::Error as LabError;
use plimsoll_log::Error as LogError;
use plimsoll_server::backup::Error as BackupError;
use plimsoll_server::broker::Failed;
use plimsoll_server::chapter::Error as ChapterError;

use crate::interrupt;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok,
    /// It ran, and found that something does not hold.
    CheckFailed,
    /// Wrong usage, or it cannot run here.
    CannotRun,
    /// It ran, and nothing that could have failed was tested.
    Untested,
    /// It was asked to stop: 129 by a hangup, 130 by Ctrl-C, 143 by SIGTERM (128 and the signal, as
    /// shells say it).
    Interrupted,
    /// As the command did that it ran.
    OfCommand(u8),
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::CheckFailed => 1,
            Self::CannotRun => 2,
            Self::Untested => 3,
            Self::Interrupted => interrupt::status(),
            Self::OfCommand(code) => code,
        }
    }

    /// The status for an error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(LogError::Corrupt(_)) = error.downcast_ref::<LogError>() {
            return Self::CheckFailed;
        }
        let chapter = error.downcast_ref::<ChapterError>();
        let is_damage =
            |error: &ChapterError| !matches!(error, ChapterError::Disk(_) | ChapterError::Stopped);
        if chapter.is_some_and(is_damage)
            || matches!(
                error.downcast_ref::<Failed>(),
                Some(Failed::Damaged(_) | Failed::Disk { .. })
            )
        {
            return Self::CheckFailed;
        }
        if error.downcast_ref::<BackupError>().is_some_and(BackupError::is_damage) {
            return Self::CheckFailed;
        }
        match error.downcast_ref::<LabError>() {
            Some(LabError::Disk(_)) => Self::CheckFailed,
            Some(LabError::Interrupted) => Self::Interrupted,
            _ => Self::CannotRun,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
