//! A note in the log's directory that the newest records may be in a ring in memory, and where.
//!
//! Somebody who opens the log without that ring, appends, and later opens it with the ring again would
//! get old records behind the new ones. So the log is not opened without it while the note stands: from
//! opening with a ring until closing, as long as the system runs that the ring was made in.

use std::path::Path;

use plimsoll_sync::{Access, Dir, SyncMethod, boot_id};

use crate::error::{Error, Result};
use crate::options::Ring;

const NOTE: &str = "ring";
/// The longest path, and what stands around it.
const NOTE_BYTES_MAX: u64 = 8192;

/// What stands in it, if it is there.
fn read(dir: &dyn Dir) -> Result<Option<String>> {
    if !dir.list()?.iter().any(|name| name == NOTE) {
        return Ok(None);
    }
    let file = dir.open(NOTE, Access::default())?;
    let len = usize::try_from(file.len()?.min(NOTE_BYTES_MAX)).expect("bounded");
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, 0)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Refuses to go on without the ring that the note names, if that may hold records.
pub(crate) fn check(dir: &dyn Dir, ring: &Ring) -> Result<()> {
    let Some(text) = read(dir)? else {
        return Ok(());
    };
    let (boot, path) = text.trim_end_matches('\n').split_once('\n').unwrap_or_default();
    let same_boot = u128::from_str_radix(boot, 16).ok() == Some(boot_id().unwrap_or(0));
    let named = matches!(ring, Ring::File(given) if given == Path::new(path));
    if !same_boot || named || !Path::new(path).exists() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the log's newest records may be in the ring {path}: open it with that ring; or remove the \
         file '{NOTE}' from the log's directory, and give them up"
    )))
}

/// From here on records may be in the ring only. Durable on return.
pub(crate) fn write(dir: &dyn Dir, ring: &Ring) -> Result<()> {
    let text = match ring {
        Ring::Memory => None,
        Ring::File(path) => Some(format!("{:032x}\n{}\n", boot_id().unwrap_or(0), path.display())),
    };
    // One that says so already stays: without it for a moment, the ring could be forgotten.
    if text.is_some() && text == read(dir)? {
        return Ok(());
    }
    forget(dir)?;
    if let Some(text) = text {
        let file = dir.create(NOTE, Access::default())?;
        file.write_sync_at(text.as_bytes(), 0, SyncMethod::ORDINARY)?;
    }
    Ok(())
}

/// No record is in the ring only.
pub(crate) fn forget(dir: &dyn Dir) -> Result<()> {
    match dir.remove(NOTE) {
        Err(error) if error.kind() != Some(std::io::ErrorKind::NotFound) => Err(error.into()),
        _ => Ok(()),
    }
}
