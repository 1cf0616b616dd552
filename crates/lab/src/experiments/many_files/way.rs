//! The ways to write and sync many files, and how many files and bytes there are.

use plimsoll_sync::SyncMethod;

/// The article's `FILE_NUMBER`.
pub(super) const FILES: usize = 100;
/// The article's record.
pub(super) const RECORD_BYTES: usize = 200;
/// What direct I/O writes instead of a record: a page, which a record of 200 B costs anyway.
pub(super) const DIRECT_BYTES: usize = 4096;
/// Threads of the pool.
pub(super) const THREADS: usize = 4;

/// How the files are written and synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Not synced.
    Write,
    /// Write and sync, file by file.
    Each(SyncMethod),
    /// All writes, then a sync of each file.
    Then,
    /// All writes, a hint for each file to begin writing it out, then a sync of each.
    HintThen,
    /// One batch of `io_uring` requests.
    Batch(SyncMethod),
    /// Write and sync by a pool of threads.
    Pool,
    /// All writes, then one syncfs.
    Syncfs,
    /// All records in one file, and one sync.
    OneFile,
}

/// Every way, in the order in which reports print them.
pub(super) const WAYS: [Way; 12] = [
    Way::Write,
    Way::Each(SyncMethod::ORDINARY),
    Way::Each(SyncMethod::Fdatasync),
    Way::Then,
    Way::HintThen,
    Way::Each(SyncMethod::DirectFsync),
    Way::Batch(SyncMethod::UringLink),
    Way::Batch(SyncMethod::Uring),
    Way::Batch(SyncMethod::UringRwfDsync),
    Way::Pool,
    Way::Syncfs,
    Way::OneFile,
];

/// The way that the others are compared with.
pub(super) const BASELINE: Way = Way::Each(SyncMethod::ORDINARY);
pub(super) const DIRECT: Way = Way::Each(SyncMethod::DirectFsync);
pub(super) const LINKED: Way = Way::Batch(SyncMethod::UringLink);
pub(super) const TRAP: Way = Way::Batch(SyncMethod::Uring);

impl Way {
    /// Its name, in words.
    #[must_use]
    pub(super) fn name(self) -> String {
        match self {
            Self::Write => "write only".to_owned(),
            Self::Each(SyncMethod::DirectFsync) => "O_DIRECT, write and fsync each".to_owned(),
            Self::Each(method) => format!("write and {method} each"),
            Self::Then => format!("all writes, then {} each", SyncMethod::ORDINARY),
            Self::HintThen => {
                format!("all writes and sync_file_range, then {} each", SyncMethod::ORDINARY)
            }
            Self::Batch(SyncMethod::Uring) => "io_uring, unlinked (a trap)".to_owned(),
            Self::Batch(SyncMethod::UringLink) => "io_uring, linked".to_owned(),
            Self::Batch(method) => method.name().replace('+', ", "),
            Self::Pool => format!("{THREADS} threads, write and {} each", SyncMethod::ORDINARY),
            Self::Syncfs => "all writes, then one syncfs".to_owned(),
            Self::OneFile => format!("one file, one {}", SyncMethod::ORDINARY),
        }
    }

    /// What makes the records durable.
    #[must_use]
    pub(super) const fn method(self) -> SyncMethod {
        match self {
            Self::Write => SyncMethod::None,
            Self::Each(method) | Self::Batch(method) => method,
            Self::Syncfs => SyncMethod::Syncfs,
            Self::Then | Self::HintThen | Self::Pool | Self::OneFile => SyncMethod::ORDINARY,
        }
    }

    /// How many syncs follow one another in a sample of `files`. Syncs that run together may share
    /// a commit and a flush, so that their promises imply only one.
    pub(super) const fn syncs_in_turn(self, files: u64) -> u64 {
        match self {
            Self::Write | Self::Each(_) | Self::Then | Self::HintThen => files,
            Self::Batch(_) | Self::Pool | Self::Syncfs | Self::OneFile => 1,
        }
    }

    /// Whether it goes through `io_uring`.
    #[must_use]
    pub(super) const fn needs_uring(self) -> bool {
        matches!(self, Self::Batch(_))
    }

    /// Whether an fsync may run before its own write, so that it proves nothing.
    #[must_use]
    pub(super) const fn is_trap(self) -> bool {
        matches!(self, Self::Batch(SyncMethod::Uring))
    }

    /// Whether the measuring thread does everything itself, step by step.
    pub(super) const fn is_sequential(self) -> bool {
        !matches!(self, Self::Batch(_) | Self::Pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_of_its_own_without_a_slash() {
        let mut names: Vec<String> = WAYS.into_iter().map(Way::name).collect();
        assert!(names.iter().all(|name| !name.contains('/')), "--only splits names there");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), WAYS.len());
    }
}
