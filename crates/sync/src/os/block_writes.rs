//! Which places of a block device were written: what the kernel says of each request that it hands to a
//! driver (the tracepoint `block:block_rq_issue`, by perf_event_open(2)).
//!
//! Needs root, and tracefs mounted somewhere. The kernel drops what nobody reads in time, so whoever must
//! not miss a write compares the sum of sectors with what the device itself has counted:
//! [`BlockWrites::take`] does. Linux only.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// A ring has so many bytes for records, and a page before them; powers of two.
const RING_BYTES: Range<usize> = 16 << 10..256 << 10;
/// What all rings of a device take together, where the smallest allow it: the kernel never swaps them.
const RINGS_BYTES: usize = 2 << 20;
/// Where `struct perf_event_mmap_page` has its two positions, in words.
const HEAD_WORD: usize = 1024 / 8;
const TAIL_WORD: usize = 1032 / 8;
const SECTOR: u64 = 512;
/// `PERF_TYPE_TRACEPOINT`, `PERF_SAMPLE_RAW`, `PERF_RECORD_SAMPLE`.
const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_RAW: u64 = 1 << 10;
const RECORD_SAMPLE: u32 = 9;
const FLAG_CLOEXEC: libc::c_ulong = 8;
const SET_FILTER: libc::Ioctl = 0x4008_2406;

/// The first version of `struct perf_event_attr` of `linux/perf_event.h`.
#[repr(C)]
struct Attributes {
    kind: u32,
    bytes: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Hears of what is written to one device, from the moment it was made.
#[derive(Debug)]
pub struct BlockWrites {
    rings: Vec<Ring>,
    fields: Fields,
    /// Where the device counts.
    counts: std::path::PathBuf,
    counted: u64,
}

/// Where a record has what we want of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    sector: usize,
    sectors: usize,
}

impl BlockWrites {
    /// Listens to the loop device of this number. `tracing` is where tracefs is mounted.
    pub fn of_loop_device(number: u32, tracing: &Path) -> io::Result<Self> {
        let event = tracing.join("events/block/block_rq_issue");
        let id = fs::read_to_string(event.join("id"))?.trim().parse();
        let id = id.map_err(|_not| io::ErrorKind::InvalidData)?;
        let fields = Fields::of(&fs::read_to_string(event.join("format"))?)
            .ok_or(io::ErrorKind::InvalidData)?;
        // The kernel's own numbers: 20 bits for the minor. `R` is a read.
        let device = 7_u64 << 20 | u64::from(number);
        let filter = format!("dev == {device} && nr_sector > 0 && !(rwbs ~ \"R*\")\0");
        let processors = processors()?;
        let bytes = ring_bytes(processors.len());
        let rings: io::Result<Vec<Ring>> = processors
            .into_iter()
            .map(|processor| Ring::open(id, processor, &filter, bytes))
            .collect();
        let counts = format!("/sys/block/loop{number}/stat").into();
        let mut writes = Self { rings: rings?, fields, counts, counted: 0 };
        writes.take()?;
        Ok(writes)
    }

    /// The places that were written or discarded since it was last asked, as ranges of bytes in no
    /// order; `None` if the kernel may have told of fewer than there were.
    pub fn take(&mut self) -> io::Result<Option<Vec<Range<u64>>>> {
        let counted = sectors_counted(&fs::read_to_string(&self.counts)?)
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut places = Vec::new();
        let mut is_whole = true;
        for ring in &mut self.rings {
            ring.read(|kind, payload| match self.fields.place(payload) {
                Some(place) if kind == RECORD_SAMPLE => places.push(place),
                // What was lost, and whatever else there may be.
                _ => is_whole = false,
            });
        }
        let sectors =
            places.iter().fold(0_u64, |sum, place| sum + (place.end - place.start) / SECTOR);
        is_whole &= counted.wrapping_sub(self.counted) == sectors;
        self.counted = counted;
        Ok(is_whole.then_some(places))
    }
}

/// Sectors written and discarded, of what `/sys/block/…/stat` says.
fn sectors_counted(text: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> =
        text.split_whitespace().map(|number| number.parse().ok()).collect();
    let numbers = numbers?;
    Some(numbers.get(6)?.wrapping_add(numbers.get(13).copied().unwrap_or(0)))
}

impl Fields {
    /// Of the format that tracefs has for the event.
    fn of(format: &str) -> Option<Self> {
        let offset = |field: &str, bytes: &str| {
            let line = format.lines().find(|line| line.contains(field))?;
            let (_, offset) = line.split_once("offset:")?;
            let (offset, rest) = offset.split_once(';')?;
            rest.trim().starts_with(bytes).then(|| offset.parse::<usize>().ok())?
        };
        Some(Self {
            sector: offset(" sector;", "size:8;")?,
            sectors: offset(" nr_sector;", "size:4;")?,
        })
    }

    /// The place that a sample is about: its length, then the record.
    fn place(self, payload: &[u8]) -> Option<Range<u64>> {
        let record = payload.get(4..)?;
        let sector = record.get(self.sector..)?.first_chunk().copied()?;
        let sectors = record.get(self.sectors..)?.first_chunk().copied()?;
        let start = u64::from_le_bytes(sector).checked_mul(SECTOR)?;
        let bytes = u64::from(u32::from_le_bytes(sectors)) * SECTOR;
        Some(start..start.checked_add(bytes)?)
    }
}

/// What there is, as `0-3,6`.
fn processors() -> io::Result<Vec<i32>> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online")?;
    let range = |part: &str| -> Option<Range<i32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..last.parse::<i32>().ok()?.checked_add(1)?)
    };
    let ranges: Option<Vec<Range<i32>>> = text.trim().split(',').map(range).collect();
    Ok(ranges.ok_or(io::ErrorKind::InvalidData)?.into_iter().flatten().collect())
}

/// How large each of so many rings is. A large page is more than the smallest.
fn ring_bytes(rings: usize) -> usize {
    let share = RINGS_BYTES / rings.max(1);
    let share = share.clamp(RING_BYTES.start, RING_BYTES.end);
    (1 << share.ilog2()).max(page_bytes())
}

/// What the kernel has to say of one processor. The mapping keeps the event open, so that it takes no
/// descriptor: a machine with many processors would soon have none left.
#[derive(Debug)]
struct Ring {
    start: NonNull<u8>,
    /// How long it is without its first page.
    bytes: usize,
    /// A record, when it is put together from the end and the beginning of the ring.
    record: Vec<u8>,
}

impl Ring {
    fn open(id: u64, processor: i32, filter: &str, bytes: usize) -> io::Result<Self> {
        let event = open_event(id, processor)?;
        set_filter(event.as_raw_fd(), filter)?;
        Ok(Self { start: map(&event, bytes)?, bytes, record: Vec::new() })
    }

    /// Hands out all records, by kind and without their heads, and gives their room back.
    fn read(&mut self, mut each: impl FnMut(u32, &[u8])) {
        let (head, mut tail) = (self.word(HEAD_WORD).load(Ordering::Acquire), self.tail());
        while tail < head {
            let mut first = [0; 8];
            self.copy(tail, &mut first);
            let kind = u32::from_le_bytes([first[0], first[1], first[2], first[3]]);
            let bytes = usize::from(u16::from_le_bytes([first[6], first[7]]));
            let mut record = std::mem::take(&mut self.record);
            record.resize(bytes.max(8) - 8, 0);
            self.copy(tail + 8, &mut record);
            each(kind, &record);
            self.record = record;
            tail += bytes.max(8) as u64;
        }
        self.word(TAIL_WORD).store(tail, Ordering::Release);
    }

    fn tail(&self) -> u64 {
        self.word(TAIL_WORD).load(Ordering::Relaxed)
    }

    #[expect(unsafe_code, reason = "a word of the mapping that the kernel writes, too")]
    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < page_bytes() / 8, "a word of the first page");
        // SAFETY: it lies in the first page of the mapping, as just asserted.
        let word = unsafe { self.start.cast::<AtomicU64>().add(number) };
        // SAFETY: it is aligned, lives as long as `self`, and any bytes are a word.
        unsafe { word.as_ref() }
    }

    /// Bytes of the ring from a position on, around its end.
    #[expect(unsafe_code, reason = "a copy from memory that the kernel writes, too")]
    fn copy(&self, position: u64, buf: &mut [u8]) {
        let at = usize::try_from(position % self.bytes as u64).expect("less than the ring");
        let first = buf.len().min(self.bytes - at);
        assert!(buf.len() <= self.bytes, "a record lies in the ring");
        let (before, after) = buf.split_at_mut(first);
        for (from, part) in [(at, before), (0, after)] {
            // SAFETY: the mapping has `bytes` after its first page, and `from` is less.
            let source = unsafe { self.start.add(page_bytes() + from) };
            // SAFETY: `part.len()` bytes from there lie in the mapping, as split above; the kernel does not
            // write what lies between the two positions until the second has been moved.
            unsafe { ptr::copy_nonoverlapping(source.as_ptr(), part.as_mut_ptr(), part.len()) };
        }
    }
}

impl Drop for Ring {
    #[expect(unsafe_code, reason = "munmap")]
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no reference into it exists.
        let unmapped =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), page_bytes() + self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours could not be unmapped");
    }
}

fn page_bytes() -> usize {
    rustix::param::page_size()
}

#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
fn open_event(id: u64, processor: i32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        bytes: u32::try_from(size_of::<Attributes>()).expect("64"),
        config: id,
        sample_period: 1,
        sample_type: SAMPLE_RAW,
        read_format: 0,
        flags: 0,
        wakeup_events: 0,
        breakpoint_kind: 0,
        breakpoint_address: 0,
    };
    let (everybody, no_group) = (-1_i32, -1_i32);
    let attributes = ptr::from_ref(&attributes);
    // SAFETY: the call reads one `perf_event_attr`, which says how long it is, and keeps no pointer.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes,
            everybody,
            processor,
            no_group,
            FLAG_CLOEXEC,
        )
    };
    let fd = RawFd::try_from(fd).map_err(|_overflow| io::ErrorKind::InvalidData)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[expect(unsafe_code, reason = "an ioctl that no crate of ours wraps")]
fn set_filter(event: RawFd, filter: &str) -> io::Result<()> {
    assert!(filter.ends_with('\0'), "the kernel reads up to a zero");
    // SAFETY: the request reads a text up to its zero, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(event, SET_FILTER, filter.as_ptr()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "mmap")]
fn map(event: &OwnedFd, ring_bytes: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let bytes = page_bytes() + ring_bytes;
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of ours.
    let start = unsafe {
        rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, event, 0)
    }?;
    Ok(NonNull::new(start.cast()).expect("mmap never maps address zero unasked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n";

    #[test]
    fn a_record_is_read_where_the_kernel_says_its_fields_are() {
        let fields = Fields::of(FORMAT).unwrap();
        assert_eq!(fields, Fields { sector: 16, sectors: 24 });
        let mut payload = vec![0; 36];
        payload[20..28].copy_from_slice(&9_u64.to_le_bytes());
        payload[28..32].copy_from_slice(&2_u32.to_le_bytes());
        assert_eq!(fields.place(&payload), Some(9 * 512..11 * 512));
        assert_eq!(fields.place(&payload[..30]), None);
        assert_eq!(Fields::of("field:sector_t sector;\toffset:x;"), None);
    }

    #[test]
    fn rings_stay_small_on_a_machine_with_many_processors() {
        assert_eq!([1, 2, 8].map(ring_bytes), [256 << 10; 3]);
        assert_eq!([9, 24, 64, 1000].map(ring_bytes).map(|bytes| bytes >> 10), [128, 64, 32, 16]);
    }

    #[test]
    fn writes_and_discards_are_counted_and_reads_are_not() {
        let text = "  10 0 80 1  5 0 40 2  0 3 3  1 0 16 0  7 0\n";
        assert_eq!(sectors_counted(text), Some(56));
        assert_eq!(sectors_counted("10 0 80 1 5 0 40 2 0 3 3"), Some(40), "before Linux 4.18");
        assert_eq!(sectors_counted("10 0"), None);
    }
}
