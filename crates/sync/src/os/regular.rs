//! Files of ours are regular ones: what stands in the place of one is refused, and said.

use std::fs;
use std::io;
use std::path::Path;

use super::sys;
use crate::{Error, Result};

/// The file as it was opened, if it is a regular one. Otherwise what stands in its place, if that can be
/// said.
pub(super) fn regular(path: &Path, opened: io::Result<fs::File>) -> Result<fs::File> {
    let failed = |e| Error::io("open", path, e);
    let stranger = |of: fs::FileType| {
        let found = match of {
            of if of.is_symlink() => "a link",
            of if of.is_dir() => "a directory",
            of => sys::kind(of),
        };
        Error::NotAFile { path: path.to_owned(), found }
    };
    match opened {
        Ok(file) => match file.metadata().map_err(failed)?.file_type() {
            of if of.is_file() => Ok(file),
            of => Err(stranger(of)),
        },
        // Systems say in many ways that a link is not followed, or that a socket is not opened.
        Err(error) => match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Err(stranger(found.file_type())),
            _ => Err(failed(error)),
        },
    }
}
