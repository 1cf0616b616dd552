//! What can go wrong, grouped by what the caller can do about it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::SyncMethod;

/// An operation on a file or a directory failed.
///
/// Cloneable, because one failed sync is handed to everybody who waited for it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. If it was a write or a sync, the file now refuses both.
    #[error("{operation} {}", path.display())]
    Io {
        /// The call, as a verb: `write`, `fsync`, `rename`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },

    /// An earlier write or sync of this file failed, so what is on the disk is unknown. Recover
    /// from what can be read, into another file; a retry could report success for lost bytes.
    #[error("an earlier write or sync of {} failed; nothing more is written to it", path.display())]
    Latched {
        /// The file or directory.
        path: PathBuf,
        /// The failure that closed the latch.
        source: Arc<Self>,
    },

    /// This method, allocation or access does not work here. Nothing was made durable by it, and the
    /// file is as usable as before; choose another.
    #[error("{method} does not work on {}: {reason}", path.display())]
    Unsupported {
        /// The method asked for.
        method: SyncMethod,
        /// The file or directory.
        path: PathBuf,
        /// Why not, in words.
        reason: String,
    },

    /// What has this name is no regular file: a link, a device, a directory. Nothing was followed, read
    /// or written. Look who put it there, and take it away.
    #[error("{} is {found}, not a regular file; it was not followed: take it away", path.display())]
    NotAFile {
        /// What has the name.
        path: PathBuf,
        /// What it is, with its article: `a link`.
        found: &'static str,
    },

    /// Somebody else holds the lock. Wait for them, stop them, or use another.
    #[error(
        "{} is locked by {}, and only one at a time can use it: close it there, or use another",
        path.display(),
        holder.map_or_else(|| "somebody else".to_owned(), |pid| format!("process {pid}"))
    )]
    Locked {
        /// The lock file, or the file that is locked.
        path: PathBuf,
        /// The process that holds it, when it said so.
        holder: Option<u32>,
    },

    /// Not the name of a file inside a directory. Pass one plain name, without separators.
    #[error("'{name}' is not a plain file name")]
    Name {
        /// What was passed.
        name: String,
    },
}

/// What operations return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failed system call.
    #[must_use]
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { operation, path: path.into(), source: Arc::new(source) }
    }

    /// Whether the process, or the system, has too many files open: the file or directory itself is as good
    /// as it was.
    #[must_use]
    pub fn is_out_of_descriptors(&self) -> bool {
        #[cfg(unix)]
        const CODES: [i32; 2] = [libc::EMFILE, libc::ENFILE];
        #[cfg(not(unix))]
        const CODES: [i32; 1] = [4]; // ERROR_TOO_MANY_OPEN_FILES
        match self {
            Self::Io { source, .. } => {
                source.raw_os_error().is_some_and(|code| CODES.contains(&code))
            }
            _ => false,
        }
    }

    /// Whether the device failed: what was asked for could not be read, or was not written.
    #[must_use]
    pub fn is_of_the_device(&self) -> bool {
        #[cfg(unix)]
        const CODES: [i32; 1] = [libc::EIO];
        #[cfg(not(unix))]
        const CODES: [i32; 2] = [23, 1117]; // ERROR_CRC, ERROR_IO_DEVICE
        match self {
            Self::Io { source, .. } => {
                source.raw_os_error().is_some_and(|code| CODES.contains(&code))
            }
            Self::Latched { source, .. } => source.is_of_the_device(),
            _ => false,
        }
    }

    /// The kind of the failed system call, if it was one, or of the failure that closed the latch.
    #[must_use]
    pub fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            Self::Latched { source, .. } => source.kind(),
            Self::Unsupported { .. }
            | Self::NotAFile { .. }
            | Self::Locked { .. }
            | Self::Name { .. } => None,
        }
    }
}
