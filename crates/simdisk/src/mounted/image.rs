//! What a power cut left, in memory, attached and mounted.

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use plimsoll_sync::LoopDevice;

use super::error::{Error, Result};
use super::filesystem::{self, Filesystem};
use super::namespace::{self, DIR};
use crate::block::Platter;

/// Pages are written so many bytes at once.
const RUN_BYTES: usize = 1 << 20;

/// A disk in memory with its filesystem mounted; taken down when dropped.
#[derive(Debug)]
pub struct Image {
    device: Option<LoopDevice>,
    timings: Timings,
    /// The mount is in the namespace of the thread that made it.
    _here: PhantomData<*const ()>,
}

/// How long each step took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timings {
    /// Putting the bytes in memory.
    pub build: Duration,
    /// Attaching the loop device.
    pub attach: Duration,
    /// Mounting, with whatever recovery the filesystem does.
    pub mount: Duration,
    /// The check.
    pub check: Duration,
    /// Unmounting and detaching.
    pub unmount: Duration,
}

impl Image {
    /// Mounts a copy of `platter`. That the kernel refuses is [`Error::NotMounted`].
    pub fn mount(
        platter: &Platter,
        filesystem: Filesystem,
        options: &str,
        read_only: bool,
    ) -> Result<Self> {
        namespace::enter()?;
        let mut timings = Timings::default();
        let begun = Instant::now();
        let file = in_memory(platter)?;
        timings.build = begun.elapsed();
        let begun = Instant::now();
        let device = filesystem::attach(&file, false)?;
        timings.attach = begun.elapsed();
        let begun = Instant::now();
        let mounted = filesystem.mount(device.path(), options, read_only);
        timings.mount = begun.elapsed();
        match mounted {
            Ok(()) => Ok(Self { device: Some(device), timings, _here: PhantomData }),
            Err(error) => {
                filesystem::detach(device);
                Err(error)
            }
        }
    }

    /// Where it is mounted, for this thread and the processes that it starts.
    #[must_use]
    pub fn directory(&self) -> &Path {
        Path::new(DIR)
    }

    /// The block device under it.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.device.as_ref().map_or(Path::new(""), LoopDevice::path)
    }

    /// Takes it down. Processes that still use it are killed. Says how long each step took.
    pub fn unmount(mut self) -> Result<Timings> {
        let begun = Instant::now();
        self.take_down()?;
        self.timings.unmount = begun.elapsed();
        Ok(self.timings)
    }

    fn take_down(&mut self) -> Result<()> {
        let Some(device) = self.device.take() else { return Ok(()) };
        let unmounted = filesystem::unmount();
        filesystem::detach(device);
        unmounted
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Where it fails the namespace sees to it.
        drop(self.take_down());
    }
}

/// The bytes as a file that has no name and needs no disk.
fn in_memory(platter: &Platter) -> Result<File> {
    let failed = |errno: nix::Error| Error::io("make", "a file in memory")(errno.into());
    let file = memfd_create("plimsoll-image", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
    let file = File::from(file);
    let wrong = |source| Error::io("write", "a file in memory")(source);
    file.set_len(platter.disk_bytes()).map_err(wrong)?;
    let mut written = Ok(());
    platter.runs(RUN_BYTES, |byte_offset, bytes| {
        if written.is_ok() {
            written = file.write_all_at(bytes, byte_offset);
        }
    });
    written.map_err(wrong)?;
    Ok(file)
}
