//! [`Entry`]: a name in a directory that is open. Whatever becomes of the path by which the directory was
//! found (it is renamed, another one takes its place, the process changes its own), the entry is in that
//! directory; on Windows, where an open directory cannot be renamed, the path is as good.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// A name in a directory that is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) dir: &'a File,
    #[cfg_attr(windows, expect(dead_code, reason = "entries are found by their paths"))]
    pub(super) name: &'a str,
    /// For errors, and where nothing is opened by its name in a directory.
    pub(super) path: &'a Path,
}

/// What a directory has: a name, and what it is if it is no regular file.
pub(super) type Found = (OsString, Option<&'static str>);
