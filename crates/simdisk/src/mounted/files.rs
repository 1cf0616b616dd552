//! What files a mounted directory has, so that two states can be told apart by them.
//!
//! What is on the disk may come from anybody: so many files are looked at, and so many bytes of each, and no
//! more; links are not followed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use super::attribute::{FILES_MAX, walk};

/// Of a file, and of all of them together, no more bytes are read.
const FILE_BYTES_MAX: u64 = 64 << 20;
const BYTES_MAX: u64 = 1 << 30;
/// A shorter name may stand anywhere by accident.
const NAME_BYTES_MIN: usize = 4;

/// The files and directories below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    root: PathBuf,
    /// By their names from the directory; those of directories end with a slash.
    looks: BTreeMap<String, Look>,
    /// Whether they are all; if not, of one that is not here nothing is known.
    is_whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    bytes: u64,
    /// How much was to be read of it, and a hash of what was.
    read: u64,
    hash: u64,
}

impl Look {
    /// As far as is known: what was read of one and not of the other may be the same.
    fn differs(&self, other: &Self) -> bool {
        self.bytes != other.bytes || (self.read == other.read && self.hash != other.hash)
    }
}

/// A file or directory that is not the same in two states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// From the mounted directory; that of a directory ends with a slash.
    pub name: String,
    /// How long it is in the first; `None` if it is not there.
    pub before: Option<u64>,
    /// How long it is in the second.
    pub after: Option<u64>,
}

impl Files {
    /// Looks at all below a directory, or at as much as is looked at. What cannot be read counts as empty.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        let mut left = BYTES_MAX;
        let mut paths = Vec::new();
        walk(directory, &mut paths);
        let is_whole = paths.len() < FILES_MAX;
        paths.sort();
        let look = |path: PathBuf| {
            let below = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy();
            if path.is_dir() {
                return (format!("{below}/"), Look { bytes: 0, read: 0, hash: 0 });
            }
            let bytes = path.metadata().map_or(0, |metadata| metadata.len());
            let read = bytes.min(FILE_BYTES_MAX).min(left);
            let content = content(&path, &mut left).unwrap_or_default();
            let hash = XxHash3_64::oneshot(&content);
            (below.into_owned(), Look { bytes, read, hash })
        };
        let looks = paths.into_iter().map(look).collect();
        Self { root: directory.to_owned(), looks, is_whole }
    }

    /// What is not the same in another state, by name. Content beyond what is read is not compared, and where not all
    /// was looked at, nothing is said to be there or gone.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<FileChange> {
        let names = self.looks.keys().chain(after.looks.keys().filter(|name| !self.has(name)));
        let are_all = self.is_whole && after.is_whole;
        let differs = |name: &&String| match (self.looks.get(*name), after.looks.get(*name)) {
            (Some(one), Some(other)) => one.differs(other),
            _ => are_all,
        };
        let bytes = |files: &Self, name: &String| files.looks.get(name).map(|look| look.bytes);
        let change = |name: &String| FileChange {
            name: name.clone(),
            before: bytes(self, name),
            after: bytes(after, name),
        };
        let mut changes: Vec<FileChange> = names.filter(differs).map(change).collect();
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        changes
    }

    fn has(&self, name: &str) -> bool {
        self.looks.contains_key(name)
    }

    /// For each name the files whose bytes hold its last part as a word, such as `CURRENT` of
    /// `MANIFEST-000001`; as long as the directory is mounted. None for a name that is too short to mean anything.
    /// Each file is read once.
    #[must_use]
    pub fn naming(&self, names: &[&str]) -> Vec<Vec<String>> {
        let mut naming = vec![Vec::new(); names.len()];
        let mut left = BYTES_MAX;
        for other in self.looks.keys().filter(|other| !other.ends_with('/')) {
            let content = content(&self.root.join(other), &mut left).unwrap_or_default();
            for (name, by) in names.iter().zip(&mut naming) {
                let word = last_part(name);
                if word.len() >= NAME_BYTES_MIN && other != name && holds_word(&content, word) {
                    by.push(other.clone());
                }
            }
        }
        naming
    }
}

fn last_part(name: &str) -> &[u8] {
    name.trim_end_matches('/').rsplit('/').next().unwrap_or(name).as_bytes()
}

/// The beginning of a file.
fn content(path: &Path, left: &mut u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX.min(*left);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    *left -= bytes.len() as u64;
    Ok(bytes)
}

/// Whether a name stands there, and not as a part of a longer one.
fn holds_word(bytes: &[u8], word: &[u8]) -> bool {
    let continues = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let mut places = bytes.windows(word.len()).enumerate().filter(|(_, there)| *there == word);
    places.any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !continues(before) && !continues(bytes.get(at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_differs_between_two_states_is_said_by_file() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&one, &other] {
            fs::write(dir.path().join("same"), "same").unwrap();
            fs::create_dir(dir.path().join("sub")).unwrap();
        }
        fs::write(one.path().join("gone"), "12345").unwrap();
        fs::write(one.path().join("other bytes"), "1").unwrap();
        fs::write(other.path().join("other bytes"), "2").unwrap();
        fs::create_dir(other.path().join("sub/new")).unwrap();
        fs::write(other.path().join("sub/new/file"), "123").unwrap();
        let changes = Files::of(one.path()).changes(&Files::of(other.path()));
        let said: Vec<_> =
            changes.iter().map(|change| (&*change.name, change.before, change.after)).collect();
        assert_eq!(
            said,
            [
                ("gone", Some(5), None),
                ("other bytes", Some(1), Some(1)),
                ("sub/new/", None, Some(0)),
                ("sub/new/file", None, Some(3)),
            ]
        );
    }

    /// So many files are looked at, and in which order they are listed is not the same in each state.
    #[test]
    fn what_was_not_looked_at_is_not_said_to_differ() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["one", "other"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let all = Files::of(dir.path());
        let mut some = all.clone();
        some.looks.remove("one");
        assert_eq!(some.changes(&all).len(), 1);
        some.is_whole = false;
        assert_eq!((some.changes(&all), all.changes(&some)), (vec![], vec![]));
        // Of a file that came when most had been read.
        let partly = |read, hash| Look { bytes: 9, read, hash };
        assert!(!partly(9, 1).differs(&partly(3, 2)) && partly(3, 1).differs(&partly(3, 2)));
    }

    #[test]
    fn a_file_names_another_if_its_bytes_hold_that_name_as_a_word() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("db")).unwrap();
        for (name, text) in [
            ("CURRENT", "MANIFEST-000001\n"),
            ("longer", "MANIFEST-0000012 MANIFEST-000001.tmp xMANIFEST-000001"),
            ("twice", "MANIFEST-0000012, then\0MANIFEST-000001\0"),
            ("db/MANIFEST-000001", "MANIFEST-000001"),
            ("log", "log"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let files = Files::of(dir.path());
        let naming = files.naming(&["db/MANIFEST-000001", "log", "longer"]);
        assert_eq!(naming[0], ["CURRENT", "twice"]);
        assert_eq!(naming[1..], [[""; 0]; 2], "too short to mean anything, and not in any");
    }

    #[test]
    fn links_are_not_followed() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(elsewhere.path().join("secret"), "MANIFEST-000001").unwrap();
        let secret = elsewhere.path().join("secret");
        std::os::unix::fs::symlink(secret, dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("dir")).unwrap();
        let files = Files::of(dir.path());
        assert_eq!(files.looks.len(), 0);
        assert_eq!(files.naming(&["MANIFEST-000001"]), [[""; 0]]);
    }
}
