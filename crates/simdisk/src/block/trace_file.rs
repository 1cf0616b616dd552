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
//! End       events u64               Over      nothing
//! ```
//!
//! Numbers are little-endian. About, Disk and Base frames come first, in that order. What follows
//! Over is the aftermath: a file that has one is of version 2, others are of version 1. A file may come
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

use super::event::Event;
use super::platter::Platter;
use super::trace::Trace;
use super::trace_frame::{Frames, Kind, PAGE, SECTOR, Wrong, event_frame, fill, frame};

const MAGIC: &[u8; 8] = b"PLMTRACE";
const VERSION: u32 = 1;
/// With an aftermath.
const VERSION_AFTERMATH: u32 = 2;
const RUN_BYTES: usize = 1 << 20;
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
        let version = if self.aftermath.is_empty() { VERSION } else { VERSION_AFTERMATH };
        out.write_all(&version.to_le_bytes())?;
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
            event_frame(out, event)?;
        }
        if !self.aftermath.is_empty() {
            frame(out, Kind::Over, &[])?;
        }
        for event in &self.aftermath {
            event_frame(out, event)?;
        }
        let events = self.events.len() + self.aftermath.len();
        frame(out, Kind::End, &[&(events as u64).to_le_bytes()])
    }

    fn read_from(input: &mut impl Read) -> Result<Self, Wrong> {
        let mut head = [0; 16];
        let read = fill(input, &mut head)?;
        if read < head.len() || &head[..8] != MAGIC {
            return Err(Wrong::Foreign("it does not begin as a trace does".to_owned()));
        }
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if ![VERSION, VERSION_AFTERMATH].contains(&version) {
            let known = format!("{VERSION} or {VERSION_AFTERMATH}");
            return Err(Wrong::Foreign(format!("it is of version {version}, not {known}")));
        }
        let mut frames = Frames::behind(16, input);
        let about = frames.about()?;
        let base = Platter::new(frames.disk_bytes()?);
        let mut trace = Self { about, base, events: Vec::new(), aftermath: Vec::new() };
        let mut requests = Requests::default();
        let mut over = None;
        loop {
            let kind = frames.read()?;
            if kind == Kind::End {
                let events = frames.number(0)?;
                if events != trace.events.len() as u64 || frames.payload().len() != 8 {
                    return Err(frames.wrong(format!("it says that there were {events} events")));
                }
                frames.nothing_follows()?;
                let over = over.unwrap_or(trace.events.len());
                trace.aftermath = trace.events.split_off(over);
                return Ok(trace);
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
                    if frames.payload().len() != 16 || !trace.base.holds(byte_offset, byte_count) {
                        return Err(frames.wrong("a discard beyond the disk".to_owned()));
                    }
                    Event::Discard { byte_offset, byte_count }
                }
                Kind::Flush if frames.payload().is_empty() => Event::Flush,
                Kind::Over
                    if version > VERSION && over.is_none() && frames.payload().is_empty() =>
                {
                    over = Some(trace.events.len());
                    continue;
                }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::block::event::{End, Errno};
    use crate::block::trace::About;

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
        Trace { about, base, events, aftermath: vec![] }
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
    fn an_aftermath_is_read_back_and_is_no_part_of_the_events() {
        let mut whole = trace();
        whole.aftermath = whole.events.split_off(3);
        let read = decoded(&encoded(&whole)).unwrap();
        assert_eq!(read, whole);
        assert_eq!(read.all_events(), trace().events);
        let bytes = encoded(&whole);
        let old = [&bytes[..8], &VERSION.to_le_bytes(), &bytes[12..]].concat();
        assert!(decoded(&old).unwrap_err().contains("Over does not belong there"));
        assert_eq!(encoded(&trace())[8], 1, "without one a file is as it always was");
        for at in 16..bytes.len() {
            assert!(decoded(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_trace_of_version_1_stays_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1.trace");
        assert_eq!(Trace::load(&path).unwrap(), trace());
    }

    #[test]
    fn a_trace_of_version_2_stays_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v2.trace");
        let mut whole = trace();
        whole.aftermath = whole.events.split_off(3);
        assert_eq!(Trace::load(&path).unwrap(), whole);
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
