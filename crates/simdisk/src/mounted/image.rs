//! What a power cut left, in memory, attached and mounted.

use std::marker::PhantomData;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_sync::LoopDevice;

use super::backing_file::BackingFile;
use super::error::{Error, Result, chain};
use super::filesystem::Filesystem;
use super::namespace::{self, DIR};
use super::{loop_device, mount};
use crate::block::{Platter, Trace};

/// A disk in memory with its filesystem mounted; taken down when dropped.
#[derive(Debug)]
pub struct Image {
    device: Option<LoopDevice>,
    backing: Option<BackingFile>,
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
    /// Mounts a copy of `platter`. That the kernel refuses is [`super::Error::NotMounted`].
    pub fn mount(
        platter: &Platter,
        filesystem: Filesystem,
        options: &str,
        read_only: bool,
    ) -> Result<Self> {
        namespace::enter()?;
        let mut timings = Timings::default();
        let begun = Instant::now();
        let mut backing = BackingFile::holding(platter)?;
        timings.build = begun.elapsed();
        let begun = Instant::now();
        let device = loop_device::attach(backing.file(), backing.watched())?;
        backing.watch(device.number());
        timings.attach = begun.elapsed();
        let begun = Instant::now();
        let mounted = mount::mount(filesystem, device.path(), options, read_only);
        timings.mount = begun.elapsed();
        match mounted {
            Ok(()) => Ok(Self {
                device: Some(device),
                backing: Some(backing),
                timings,
                _here: PhantomData,
            }),
            Err(error) => {
                if loop_device::detach(device) {
                    backing.keep();
                }
                Err(error)
            }
        }
    }

    /// Mounts what a power cut left of a trace, with its options and more.
    pub fn of_trace(
        trace: &Trace,
        platter: &Platter,
        more_options: &str,
        read_only: bool,
    ) -> Result<Self> {
        let filesystem = trace.about.filesystem.parse();
        let filesystem = filesystem
            .map_err(|reason| Error::Unavailable { what: "the filesystem of the trace", reason })?;
        let options = format!("{},{more_options}", trace.about.mount_options);
        Self::mount(platter, filesystem, &options, read_only)
    }

    /// Tries the disk of a trace as it was when the recording began. If the kernel does not mount even that,
    /// it says nothing about power cuts, and is an error.
    pub fn try_undamaged(trace: &Trace, more_options: &str) -> Result<()> {
        Self::on_undamaged(trace, more_options, || Ok(()))
    }

    /// The same, and has something done on it while it is mounted.
    pub(super) fn on_undamaged(
        trace: &Trace,
        more_options: &str,
        act: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        // A thread, because a namespace is for ever.
        let tried = std::thread::scope(|scope| {
            let tried = scope.spawn(|| {
                let image = Self::of_trace(trace, &trace.base, more_options, false)?;
                act()?;
                image.unmount().map(drop)
            });
            tried.join().expect("mounting does not panic")
        });
        tried.map_err(|error| match error {
            Error::NotMounted { .. } => Error::Unavailable {
                what: "a mount of this trace",
                reason: format!(
                    "even as it was when the recording began, with the options '{}', {}; look at \
                     --mount-options and at dmesg",
                    [trace.about.mount_options.as_str(), more_options].join(",").trim_matches(','),
                    chain(&error)
                ),
            },
            other => other,
        })
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
        let unmounted = mount::unmount();
        let is_free = loop_device::detach(device);
        // Who still has it mounted may write to it later.
        if let Some(backing) = self.backing.take().filter(|_| is_free && unmounted.is_ok()) {
            backing.keep();
        }
        unmounted
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Where it fails the namespace sees to it.
        drop(self.take_down());
    }
}
