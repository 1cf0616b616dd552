//! [`Words`]: memory that threads, and what comes after a crashed process, may share.
//!
//! Invariant: it is only ever seen as atomics, so that no access of anybody to it is a data race,
//! whatever another process does to a file that is mapped.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;

#[cfg(all(unix, not(miri)))]
use super::map::Shared;

/// Words of memory, all zero at first: of this process, or of a file that outlives it.
pub struct Words {
    #[cfg(all(unix, not(miri)))]
    shared: Shared,
    #[cfg(any(not(unix), miri))]
    owned: Box<[AtomicU64]>,
}

/// What a file of [`Words`] held when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It is new: all words are zero.
    Nothing,
    /// What an earlier process left.
    Words,
}

#[cfg(all(unix, not(miri)))]
mod unix {
    use std::fs::OpenOptions;
    use std::io;
    use std::path::Path;

    use super::{Held, Shared, Words};
    use crate::{Error, Result};

    impl Words {
        /// So many words of this process's own, with pages under them.
        pub fn own(words: usize) -> Result<Self> {
            let failed = |error| Error::io("map", "memory", error);
            Ok(Self { shared: Shared::anonymous(words).map_err(failed)? })
        }

        /// So many words of the file at `path`, which is made if it is not there or empty, and refused if
        /// it has another size: it may be somebody's. They survive this process, and nothing else: a file on tmpfs(5) never
        /// waits for a disk, and a file anywhere else is refused.
        pub fn of_file(path: &Path, words: usize) -> Result<(Self, Held)> {
            let failed = |operation| move |error| Error::io(operation, path, error);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .map_err(failed("open"))?;
            if !super::super::place::lives_in_memory(&file).map_err(failed("statfs"))? {
                let reason = "its filesystem is not in memory, so a store could wait for a disk; \
                              take one on tmpfs, like /dev/shm";
                return Err(Error::io("map", path, io::Error::other(reason)));
            }
            let bytes = words as u64 * 8;
            let held = file.metadata().map_err(failed("stat"))?.len();
            if held == 0 {
                file.set_len(bytes).map_err(failed("truncate"))?;
            } else if held != bytes {
                let reason = format!(
                    "it has {held} bytes, not {bytes}: ask for what it was made with, or remove it"
                );
                return Err(Error::io("map", path, io::Error::other(reason)));
            }
            // Every page, now: a full tmpfs is an error here and would be a SIGBUS later.
            super::super::sys::reserve(&file, 0, bytes).map_err(failed("allocate"))?;
            let shared = Shared::of_file(&file, words).map_err(failed("map"))?;
            Ok((Self { shared }, if held == bytes { Held::Words } else { Held::Nothing }))
        }
    }
}

// Miri knows no shared mappings.
#[cfg(any(not(unix), miri))]
mod elsewhere {
    use std::io;
    use std::path::Path;

    use super::{AtomicU64, Held, Words};
    use crate::{Error, Result};

    impl Words {
        /// So many words of this process's own.
        pub fn own(words: usize) -> Result<Self> {
            Ok(Self { owned: (0..words).map(|_| AtomicU64::new(0)).collect() })
        }

        /// Words of a file. There are none on this system.
        pub fn of_file(path: &Path, _: usize) -> Result<(Self, Held)> {
            Err(Error::io("map", path, io::ErrorKind::Unsupported.into()))
        }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        #[cfg(all(unix, not(miri)))]
        return self.shared.words();
        #[cfg(any(not(unix), miri))]
        return &self.owned;
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Words({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn own_words_are_zero_and_keep_what_is_stored() {
        let words = Words::own(1000).unwrap();
        assert_eq!(words.len(), 1000);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[999].store(7, Ordering::Relaxed);
        assert_eq!(words[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn words_of_a_file_outlive_their_mapping_and_a_disk_is_refused() {
        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let path = shm.path().join("ring");
        let (words, held) = Words::of_file(&path, 512).unwrap();
        assert_eq!(held, Held::Nothing);
        words[3].store(7, Ordering::Relaxed);
        drop(words);
        let (words, held) = Words::of_file(&path, 512).unwrap();
        assert_eq!((held, words[3].load(Ordering::Relaxed)), (Held::Words, 7));
        drop(words);
        let other = Words::of_file(&path, 1024).unwrap_err();
        let reason = std::error::Error::source(&other).unwrap().to_string();
        assert!(reason.contains("4096 bytes, not 8192"), "{reason}");
        assert_eq!(Words::of_file(&path, 512).unwrap().0[3].load(Ordering::Relaxed), 7);
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let refused = Words::of_file(&disk.path().join("ring"), 512).unwrap_err();
        assert!(std::error::Error::source(&refused).unwrap().to_string().contains("tmpfs"));
    }
}
