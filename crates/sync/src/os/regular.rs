//! Files of ours are regular ones: what stands in the place of one is refused, and said.

use std::fs;
use std::io;
use std::path::Path;

use super::sys;
use crate::{Error, Result};

/// The file as it was opened, if it is a regular one. Otherwise what stands in its place, if `what` can
/// say that.
pub(super) fn regular(
    path: &Path,
    opened: io::Result<fs::File>,
    what: impl FnOnce() -> io::Result<Option<&'static str>>,
) -> Result<fs::File> {
    let failed = |e| Error::io("open", path, e);
    match opened {
        Ok(file) => match sys::open_stranger(&file).map_err(failed)? {
            None => Ok(file),
            Some(found) => Err(stranger(path, found)),
        },
        // Systems say in many ways that a link is not followed, or that a socket is not opened.
        Err(error) => match what() {
            Ok(Some(found)) => Err(stranger(path, found)),
            _ => Err(failed(error)),
        },
    }
}

/// What stands in the place of a file.
pub(super) fn stranger(path: &Path, found: &'static str) -> Error {
    Error::NotAFile { path: path.to_owned(), found }
}
