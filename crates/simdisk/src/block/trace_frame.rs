//! The frames that a trace file consists of ([`super::trace_file`] draws them): each with its length, its kind
//! and its checksum, so that what is read of one is whole. A file may come from anybody: every length is
//! checked before memory is taken for it.

use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use super::event::{End, Errno, Event};
use super::platter::Platter;
use super::trace::About;

const PAYLOAD_BYTES_MAX: u32 = (16 << 20) + 8;
const ABOUT_BYTES_MAX: usize = 1 << 20;
const MARK_BYTES_MAX: usize = 1024;
/// The disk is of whole pages, what it holds at first, too; a write is of whole sectors.
pub(super) const PAGE: u64 = 4096;
pub(super) const SECTOR: u64 = 512;
/// Sparse, but page numbers and offsets must stay far from overflow.
const DISK_BYTES_MAX: u64 = 1 << 46;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    About = 1,
    Disk = 2,
    Base = 3,
    Write = 4,
    Discard = 5,
    Flush = 6,
    Ended = 7,
    Mark = 8,
    End = 9,
    Over = 10,
}

const KINDS: [Kind; 10] = [
    Kind::About,
    Kind::Disk,
    Kind::Base,
    Kind::Write,
    Kind::Discard,
    Kind::Flush,
    Kind::Ended,
    Kind::Mark,
    Kind::End,
    Kind::Over,
];

/// Why bytes are no trace.
pub(super) enum Wrong {
    Io(io::Error),
    Foreign(String),
    Damaged(u64, String),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The frames of a file, read one after another.
pub(super) struct Frames<'a, R> {
    input: &'a mut R,
    /// Where the frame that was read last begins, and where the next one does.
    at: u64,
    next: u64,
    payload: Vec<u8>,
}

impl<'a, R: Read> Frames<'a, R> {
    /// Of a file that was read up to `at`.
    pub(super) fn behind(at: u64, input: &'a mut R) -> Self {
        Self { input, at, next: at, payload: Vec::new() }
    }

    /// What the frame that was read last holds.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Reads the next one.
    pub(super) fn read(&mut self) -> Result<Kind, Wrong> {
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

    pub(super) fn about(&mut self) -> Result<About, Wrong> {
        if self.read()? != Kind::About || self.payload.len() > ABOUT_BYTES_MAX {
            return Err(self.wrong("it does not say where it comes from".to_owned()));
        }
        serde_json::from_slice(&self.payload).map_err(|error| self.wrong(error.to_string()))
    }

    pub(super) fn disk_bytes(&mut self) -> Result<u64, Wrong> {
        let kind = self.read()?;
        let disk_bytes = self.number(0)?;
        let is_whole = disk_bytes.is_multiple_of(PAGE) && disk_bytes <= DISK_BYTES_MAX;
        if kind != Kind::Disk || self.payload.len() != 8 || !is_whole {
            return Err(self.wrong("it does not say how large the disk is".to_owned()));
        }
        Ok(disk_bytes)
    }

    pub(super) fn number(&self, at: usize) -> Result<u64, Wrong> {
        let bytes = self.payload.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| self.wrong("a short frame".to_owned()))
    }

    /// Of whole units only: a byte here and a byte there would take a page of memory each.
    pub(super) fn write(&self, disk: &Platter, unit: u64) -> Result<(u64, &[u8]), Wrong> {
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

    pub(super) fn ended(&self) -> Result<Event, Wrong> {
        let wrong = || self.wrong("an end that is none".to_owned());
        let &[a, b, c, d, code] = self.payload.as_slice() else { return Err(wrong()) };
        let end = end_of(code).ok_or_else(wrong)?;
        Ok(Event::Ended { request: u32::from_le_bytes([a, b, c, d]), end })
    }

    pub(super) fn mark(&self) -> Result<Event, Wrong> {
        let wrong = || self.wrong("a mark that is not one line of text".to_owned());
        let text = std::str::from_utf8(&self.payload).map_err(|_not| wrong())?;
        let one_line = !text.is_empty() && !text.contains(['\n', '\0']);
        if !one_line || text.len() > MARK_BYTES_MAX {
            return Err(wrong());
        }
        Ok(Event::Mark(Arc::from(text)))
    }

    pub(super) fn nothing_follows(&mut self) -> Result<(), Wrong> {
        self.at = self.next;
        match fill(self.input, &mut [0])? {
            0 => Ok(()),
            _ => Err(self.wrong("something follows the end".to_owned())),
        }
    }

    pub(super) fn wrong(&self, reason: String) -> Wrong {
        Wrong::Damaged(self.at, reason)
    }
}

/// As much as there is.
pub(super) fn fill(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
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

/// Writes a frame.
pub(super) fn frame(out: &mut impl Write, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
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

/// Writes the frame of an event.
pub(super) fn event_frame(out: &mut impl Write, event: &Event) -> io::Result<()> {
    match event {
        Event::Write { byte_offset, bytes } => {
            frame(out, Kind::Write, &[&byte_offset.to_le_bytes(), bytes])
        }
        Event::Discard { byte_offset, byte_count } => {
            let count = byte_count.to_le_bytes();
            frame(out, Kind::Discard, &[&byte_offset.to_le_bytes(), &count])
        }
        Event::Flush => frame(out, Kind::Flush, &[]),
        Event::Ended { request, end } => {
            frame(out, Kind::Ended, &[&request.to_le_bytes(), &[end_code(*end)]])
        }
        Event::Mark(text) => frame(out, Kind::Mark, &[text.as_bytes()]),
    }
}

fn checksum(head: &[u8; 8], parts: &[&[u8]]) -> u64 {
    let mut hash = XxHash3_64::new();
    hash.write(head);
    for part in parts {
        hash.write(part);
    }
    hash.finish()
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
