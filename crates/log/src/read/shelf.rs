//! [`Shelf`]: the files of a log that somebody else may be writing. No lock is taken and nothing is
//! changed, so what was looked at may be gone or grown at the next look.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use plimsoll_sync::{Access, Dir, Error as DiskError, File};

use crate::error::{Corruption, Error, Result};
use crate::files::list::Span;
use crate::open::judge::{self, Chain, Reading, Verdict};
use crate::open::survey::{Survey, scan_file, survey};
use crate::segment::damage::Damage;
use crate::segment::head::{Head, read_header, segment_name};
use crate::segment::scan::Scanned;
use crate::shim::{AtomicU64, Mutex, lock};

/// So often a file that is gone makes us look again what there is.
const LOOKS_MAX: u32 = 100;

#[derive(Debug)]
pub(crate) struct Shelf {
    dir: Arc<dyn Dir>,
    survey: Mutex<Survey>,
    epoch: AtomicU64,
}

/// A segment that was looked at.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) reading: Reading,
    pub(crate) file_bytes: u64,
}

/// What stands where a record should be that a reader did not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// The log ends before it.
    Nothing,
    /// The record: it was written meanwhile, maybe in another file of the same name.
    Record,
    /// Nothing, and it was durable.
    Missing,
}

impl Shelf {
    pub(crate) fn new(dir: Arc<dyn Dir>) -> Result<Self> {
        let survey = Mutex::new(survey_now(&*dir)?);
        Ok(Self { dir, survey, epoch: AtomicU64::new(0) })
    }

    pub(crate) fn open(&self, first_index: u64) -> Result<Arc<dyn File>> {
        Ok(self.dir.open(&segment_name(first_index), Access::default())?)
    }

    /// What there was at the last look.
    pub(crate) fn survey(&self) -> Survey {
        lock(&self.survey).clone()
    }

    pub(crate) fn chain<T>(&self, ask: impl FnOnce(&Chain) -> T) -> T {
        ask(&lock(&self.survey).chain)
    }

    /// Changes when what was read may be another record's now.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    pub(crate) fn first_index(&self) -> u64 {
        self.chain(|chain| chain.segments.first().copied().unwrap_or(1))
    }

    pub(crate) fn span(&self, index: u64) -> Option<Span> {
        self.chain(|chain| {
            let after = chain.segments.partition_point(|&first| first <= index);
            let first_index = *chain.segments.get(after.checked_sub(1)?)?;
            let next = chain.segments.get(after).copied();
            // What a file has of records that were in one that is lost is left from a cut.
            let lost = chain.wrong_behind(first_index).map(|wrong| *wrong.records.start());
            if lost.is_some_and(|lost| lost <= index) {
                return None;
            }
            let last_index = next.into_iter().chain(lost).min().map(|next| next - 1);
            Some(Span { first_index, last_index })
        })
    }

    /// Why nothing covers this record, if its file is lost.
    pub(crate) fn lost(&self, index: u64) -> Option<Corruption> {
        let is_empty = self.chain(|chain| chain.segments.is_empty() && chain.wrong.is_empty());
        if is_empty {
            return self.missing_from(index);
        }
        self.chain(|chain| {
            let after = chain.segments.partition_point(|&first| first <= index);
            let lost = chain.wrong_behind(*chain.segments.get(after.checked_sub(1)?)?);
            lost.filter(|wrong| *wrong.records.start() <= index).cloned()
        })
    }

    /// What the note of a clean end calls durable, from a record on that no segment has.
    pub(crate) fn missing_from(&self, index: u64) -> Option<Corruption> {
        let survey = lock(&self.survey);
        let closed = survey.closed.as_ref()?;
        let durable = survey.chain.durable_when_closed(Some(closed));
        let (segment, damage) = (segment_name(closed.first_index), Damage::Missing);
        let lost = Corruption { segment, byte_offset: 0, damage, records: index..=durable };
        (index <= durable).then_some(lost)
    }

    /// Looks what files there are now.
    pub(crate) fn refresh(&self) -> Result<()> {
        let found = survey_now(&*self.dir)?;
        let mut survey = lock(&self.survey);
        if found.chain.generation != survey.chain.generation {
            self.epoch.fetch_add(1, SeqCst);
        }
        *survey = found;
        Ok(())
    }

    /// What follows where a segment should hold `index` next: nothing, if nothing in it or behind it says
    /// that the record was durable. A segment whose first writes are lost may follow one whose last
    /// are.
    pub(crate) fn what_follows(&self, first_index: u64, index: u64) -> Result<Follows> {
        let survey = self.survey();
        let behind = survey.chain.segments.iter().copied().filter(|&first| first >= first_index);
        let readings = behind.map(|first| self.read(&survey, first)).collect::<Result<Vec<_>>>()?;
        let is_there = |scanned: &Scanned| scanned.last_index >= index;
        if readings.first().and_then(|reading| reading.scanned.as_ref()).is_some_and(is_there) {
            return Ok(Follows::Record);
        }
        let is_missing = self.judge(&survey, &readings).durable >= index;
        Ok(if is_missing { Follows::Missing } else { Follows::Nothing })
    }

    /// Reads a segment through.
    pub(crate) fn read(&self, survey: &Survey, first_index: u64) -> Result<Reading> {
        let file = self.open(first_index)?;
        let head = Head::read(&*file, first_index)?;
        let until = survey.chain.until(first_index);
        let last = until.unwrap_or(u64::MAX);
        let read = || scan_file(&file, head, first_index, last, None);
        let mut scanned = read()?;
        // What is missing may have been written after its place was read, and before the mark was that
        // calls it durable: then it is there at a second look.
        while let Some(first) = &scanned
            && first.durable > first.last_index
        {
            let again = read()?;
            if again.as_ref().map(|again| again.last_index) == Some(first.last_index) {
                break;
            }
            scanned = again;
        }
        Ok(Reading { first_index, head, until, scanned })
    }

    /// Looks what there is, and has `see` look at each segment. What retention takes away meanwhile is
    /// left out; where another file is changed, or all are gone, it begins again.
    pub(crate) fn look(
        &self,
        see: impl Fn(&Survey) -> Result<Vec<Option<Seen>>>,
    ) -> Result<(Survey, Vec<Seen>)> {
        let mut looks = 0;
        loop {
            self.refresh()?;
            let mut survey = self.survey();
            match see(&survey) {
                Err(error) if is_gone(&error) && looks < LOOKS_MAX => {}
                Err(error) => return Err(error),
                Ok(seen) => {
                    let all = seen.len();
                    let mut seen: Vec<Seen> = seen.into_iter().flatten().collect();
                    if seen.len() < all {
                        let first_index = self.first_index();
                        survey.chain.forget_before(first_index);
                        seen.retain(|seen| seen.reading.first_index >= first_index);
                    }
                    if all == 0 || !seen.is_empty() || looks == LOOKS_MAX {
                        return Ok((survey, seen));
                    }
                }
            }
            looks += 1;
        }
    }

    /// Looks at a segment as `read` does; `None` if retention has taken it away since.
    pub(crate) fn see(
        &self,
        first_index: u64,
        read: impl FnOnce() -> Result<Reading>,
    ) -> Result<Option<Seen>> {
        let seen = read().and_then(|reading| {
            // Its file may have got another name, and other bytes, while it was read.
            let file = self.open(first_index)?;
            if read_header(&*file, first_index)? != reading.head.map(|head| head.header) {
                return Err(gone(first_index));
            }
            Ok(Seen { reading, file_bytes: file.len()? })
        });
        match seen {
            Err(error) if is_gone(&error) => {
                self.refresh()?;
                if first_index < self.first_index() { Ok(None) } else { Err(error) }
            }
            seen => seen.map(Some),
        }
    }

    pub(crate) fn judge(&self, survey: &Survey, readings: &[Reading]) -> Verdict {
        judge::judge(&survey.chain, readings, survey.closed.as_ref(), 0)
    }
}

/// Looks what there is. Whoever writes the log may take a file away between the look at its name and the
/// look into it: then once more.
fn survey_now(dir: &dyn Dir) -> Result<Survey> {
    let mut looks = 0;
    loop {
        match survey(dir) {
            Err(error) if is_gone(&error) && looks < LOOKS_MAX => looks += 1,
            found => return found,
        }
    }
}

/// Whether a file was not there any more.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Disk(error) if error.kind() == Some(ErrorKind::NotFound))
}

/// There is another segment of that name now.
fn gone(first_index: u64) -> Error {
    DiskError::io("read", segment_name(first_index), ErrorKind::NotFound.into()).into()
}
