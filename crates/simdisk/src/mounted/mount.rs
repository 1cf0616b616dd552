//! Mounting a device in the namespace of the thread that asks, and unmounting it.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, umount2};

use super::error::{Error, Result};
use super::filesystem::Filesystem;
use super::mount_options::MountOptions;
use super::namespace::DIR;
use super::processes;

/// How long what uses a mount is waited for.
const UNMOUNT_WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Mounts a device at [`DIR`]. What the kernel says of the disk is [`Error::NotMounted`]; what it says of
/// itself is not.
pub(super) fn mount(
    filesystem: Filesystem,
    device: &Path,
    options: &str,
    read_only: bool,
) -> Result<()> {
    let mut options = MountOptions::parse(filesystem, filesystem.mount_options(), options)?;
    if read_only {
        options.flags |= MsFlags::MS_RDONLY;
    }
    let data = options.data.as_str();
    nix::mount::mount(Some(device), DIR, Some(filesystem.name()), options.flags, Some(data))
        .map_err(|errno| not_mounted(filesystem, errno))
}

fn not_mounted(filesystem: Filesystem, errno: nix::Error) -> Error {
    use nix::Error as E;
    let unavailable = |what, reason| Error::Unavailable { what, reason };
    match errno {
        E::ENODEV => {
            let reason = format!("this kernel does not have it; try `modprobe {filesystem}`");
            unavailable(filesystem.name(), reason)
        }
        E::EPERM | E::EACCES => {
            unavailable("a mount", format!("{}; it needs root (CAP_SYS_ADMIN)", errno.desc()))
        }
        E::ENOMEM | E::EBUSY | E::EMFILE | E::ENFILE | E::EINTR => {
            Error::io("mount", DIR)(errno.into())
        }
        _ => Error::NotMounted { filesystem: filesystem.name().to_owned(), source: errno.into() },
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
