//! [`Home`]: where on a disk the log is.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Dir, Result};

use crate::points::dyn_dir;

/// Where on a disk the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the directory that was there before.
    Root,
    /// In a directory inside one, both of which are made: their names must be durable too.
    Inside,
}

impl Home {
    /// The log's directory.
    pub(crate) fn of(self, disk: &Arc<SimDir>) -> Result<Arc<dyn Dir>> {
        match self {
            Self::Root => Ok(dyn_dir(disk)),
            Self::Inside => disk.open_dir("data")?.open_dir("log"),
        }
    }

    /// The same, made if it is not there.
    pub(crate) fn made(self, disk: &Arc<SimDir>) -> Result<Arc<dyn Dir>> {
        match self {
            Self::Root => Ok(dyn_dir(disk)),
            Self::Inside => made(&*made(&**disk, "data")?, "log"),
        }
    }
}

fn made(dir: &dyn Dir, name: &str) -> Result<Arc<dyn Dir>> {
    match dir.open_dir(name) {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => dir.create_dir(name),
        opened => {
            let opened = opened?;
            // Whoever made it may have been killed before its name was durable.
            dir.sync()?;
            Ok(opened)
        }
    }
}
