//! A note in the log's directory that it may have records in a second one.
//!
//! Somebody who opens the log without that directory would find a shorter log, whole as it seems, and
//! give out indexes again that durable records have. So the log is neither opened nor looked at without
//! it while the note stands: from opening with a second directory until a close that leaves no segment
//! there.

use std::io::ErrorKind;

use plimsoll_sync::{Access, Dir};

use crate::error::{Error, Result};

const NOTE: &str = "second";

/// Refuses a directory that is not the whole log.
pub(crate) fn check(dir: &dyn Dir) -> Result<()> {
    if !dir.list()?.iter().any(|name| name == NOTE) {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the log may have records in a second directory: name that as well; or remove the file '{NOTE}' \
         from this one, and give them up"
    )))
}

/// From here on records may be in the second directory. Durable on return.
pub(crate) fn write(dir: &dyn Dir) -> Result<()> {
    match dir.create(NOTE, Access::default()) {
        // Whoever made it may not have synced it.
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(dir.sync()?),
        created => Ok(created.map(drop)?),
    }
}

/// None is.
pub(crate) fn forget(dir: &dyn Dir) -> Result<()> {
    match dir.remove(NOTE) {
        Err(error) if error.kind() != Some(ErrorKind::NotFound) => Err(error.into()),
        _ => Ok(()),
    }
}
