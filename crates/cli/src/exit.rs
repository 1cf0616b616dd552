//! Exit statuses, one meaning each.

use std::process::ExitCode;

use plimsoll_lab::Error as LabError;
use plimsoll_log::Error as LogError;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// It ran, and found that something does not hold.
    CheckFailed = 1,
    /// Wrong usage, or it cannot run here.
    CannotRun = 2,
    /// Somebody pressed Ctrl-C (128 + SIGINT, as shells say it).
    Interrupted = 130,
}

impl Exit {
    /// The status for an error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(LogError::Corrupt(_)) = error.downcast_ref::<LogError>() {
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
        Self::from(exit as u8)
    }
}
