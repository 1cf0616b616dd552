//! A trace as a file: one file, so that it can be attached to a bug.
//!
//! ```text
//! file    "PLMTRACE" · version u32 · zero u32 · frame* · frame of kind End
//! frame   kind u32 · payload bytes u32 · payload · XXH3-64 of all that precedes in this frame
//!
//! About     JSON                     Write     byte offset u64 · bytes
//! Disk      disk bytes u64           Discard   byte offset u64 · bytes u64
//! Base      byte offset u64 · bytes  Flush     nothing
//! Mark      text                     Ended     request u32 · how u8
//! End       events u64
//! ```
//!
//! Numbers are little-endian. About, Disk and Base frames come first, in that order. A file may come
//! from anybody: every length is checked before memory is taken for it, and every range against the
//! disk. Base is of whole pages of 4 KiB, a write of whole sectors, so that memory is a small multiple
//! of the file. A file that ends early says so; what a frame before that said is not used.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_sync::{Dir, OsDir, SyncMethod};
use twox_hash::XxHash3_64;

use super::event::{End, Errno, Event};
use super::platter::Platter;
use super::trace::{About, Trace};

const MAGIC: &[u8; 8] = b"PLMTRACE";
const VERSION: u32 = 1;
const PAYLOAD_BYTES_MAX: u32 = (16 << 20) + 8;
const ABOUT_BYTES_MAX: usize = 1 << 20;
const MARK_BYTES_MAX: usize = 1024;
const RUN_BYTES: usize = 1 << 20;
/// The disk is of whole pages, what it holds at first, too; a write is of whole sectors.
const PAGE: u64 = 4096;
const SECTOR: u64 = 512;
/// Sparse, but page numbers and offsets must stay far from overflow.
const DISK_BYTES_MAX: u64 = 1 << 46;
/// 64 bytes of memory each, so 16 GiB: more than any recording may take.
const EVENTS_MAX: u64 = 1 << 28;

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system refused. Look at the path and its rights.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not a trace, or of a version that this program does not know.
    #[error("{} is not a trace that this version reads: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A trace that is damaged or was cut short. Record again.
    #[error("{} is damaged at byte {byte_offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the frame begins.
        byte_offset: u64,
        /// What is wrong.
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    About = 1,
    Disk = 2,
    Base = 3,
    Write = 4,
    Discard = 5,
    Flush = 6,
    Ended = 7,
    Mark = 8,
    End = 9,
}

const KINDS: [Kind; 9] = [
    Kind::About,
    Kind::Disk,
    Kind::Base,
    Kind::Write,
    Kind::Discard,
    Kind::Flush,
    Kind::Ended,
    Kind::Mark,
    Kind::End,
];

impl Trace {
    /// Writes the trace to `path`. On return it is durable, and at no time was there half of one under
    /// this name; an older one is replaced.
    pub fn save(&self, path: &Path) -> Result<(), TraceError> {
        let failed = |source| TraceError::Io { path: path.to_owned(), source };
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(failed(io::Error::other("not the name of a file")));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.save_in(parent.unwrap_or(Path::new(".")), name).map_err(failed)
    }

    fn save_in(&self, parent: &Path, name: &str) -> io::Result<()> {
        let dir = OsDir::open(parent).map_err(io::Error::other)?;
        let method = SyncMethod::ORDINARY;
        let created = dir.create_unfinished(name, method.access());
        let (unfinished, file) = created.map_err(io::Error::other)?;
        let appended = Appended { file: &*file, at: 0 };
        let mut out = BufWriter::with_capacity(RUN_BYTES, appended);
        let saved = self
            .write_to(&mut out)
            .and_then(|()| out.flush())
            .and_then(|()| file.sync(method).map_err(io::Error::other))
            .and_then(|_kept| dir.rename(&unfinished, name).map_err(io::Error::other));
        if saved.is_err() {
            // The first failure is the one to report.
            dir.remove(&unfinished).ok();
        }
        saved
    }

    /// Reads a trace back.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let failed = |source| TraceError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mut input = BufReader::with_capacity(RUN_BYTES, file);
        Self::read_from(&mut input).map_err(|wrong| match wrong {
            Wrong::Io(source) => failed(source),
            Wrong::Foreign(reason) => TraceError::Foreign { path: path.to_owned(), reason },
            Wrong::Damaged(byte_offset, reason) => {
                TraceError::Damaged { path: path.to_owned(), byte_offset, reason }
            }
        })
    }

    /// What tells this trace from any other: a hash of what it records.
    #[must_use]
    pub fn id(&self) -> String {
        let mut hash = Hashing(XxHash3_64::new());
        self.write_to(&mut hash).expect("nothing is written");
        format!("{:016x}", hash.0.finish())
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&[0; 4])?;
        let about = serde_json::to_vec(&self.about).map_err(io::Error::other)?;
        frame(out, Kind::About, &[&about])?;
        frame(out, Kind::Disk, &[&self.base.disk_bytes().to_le_bytes()])?;
        let mut written = Ok(());
        self.base.runs(RUN_BYTES, |byte_offset, bytes| {
            if written.is_ok() {
                written = frame(out, Kind::Base, &[&byte_offset.to_le_bytes(), bytes]);
            }
        });
        written?;
        for event in &self.events {
            match event {
                Event::Write { byte_offset, bytes } => {
                    frame(out, Kind::Write, &[&byte_offset.to_le_bytes(), bytes])?;
                }
                Event::Discard { byte_offset, byte_count } => {
                    let count = byte_count.to_le_bytes();
                    frame(out, Kind::Discard, &[&byte_offset.to_le_bytes(), &count])?;
                }
                Event::Flush => frame(out, Kind::Flush, &[])?,
                Event::Ended { request, end } => {
                    frame(out, Kind::Ended, &[&request.to_le_bytes(), &[end_code(*end)]])?;
                }
                Event::Mark(text) => frame(out, Kind::Mark, &[text.as_bytes()])?,
            }
        }
        frame(out, Kind::End, &[&(self.events.len() as u64).to_le_bytes()])
    }

    fn read_from(input: &mut impl Read) -> Result<Self, Wrong> {
        let mut head = [0; 16];
        let read = fill(input, &mut head)?;
        if read < head.len() || &head[..8] != MAGIC {
            return Err(Wrong::Foreign("it does not begin as a trace does".to_owned()));
        }
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Wrong::Foreign(format!("it is of version {version}, not {VERSION}")));
        }
        let mut frames = Frames { input, at: 16, next: 16, payload: Vec::new() };
        let about = frames.about()?;
        let mut trace = frames.disk(about)?;
        let mut requests = Requests::default();
        loop {
            let kind = frames.read()?;
            if kind == Kind::End {
                let events = frames.number(0)?;
                return if events == trace.events.len() as u64 && frames.payload.len() == 8 {
                    frames.nothing_follows()?;
                    Ok(trace)
                } else {
                    Err(frames.wrong(format!("it says that there were {events} events")))
                };
            }
            if trace.events.len() as u64 >= EVENTS_MAX {
                return Err(frames.wrong("it has too many events".to_owned()));
            }
            let event = match kind {
                Kind::Base if trace.events.is_empty() => {
                    let (byte_offset, bytes) = frames.write(&trace.base, PAGE)?;
                    trace.base.write(byte_offset, bytes);
                    continue;
                }
                Kind::Write => {
                    let (byte_offset, bytes) = frames.write(&trace.base, SECTOR)?;
                    Event::Write { byte_offset, bytes: Arc::from(bytes) }
                }
                Kind::Discard => {
                    let (byte_offset, byte_count) = (frames.number(0)?, frames.number(8)?);
                    if frames.payload.len() != 16 || !trace.base.holds(byte_offset, byte_count) {
                        return Err(frames.wrong("a discard beyond the disk".to_owned()));
                    }
                    Event::Discard { byte_offset, byte_count }
                }
                Kind::Flush if frames.payload.is_empty() => Event::Flush,
                Kind::Ended => frames.ended()?,
                Kind::Mark => frames.mark()?,
                other => return Err(frames.wrong(format!("{other:?} does not belong there"))),
            };
            if !requests.take(&event) {
                return Err(frames.wrong("a request ends that is not under way".to_owned()));
            }
            trace.events.push(event);
        }
    }
}

/// Which requests are under way, so that none ends twice.
#[derive(Default)]
struct Requests {
    ended: Vec<bool>,
}

impl Requests {
    fn take(&mut self, event: &Event) -> bool {
        match event {
            Event::Mark(_) => true,
            Event::Ended { request, .. } => {
                let ended = self.ended.get_mut(*request as usize);
                ended.is_some_and(|ended| !std::mem::replace(ended, true))
            }
            _ => {
                self.ended.push(false);
                true
            }
        }
    }
}

enum Wrong {
    Io(io::Error),
    Foreign(String),
    Damaged(u64, String),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Frames<'a, R> {
    input: &'a mut R,
    /// Where the frame that was read last begins, and where the next one does.
    at: u64,
    next: u64,
    payload: Vec<u8>,
}

impl<R: Read> Frames<'_, R> {
    fn read(&mut self) -> Result<Kind, Wrong> {
        self.at = self.next;
        let mut head = [0; 8];
        if fill(self.input, &mut head)? < head.len() {
            return Err(self.wrong("it was cut short".to_owned()));
        }
        let number = u32::from_le_bytes(head[..4].try_into().expect("four bytes"));
        let bytes = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(self.wrong(format!("a frame of {bytes} bytes")));
        }
        // What is not there is not given memory: the length may be a lie.
        self.payload.clear();
        let read = self.input.by_ref().take(u64::from(bytes)).read_to_end(&mut self.payload)?;
        let mut sum = [0; 8];
        if read < bytes as usize || fill(self.input, &mut sum)? < sum.len() {
            return Err(self.wrong("it was cut short".to_owned()));
        }
        if u64::from_le_bytes(sum) != checksum(&head, &[&self.payload]) {
            return Err(self.wrong("the checksum does not match".to_owned()));
        }
        self.next += 16 + u64::from(bytes);
        let kind = KINDS.into_iter().find(|kind| *kind as u32 == number);
        kind.ok_or_else(|| self.wrong(format!("a frame of unknown kind {number}")))
    }

    fn about(&mut self) -> Result<About, Wrong> {
        if self.read()? != Kind::About || self.payload.len() > ABOUT_BYTES_MAX {
            return Err(self.wrong("it does not say where it comes from".to_owned()));
        }
        serde_json::from_slice(&self.payload).map_err(|error| self.wrong(error.to_string()))
    }

    fn disk(&mut self, about: About) -> Result<Trace, Wrong> {
        let kind = self.read()?;
        let disk_bytes = self.number(0)?;
        let is_whole = disk_bytes.is_multiple_of(PAGE) && disk_bytes <= DISK_BYTES_MAX;
        if kind != Kind::Disk || self.payload.len() != 8 || !is_whole {
            return Err(self.wrong("it does not say how large the disk is".to_owned()));
        }
        Ok(Trace { about, base: Platter::new(disk_bytes), events: Vec::new() })
    }

    fn number(&self, at: usize) -> Result<u64, Wrong> {
        let bytes = self.payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| self.wrong("a short frame".to_owned()))
    }

    /// Of whole units only: a byte here and a byte there would take a page of memory each.
    fn write(&self, disk: &Platter, unit: u64) -> Result<(u64, &[u8]), Wrong> {
        let byte_offset = self.number(0)?;
        let bytes = &self.payload[8..];
        if !disk.holds(byte_offset, bytes.len() as u64) {
            return Err(self.wrong("a write beyond the disk".to_owned()));
        }
        if !byte_offset.is_multiple_of(unit) || !(bytes.len() as u64).is_multiple_of(unit) {
            return Err(self.wrong(format!("a write that is not of whole {unit} bytes")));
        }
        Ok((byte_offset, bytes))
    }

    fn ended(&self) -> Result<Event, Wrong> {
        let wrong = || self.wrong("an end that is none".to_owned());
        let &[a, b, c, d, code] = self.payload.as_slice() else { return Err(wrong()) };
        let end = end_of(code).ok_or_else(wrong)?;
        Ok(Event::Ended { request: u32::from_le_bytes([a, b, c, d]), end })
    }

    fn mark(&self) -> Result<Event, Wrong> {
        let wrong = || self.wrong("a mark that is not one line of text".to_owned());
        let text = std::str::from_utf8(&self.payload).map_err(|_not| wrong())?;
        let one_line = !text.is_empty() && !text.contains(['\n', '\0']);
        if !one_line || text.len() > MARK_BYTES_MAX {
            return Err(wrong());
        }
        Ok(Event::Mark(Arc::from(text)))
    }

    fn nothing_follows(&mut self) -> Result<(), Wrong> {
        self.at = self.next;
        match fill(self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(self.wrong("something follows the end".to_owned())),
        }
    }

    fn wrong(&self, reason: String) -> Wrong {
        Wrong::Damaged(self.at, reason)
    }
}

/// A file that is written from its beginning on.
struct Appended<'a> {
    file: &'a dyn plimsoll_sync::File,
    at: u64,
}

impl Write for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at).map_err(io::Error::other)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As much as there is.
fn fill(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buf.len() {
        match input.read(&mut buf[read..]) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn frame(out: &mut impl Write, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= PAYLOAD_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| io::Error::other("a write of more than 16 MiB"))?;
    let mut head = [0; 8];
    head[..4].copy_from_slice(&(kind as u32).to_le_bytes());
    head[4..].copy_from_slice(&bytes.to_le_bytes());
    out.write_all(&head)?;
    for part in parts {
        out.write_all(part)?;
    }
    out.write_all(&checksum(&head, parts).to_le_bytes())
}

fn checksum(head: &[u8; 8], parts: &[&[u8]]) -> u64 {
    let mut hash = XxHash3_64::new();
    hash.write(head);
    for part in parts {
        hash.write(part);
    }
    hash.finish()
}

struct Hashing(XxHash3_64);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn end_code(end: End) -> u8 {
    match end {
        End::Done => 0,
        End::Lied => 1,
        End::Failed(Errno::Eio) => 2,
        End::Failed(Errno::Enospc) => 3,
        End::Failed(Errno::Etimedout) => 4,
    }
}

fn end_of(code: u8) -> Option<End> {
    match code {
        0 => Some(End::Done),
        1 => Some(End::Lied),
        2 => Some(End::Failed(Errno::Eio)),
        3 => Some(End::Failed(Errno::Enospc)),
        4 => Some(End::Failed(Errno::Etimedout)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trace() -> Trace {
        let mut base = Platter::new(1 << 20);
        base.write(8192, &[7; 9000]);
        let bytes: Arc<[u8]> = Arc::from([5; 1024]);
        let events = vec![
            Event::Write { byte_offset: 512, bytes },
            Event::Flush,
            Event::Ended { request: 0, end: End::Done },
            Event::Ended { request: 1, end: End::Failed(Errno::Etimedout) },
            Event::Mark(Arc::from("17")),
            Event::Discard { byte_offset: 0, byte_count: 4096 },
        ];
        let about = About { filesystem: "ext4".to_owned(), seed: 9, ..About::default() };
        Trace { about, base, events }
    }

    fn encoded(trace: &Trace) -> Vec<u8> {
        let mut bytes = Vec::new();
        trace.write_to(&mut bytes).unwrap();
        bytes
    }

    fn decoded(mut bytes: &[u8]) -> Result<Trace, String> {
        Trace::read_from(&mut bytes).map_err(|wrong| match wrong {
            Wrong::Io(error) => error.to_string(),
            Wrong::Foreign(reason) | Wrong::Damaged(_, reason) => reason,
        })
    }

    #[test]
    fn what_is_saved_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ext4.trace");
        let trace = trace();
        trace.save(&path).unwrap();
        let read = Trace::load(&path).unwrap();
        assert_eq!((&read, read.id()), (&trace, trace.id()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no part is left");
    }

    #[test]
    fn what_an_earlier_process_left_half_written_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ext4.trace");
        // Who is first in a process namespace has the number of the one before.
        let left = dir.path().join(format!(".ext4.trace.{}-0", std::process::id()));
        std::fs::write(&left, "half").unwrap();
        trace().save(&path).unwrap();
        assert_eq!(Trace::load(&path).unwrap(), trace());
        assert_eq!(std::fs::read(&left).unwrap(), b"half", "it may be somebody's who still writes");
    }

    #[test]
    fn a_trace_that_cannot_be_saved_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ext4.trace");
        std::fs::create_dir(&path).unwrap();
        trace().save(&path).unwrap_err();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_trace_of_version_1_stays_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1.trace");
        assert_eq!(Trace::load(&path).unwrap(), trace());
    }

    #[test]
    fn every_flipped_byte_and_every_cut_is_an_error() {
        let bytes = encoded(&trace());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            // Four bytes mean nothing yet.
            assert!(decoded(&damaged).is_err() || (12..16).contains(&at), "byte {at}");
            assert!(decoded(&bytes[..at]).is_err(), "cut at {at}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decoded(&longer).unwrap_err().contains("follows"));
    }

    #[test]
    fn what_no_disk_can_do_is_refused() {
        let wrong = |event: Event| {
            let mut trace = trace();
            trace.events.push(event);
            decoded(&encoded(&trace)).unwrap_err()
        };
        let bytes: Arc<[u8]> = Arc::from([0; 512]);
        assert!(
            wrong(Event::Write { byte_offset: 1 << 20, bytes: bytes.clone() }).contains("beyond")
        );
        assert!(wrong(Event::Write { byte_offset: u64::MAX, bytes }).contains("beyond"));
        let byte_count = u64::MAX;
        assert!(wrong(Event::Discard { byte_offset: 1, byte_count }).contains("beyond"));
        let twice = Event::Ended { request: 0, end: End::Done };
        assert!(wrong(twice).contains("under way"));
        let unknown = Event::Ended { request: 99, end: End::Done };
        assert!(wrong(unknown).contains("under way"));
        assert!(wrong(Event::Mark(Arc::from("a\nb"))).contains("one line"));
        let bytes: Arc<[u8]> = Arc::from([0; 512]);
        assert!(wrong(Event::Write { byte_offset: 8, bytes }).contains("whole 512"));
    }

    /// A trace up to its disk, and then this frame.
    fn with_frame(disk_bytes: u64, kind: Kind, parts: &[&[u8]]) -> String {
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4]].concat();
        frame(&mut bytes, Kind::About, &[b"{}"]).unwrap();
        frame(&mut bytes, Kind::Disk, &[&disk_bytes.to_le_bytes()]).unwrap();
        frame(&mut bytes, kind, parts).unwrap();
        frame(&mut bytes, Kind::End, &[&0_u64.to_le_bytes()]).unwrap();
        decoded(&bytes).map_or_else(|wrong| wrong, |_| String::new())
    }

    #[test]
    fn a_small_file_does_not_take_much_memory() {
        let base =
            |at: u64, bytes: &[u8]| with_frame(1 << 40, Kind::Base, &[&at.to_le_bytes(), bytes]);
        assert_eq!(base(1 << 30, &[1; 8192]), "");
        assert!(base(1 << 30, &[1]).contains("whole 4096"), "a byte would take a page");
        assert!(base(1, &[1; 4096]).contains("whole 4096"));
        assert!(base(u64::MAX - 4095, &[1; 4096]).contains("beyond"));
        assert!(base((1 << 40) - 4096, &[1; 8192]).contains("beyond"));
        for disk_bytes in [1 << 47, u64::MAX, 5000] {
            assert!(with_frame(disk_bytes, Kind::Mark, &[b"x"]).contains("how large"));
        }
        // Lengths that are not there.
        let mut bytes = encoded(&trace());
        bytes[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decoded(&bytes).unwrap_err().contains("a frame of 4294967295 bytes"));
        bytes[20..24].copy_from_slice(&(16_u32 << 20).to_le_bytes());
        assert!(decoded(&bytes).unwrap_err().contains("cut short"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            at in 0usize..400, bytes in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let mut all = encoded(&trace());
            let at = at.min(all.len());
            let end = (at + bytes.len()).min(all.len());
            all.splice(at..end, bytes);
            let _either = decoded(&all);
        }
    }
}
