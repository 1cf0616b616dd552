//! [`WriteBack`]: the kernel's own writing, sooner. What a program wrote and never synced goes to the disk by
//! and by, and without a flush, so that a power cut has something to take a part of.
//!
//! The kernel begins after half a minute, and can be hurried only for the whole machine. So a thread asks for
//! each file of the mount, with `sync_file_range`: its data are sent, as the flusher threads would send them.
//! Neither inodes nor the journal are, and the disk gets no flush: those go with the filesystem's own
//! commits, as ever.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::OFlag;
use plimsoll_sync::start_write_out;

/// From the end of one round to the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Writes out round after round until it is dropped. Its thread has the mounts of the thread that began it.
#[derive(Debug)]
pub(super) struct WriteBack {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBack {
    pub(super) fn of(dir: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, dir) = (Arc::clone(&is_over), dir.to_owned());
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                round(&dir, &over);
                std::thread::park_timeout(PAUSE);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for WriteBack {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

/// Files come and go meanwhile, and a bad disk fails: that is the workload's to find out.
fn round(dir: &Path, over: &AtomicBool) {
    let mut left: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if over.load(Ordering::Acquire) {
                return;
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => left.push(entry.path()),
                Ok(kind) if kind.is_file() => write_out(&entry.path()),
                _ => {}
            }
        }
    }
}

fn write_out(path: &Path) {
    // Only to be read: a program that is being written cannot be run.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOATIME;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    if let Ok(file) = file {
        let _failed = start_write_out(&file);
    }
}
