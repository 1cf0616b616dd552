//! What can go wrong around a mounted disk, grouped by what the caller can do about it.

use std::io;
use std::path::{Path, PathBuf};

use super::filesystem::Filesystem;
use crate::block::TraceError;

/// A mounted disk could not be made, used or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that this needs is not there. `plimsoll disk doctor` says what.
    #[error("{what} cannot be had here: {reason}")]
    Unavailable {
        /// What is needed.
        what: &'static str,
        /// Why it is not there.
        reason: String,
    },
    /// A program failed; what it said is in here.
    #[error("{program} failed: {said}")]
    Program {
        /// Its name and arguments.
        program: String,
        /// The end of what it said.
        said: String,
    },
    /// The shell does not find the check, or may not run it: nothing is known of what is left.
    #[error(
        "the check cannot be started ({said}); is it there, executable, and named as seen from here?"
    )]
    CheckNotStarted {
        /// How the shell ended, and what it said.
        said: String,
    },
    /// The kernel would not mount what is on the disk. In a crash state that is a finding.
    #[error("the kernel does not mount it as {filesystem}")]
    NotMounted {
        /// As what.
        filesystem: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// An option of the mount is not passed on: it could reach beyond the disk. Leave it out.
    #[error("{filesystem} is not mounted with the option '{option}': {reason}")]
    MountOption {
        /// As it was given.
        option: String,
        /// Of what.
        filesystem: Filesystem,
        /// Why not.
        reason: &'static str,
    },
    /// More was written than may be recorded.
    #[error("more than {limit_bytes} bytes were written; run less, or raise the limit")]
    TraceFull {
        /// The limit.
        limit_bytes: u64,
    },
    /// A trace cannot be read or written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Another search writes the results of this trace. Wait for it.
    #[error("{}: another `explore` of this trace is writing it; wait for it", path.display())]
    InUse {
        /// The results.
        path: PathBuf,
    },
    /// No name is free for earlier results. Remove some.
    #[error("beside {} are too many results; remove some", trace.display())]
    TooManyResults {
        /// The trace that they are of.
        trace: PathBuf,
    },
    /// Earlier results cannot be given another name.
    #[error(transparent)]
    Results(plimsoll_sync::Error),
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("{operation} {}", path.display())]
    Io {
        /// The call, as a verb.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// `Ok`, or an [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error and all that caused it, in a line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Error {
    pub(super) fn io(
        operation: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { operation, path, source }
    }
}
