//! The filesystems that are put on the disk: making, mounting, unmounting.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{Whence, lseek};
use plimsoll_sync::LoopDevice;

use super::error::{Error, Result, chain};
use super::mount_options::MountOptions;
use super::namespace::{BASE, DIR};
use super::processes;
use crate::block::Platter;

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

/// How long what uses a mount is waited for.
const UNMOUNT_WAIT: Duration = Duration::from_secs(5);
/// How long the kernel may take to detach a loop device.
const DETACH_WAIT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);

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
    const fn mkfs_args(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => {
                &["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
            }
            Self::Xfs => &["-q", "-f"],
            Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Options without which clones do not mount beside each other, or are written to in the
    /// background.
    const fn mount_options(self) -> &'static str {
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

    /// Makes a filesystem, with more arguments for its program; also returns the command.
    pub(super) fn make(self, disk_bytes: u64, args: &[String]) -> Result<(Platter, Vec<String>)> {
        let (program, package) = self.mkfs();
        if disk_bytes < self.least_bytes() || !disk_bytes.is_multiple_of(4096) {
            let reason =
                format!("it needs at least {} MiB, in whole 4 KiB", self.least_bytes() >> 20);
            return Err(Error::Unavailable { what: "a disk of this size", reason });
        }
        let path = PathBuf::from(BASE).join("made.img");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(Error::io("create", &path))?;
        file.set_len(disk_bytes).map_err(Error::io("truncate", &path))?;
        let mut command: Vec<String> = vec![program.to_owned()];
        command.extend(self.mkfs_args().iter().map(|&arg| arg.to_owned()));
        command.extend_from_slice(args);
        let output = Command::new(program)
            .args(&command[1..])
            .arg(&path)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::Unavailable {
                what: program,
                reason: format!("{error}; on Debian it is in the package {package}"),
            })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = format!("{}; {}", output.status, said.trim());
            return Err(Error::Program { program: command.join(" "), said });
        }
        let platter = read_sparse(&file, disk_bytes).map_err(Error::io("read", &path))?;
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        Ok((platter, command))
    }

    /// Mounts a device at [`DIR`]. What the kernel says of the disk is [`Error::NotMounted`]; what it says of
    /// itself is not.
    pub(super) fn mount(self, device: &Path, options: &str, read_only: bool) -> Result<()> {
        let mut options = MountOptions::parse(self, self.mount_options(), options)?;
        if read_only {
            options.flags |= MsFlags::MS_RDONLY;
        }
        let data = options.data.as_str();
        mount(Some(device), DIR, Some(self.name()), options.flags, Some(data))
            .map_err(|errno| self.not_mounted(errno))
    }

    fn not_mounted(self, errno: nix::Error) -> Error {
        use nix::Error as E;
        let unavailable = |what, reason| Error::Unavailable { what, reason };
        match errno {
            E::ENODEV => {
                let reason = format!("this kernel does not have it; try `modprobe {self}`");
                unavailable(self.name(), reason)
            }
            E::EPERM | E::EACCES => {
                unavailable("a mount", format!("{}; it needs root (CAP_SYS_ADMIN)", errno.desc()))
            }
            E::ENOMEM | E::EBUSY | E::EMFILE | E::ENFILE | E::EINTR => {
                Error::io("mount", DIR)(errno.into())
            }
            _ => Error::NotMounted { filesystem: self.name().to_owned(), source: errno.into() },
        }
    }
}

/// Takes down what is mounted at [`DIR`]. Processes of this namespace that still use it are killed; what
/// cannot be unmounted even then is detached, and goes when its last user does.
pub(super) fn unmount() -> Result<()> {
    let deadline = Instant::now() + UNMOUNT_WAIT;
    loop {
        match umount2(DIR, MntFlags::empty()) {
            Ok(()) => return Ok(()),
            // Not mounted.
            Err(nix::Error::EINVAL) => return Ok(()),
            Err(nix::Error::EBUSY) if Instant::now() < deadline => {
                processes::kill_strays();
                std::thread::park_timeout(PAUSE);
            }
            Err(errno) => {
                umount2(DIR, MntFlags::MNT_DETACH)
                    .map_err(|_second| Error::io("unmount", DIR)(errno.into()))?;
                return Ok(());
            }
        }
    }
}

/// Attaches a file as a block device, if it can be as that of the number `before`. Where `/dev` has no
/// such file, one is made in our own filesystem.
pub(super) fn attach(backing: &File, before: Option<u32>) -> Result<LoopDevice> {
    let node = |number: u32| -> io::Result<PathBuf> {
        let usual = PathBuf::from(format!("/dev/loop{number}"));
        if usual.exists() {
            return Ok(usual);
        }
        let own = PathBuf::from(BASE).join(format!("loop{number}"));
        if !own.exists() {
            use nix::sys::stat::{Mode, SFlag, makedev, mknod};
            let mode = Mode::S_IRUSR | Mode::S_IWUSR;
            mknod(&own, SFlag::S_IFBLK, mode, makedev(7, u64::from(number)))?;
        }
        Ok(own)
    };
    LoopDevice::attach(backing, before, node).map_err(|error| Error::Unavailable {
        what: "a loop device",
        reason: format!("{}; it needs root and /dev/loop-control", chain(&error)),
    })
}

/// Lets go of a loop device and waits a moment until the kernel has, too; whether it is known to have.
pub(super) fn detach(device: LoopDevice) -> bool {
    let number = device.number();
    let ours = LoopDevice::backing_name(number);
    drop(device);
    // As long as we held it, it had one.
    let Ok(Some(ours)) = ours else { return false };
    let deadline = Instant::now() + DETACH_WAIT;
    loop {
        if is_free(&ours, LoopDevice::backing_name(number)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Whether a device has let go of our file: it has none, or somebody else has it by now, with a file of
/// another name. What cannot be read is not known, and may still be written to.
fn is_free(ours: &str, name: io::Result<Option<String>>) -> bool {
    name.is_ok_and(|name| name.as_deref() != Some(ours))
}

/// The parts of a file that are not holes, and of those the pages that are not zeros.
fn read_sparse(file: &File, disk_bytes: u64) -> io::Result<Platter> {
    let mut platter = Platter::new(disk_bytes);
    let mut page = [0; 4096];
    let mut at = 0;
    while at < disk_bytes {
        let from = i64::try_from(at).map_err(io::Error::other)?;
        let start = match lseek(file, from, Whence::SeekData) {
            Ok(start) => start,
            Err(nix::Error::ENXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = lseek(file, start, Whence::SeekHole)?;
        let number = |at: i64| u64::try_from(at).map_err(io::Error::other);
        at = number(start)? / 4096 * 4096;
        let end = number(end)?.min(disk_bytes);
        while at < end {
            file.read_exact_at(&mut page, at)?;
            if page.iter().any(|&byte| byte != 0) {
                platter.write(at, &page);
            }
            at += 4096;
        }
    }
    Ok(platter)
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Filesystem {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|filesystem| filesystem.name() == name);
        found.ok_or_else(|| format!("'{name}' is not one of ext4, xfs, btrfs"))
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::super::namespace;
    use super::*;

    #[test]
    fn the_device_of_before_is_taken_again_unless_somebody_has_it() {
        // As for all that is mounted: a skip is said by the tests in `tests/`.
        if namespace::enter().is_err() || !Path::new("/dev/loop-control").exists() {
            return;
        }
        let disk = File::from(memfd_create("plimsoll-test-disk", MFdFlags::MFD_CLOEXEC).unwrap());
        disk.set_len(1 << 20).unwrap();
        let first = attach(&disk, None).unwrap();
        let second = attach(&disk, Some(first.number())).unwrap();
        assert_ne!(first.number(), second.number());
        // Others attach, too, and may come in between.
        let again = (0..100).any(|_| {
            let number = attach(&disk, None).unwrap().number();
            attach(&disk, Some(number)).unwrap().number() == number
        });
        assert!(again);
    }

    #[test]
    fn what_cannot_be_read_of_a_device_is_not_free() {
        let named = |name: &str| Ok(Some(name.to_owned()));
        assert!(!is_free("/our disk", named("/our disk")));
        assert!(is_free("/our disk", named("/another's")));
        assert!(is_free("/our disk", Ok(None)));
        assert!(!is_free("/our disk", Err(io::ErrorKind::PermissionDenied.into())));
    }
}
