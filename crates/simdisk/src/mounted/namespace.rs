//! A mount namespace for a thread: what it mounts nobody else sees, and all of it goes when the
//! thread and its children are gone, however they end.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::error::{Error, Result};

/// Where everything is mounted: the same path in every namespace, so that a database which saves
/// absolute paths finds itself again. It stays behind, empty.
pub(super) const BASE: &str = "/run/plimsoll-disk";
/// Where the filesystem under test is mounted.
pub(super) const DIR: &str = "/run/plimsoll-disk/fs";
/// Where the file is that stands for the disk.
pub(super) const DEVICE: &str = "/run/plimsoll-disk/device";

thread_local! {
    static ENTERED: Cell<bool> = const { Cell::new(false) };
}

/// Gives this thread a mount namespace of its own, with a small filesystem in memory at [`BASE`]. Threads
/// and processes that it starts from now on share it. Once per thread; later calls do nothing.
pub(super) fn enter() -> Result<()> {
    if ENTERED.get() {
        return Ok(());
    }
    let unavailable = |reason: nix::Error| Error::Unavailable {
        what: "a mount namespace",
        reason: format!("{}; it needs root (CAP_SYS_ADMIN)", reason.desc()),
    };
    // First, because that is what somebody without the rights must be told.
    unshare(CloneFlags::CLONE_NEWNS).map_err(unavailable)?;
    fs::create_dir_all(BASE).map_err(Error::io("create", BASE))?;
    let none = None::<&str>;
    // Nothing that is mounted from here on may get out.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(unavailable)?;
    let flags = MsFlags::MS_NOSUID;
    mount(Some("plimsoll-disk"), BASE, Some("tmpfs"), flags, Some("mode=755"))
        .map_err(unavailable)?;
    for dir in [DIR, DEVICE] {
        fs::create_dir(Path::new(dir)).map_err(Error::io("create", dir))?;
    }
    ENTERED.set(true);
    Ok(())
}
