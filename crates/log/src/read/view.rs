//! [`View`]: a log's files, read without the log being open here. Changes nothing, takes no lock, and
//! reads what can be read of a damaged log. What it says of it is the [judge](crate::open::judge)'s.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::available_parallelism;

use plimsoll_sync::{Dir, OsDir};

use super::reader::Reader;
use super::shelf::{Seen, Shelf};
use super::source::Source;
use crate::error::{Corruption, Error, Result};
use crate::open::judge::{Part, Reading};
use crate::open::survey::Survey;
use crate::options::Ack;
use crate::segment::cursor::Cursor;
use crate::segment::damage::Damage;
use crate::segment::format::{BLOCK, Decoded, Frame, Kind};
use crate::segment::head::{Head, segment_name};
use crate::segment::header::Header;
use crate::segment::link::Link;
use crate::segment::scan::Stop;
use crate::shim::{AtomicUsize, Mutex, lock, thread};

/// A log that is looked at.
#[derive(Debug, Clone)]
pub struct View {
    shelf: Arc<Shelf>,
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file.
    pub segment: String,
    /// Index of its first record.
    pub first_index: u64,
    /// Index of its last record that belongs to the log; one less than the first if it has none.
    pub last_index: u64,
    /// Where that record ends.
    pub records_end: u64,
    /// Size of the file.
    pub file_bytes: u64,
    /// Size that its header says; 0 if there is none.
    pub segment_bytes: u64,
    /// Records up to this one were durable when the segment last said so, which it does at most once in
    /// 4 KiB.
    pub durable: u64,
    /// How often records had been cut off, or a failed segment replaced, when it was begun.
    pub generation: u64,
    /// When it was begun, in ns since 1970.
    pub unix_ns: u64,
    /// What is to be said of it.
    pub state: SegmentState,
}

/// What is to be said of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SegmentState {
    /// Every record that it should have is there.
    Good,
    /// The last one of a log that was closed.
    Closed,
    /// The last one of a log that is open, or was not closed: it ends with its last record.
    Open,
    /// The last one, and its last write is not finished: nothing in the log says that any of it was
    /// durable.
    Torn(Corruption),
    /// Durable records are lost, or the file is no segment.
    Corrupt(Corruption),
    /// Not part of the log any more: the next open removes it.
    Stale,
}

/// A frame, or what stands where one should begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dumped<'a> {
    /// The segment's header.
    Header(Header),
    /// A valid frame.
    Frame {
        /// Where it begins.
        byte_offset: u64,
        /// Its head.
        frame: Frame,
        /// What it carries.
        payload: &'a [u8],
        /// What a link says of what its segment follows.
        link: Option<Link>,
    },
    /// Nothing was written from here on.
    Empty {
        /// Where.
        byte_offset: u64,
    },
    /// No valid frame begins here.
    Bad {
        /// Where.
        byte_offset: u64,
        /// Why not.
        damage: Damage,
        /// The next valid frame of this segment, if there is one.
        next_valid: Option<u64>,
    },
}

impl View {
    /// Looks at the log in a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::of(Arc::new(OsDir::open(path.as_ref())?))
    }

    /// Looks at the log in this directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(dir: Arc<dyn Dir>) -> Result<Self> {
        Ok(Self { shelf: Arc::new(Shelf::new(dir)?) })
    }

    /// Whether there is a log.
    #[must_use]
    pub fn is_log(&self) -> bool {
        self.shelf.chain(|chain| !chain.segments.is_empty() || !chain.wrong.is_empty())
    }

    /// The oldest record; the next one if there is none.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.shelf.first_index()
    }

    /// Records from `index` on, as far as they are written; ask again for what comes later. A reader
    /// of files sees what is written, whether it is durable or not.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such record.
    pub fn read_from(&self, index: u64) -> Result<Reader> {
        Reader::new(Source::Files(Arc::clone(&self.shelf)), index, Ack::Written)
    }

    /// How often records were cut off or a failed segment was replaced, as far as is known: raised by
    /// [`crate::Log::truncate_after`], by an open that cuts off a torn tail, and by a log that goes on
    /// after a write or a sync failed. What was read before that may be another record's now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shelf.chain(|chain| chain.generation)
    }

    /// What the segments hold, oldest first, mostly by the word of their heads: only those that may
    /// hold records that are not durable are read through. [`View::verify`] reads all. What retention takes
    /// away meanwhile is left out.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn outline(&self) -> Result<Vec<SegmentReport>> {
        let (survey, seen) = self.shelf.look(|survey| {
            let unsure = survey.chain.unsure().first().copied().unwrap_or(0);
            let read = |first_index: u64| {
                if first_index >= unsure {
                    return self.shelf.read(survey, first_index);
                }
                let head = Head::read(&*self.shelf.open(first_index)?, first_index)?;
                let until = survey.chain.until(first_index);
                Ok(Reading { first_index, head, until, scanned: None })
            };
            let segments = survey.chain.segments.iter();
            segments.map(|&first| self.shelf.see(first, || read(first))).collect()
        })?;
        Ok(self.report(&survey, seen))
    }

    /// Reads every segment and says what is in it, oldest first; on all CPUs. `progress` is told the
    /// number of segments done and of all. What retention takes away meanwhile is left out.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn verify(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Vec<SegmentReport>> {
        let (survey, seen) = self.shelf.look(|survey| self.see_all(survey, progress))?;
        Ok(self.report(&survey, seen))
    }

    /// Reads every segment, until one cannot be read.
    fn see_all(
        &self,
        survey: &Survey,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Vec<Option<Seen>>> {
        let all = &survey.chain.segments;
        let threads = available_parallelism().map_or(1, usize::from);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut seen: Vec<Option<Result<Option<Seen>>>> = Vec::new();
        seen.resize_with(all.len(), || None);
        let slots: Vec<Mutex<_>> = seen.iter_mut().map(Mutex::new).collect();
        thread::scope(|scope| {
            for _ in 0..threads.min(all.len()) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, SeqCst);
                        let Some(&first) = all.get(number) else { return };
                        let seen = self.shelf.see(first, || self.shelf.read(survey, first));
                        if seen.is_err() {
                            next.store(all.len(), SeqCst);
                        }
                        **lock(&slots[number]) = Some(seen);
                        progress(done.fetch_add(1, SeqCst) + 1, all.len());
                    }
                });
            }
        });
        drop(slots);
        // Those that are none come after an error.
        seen.into_iter().flatten().collect()
    }

    /// What the judge says of each segment, and of the files that are none of them.
    fn report(&self, survey: &Survey, seen: Vec<Seen>) -> Vec<SegmentReport> {
        let sizes: Vec<_> = seen.iter().map(|seen| seen.file_bytes).collect();
        let readings: Vec<_> = seen.into_iter().map(|seen| seen.reading).collect();
        let verdict = self.shelf.judge(survey, &readings);
        let mut reports = Vec::new();
        for ((reading, file_bytes), part) in readings.iter().zip(sizes).zip(verdict.parts) {
            let report = SegmentReport::of(reading, part, verdict.durable);
            reports.push(SegmentReport { file_bytes, ..report });
        }
        let chain = &survey.chain;
        for &(first_index, damage) in &chain.unusable {
            let mut report = SegmentReport::blank(first_index);
            let records = first_index..=chain.until(first_index).unwrap_or(u64::MAX);
            let segment = report.segment.clone();
            report.state =
                SegmentState::Corrupt(Corruption { segment, byte_offset: 0, damage, records });
            reports.push(report);
        }
        let mut wrong = chain.wrong.clone();
        if wrong.is_empty() {
            wrong.extend(verdict.lost.filter(|lost| lost.damage == Damage::Missing));
        }
        wrong.into_iter().for_each(|lost| tell_lost(&mut reports, lost));
        for &first_index in chain.stale.iter().chain(&chain.unbegun) {
            let stale = SegmentReport::blank(first_index);
            reports.push(SegmentReport { state: SegmentState::Stale, ..stale });
        }
        reports.sort_by_key(|report| report.first_index);
        reports
    }

    /// Walks the frames of one segment file, good and bad, until `each` says stop.
    ///
    /// # Errors
    /// The file cannot be read, or `each` fails.
    pub fn dump<E: From<Error>>(
        &self,
        segment: &SegmentReport,
        mut each: impl FnMut(Dumped<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let disk = |error: plimsoll_sync::Error| E::from(Error::from(error));
        let file = self.shelf.open(segment.first_index)?;
        let mut block = vec![0; BLOCK];
        let held = file.read_at(&mut block, 0).map_err(disk)?;
        let header = match Header::decode(&block[..held]) {
            Ok(header) => header,
            Err(damage) => return each(Dumped::Bad { byte_offset: 0, damage, next_valid: None }),
        };
        each(Dumped::Header(header))?;
        let mut cursor = Cursor::new(file, header);
        loop {
            let byte_offset = cursor.at();
            let bad = match cursor.peek()? {
                Decoded::Frame(frame) => {
                    let payload = cursor.payload(&frame);
                    let link = (frame.kind == Kind::Link)
                        .then(|| Link::decode(frame.index, payload).ok())
                        .flatten();
                    each(Dumped::Frame { byte_offset, frame, payload, link })?;
                    cursor.skip(&frame);
                    continue;
                }
                Decoded::Empty | Decoded::Needs(_) => None,
                Decoded::Bad(damage) => Some(damage),
            };
            let next = cursor.hunt(|_| true, &mut false)?;
            let next_valid = next.map(|_| cursor.at());
            match bad {
                None => each(Dumped::Empty { byte_offset })?,
                Some(damage) => each(Dumped::Bad { byte_offset, damage, next_valid })?,
            }
            if next_valid.is_none() {
                return Ok(());
            }
        }
    }
}

/// What is missing is in the report of the file that tells so, or in one of its own.
fn tell_lost(reports: &mut Vec<SegmentReport>, lost: Corruption) {
    let lost_of = |report: &SegmentReport| match &report.state {
        SegmentState::Corrupt(lost) => Some(lost.records.clone()),
        _ => None,
    };
    let first = lost.records.start();
    let is_told = reports.iter().filter_map(lost_of).any(|records| records.contains(first));
    match reports.iter_mut().find(|report| report.segment == lost.segment) {
        // It has damage of its own to tell.
        Some(teller) if is_told && lost_of(teller).is_some() => {}
        Some(teller) => teller.state = SegmentState::Corrupt(lost),
        None => {
            let mut report = SegmentReport::blank(*first);
            report.state = SegmentState::Corrupt(lost);
            reports.push(report);
        }
    }
}

impl SegmentReport {
    fn blank(first_index: u64) -> Self {
        Self {
            segment: segment_name(first_index),
            first_index,
            last_index: first_index - 1,
            records_end: 0,
            file_bytes: 0,
            segment_bytes: 0,
            durable: 0,
            generation: 0,
            unix_ns: 0,
            state: SegmentState::Good,
        }
    }

    fn of(reading: &Reading, part: Part, durable: u64) -> Self {
        let first_index = reading.first_index;
        let mut report = Self::blank(first_index);
        if let Ok(head) = reading.head {
            let link = head.link_or_nothing(first_index);
            report.segment_bytes = head.header.segment_bytes;
            report.generation = link.generation;
            report.durable = link.durable;
            report.unix_ns = link.unix_ns;
        }
        match (&reading.scanned, reading.until) {
            (Some(scanned), _) => {
                report.last_index = scanned.last_index;
                report.records_end = scanned.records_end;
                report.durable = scanned.durable;
            }
            (None, Some(until)) if reading.head.is_ok() => report.last_index = until,
            (None, _) => {}
        }
        let ends_empty =
            reading.scanned.as_ref().is_some_and(|scanned| scanned.stop == Stop::Empty);
        let segment = report.segment.clone();
        report.state = match part {
            Part::Whole => SegmentState::Good,
            Part::End if ends_empty && durable == report.last_index => SegmentState::Closed,
            Part::End => SegmentState::Open,
            Part::Torn { byte_offset, damage } => {
                let records = report.last_index + 1..=reading.until.unwrap_or(u64::MAX);
                SegmentState::Torn(Corruption { segment, byte_offset, damage, records })
            }
            Part::Corrupt(corruption) => SegmentState::Corrupt(corruption),
            Part::Cut => SegmentState::Stale,
        };
        report
    }
}
