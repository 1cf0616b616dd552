//! What a power cut left, in memory, attached and mounted.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, lseek};
use plimsoll_sync::LoopDevice;

use super::error::{Error, Result, chain};
use super::filesystem::{self, Filesystem};
use super::namespace::{self, DIR};
use crate::block::{Platter, Trace};

/// Pages are written so many bytes at once.
const RUN_BYTES: usize = 1 << 20;

/// A disk in memory with its filesystem mounted; taken down when dropped.
#[derive(Debug)]
pub struct Image {
    device: Option<LoopDevice>,
    file: Option<File>,
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
            Ok(()) => {
                Ok(Self { device: Some(device), file: Some(file), timings, _here: PhantomData })
            }
            Err(error) => {
                filesystem::detach(device);
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
        // A thread, because a namespace is for ever.
        let tried = std::thread::scope(|scope| {
            let tried = scope.spawn(|| {
                Self::of_trace(trace, &trace.base, more_options, false)?.unmount().map(drop)
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
        let unmounted = filesystem::unmount();
        let is_free = filesystem::detach(device);
        if is_free && unmounted.is_ok() {
            SPARE.set(self.file.take());
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

/// How many files were made.
static MADE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The file of the last image of this thread: its memory is there already, which is most of what a
    /// new one costs.
    static SPARE: Cell<Option<File>> = const { Cell::new(None) };
}

/// The bytes as a file that has no name and needs no disk.
fn in_memory(platter: &Platter) -> Result<File> {
    let wrong = |source| Error::io("write", "a file in memory")(source);
    let spare = SPARE.take().filter(|file| {
        file.metadata().is_ok_and(|metadata| metadata.len() == platter.disk_bytes())
    });
    let file = match spare {
        Some(file) => {
            punch_others(&file, platter).map_err(wrong)?;
            file
        }
        None => {
            // A name of its own, so that the kernel's word on loop devices tells it from others.
            let name = format!("plimsoll-image-{}", MADE.fetch_add(1, Ordering::Relaxed));
            let made = memfd_create(name.as_str(), MFdFlags::MFD_CLOEXEC);
            let file = File::from(made.map_err(|errno| wrong(errno.into()))?);
            file.set_len(platter.disk_bytes()).map_err(wrong)?;
            file
        }
    };
    let mut written = Ok(());
    platter.runs(RUN_BYTES, |byte_offset, bytes| {
        if written.is_ok() {
            written = file.write_all_at(bytes, byte_offset);
        }
    });
    written.map_err(wrong)?;
    Ok(file)
}

/// Makes holes of whatever the last image had where this one has zeros.
fn punch_others(file: &File, platter: &Platter) -> io::Result<()> {
    let end = i64::try_from(platter.disk_bytes()).map_err(io::Error::other)?;
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let mut hole = 0;
    let starts = platter.pages().map(|(byte_offset, _)| byte_offset.cast_signed());
    for start in starts.chain(std::iter::once(end)) {
        // Only where there is something to take away: a call for each gap would cost more.
        if start > hole
            && let Ok(data) = lseek(file, hole, Whence::SeekData)
            && data < start
        {
            fallocate(file, punch, hole, start - hole)?;
        }
        hole = start + 4096;
    }
    Ok(())
}
