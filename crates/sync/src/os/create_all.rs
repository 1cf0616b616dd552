//! Making a directory with all its parents so that a power cut does not take it away again.
//!
//! Each name is synced into its parent before a name is made below it. So of directories that were made
//! here only the name of the last can be missing, if the making was cut short, and that one is synced
//! when it is found.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::sys;
use crate::{Error, Result};

/// Makes the directory and its missing parents. What is there already is synced into its parent too,
/// where that may be opened.
pub(super) fn create_all(path: &Path) -> Result<()> {
    create_all_with(path, &mut |parent| sys::sync_dir(&sys::open_dir(parent)?))
}

fn create_all_with(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> Result<()> {
    let failed = |operation, at: &Path| {
        let at = at.to_owned();
        move |error| Error::io(operation, at, error)
    };
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        // A path may end in a link or in dots: where the directory really is, its name is.
        let real = path.canonicalize().map_err(failed("open", path))?;
        let Some(parent) = real.parent() else { return Ok(()) };
        return match sync(parent) {
            Err(error) if is_not_ours_to_sync(&error) => Ok(()),
            done => done.map_err(failed("sync directory", parent)),
        };
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(failed("create directory", path)(ErrorKind::NotFound.into())),
    };
    create_all_with(parent, sync)?;
    match fs::create_dir(path) {
        // Somebody else was faster, and may not have synced it yet.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made.map_err(failed("create directory", path))?,
    }
    sync(parent).map_err(failed("sync directory", parent))
}

/// Whether an existing parent cannot be synced because it is somebody else's, or not of the kind that
/// is synced. That the disk failed is another matter.
fn is_not_ours_to_sync(error: &io::Error) -> bool {
    super::full_fsync::says_unsupported(error)
        || matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::InvalidInput
        )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Makes `path` and returns the directories that were synced, in order; the sync of the `failing`th
    /// fails so.
    fn make(path: &Path, failing: Option<(usize, ErrorKind)>) -> (Result<()>, Vec<PathBuf>) {
        let mut synced = Vec::new();
        let made = create_all_with(path, &mut |parent| {
            synced.push(parent.to_owned());
            match failing {
                Some((number, kind)) if number == synced.len() => Err(kind.into()),
                _ => Ok(()),
            }
        });
        (made, synced)
    }

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        (tmp, root)
    }

    /// The log made its directory with its parents and synced none of their names.
    #[test]
    fn each_name_is_synced_before_a_name_is_made_below_it() {
        let (_tmp, root) = scratch();
        let above = root.parent().unwrap().to_owned();
        let (made, synced) = make(&root.join("a/b/c"), None);
        made.unwrap();
        assert_eq!(synced, [above, root.clone(), root.join("a"), root.join("a/b")]);
        assert!(root.join("a/b/c").is_dir());
    }

    #[test]
    fn a_directory_that_was_there_is_synced_where_it_really_is() {
        let (_tmp, root) = scratch();
        fs::create_dir_all(root.join("a/b")).unwrap();
        for path in ["a/b", "a/b/.", "a/b/../b", "a/./b/"] {
            let (made, synced) = make(&root.join(path), None);
            made.unwrap();
            assert_eq!(synced, [root.join("a")], "{path}");
        }
        let (made, synced) = make(Path::new("/"), None);
        made.unwrap();
        assert!(synced.is_empty());
    }

    #[test]
    fn a_making_that_was_cut_short_is_made_good_by_the_next_one() {
        let (_tmp, root) = scratch();
        // The name of `a` was not synced: the disk failed.
        let (failed, _) = make(&root.join("a/b"), Some((2, ErrorKind::Other)));
        failed.unwrap_err();
        assert!(root.join("a").is_dir() && !root.join("a/b").exists());
        let (made, synced) = make(&root.join("a/b"), None);
        made.unwrap();
        assert_eq!(synced, [root.clone(), root.join("a")]);
    }

    #[test]
    fn a_parent_that_may_not_be_opened_is_left_and_one_that_fails_is_an_error() {
        let (_tmp, root) = scratch();
        make(&root, Some((1, ErrorKind::PermissionDenied))).0.unwrap();
        make(&root, Some((1, ErrorKind::Other))).0.unwrap_err();
        // What was made here must be synced, whatever the reason.
        make(&root.join("a"), Some((2, ErrorKind::PermissionDenied))).0.unwrap_err();
    }
}
