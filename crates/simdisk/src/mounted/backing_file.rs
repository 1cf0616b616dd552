//! The file in memory under a loop device: it holds one crash state after another.
//!
//! Two states of one recording differ in few pages, and memory that is there already costs nothing: so
//! a thread keeps its file, and puts on it what the next state has otherwise, and what was written to the
//! device since: by journal recovery, by the check, by unmounting. The kernel says what that was
//! ([`BlockWrites`]); where it does not, all is written anew.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Whence, lseek};
use plimsoll_sync::BlockWrites;

use super::error::{Error, Result};
use super::namespace::BASE;
use crate::block::Platter;

/// A page: nothing smaller is taken for changed.
const PAGE: u64 = 4096;
/// Bytes that are written at once.
const RUN_BYTES: usize = 1 << 20;

/// How many files were made.
static MADE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// That of the last image of this thread.
    static SPARE: Cell<Option<BackingFile>> = const { Cell::new(None) };
    /// Whether it is of no use to ask the kernel again.
    static DEAF: Cell<bool> = const { Cell::new(false) };
}

/// A file that has no name and needs no disk.
#[derive(Debug)]
pub(super) struct BackingFile {
    file: File,
    /// What was put on it last.
    state: Platter,
    /// Where it may differ from that.
    written: Vec<Range<u64>>,
    /// Which loop device is listened to.
    writes: Option<(u32, BlockWrites)>,
}

impl BackingFile {
    /// A file that holds what is on `platter`, and nothing else.
    pub(super) fn holding(platter: &Platter) -> Result<Self> {
        let wrong = Error::io("write", "a file in memory");
        Self::try_holding(platter).map_err(wrong)
    }

    fn try_holding(platter: &Platter) -> io::Result<Self> {
        let spare = SPARE.take().filter(|spare| spare.state.disk_bytes() == platter.disk_bytes());
        let mut backing = spare.map_or_else(|| Self::new(platter.disk_bytes()), Ok)?;
        let mut changes = platter.changes(&backing.state);
        changes.append(&mut backing.written);
        backing.state = platter.clone();
        for range in joined(changes) {
            backing.renew(range)?;
        }
        Ok(backing)
    }

    fn new(disk_bytes: u64) -> io::Result<Self> {
        // A name of its own, so that the kernel's word on loop devices tells it from others.
        let name = format!("plimsoll-image-{}", MADE.fetch_add(1, Ordering::Relaxed));
        let file = File::from(memfd_create(name.as_str(), MFdFlags::MFD_CLOEXEC)?);
        file.set_len(disk_bytes)?;
        Ok(Self { file, state: Platter::new(disk_bytes), written: Vec::new(), writes: None })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Which loop device is listened to already: to change it costs more than the image.
    pub(super) fn watched(&self) -> Option<u32> {
        self.writes.as_ref().map(|(number, _)| *number)
    }

    /// Listens from now on to what is written to the loop device that it has been attached to.
    pub(super) fn watch(&mut self, number: u32) {
        let kept = self.writes.take().filter(|(watched, _)| *watched == number);
        self.writes = kept.or_else(|| Some((number, listen(number)?)));
        // What others wrote to the device before.
        if let Some((_, writes)) = &mut self.writes
            && writes.take().is_err()
        {
            self.writes = None;
        }
    }

    /// Leaves it to the next image of this thread. Nobody may have it attached any more.
    pub(super) fn keep(mut self) {
        let told = self.writes.as_mut().and_then(|(_, writes)| writes.take().ok().flatten());
        let all = 0..self.state.disk_bytes();
        self.written = told.unwrap_or_else(|| std::iter::once(all).collect());
        SPARE.set(Some(self));
    }

    /// Makes a range what the state says, whatever is there.
    fn renew(&self, range: Range<u64>) -> io::Result<()> {
        let end = range.end.min(self.state.disk_bytes());
        let mut run: Vec<u8> = Vec::new();
        // Up to there it is right but for the run.
        let mut at = range.start;
        for (byte_offset, page) in self.state.pages_in(range.start..end) {
            let follows = at + run.len() as u64 == byte_offset;
            if !follows || run.len() >= RUN_BYTES {
                self.put(at, &run)?;
                at += run.len() as u64;
                run.clear();
                self.clear(at..byte_offset)?;
                at = byte_offset;
            }
            run.extend_from_slice(page);
        }
        self.put(at, &run)?;
        self.clear(at + run.len() as u64..end)
    }

    fn put(&self, byte_offset: u64, bytes: &[u8]) -> io::Result<()> {
        // The last page may reach beyond the disk.
        let left = self.state.disk_bytes().saturating_sub(byte_offset);
        let bytes =
            &bytes[..usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()))];
        self.file.write_all_at(bytes, byte_offset)
    }

    /// Makes a hole, where there is something to take away: to look costs less.
    fn clear(&self, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let start = i64::try_from(range.start).map_err(io::Error::other)?;
        let end = i64::try_from(range.end).map_err(io::Error::other)?;
        if lseek(&self.file, start, Whence::SeekData).is_ok_and(|data| data < end) {
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(&self.file, punch, start, end - start)?;
        }
        Ok(())
    }
}

/// In order, in whole pages, none twice.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let (start, end) = (range.start / PAGE * PAGE, range.end.next_multiple_of(PAGE));
        match joined.last_mut().filter(|last| start <= last.end) {
            Some(last) => last.end = last.end.max(end),
            None => joined.push(start..end),
        }
    }
    joined
}

/// `None` where the kernel does not tell.
fn listen(number: u32) -> Option<BlockWrites> {
    if DEAF.get() {
        return None;
    }
    let usual = Path::new("/sys/kernel/tracing");
    let heard = if usual.join("events").exists() {
        BlockWrites::of_loop_device(number, usual).ok()
    } else {
        // Only for as long as it takes to look things up.
        let own = Path::new(BASE).join("tracing");
        let none = None::<&str>;
        let mounted = std::fs::create_dir_all(&own).is_ok()
            && mount(Some("tracefs"), &own, Some("tracefs"), MsFlags::MS_NOSUID, none).is_ok();
        let heard = BlockWrites::of_loop_device(number, &own).ok().filter(|_| mounted);
        if mounted {
            // What cannot be unmounted goes with the namespace.
            let _busy = umount2(&own, MntFlags::MNT_DETACH);
        }
        heard
    };
    DEAF.set(heard.is_none());
    heard
}

#[cfg(test)]
mod tests {
    use super::super::{loop_device, namespace};
    use super::*;

    const DISK_BYTES: u64 = 64 << 20;

    /// Attaches it, writes to the device as a filesystem would, and leaves it to the next.
    fn used(mut backing: BackingFile, listens: bool, places: &[u64]) {
        let device = loop_device::attach(backing.file(), backing.watched()).unwrap();
        backing.watch(device.number());
        if !listens {
            backing.writes = None;
        }
        let file = std::fs::OpenOptions::new().write(true).open(device.path()).unwrap();
        for &place in places {
            file.write_all_at(&[0xEE; 512], place).unwrap();
        }
        nix::unistd::fsync(&file).unwrap();
        drop(file);
        assert!(loop_device::detach(device));
        backing.keep();
    }

    fn holds(backing: &BackingFile, platter: &Platter) -> bool {
        let mut found = vec![0; usize::try_from(DISK_BYTES).unwrap()];
        backing.file.read_exact_at(&mut found, 0).unwrap();
        let mut wanted = vec![1; found.len()];
        platter.read(0, &mut wanted);
        found == wanted
    }

    #[test]
    fn what_was_written_to_one_state_is_not_in_the_next() {
        // As for all that is mounted: a skip is said by the tests in `tests/`.
        if namespace::enter().is_err() || !Path::new("/dev/loop-control").exists() {
            return;
        }
        let mut platter = Platter::new(DISK_BYTES);
        platter.write(8192, &[1; 20_000]);
        for listens in [true, true, false, true] {
            let backing = BackingFile::holding(&platter).unwrap();
            assert!(holds(&backing, &platter), "listens: {listens}");
            // On a page of the state, on a part of one, where it has nothing, and at its end.
            used(backing, listens, &[8192, 24_576, 1 << 20, DISK_BYTES - 512]);
            let kept = SPARE.take().unwrap();
            if !listens {
                let all = std::iter::once(0..DISK_BYTES).collect::<Vec<_>>();
                assert_eq!(kept.written, all, "who does not know takes all for written");
            }
            SPARE.set(Some(kept));
            platter.write(40_960, &[2; 4096]);
            platter.discard(8192, 4096);
        }
        let backing = BackingFile::holding(&platter).unwrap();
        assert!(holds(&backing, &platter));
    }

    #[test]
    fn a_machine_with_many_processors_does_not_run_out_of_descriptors() {
        if namespace::enter().is_err() || !Path::new("/dev/loop-control").exists() {
            return;
        }
        let backing = BackingFile::holding(&Platter::new(DISK_BYTES)).unwrap();
        used(backing, true, &[8192]);
        let kept = SPARE.take().unwrap();
        if kept.writes.is_none() {
            return; // The kernel does not tell.
        }
        let told = kept.written.iter().find(|range| range.contains(&8192));
        assert!(told.is_some_and(|range| range.end < DISK_BYTES), "{:?}", kept.written);
        // One for each processor and worker, once: 32 of each are more than a process may have.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let events = open.filter(|to| to.to_string_lossy().contains("perf_event")).count();
        assert_eq!(
            events,
            0,
            "while {} rings are listened to",
            std::thread::available_parallelism().unwrap()
        );
    }

    #[test]
    fn ranges_are_joined_to_whole_pages() {
        let of = |ranges: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let ranges = ranges.iter().map(|&(start, end)| start..end).collect();
            joined(ranges).into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(of(&[(9000, 9001), (0, 512), (512, 4097)]), [(0, 12_288)]);
        assert_eq!(of(&[(20_000, 20_001), (0, 1)]), [(0, 4096), (16_384, 20_480)]);
        assert_eq!(of(&[]), []);
    }
}
