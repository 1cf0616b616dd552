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
    /// What the words are mapped of, if it is a file: unlocked once they are not mapped any more.
    #[cfg(all(unix, not(miri)))]
    file: Option<super::lock::Locked>,
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
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::ops::Range;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use super::{Held, Shared, Words};
    use crate::{Error, Result};

    /// Who is neither the owner nor asked may write.
    const OTHERS_WRITE: u32 = 0o022;

    impl Words {
        /// So many words of this process's own, with pages under them.
        pub fn own(words: usize) -> Result<Self> {
            let failed = |error| Error::io("map", "memory", error);
            Ok(Self { shared: Shared::anonymous(words, true).map_err(failed)?, file: None })
        }

        /// The same, with pages that come at their first use: for memory of which little may be used.
        pub fn own_sparse(words: usize) -> Result<Self> {
            let failed = |error| Error::io("map", "memory", error);
            Ok(Self { shared: Shared::anonymous(words, false).map_err(failed)?, file: None })
        }

        /// So many words of the file at `path`, which is made if it is not there or empty. They survive
        /// this process, and nothing else: a file on tmpfs(5) never waits for a disk, and a file anywhere
        /// else is refused.
        ///
        /// A file that is made can be read and written by its owner alone. Refused is what may be
        /// somebody else's: another owner's file, one that others may write, one of another size, and
        /// what is no regular file; a link is not followed.
        ///
        /// One opener has the file, until the words are dropped or the process ends; others are told
        /// [`Error::Locked`]. What a forked child drops stays locked.
        pub fn of_file(path: &Path, words: usize) -> Result<(Self, Held)> {
            let failed = |operation| move |error| Error::io(operation, path, error);
            let refused = |reason: String| Error::io("map", path, io::Error::other(reason));
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // A FIFO would let us wait for whoever put it there.
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(path);
            let stranger = || super::super::unix::stranger_at(path);
            let file = super::super::regular::regular(path, opened, stranger)?;
            check_is_ours(&file).map_err(failed("stat"))?.map_err(refused)?;
            if !super::super::place::lives_in_memory(&file).map_err(failed("statfs"))? {
                let reason = "its filesystem is not in memory, so a store could wait for a disk; \
                              take one on tmpfs, like /dev/shm";
                return Err(refused(reason.to_owned()));
            }
            // Before it has a size: whoever has it relies on every word.
            let locked = super::super::lock::of_file(file, path)?;
            let file = locked.file();
            let bytes = words as u64 * 8;
            let held = file.metadata().map_err(failed("stat"))?.len();
            if held == 0 {
                file.set_len(bytes).map_err(failed("truncate"))?;
            } else if held != bytes {
                return Err(refused(format!(
                    "it has {held} bytes, not {bytes}: ask for what it was made with, or remove it"
                )));
            }
            // Every page, now: a full tmpfs is an error here and would be a SIGBUS later.
            super::super::sys::reserve(file, 0, bytes).map_err(failed("allocate"))?;
            let shared = Shared::of_file(file, words).map_err(failed("map"))?;
            let held = if held == bytes { Held::Words } else { Held::Nothing };
            Ok((Self { shared, file: Some(locked) }, held))
        }

        /// Makes all words of the range zeros, and gives the memory of its whole pages back to the system.
        /// Returns how many bytes the system took: 0 where it takes none (anything but Linux). Who stores
        /// into the range meanwhile may find zeros or what they stored.
        ///
        /// Words of a file must be asked for again ([`Words::take_back`]) before they are stored into:
        /// where tmpfs is full by then, a store would be a SIGBUS.
        ///
        /// # Panics
        /// If the range reaches past the words.
        pub fn give_back(&self, words: Range<usize>) -> Result<u64> {
            let failed = |error| Error::io("give back", "memory", error);
            self.shared.give_back(words, self.file.is_some()).map_err(failed)
        }

        /// Gets memory for a range that was given back. Of words of a file all of it is there on return,
        /// or the error says that tmpfs is full; a process's own memory comes at its first use.
        ///
        /// # Panics
        /// If the range reaches past the words.
        pub fn take_back(&self, words: Range<usize>) -> Result<()> {
            let (at, bytes) = (words.start as u64 * 8, self[words].len() as u64 * 8);
            match &self.file {
                Some(locked) if bytes > 0 => super::super::sys::reserve(locked.file(), at, bytes)
                    .map_err(|error| Error::io("allocate", "memory", error)),
                _ => Ok(()),
            }
        }
    }

    /// Whether the file is this user's and nobody else may write it; if not, why, and what to do.
    fn check_is_ours(file: &File) -> io::Result<std::result::Result<(), String>> {
        let (found, ours) = (file.metadata()?, rustix::process::geteuid().as_raw());
        Ok(if found.uid() != ours {
            Err(format!(
                "it belongs to user {}, and this process runs as user {ours}: name another file, in a \
                 directory that is yours",
                found.uid()
            ))
        } else if found.mode() & OTHERS_WRITE != 0 {
            Err(format!(
                "others may write it (mode {:o}): take that away with chmod go-w if nobody has, or \
                 remove it",
                found.mode() & 0o777
            ))
        } else {
            Ok(())
        })
    }
}

// Miri knows no shared mappings.
#[cfg(any(not(unix), miri))]
mod elsewhere {
    use std::io;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::{AtomicU64, Held, Words};
    use crate::{Error, Result};

    impl Words {
        /// So many words of this process's own.
        pub fn own(words: usize) -> Result<Self> {
            Ok(Self { owned: (0..words).map(|_| AtomicU64::new(0)).collect() })
        }

        /// The same.
        pub fn own_sparse(words: usize) -> Result<Self> {
            Self::own(words)
        }

        /// Words of a file. There are none on this system.
        pub fn of_file(path: &Path, _: usize) -> Result<(Self, Held)> {
            Err(Error::io("map", path, io::ErrorKind::Unsupported.into()))
        }

        /// Makes all words of the range zeros. This system takes no memory back: 0 bytes.
        ///
        /// # Panics
        /// If the range reaches past the words.
        pub fn give_back(&self, words: Range<usize>) -> Result<u64> {
            self[words].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            Ok(0)
        }

        /// Memory that was never given back is there.
        ///
        /// # Panics
        /// If the range reaches past the words.
        pub fn take_back(&self, words: Range<usize>) -> Result<()> {
            let _ = &self[words];
            Ok(())
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

    /// Bytes of the pages of these words that are there, swapped out ones with them. Of these alone: what
    /// lies beside them may be another test's (proc_pid_pagemap(5)).
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident_bytes(words: &Words) -> u64 {
        use std::os::unix::fs::FileExt;

        let page = rustix::param::page_size();
        let (first, bytes) = (words.as_ptr().addr() / page, words.len() * 8);
        let mut entries = vec![0; bytes.div_ceil(page) * 8];
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut entries, first as u64 * 8).unwrap();
        let is_there = |entry: &&[u8]| entry[7] & 0b1100_0000 != 0;
        entries.chunks_exact(8).filter(is_there).count() as u64 * page as u64
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn of_file() -> Option<(tempfile::TempDir, Words)> {
        let shm = tempfile::tempdir_in("/dev/shm").ok()?;
        let words = Words::of_file(&shm.path().join("ring"), WORDS).unwrap().0;
        Some((shm, words))
    }

    /// Enough that it has a mapping of its own, whatever lies beside it.
    const WORDS: usize = 1 << 20;

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn memory_that_was_given_back_is_the_systems_and_reads_as_zeros() {
        let file = of_file();
        let file = file.as_ref().map(|(_, words)| (words, "file"));
        let own = Words::own(WORDS).unwrap();
        for (words, what) in [(&own, "own")].into_iter().chain(file) {
            words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            let before = resident_bytes(words);
            let (first, end) = (WORDS / 4 + 3, WORDS - 7);
            let give = || {
                let given = words.give_back(first..end).unwrap();
                (given, resident_bytes(words))
            };
            // The system may make one huge page of what is left and what was given back, which is there again then.
            let is_back = |(given, after): &(u64, u64)| *after > before - given;
            let mut tries = std::iter::repeat_with(give).take(20);
            let (given, after) = tries.find(|found| !is_back(found)).unwrap_or_else(give);
            assert_eq!(given, ((end - first) as u64 * 8 - 8192).next_multiple_of(4096), "{what}");
            assert!(before >= WORDS as u64 * 8, "{what}: {before}");
            assert!(after <= before - given, "{what}: {before} → {after}, given {given}");
            for (number, word) in words.iter().enumerate() {
                let kept = if (first..end).contains(&number) { 0 } else { u64::MAX };
                assert_eq!(word.load(Ordering::Relaxed), kept, "{what}: word {number}");
            }
            words.take_back(first..end).unwrap();
            words[first].store(7, Ordering::Relaxed);
            assert_eq!(words[first].load(Ordering::Relaxed), 7, "{what}");
        }
    }

    #[test]
    fn a_range_without_a_whole_page_becomes_zeros_and_keeps_its_memory() {
        let words = Words::own(1000).unwrap();
        words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
        assert_eq!(words.give_back(10..13).unwrap(), 0);
        assert_eq!(words.give_back(5..5).unwrap(), 0);
        words.take_back(5..5).unwrap();
        let zeros = words.iter().filter(|word| word.load(Ordering::Relaxed) == 0).count();
        assert_eq!(zeros, 3);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn words_of_a_file_that_may_be_somebody_elses_are_refused_and_it_stays_as_it_was() {
        use std::fs;
        use std::os::unix::fs::{PermissionsExt, symlink};

        use rustix::fs::{FileType, Mode};

        let Ok(shm) = tempfile::tempdir_in("/dev/shm") else { return };
        let at = |name: &str| shm.path().join(name);
        let refused = |name: &str| {
            let error = Words::of_file(&at(name), 512).unwrap_err();
            match std::error::Error::source(&error) {
                Some(source) => source.to_string(),
                None => error.to_string(),
            }
        };
        fs::write(at("victim"), vec![7; 4096]).unwrap();
        symlink("victim", at("link")).unwrap();
        assert!(refused("link").contains("a link"), "{}", refused("link"));
        symlink("nowhere", at("dangling")).unwrap();
        assert!(refused("dangling").contains("a link"));
        assert!(!at("nowhere").exists());
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(refused("fifo").contains("a FIFO"));
        fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o664)).unwrap();
        assert!(refused("victim").contains("chmod go-w"), "{}", refused("victim"));
        fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o600)).unwrap();
        // Only the administrator gives files away.
        if std::os::unix::fs::chown(at("victim"), Some(12_345), None).is_ok() {
            assert!(refused("victim").contains("user 12345"), "{}", refused("victim"));
        }
        assert_eq!(fs::read(at("victim")).unwrap(), vec![7; 4096]);
        drop(Words::of_file(&at("ring"), 512).unwrap());
        assert_eq!(fs::metadata(at("ring")).unwrap().permissions().mode() & 0o777, 0o600);
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
