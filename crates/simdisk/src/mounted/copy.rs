//! Copies a directory that exists onto the mounted disk: all of it as it is, or an error.
//!
//! `cp -a` copies, because it knows all that a file can have: owner, mode, times, links, holes, attributes. It
//! does not see that somebody writes meanwhile, so what is there is looked at before and after, and what
//! arrived is held against it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, Result};
use super::namespace::DIR;
use super::step;

/// What a filesystem has of its own.
const OWN: &str = "lost+found";

/// Whether something can be copied at all.
pub(super) fn check(from: &Path) -> Result<()> {
    let metadata = fs::metadata(from).map_err(Error::io("read", from))?;
    if !metadata.is_dir() {
        return Err(refused(from, "it is not a directory".to_owned()));
    }
    Ok(())
}

/// Copies what is in `from` into the mounted directory, which gets its owner and mode, too.
pub(super) fn copy(from: &Path, stop: &dyn Fn() -> bool) -> Result<()> {
    check(from)?;
    let before = tree(from, stop)?;
    let mut command = Command::new("cp");
    command.env("LC_ALL", "C").args(["-a", "--"]).arg(from.join(".")).arg(DIR);
    step::run(command, &format!("--from {}", from.display()), stop)?;
    if let Some(path) = differs(&before, &tree(from, stop)?, Seen::is_same) {
        let path = from.join(path);
        let changed =
            format!("{} changed while it was copied; stop who writes there", path.display());
        return Err(refused(from, changed));
    }
    let arrived = tree(Path::new(DIR), stop)?;
    if let Some(path) = differs(&before, &arrived, Seen::is_copy) {
        let path = from.join(path);
        return Err(refused(from, format!("{} was not copied as it is", path.display())));
    }
    Ok(())
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    mode: u32,
    owner: (u32, u32),
    /// Of a directory it says nothing.
    bytes: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Seen {
    fn of(metadata: &Metadata) -> Self {
        Self {
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            bytes: if metadata.is_dir() { 0 } else { metadata.len() },
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }

    fn is_copy(&self, other: &Self) -> bool {
        (self.mode, self.owner, self.bytes) == (other.mode, other.owner, other.bytes)
    }
}

/// All that is in a directory, and itself under the empty name.
type Tree = BTreeMap<PathBuf, Seen>;

fn tree(root: &Path, stop: &dyn Fn() -> bool) -> Result<Tree> {
    let metadata = fs::metadata(root).map_err(Error::io("read", root))?;
    let ours = fs::metadata(DIR).map(|dir| dir.dev()).ok().filter(|_| root != Path::new(DIR));
    let mut tree = Tree::from([(PathBuf::new(), Seen::of(&metadata))]);
    let mut left = vec![PathBuf::new()];
    while let Some(dir) = left.pop() {
        if stop() {
            return Err(Error::Interrupted);
        }
        let path = root.join(&dir);
        for entry in fs::read_dir(&path).map_err(Error::io("read", &path))? {
            let entry = entry.map_err(Error::io("read", &path))?;
            let name = dir.join(entry.file_name());
            let metadata = entry.metadata().map_err(Error::io("read", entry.path()))?;
            let kind = metadata.file_type();
            if kind.is_block_device() || kind.is_char_device() {
                return Err(refused(root, format!("{} is a device", entry.path().display())));
            }
            if ours == Some(metadata.dev()) {
                return Err(refused(root, "the disk itself is mounted in it".to_owned()));
            }
            if kind.is_dir() {
                left.push(name.clone());
            }
            tree.insert(name, Seen::of(&metadata));
        }
    }
    Ok(tree)
}

/// The first of `these` that is not like that among `those`; or that is among those alone.
fn differs<'a>(
    these: &'a Tree,
    those: &'a Tree,
    like: fn(&Seen, &Seen) -> bool,
) -> Option<&'a Path> {
    let is_like = |path: &PathBuf, seen| those.get(path).is_some_and(|other| like(seen, other));
    let unlike = these.iter().find(|(path, seen)| !is_like(path, seen)).map(|(path, _)| path);
    let more = || those.keys().find(|path| !these.contains_key(*path) && *path != OsStr::new(OWN));
    unlike.or_else(more).map(PathBuf::as_path)
}

fn refused(from: &Path, said: String) -> Error {
    Error::Program { program: format!("--from {}", from.display()), said }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_while_it_is_copied_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let look = || tree(dir.path(), &|| false).unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        file("sub/a", "1");
        let before = look();
        assert_eq!(differs(&before, &look(), Seen::is_same), None);
        file("sub/a", "12");
        assert_eq!(differs(&before, &look(), Seen::is_same), Some(Path::new("sub/a")));
        let before = look();
        file("b", "");
        assert!(differs(&before, &look(), Seen::is_same).is_some(), "a new name");
        let before = look();
        fs::remove_file(dir.path().join("b")).unwrap();
        assert!(differs(&before, &look(), Seen::is_copy).is_some(), "a name that is gone");
    }

    #[test]
    fn what_is_no_directory_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(&dir.path().join("none")).is_err());
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(check(&file).unwrap_err().to_string().contains("not a directory"));
        assert!(check(dir.path()).is_ok());
    }
}
