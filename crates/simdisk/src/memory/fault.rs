//! What goes wrong with which operation of a caller: a fault of the disk in memory.
//!
//! The words are those of the block device ([`crate::block::Fault`]), one seam higher: an operation is a
//! call, not a request to a device, and is found by a file's name, not by a range of the disk. What both
//! share is in `armed.rs`.

use std::fmt;
use std::io;

use crate::armed::{Armed, Due, Times};

/// An operation on the simulated disk. [`plimsoll_sync::Dir::create`] is two: `Create`, then
/// `SyncDir`; so is making a directory; a write to a file opened to sync every write is `Write`, then
/// `Sync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// A file is made.
    Create,
    /// A file is opened.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// A file is synced, or a write of it.
    Sync,
    /// Blocks are given to a file.
    Allocate,
    /// Blocks of a file are given back.
    Punch,
    /// A length is set.
    Truncate,
    /// A file gets another name.
    Rename,
    /// A name is taken away.
    Remove,
    /// The directory is synced.
    SyncDir,
    /// Names are listed.
    List,
    /// A lock is taken.
    Lock,
    /// A directory is made in one, unless it is there.
    CreateDir,
    /// A directory in one is opened.
    OpenDir,
}

/// What happens instead of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// It fails with this kind of error. A write has then written some of its sectors or none, and a sync
    /// has given some of what it is for to the device, which may still lose it; which, [`Fault::seed`]
    /// says. Nobody writes the rest of a failed sync: the kernel marks its pages clean. Of a failed
    /// syncfs(2) those are the pages of the file that it was called through; other files stay as they
    /// were. Any other operation does nothing.
    Fail(io::ErrorKind),
    /// It fails as with [`FaultKind::Fail`], with a raw error of the host: `EIO` has no kind.
    FailRaw(i32),
    /// `Write` only: this many bytes go in, never all, and it fails with
    /// [`io::ErrorKind::StorageFull`].
    ShortWrite {
        /// At most so many.
        bytes: u64,
    },
    /// `Write` only: it says that it worked, reads see the bytes, and they never reach the medium.
    /// A changed length does.
    LostWrite,
    /// `Sync` and `SyncDir` only: it says that it worked, and the bytes stay in the device's
    /// volatile cache.
    DropFlush,
    /// The machine goes down before the operation, which fails, as everything after it does. See
    /// [`crate::SimDir::stop_at`].
    PowerOff,
}

/// What happens to which operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The operation.
    pub on: Operation,
    /// The name that the file has then, or had last; any if `None`. A rename is known by its old
    /// name. In a directory of the first one it is `directory/file`.
    pub name: Option<String>,
    /// Which of the operations that match, counted from 1, since the fault was injected.
    pub nth: u64,
    /// What happens.
    pub kind: FaultKind,
    /// How often.
    pub times: Times,
    /// With this and the operation's number is drawn what a write or a sync that fails leaves.
    pub seed: u64,
}

impl Fault {
    /// `kind` happens once, to the first such operation on any file.
    #[must_use]
    pub const fn new(on: Operation, kind: FaultKind) -> Self {
        Self { on, name: None, nth: 1, kind, times: Times::Count(1), seed: 0 }
    }

    /// Only for the file of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Not before the nth operation that matches, counted from 1.
    #[must_use]
    pub const fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    /// So often, and not once.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Times::Count(times);
        self
    }

    /// And at every one that follows.
    #[must_use]
    pub const fn sticky(mut self) -> Self {
        self.times = Times::Sticky;
        self
    }

    /// Leaves something else of a write or a sync that fails.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the operation can suffer that.
    fn makes_sense(&self) -> bool {
        self.nth > 0
            && self.times != Times::Count(0)
            && match self.kind {
                FaultKind::ShortWrite { .. } | FaultKind::LostWrite => self.on == Operation::Write,
                FaultKind::DropFlush => matches!(self.on, Operation::Sync | Operation::SyncDir),
                FaultKind::Fail(_) | FaultKind::FailRaw(_) | FaultKind::PowerOff => true,
            }
    }
}

impl Due for Fault {
    fn nth(&self) -> u64 {
        self.nth
    }

    fn times(&self) -> Times {
        self.times
    }
}

/// The faults of a disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    armed: Armed<Fault>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        assert!(
            fault.makes_sense(),
            "{fault:?} can never happen, and a test with it would prove nothing"
        );
        self.armed.add(fault);
    }

    /// What happens to an operation on the file of this name, if not what should, and the seed of what
    /// it leaves.
    pub(crate) fn meet(&mut self, on: Operation, name: &str) -> Option<(FaultKind, u64)> {
        let is_named = |fault: &Fault| fault.name.as_ref().is_none_or(|wanted| wanted == name);
        let met = self.armed.meet(|fault| fault.on == on && is_named(fault), |_| true);
        met.map(|fault| (fault.kind, fault.seed))
    }
}

impl Operation {
    /// Whether a disk may be another after it.
    #[must_use]
    pub const fn changes_disk(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Lock | Self::OpenDir)
    }

    /// The operation as a verb.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
            Self::Punch => "punch",
            Self::Truncate => "truncate",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::SyncDir => "sync directory",
            Self::List => "list",
            Self::Lock => "lock",
            Self::CreateDir => "create directory",
            Self::OpenDir => "open directory",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
