//! [`View`]: a log's files, read without the log being open here. Changes nothing, takes no lock, and
//! reads what can be read of a damaged log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::available_parallelism;

use plimsoll_sync::{Access, Dir, OsDir};

use crate::cursor::Cursor;
use crate::error::{Corruption, Error, Result};
use crate::format::{BLOCK, Damage, Decoded, Frame, Header};
use crate::options::Ack;
use crate::place::segment_name;
use crate::reader::{Reader, Source};
use crate::recovery::{Survey, read_piece, survey, unlinked};
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
    /// Records up to this one were durable when the segment last said so.
    pub durable: u64,
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
        let survey = Mutex::new(survey(&refs(&dirs))?);
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

    /// Reads every segment and says what is in it, oldest first; on all CPUs. `progress` is told the
    /// number of segments done and of all.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn verify(&self, progress: &(dyn Fn(usize, usize) + Sync)) -> Result<Vec<SegmentReport>> {
        self.shelf.refresh()?;
        let (entries, mut stale, wrong) = {
            let survey = lock(&self.shelf.survey);
            (survey.entries.clone(), survey.stale.clone(), survey.wrong.clone())
        };
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
                        let until = entries.get(number + 1).map(|next| next.first_index - 1);
                        **lock(&slots[number]) = Some(self.report(entry, until));
                        progress(done.fetch_add(1, SeqCst) + 1, entries.len());
                    }
                });
            }
        });
        drop(slots);
        let mut reports: Vec<SegmentReport> = reports
            .into_iter()
            .map(|report| report.expect("each was read"))
            .collect::<Result<_>>()?;
        judge(&mut reports);
        if let Some(wrong) = wrong {
            match reports.iter_mut().find(|report| report.segment == wrong.segment) {
                Some(report) => report.state = SegmentState::Corrupt(wrong),
                None => reports.push(SegmentReport {
                    state: SegmentState::Corrupt(wrong.clone()),
                    ..blank(wrong.segment.clone(), 0, *wrong.records.start())
                }),
            }
        }
        stale.sort_by_key(|entry| entry.first_index);
        reports.extend(stale.into_iter().map(|entry| SegmentReport {
            state: SegmentState::Stale,
            ..blank(segment_name(entry.first_index), entry.place, entry.first_index)
        }));
        Ok(reports)
    }

    fn report(&self, entry: Entry, until: Option<u64>) -> Result<SegmentReport> {
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
        let link = piece.link.unwrap_or_else(|| unlinked(entry.first_index));
        let scanned = scan(file, piece.header, link, until.unwrap_or(u64::MAX))?;
        report.last_index = scanned.last_index;
        report.records_end = scanned.records_end;
        report.durable = scanned.durable;
        report.unix_ns = link.unix_ns;
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
                    each(Dumped::Frame { byte_offset, frame, payload: cursor.payload(&frame) })?;
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

/// A segment whose next one says that its records were durable, and that does not have them, is
/// corrupt; if nothing says so it is torn, and what follows it is not part of the log.
fn judge(reports: &mut [SegmentReport]) {
    let durable = reports.iter().map(|report| report.durable).max().unwrap_or(0);
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
        durable: 0,
        unix_ns: 0,
        state: SegmentState::Good,
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
        let found = survey(&refs(&self.dirs))?;
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
        let entries = lock(&self.survey).entries.clone();
        let from = entries.partition_point(|other| other.first_index < entry.first_index);
        for (number, &entry) in entries.iter().enumerate().skip(from) {
            let dir = self.dir(entry.place);
            let Ok(piece) = read_piece(dir, entry)? else { return Ok(false) };
            let link = piece.link.unwrap_or_else(|| unlinked(entry.first_index));
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
