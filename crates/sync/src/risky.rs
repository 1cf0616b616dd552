//! Changes of a directory that are **not** synced. They promise nothing: after a crash each may have
//! happened or not, in any order.
//!
//! For two uses only: to measure what the sync of [`Dir`](crate::Dir) costs by leaving it out, and to
//! change many entries before one [`Dir::sync`](crate::Dir::sync). Nobody's data goes through here,
//! which is why these are functions on the real directory and no part of the seam.

use std::sync::Arc;

use crate::os::Then;
use crate::{Access, File, OsDir, Result};

/// A new, empty file, whose entry may be gone after a crash. Fails if the name is taken.
pub fn create(dir: &OsDir, name: &str, access: Access) -> Result<Arc<dyn File>> {
    dir.create_then(name, access, Then::Return)
}

/// Gives a file another name, replacing what had it, atomically. After a crash the new name may
/// lead to the old file.
pub fn rename(dir: &OsDir, from: &str, to: &str) -> Result<()> {
    dir.rename_then(from, to, Then::Return)
}

/// Takes a name away. After a crash the file may be back.
pub fn remove(dir: &OsDir, name: &str) -> Result<()> {
    dir.remove_then(name, Then::Return)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::{Dir, Error};

    fn dir() -> (tempfile::TempDir, OsDir) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        (tmp, dir)
    }

    #[test]
    fn what_is_not_synced_still_happens() {
        let (_tmp, dir) = dir();
        create(&dir, "a", Access::default()).unwrap();
        rename(&dir, "a", "b").unwrap();
        assert_eq!(dir.list().unwrap(), ["b"]);
        remove(&dir, "b").unwrap();
        assert!(dir.list().unwrap().is_empty());
    }

    #[test]
    fn names_stay_inside_the_directory() {
        let (_tmp, dir) = dir();
        assert!(matches!(create(&dir, "../a", Access::default()), Err(Error::Name { .. })));
        assert!(matches!(rename(&dir, "a", "/b"), Err(Error::Name { .. })));
        assert!(matches!(remove(&dir, ".."), Err(Error::Name { .. })));
    }

    #[test]
    fn a_latch_follows_its_file_through_an_unsynced_rename() {
        let (_tmp, dir) = dir();
        create(&dir, "failed", Access::default()).unwrap();
        let full = || Err::<(), _>(Error::io("write", "failed", ErrorKind::StorageFull.into()));
        dir.latch_of("failed").guard("failed".as_ref(), full).unwrap_err();
        rename(&dir, "failed", "other").unwrap();
        let other = dir.open("other", Access::default()).unwrap();
        assert!(matches!(other.write_at(b"x", 0), Err(Error::Latched { .. })));
    }
}
