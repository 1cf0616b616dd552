//! Every way to make a write durable: its name, its promise on each system, where that is written.
//!
//! A method has two halves: how the file is opened ([`Access`]) and what goes with or follows the
//! write (`Step`). Both follow from the variant, so a name says everything.
//!
//! Invariant: nothing here touches the machine. Whether a method works *here* is found by trying
//! ([`crate::probe`]).

use std::fmt;
use std::str::FromStr;

use crate::Promise;

/// A way to make a write durable, or to be told that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SyncMethod {
    /// write(2) and nothing else.
    None,
    /// fsync(2) after the write: data and all metadata.
    Fsync,
    /// fdatasync(2) after the write: data and the metadata needed to find it.
    Fdatasync,
    /// The file is opened with `O_SYNC`: every write syncs as fsync would.
    OSync,
    /// The file is opened with `O_DSYNC`: every write syncs as fdatasync would.
    ODsync,
    /// pwritev2(2) with `RWF_SYNC`: `O_SYNC` for one write.
    RwfSync,
    /// pwritev2(2) with `RWF_DSYNC`: `O_DSYNC` for one write.
    RwfDsync,
    /// `O_DIRECT` alone: past the page cache, into the device's cache.
    Direct,
    /// `O_DIRECT`, then fsync.
    DirectFsync,
    /// `O_DIRECT`, then fdatasync.
    DirectFdatasync,
    /// `O_DIRECT | O_SYNC`.
    DirectOSync,
    /// `O_DIRECT | O_DSYNC`.
    DirectODsync,
    /// `O_DIRECT`, written with `RWF_SYNC`.
    DirectRwfSync,
    /// `O_DIRECT`, written with `RWF_DSYNC`.
    DirectRwfDsync,
    /// `sync_file_range(2)` with all three flags: page cache to device, no metadata, no flush.
    SyncFileRange,
    /// syncfs(2): everything dirty on the filesystem, ours or not.
    Syncfs,
    /// A store into a shared mapping, then msync(2) with `MS_SYNC`.
    Msync,
    /// `io_uring` write and fsync submitted together, unlinked. A trap: the fsync may run first.
    Uring,
    /// `io_uring` write, then fsync, joined by `IOSQE_IO_LINK`.
    UringLink,
    /// `io_uring` write, then fsync with `IOSQE_IO_DRAIN`.
    UringDrain,
    /// One `io_uring` write with `RWF_DSYNC`.
    UringRwfDsync,
    /// `fcntl(F_BARRIERFSYNC)`, Apple systems.
    BarrierFsync,
    /// `fcntl(F_FULLFSYNC)`, Apple systems. Falls back to fsync only where the filesystem says
    /// that it is unsupported, and then returns [`Promise::Device`].
    FullFsync,
    /// `FlushFileBuffers`, Windows.
    FlushFileBuffers,
}

/// A family of systems whose sync calls mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum System {
    /// Linux.
    Linux,
    /// macOS, iOS and relatives.
    Apple,
    /// Windows.
    Windows,
    /// Any other system with POSIX calls. What its fsync does was not checked.
    OtherUnix,
}

/// How a file is opened, as far as durability goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access {
    /// Past the page cache (`O_DIRECT`). Buffers, lengths and byte offsets must be aligned to
    /// [`crate::File::alignment`].
    pub direct: bool,
    /// What every write waits for.
    pub through: Through,
}

/// What every write to a file waits for, by the way it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Through {
    /// Nothing: writes end in the cache.
    #[default]
    No,
    /// `O_DSYNC`: the data and what is needed to find it.
    Data,
    /// `O_SYNC`: the data and all metadata.
    All,
}

/// What goes with or follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, or nothing more than the open flags do.
    Write,
    /// A flag on the write itself.
    WriteFlag(Through),
    /// A system call after it.
    Call(Call),
    /// A store into a mapping, and msync.
    Map,
    /// Requests through `io_uring`.
    Uring(Chain),
}

/// A system call that syncs what was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Fsync,
    Fdatasync,
    SyncFileRange,
    Syncfs,
    BarrierFsync,
    FullFsync,
    FlushFileBuffers,
}

/// How an `io_uring` fsync is tied to its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chain {
    Unlinked,
    Linked,
    Drained,
    RwfDsync,
}

impl System {
    /// The system this was compiled for.
    pub const HERE: Self = if cfg!(target_os = "linux") {
        Self::Linux
    } else if cfg!(target_vendor = "apple") {
        Self::Apple
    } else if cfg!(windows) {
        Self::Windows
    } else {
        Self::OtherUnix
    };
}

impl Access {
    /// The method that consists of opening a file so, and writing.
    #[must_use]
    pub const fn method(self) -> SyncMethod {
        match (self.direct, self.through) {
            (false, Through::No) => SyncMethod::None,
            (false, Through::Data) => SyncMethod::ODsync,
            (false, Through::All) => SyncMethod::OSync,
            (true, Through::No) => SyncMethod::Direct,
            (true, Through::Data) => SyncMethod::DirectODsync,
            (true, Through::All) => SyncMethod::DirectOSync,
        }
    }
}

impl SyncMethod {
    /// Every method, in the order in which reports print them.
    pub const ALL: [Self; 24] = [
        Self::None,
        Self::Fsync,
        Self::Fdatasync,
        Self::OSync,
        Self::ODsync,
        Self::RwfSync,
        Self::RwfDsync,
        Self::Direct,
        Self::DirectFsync,
        Self::DirectFdatasync,
        Self::DirectOSync,
        Self::DirectODsync,
        Self::DirectRwfSync,
        Self::DirectRwfDsync,
        Self::SyncFileRange,
        Self::Syncfs,
        Self::Msync,
        Self::Uring,
        Self::UringLink,
        Self::UringDrain,
        Self::UringRwfDsync,
        Self::BarrierFsync,
        Self::FullFsync,
        Self::FlushFileBuffers,
    ];

    /// The system's ordinary call, for when the method is not what matters.
    pub const ORDINARY: Self = if cfg!(windows) { Self::FlushFileBuffers } else { Self::Fsync };

    /// The name that commands take and results print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::OSync => "o_sync",
            Self::ODsync => "o_dsync",
            Self::RwfSync => "rwf_sync",
            Self::RwfDsync => "rwf_dsync",
            Self::Direct => "o_direct",
            Self::DirectFsync => "o_direct+fsync",
            Self::DirectFdatasync => "o_direct+fdatasync",
            Self::DirectOSync => "o_direct+o_sync",
            Self::DirectODsync => "o_direct+o_dsync",
            Self::DirectRwfSync => "o_direct+rwf_sync",
            Self::DirectRwfDsync => "o_direct+rwf_dsync",
            Self::SyncFileRange => "sync_file_range",
            Self::Syncfs => "syncfs",
            Self::Msync => "msync",
            Self::Uring => "io_uring",
            Self::UringLink => "io_uring+link",
            Self::UringDrain => "io_uring+drain",
            Self::UringRwfDsync => "io_uring+rwf_dsync",
            Self::BarrierFsync => "f_barrierfsync",
            Self::FullFsync => "f_fullfsync",
            Self::FlushFileBuffers => "flush_file_buffers",
        }
    }

    /// What the method promises on `system`, or `None` where there is no such call.
    #[must_use]
    pub const fn promise(self, system: System) -> Option<Promise> {
        match (self, system) {
            (Self::None, _) => Some(Promise::Nothing),
            (Self::FlushFileBuffers, System::Windows) => Some(Promise::Media),
            (Self::FlushFileBuffers, _) | (_, System::Windows) => None,
            (Self::FullFsync, System::Apple) => Some(Promise::Media),
            (Self::BarrierFsync, System::Apple) => Some(Promise::Ordering),
            (Self::FullFsync | Self::BarrierFsync, _) => None,
            // The manual of macOS: fsync moves data to the drive, the drive may keep it.
            (
                Self::Fsync | Self::OSync | Self::ODsync | Self::Msync,
                System::Apple | System::OtherUnix,
            ) => Some(Promise::Device),
            (_, System::Apple | System::OtherUnix) => None,
            (Self::Uring, System::Linux) => Some(Promise::Nothing),
            (Self::Direct | Self::SyncFileRange, System::Linux) => Some(Promise::Device),
            (_, System::Linux) => Some(Promise::Media),
        }
    }

    /// How a file must be opened for this method.
    #[must_use]
    pub const fn access(self) -> Access {
        let direct = matches!(
            self,
            Self::Direct
                | Self::DirectFsync
                | Self::DirectFdatasync
                | Self::DirectOSync
                | Self::DirectODsync
                | Self::DirectRwfSync
                | Self::DirectRwfDsync
        );
        let through = match self {
            Self::OSync | Self::DirectOSync => Through::All,
            Self::ODsync | Self::DirectODsync => Through::Data,
            _ => Through::No,
        };
        Access { direct, through }
    }

    /// Whether the method is a call that also covers writes made before it, so that
    /// [`crate::File::sync`] takes it. The others cover only the write they come with.
    #[must_use]
    pub const fn is_call(self) -> bool {
        matches!(self.step(), Step::Call(_))
    }

    /// Where the promise is written down.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::None => "write(2)",
            Self::Fsync | Self::Fdatasync => "fsync(2); macOS fsync(2)",
            Self::OSync | Self::ODsync => "open(2), \"Synchronized I/O\"",
            Self::RwfSync | Self::RwfDsync => "pwritev2(2)",
            Self::Direct
            | Self::DirectFsync
            | Self::DirectFdatasync
            | Self::DirectOSync
            | Self::DirectODsync
            | Self::DirectRwfSync
            | Self::DirectRwfDsync => "open(2), O_DIRECT",
            Self::SyncFileRange => "sync_file_range(2), \"Warning\"",
            Self::Syncfs => "syncfs(2)",
            Self::Msync => "msync(2)",
            Self::Uring | Self::UringLink | Self::UringDrain | Self::UringRwfDsync => {
                "io_uring_enter(2), IORING_OP_FSYNC and IOSQE_IO_LINK"
            }
            Self::BarrierFsync | Self::FullFsync => "macOS fcntl(2)",
            Self::FlushFileBuffers => "Win32 FlushFileBuffers",
        }
    }

    /// What goes with or follows the write.
    pub(crate) const fn step(self) -> Step {
        match self {
            Self::None
            | Self::Direct
            | Self::OSync
            | Self::ODsync
            | Self::DirectOSync
            | Self::DirectODsync => Step::Write,
            Self::RwfSync | Self::DirectRwfSync => Step::WriteFlag(Through::All),
            Self::RwfDsync | Self::DirectRwfDsync => Step::WriteFlag(Through::Data),
            Self::Fsync | Self::DirectFsync => Step::Call(Call::Fsync),
            Self::Fdatasync | Self::DirectFdatasync => Step::Call(Call::Fdatasync),
            Self::SyncFileRange => Step::Call(Call::SyncFileRange),
            Self::Syncfs => Step::Call(Call::Syncfs),
            Self::BarrierFsync => Step::Call(Call::BarrierFsync),
            Self::FullFsync => Step::Call(Call::FullFsync),
            Self::FlushFileBuffers => Step::Call(Call::FlushFileBuffers),
            Self::Msync => Step::Map,
            Self::Uring => Step::Uring(Chain::Unlinked),
            Self::UringLink => Step::Uring(Chain::Linked),
            Self::UringDrain => Step::Uring(Chain::Drained),
            Self::UringRwfDsync => Step::Uring(Chain::RwfDsync),
        }
    }
}

impl fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SyncMethod {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|method| method.name() == name)
            .ok_or_else(|| format!("unknown sync method '{name}'"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_method_is_listed_once_and_read_back_from_its_name() {
        let names: HashSet<_> = SyncMethod::ALL.iter().map(|m| m.name()).collect();
        assert_eq!(names.len(), SyncMethod::ALL.len());
        for method in SyncMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
    }

    #[test]
    fn fsync_reaches_the_medium_on_linux_and_only_the_drive_on_macos() {
        assert_eq!(SyncMethod::Fsync.promise(System::Linux), Some(Promise::Media));
        assert_eq!(SyncMethod::Fsync.promise(System::Apple), Some(Promise::Device));
        assert_eq!(SyncMethod::FullFsync.promise(System::Apple), Some(Promise::Media));
        assert_eq!(SyncMethod::BarrierFsync.promise(System::Apple), Some(Promise::Ordering));
        assert_eq!(SyncMethod::FlushFileBuffers.promise(System::Windows), Some(Promise::Media));
    }

    #[test]
    fn traps_promise_no_media() {
        for trap in [SyncMethod::Uring, SyncMethod::Direct, SyncMethod::SyncFileRange] {
            assert_ne!(trap.promise(System::Linux), Some(Promise::Media), "{trap}");
        }
    }

    #[test]
    fn each_system_has_a_method_that_reaches_the_medium_or_admits_that_it_is_unknown() {
        for system in [System::Linux, System::Apple, System::Windows] {
            assert!(SyncMethod::ALL.iter().any(|m| m.promise(system) == Some(Promise::Media)));
        }
        let other = SyncMethod::ALL.iter().filter_map(|m| m.promise(System::OtherUnix));
        assert!(other.into_iter().all(|p| p != Promise::Media));
    }

    #[test]
    fn an_access_is_the_method_that_needs_nothing_else() {
        for method in SyncMethod::ALL {
            let opened = method.access().method();
            assert_eq!(opened.access(), method.access());
            assert_eq!(opened == method, method.step() == Step::Write, "{method}");
        }
    }

    #[test]
    fn a_method_never_asks_for_a_flag_twice() {
        for method in SyncMethod::ALL {
            if method.access().through != Through::No {
                assert_eq!(method.step(), Step::Write, "{method}");
            }
        }
    }
}
