//! The filesystems that are put on the disk: their names, and how each is made and mounted.

use std::fmt;
use std::str::FromStr;

/// A filesystem of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filesystem {
    /// With a journal, data in order.
    Ext4,
    /// With a log of metadata.
    Xfs,
    /// Copy on write.
    Btrfs,
}

impl Filesystem {
    /// All that can be put on a disk.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// `ext4`, `xfs`, `btrfs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The program that makes it, and the package that has it on Debian.
    #[must_use]
    pub const fn mkfs(self) -> (&'static str, &'static str) {
        match self {
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        }
    }

    /// Arguments without which the kernel would still be writing zeros while it is being recorded; and
    /// for ext4 the smallest journal, which begins anew sooner and makes smaller images.
    pub(super) const fn mkfs_args(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => {
                &["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
            }
            Self::Xfs => &["-q", "-f"],
            Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Arguments for a log that is soon full, the better first and at last none: its program may not make a log as
    /// small as that, which depends on its version, on features and on the size of the disk.
    ///
    /// A mount of xfs replays every record since the log was last pushed out, which the kernel does when three
    /// quarters of it are used. A record is small; here each sync takes a whole unit, so there are few.
    pub(super) const fn log_args(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Xfs => &[
                &["-l", "size=5m,su=16k"],
                &["-l", "size=8m,su=32k"],
                &["-l", "size=20m,su=64k"],
                &[],
            ],
            Self::Ext4 | Self::Btrfs => &[&[]],
        }
    }

    /// By these the program of xfs knows that it is for tests. Otherwise it makes no log of less than 64 MiB.
    pub(super) const fn mkfs_env(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Xfs => &[("TEST_DIR", "1"), ("TEST_DEV", "1"), ("QA_CHECK_FS", "1")],
            Self::Ext4 | Self::Btrfs => &[],
        }
    }

    /// Options without which clones do not mount beside each other, or are written to in the
    /// background.
    pub(super) const fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 => "noinit_itable",
            Self::Xfs => "nouuid",
            Self::Btrfs => "",
        }
    }

    /// The smallest disk that its program makes without special options.
    #[must_use]
    pub const fn least_bytes(self) -> u64 {
        match self {
            Self::Ext4 => 8 << 20,
            Self::Xfs => 300 << 20,
            Self::Btrfs => 128 << 20,
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Filesystem {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|filesystem| filesystem.name() == name);
        found.ok_or_else(|| format!("'{name}' is not one of ext4, xfs, btrfs"))
    }
}
