//! A file as a block device: attaching it, and letting go of it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_sync::LoopDevice;

use super::error::{Error, Result, chain};
use super::namespace::BASE;

/// How long the kernel may take to detach a loop device.
const DETACH_WAIT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(1);

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

#[cfg(test)]
mod tests {
    use std::path::Path;

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
