//! Shared mappings: of a whole file, written by stores and synced by msync(2); and of words that are
//! only ever atomics.
//!
//! Invariant of the first: the file is at least as long as its mapping while a store runs; otherwise the store
//! is a SIGBUS. `OsFile` truncates under the lock that guards the mapping, so this holds for one
//! handle. Another handle, or another process, that shortens the file meanwhile can still kill this
//! process: that is the nature of mappings, and a reason not to write logs through them.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    bytes: NonZeroUsize,
}

// SAFETY: the mapping belongs to this value alone, and `OsFile` keeps it behind a mutex.
#[expect(unsafe_code, reason = "a pointer to memory that this value owns")]
unsafe impl Send for Mapping {}

impl Mapping {
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn new(file: &File, len: u64) -> io::Result<Self> {
        let bytes = usize::try_from(len).ok().and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes.get(), protection, MapFlags::SHARED, file, 0)
        }?;
        let start = NonNull::new(start.cast()).expect("mmap never maps address zero unasked");
        Ok(Self { start, bytes })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.get()
    }

    /// Stores `buf` and waits until its pages are synced.
    #[expect(unsafe_code, reason = "a store into shared memory, and msync")]
    pub(super) fn write_sync_at(&self, buf: &[u8], byte_offset: u64) -> io::Result<()> {
        let at = usize::try_from(byte_offset).map_err(|_overflow| io::ErrorKind::InvalidInput)?;
        let end = at.checked_add(buf.len()).filter(|&end| end <= self.len());
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let page = rustix::param::page_size();
        let first_page = at / page * page;
        // SAFETY: `at` is inside the mapping, as checked above.
        let target = unsafe { self.start.add(at) };
        // SAFETY: `target` has room for `buf`, as checked above, and `buf` is not in the mapping,
        // which nobody else has an address of.
        unsafe { ptr::copy_nonoverlapping(buf.as_ptr(), target.as_ptr(), buf.len()) };
        // SAFETY: `first_page` is inside the mapping.
        let from = unsafe { self.start.add(first_page) };
        // SAFETY: the range is inside the mapping and begins at a page.
        unsafe { rustix::mm::msync(from.as_ptr().cast(), end - first_page, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no reference into it exists.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len()) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours could not be unmapped");
    }
}

/// A mapping that is seen as atomic words.
#[derive(Debug)]
pub(super) struct Shared {
    start: NonNull<AtomicU64>,
    words: NonZeroUsize,
}

// SAFETY: the mapping belongs to this value alone.
#[expect(unsafe_code, reason = "a pointer to memory that this value owns")]
unsafe impl Send for Shared {}
// SAFETY: all that is handed out are atomics.
#[expect(unsafe_code, reason = "a pointer to memory that this value owns")]
unsafe impl Sync for Shared {}

impl Shared {
    /// Zeros that no file holds, with pages under them now or at their first use.
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn anonymous(words: usize, has_pages: bool) -> io::Result<Self> {
        let (words, bytes) = sizes(words)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        let shared = Self::at(start, words);
        if has_pages {
            shared.give_pages(bytes);
        }
        Ok(shared)
    }

    /// Pages now and not at the first use of each, which costs whoever uses it microseconds; large
    /// ones where there are. A wish: where the system does not know it, pages come one by one.
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "madvise")]
    fn give_pages(&self, bytes: usize) {
        use rustix::mm::Advice;
        for wish in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite] {
            // SAFETY: the range is ours, and neither wish changes what it holds.
            unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), bytes, wish) }.ok();
        }
    }

    /// Pages come at their first use.
    #[cfg(not(target_os = "linux"))]
    fn give_pages(&self, _: usize) {}

    /// The first words of a file, which must be as long.
    #[expect(unsafe_code, reason = "mmap")]
    pub(super) fn of_file(file: &File, words: usize) -> io::Result<Self> {
        let (words, bytes) = sizes(words)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)
        }?;
        Ok(Self::at(start, words))
    }

    /// Makes a range of words zeros and gives its whole pages back; returns their bytes. Pages of a file
    /// go back to the filesystem.
    pub(super) fn give_back(&self, range: Range<usize>, of_file: bool) -> io::Result<u64> {
        let words = &self.words()[range.clone()];
        let page_words = rustix::param::page_size() / size_of::<AtomicU64>();
        let start = range.start.next_multiple_of(page_words);
        let pages = start..(range.end / page_words * page_words).max(start);
        let given = !pages.is_empty() && self.take_pages(&pages, of_file)?;
        for (number, word) in range.zip(words) {
            if !given || !pages.contains(&number) {
                word.store(0, Ordering::Relaxed);
            }
        }
        Ok(if given { (pages.len() * size_of::<AtomicU64>()) as u64 } else { 0 })
    }

    /// Whether the kernel has taken the memory of these words, whole pages, which are zeros then.
    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "madvise")]
    fn take_pages(&self, pages: &Range<usize>, of_file: bool) -> io::Result<bool> {
        use rustix::mm::Advice;
        let advice = if of_file { Advice::LinuxRemove } else { Advice::LinuxDontNeed };
        let first = self.words()[pages.clone()].as_ptr().cast_mut();
        let bytes = pages.len() * size_of::<AtomicU64>();
        // SAFETY: the range is ours and begins at a page. Its words become zeros, as if by stores of
        // another process, and are only ever read as atomics.
        unsafe { rustix::mm::madvise(first.cast(), bytes, advice) }?;
        Ok(true)
    }

    /// Other systems keep the memory, or do not say what is read afterwards.
    #[cfg(not(target_os = "linux"))]
    fn take_pages(&self, _: &Range<usize>, _: bool) -> io::Result<bool> {
        Ok(false)
    }

    fn at(start: *mut std::ffi::c_void, words: NonZeroUsize) -> Self {
        let start = NonNull::new(start.cast()).expect("mmap never maps address zero unasked");
        Self { start, words }
    }

    #[expect(unsafe_code, reason = "a slice of the mapping")]
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, holds so many words, lives as long as `self`, and any
        // bytes are a word. Whoever else maps the file changes words that we read as atomics only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words.get()) }
    }
}

impl Drop for Shared {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        let bytes = self.words.get() * size_of::<AtomicU64>();
        // SAFETY: the range was mapped by `new`, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours could not be unmapped");
    }
}

fn sizes(words: usize) -> io::Result<(NonZeroUsize, usize)> {
    let bytes = words.checked_mul(size_of::<AtomicU64>());
    Ok((
        NonZeroUsize::new(words).ok_or(io::ErrorKind::InvalidInput)?,
        bytes.ok_or(io::ErrorKind::InvalidInput)?,
    ))
}
