//! [`View`]: a log's files, read without the log being open here. Changes nothing, takes no lock, and
//! reads what can be read of a damaged log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::available_parallelism;

use plimsoll_sync::{Access, Dir, OsDir};

use crate::cursor::Cursor;
use crate::error::{Corruption, Error, Result};
use crate::format::{BLOCK, Damage, Decoded, Frame, Header, Kind, Link};
use crate::options::Ack;
use crate::place::{first_index_of, segment_name};
use crate::reader::{Reader, Source};
use crate::recovery::{Survey, nothing_known, read_piece, survey};
use crate::scan::{Stop, scan};
use crate::segments::{Covering, Entry};
use crate::shim::{AtomicU64, AtomicUsize, Mutex, lock, thread};

/// A log that is looked at.
#[derive(Debug, Clone)]
pub struct View {
    shelf: Arc<Shelf>,
}

/// The files of a log that somebody else may be writing.
#[derive(Debug)]
pub(crate) struct Shelf {
    dirs: Vec<Arc<dyn Dir>>,
    survey: Mutex<Survey>,
    epoch: AtomicU64,
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// The file.
    pub segment: String,
    /// Which of the directories it is in.
    pub place: usize,
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
    /// Records up to this one were durable when the segment last said so.
    pub durable: u64,
    /// How often records had been cut off when it was begun.
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
    /// The last one, and its last write is not finished. None of it was acknowledged as durable.
    Torn(Corruption),
    /// Durable records are lost, or the file is no segment.
    Corrupt(Corruption),
    /// Not part of the log any more: the next open removes it.
    Stale,
}

/// How much of a segment is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Head,
    All,
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
        Self::of(vec![Arc::new(OsDir::open(path.as_ref())?)])
    }

    /// Looks at a log in these directories, as [`crate::Log::open_in`].
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn of(dirs: Vec<Arc<dyn Dir>>) -> Result<Self> {
        let survey = Mutex::new(survey_now(&refs(&dirs))?);
        Ok(Self { shelf: Arc::new(Shelf { dirs, survey, epoch: AtomicU64::new(0) }) })
    }

    /// Whether there is a log.
    #[must_use]
    pub fn is_log(&self) -> bool {
        let survey = lock(&self.shelf.survey);
        !survey.entries.is_empty() || survey.wrong.is_some()
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

    /// How often records were cut off, as far as is known: raised by [`crate::Log::truncate_after`].
    /// What was read before that may be another record's now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        lock(&self.shelf.survey).generation
    }

    /// What the segments hold, oldest first, mostly by the word of their heads: only those that may
    /// hold records that are not durable are read through. [`View::verify`] reads all.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn outline(&self) -> Result<Vec<SegmentReport>> {
        self.shelf.refresh()?;
        let survey = self.survey();
        let strays = self.strays(&survey)?;
        let from = survey.scan_from();
        let mut reports = Vec::new();
        for (number, &entry) in survey.entries.iter().enumerate() {
            let until = until(&survey, &strays, number);
            let depth = if number < from { Depth::Head } else { Depth::All };
            reports.push(self.report(entry, until, depth)?);
        }
        Ok(Self::complete(reports, survey, strays))
    }

    /// Reads every segment and says what is in it, oldest first; on all CPUs. `progress` is told the
    /// number of segments done and of all.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn verify(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Vec<SegmentReport>> {
        self.shelf.refresh()?;
        let survey = self.survey();
        let strays = self.strays(&survey)?;
        let entries = &survey.entries;
        let threads = available_parallelism().map_or(1, usize::from);
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let mut reports: Vec<Option<Result<SegmentReport>>> = Vec::new();
        reports.resize_with(entries.len(), || None);
        let slots: Vec<Mutex<_>> = reports.iter_mut().map(Mutex::new).collect();
        thread::scope(|scope| {
            for _ in 0..threads.min(entries.len()) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, SeqCst);
                        let Some(&entry) = entries.get(number) else { return };
                        let until = until(&survey, &strays, number);
                        **lock(&slots[number]) = Some(self.report(entry, until, Depth::All));
                        progress(done.fetch_add(1, SeqCst) + 1, entries.len());
                    }
                });
            }
        });
        drop(slots);
        let reports = reports
            .into_iter()
            .map(|report| report.expect("each was read"))
            .collect::<Result<_>>()?;
        Ok(Self::complete(reports, survey, strays))
    }

    fn survey(&self) -> Survey {
        lock(&self.shelf.survey).clone()
    }

    /// Judges the segments of the log, and adds the files that are none of them.
    fn complete(
        mut reports: Vec<SegmentReport>,
        survey: Survey,
        strays: Vec<SegmentReport>,
    ) -> Vec<SegmentReport> {
        judge(&mut reports, survey.unbegun_durable);
        // What is wrong with a file that is no segment is in its report.
        if let Some(wrong) = survey.wrong
            && let Some(report) = reports.iter_mut().find(|report| report.segment == wrong.segment)
        {
            report.state = SegmentState::Corrupt(wrong);
        }
        for entry in survey.stale.into_iter().chain(survey.unbegun) {
            let name = segment_name(entry.first_index);
            let stale = blank(name, entry.place, entry.first_index);
            reports.push(SegmentReport { state: SegmentState::Stale, ..stale });
        }
        reports.extend(strays);
        reports.sort_by_key(|report| report.first_index);
        reports
    }

    /// Files that are called segments, and whose heads say that they are none of this log.
    fn strays(&self, survey: &Survey) -> Result<Vec<SegmentReport>> {
        let mut strays = Vec::new();
        for (place, dir) in self.shelf.dirs.iter().enumerate() {
            for segment in dir.list()? {
                let Some(first_index) = first_index_of(&segment) else { continue };
                let entry = Entry { first_index, place };
                if [&survey.entries, &survey.stale, &survey.unbegun]
                    .iter()
                    .any(|list| list.contains(&entry))
                {
                    continue;
                }
                let damage = match read_piece(&**dir, entry)? {
                    Err(damage) => damage,
                    Ok(piece) if Some(piece.header.log_id) != survey.log_id => Damage::Foreign,
                    // It has begun since.
                    Ok(_) => continue,
                };
                let next = survey.entries.iter().find(|next| next.first_index > first_index);
                let records = first_index..=next.map_or(u64::MAX, |next| next.first_index - 1);
                let mut report = blank(segment.clone(), place, first_index);
                let wrong = Corruption { segment, byte_offset: 0, damage, records };
                report.state = SegmentState::Corrupt(wrong);
                strays.push(report);
            }
        }
        Ok(strays)
    }

    fn report(&self, entry: Entry, until: Option<u64>, depth: Depth) -> Result<SegmentReport> {
        let dir = self.shelf.dir(entry.place);
        let name = segment_name(entry.first_index);
        let file = dir.open(&name, Access::default())?;
        let mut report = blank(name.clone(), entry.place, entry.first_index);
        report.file_bytes = file.len()?;
        let piece = match read_piece(dir, entry)? {
            Ok(piece) => piece,
            Err(damage) => {
                let records = entry.first_index..=until.unwrap_or(u64::MAX);
                let wrong = Corruption { segment: name, byte_offset: 0, damage, records };
                report.state = SegmentState::Corrupt(wrong);
                return Ok(report);
            }
        };
        let link = piece.link.unwrap_or_else(|| nothing_known(entry.first_index));
        report.segment_bytes = piece.header.segment_bytes;
        report.generation = link.generation;
        report.durable = link.durable;
        report.unix_ns = link.unix_ns;
        if let (Depth::Head, Some(until)) = (depth, until) {
            report.last_index = until;
            return Ok(report);
        }
        let read = || scan(Arc::clone(&file), piece.header, link, until.unwrap_or(u64::MAX));
        let mut scanned = read()?;
        // What is missing may have been written after its place was read, and before the mark was that
        // calls it durable: then it is there at a second look.
        while scanned.durable > scanned.last_index {
            let again = read()?;
            if again.last_index == scanned.last_index {
                break;
            }
            scanned = again;
        }
        report.last_index = scanned.last_index;
        report.records_end = scanned.records_end;
        report.durable = scanned.durable;
        let short = until.is_some_and(|until| scanned.last_index < until);
        let (byte_offset, damage) = scanned.damage();
        let records = scanned.last_index + 1..=until.unwrap_or(u64::MAX);
        let wrong = Corruption { segment: name, byte_offset, damage, records };
        report.state = match scanned.stop {
            _ if short => SegmentState::Corrupt(wrong),
            _ if until.is_some() => SegmentState::Good,
            Stop::Damaged { .. } => SegmentState::Torn(wrong),
            Stop::Empty if scanned.durable == scanned.last_index => SegmentState::Closed,
            Stop::Empty | Stop::Sealed | Stop::Superseded => SegmentState::Open,
        };
        Ok(report)
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
        let dir = self.shelf.dir(segment.place);
        let disk = |error: plimsoll_sync::Error| E::from(Error::from(error));
        let file = dir.open(&segment.segment, Access::default()).map_err(disk)?;
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

/// The last record that a segment should have, if another follows, readable or not.
fn until(survey: &Survey, strays: &[SegmentReport], number: usize) -> Option<u64> {
    let first_index = survey.entries[number].first_index;
    let next = survey.entries.get(number + 1).map(|next| next.first_index);
    let strays = strays.iter().map(|stray| stray.first_index).filter(|stray| *stray > first_index);
    strays.chain(next).min().map(|next| next - 1)
}

/// A segment whose next one says that its records were durable, and that does not have them, is
/// corrupt; if nothing says so it is torn, and what follows it is not part of the log.
fn judge(reports: &mut [SegmentReport], durable: u64) {
    let durable = reports.iter().map(|report| report.durable).fold(durable, u64::max);
    let mut ended = false;
    for report in reports {
        if ended {
            report.state = SegmentState::Stale;
            continue;
        }
        match &mut report.state {
            SegmentState::Corrupt(wrong)
                if wrong.byte_offset > 0 && *wrong.records.start() > durable =>
            {
                ended = true;
                report.state = SegmentState::Torn(wrong.clone());
            }
            SegmentState::Torn(wrong) if *wrong.records.start() <= durable => {
                wrong.records = *wrong.records.start()..=durable;
                report.state = SegmentState::Corrupt(wrong.clone());
            }
            SegmentState::Open if report.last_index < durable => {
                let damage = Damage::Empty;
                let records = report.last_index + 1..=durable;
                let (segment, byte_offset) = (report.segment.clone(), report.records_end);
                report.state =
                    SegmentState::Corrupt(Corruption { segment, byte_offset, damage, records });
            }
            _ => {}
        }
    }
}

fn blank(segment: String, place: usize, first_index: u64) -> SegmentReport {
    SegmentReport {
        segment,
        place,
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

/// Looks what there is. Whoever writes the log may take a file away between the look at its name and
/// the look into it: then once more.
fn survey_now(dirs: &[&dyn Dir]) -> Result<Survey> {
    let mut tries = 0;
    loop {
        match survey(dirs) {
            Err(Error::Disk(error))
                if error.kind() == Some(std::io::ErrorKind::NotFound) && tries < 100 =>
            {
                tries += 1;
            }
            found => return found,
        }
    }
}

fn refs(dirs: &[Arc<dyn Dir>]) -> Vec<&dyn Dir> {
    dirs.iter().map(|dir| &**dir).collect()
}

impl Shelf {
    pub(crate) fn dir(&self, place: usize) -> &dyn Dir {
        &*self.dirs[place]
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    pub(crate) fn first_index(&self) -> u64 {
        lock(&self.survey).entries.first().map_or(1, |entry| entry.first_index)
    }

    pub(crate) fn covering(&self, index: u64) -> Option<Covering> {
        let survey = lock(&self.survey);
        let after = survey.entries.partition_point(|entry| entry.first_index <= index);
        let entry = *survey.entries.get(after.checked_sub(1)?)?;
        let next = survey.entries.get(after).map(|next| next.first_index);
        // What a file has of records that were in one that is lost is left from a truncation.
        let lost = survey.lost_after(entry);
        if lost.is_some_and(|wrong| *wrong.records.start() <= index) {
            return None;
        }
        let lost = lost.map(|wrong| *wrong.records.start());
        let last_index = next.into_iter().chain(lost).min().map(|next| next - 1);
        Some(Covering { entry, last_index })
    }

    /// Why nothing covers this record, if its file is lost.
    pub(crate) fn lost(&self, index: u64) -> Option<Corruption> {
        let survey = lock(&self.survey);
        let after = survey.entries.partition_point(|entry| entry.first_index <= index);
        let lost = survey.lost_after(*survey.entries.get(after.checked_sub(1)?)?);
        lost.filter(|wrong| *wrong.records.start() <= index).cloned()
    }

    /// Looks what files there are now.
    pub(crate) fn refresh(&self) -> Result<()> {
        let found = survey_now(&refs(&self.dirs))?;
        let mut survey = lock(&self.survey);
        if found.generation != survey.generation {
            self.epoch.fetch_add(1, SeqCst);
        }
        *survey = found;
        Ok(())
    }

    /// Whether the log ends before `index`, which `entry` should hold next: nothing in it or behind it
    /// says that the record was durable. A segment whose first writes are lost may follow one whose
    /// last are.
    pub(crate) fn is_end_of_log(&self, entry: Entry, index: u64) -> Result<bool> {
        let (entries, unbegun_durable) = {
            let survey = lock(&self.survey);
            (survey.entries.clone(), survey.unbegun_durable)
        };
        if unbegun_durable >= index {
            return Ok(false);
        }
        let from = entries.partition_point(|other| other.first_index < entry.first_index);
        for (number, &entry) in entries.iter().enumerate().skip(from) {
            let dir = self.dir(entry.place);
            let Ok(piece) = read_piece(dir, entry)? else { return Ok(false) };
            let link = piece.link.unwrap_or_else(|| nothing_known(entry.first_index));
            let file = dir.open(&segment_name(entry.first_index), Access::default())?;
            let until = entries.get(number + 1).map_or(u64::MAX, |next| next.first_index - 1);
            let scanned = scan(file, piece.header, link, until)?;
            if number == from && scanned.last_index >= index {
                return Ok(true);
            }
            if scanned.durable >= index {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
