//! What a directory holds: names, notes, heads, and the end of the log, read for the judge. Changes
//! nothing, but for syncing what is about to be believed.
//!
//! Before a byte is believed directory and file are synced, and it is read past the page cache where that is
//! possible: after a failed sync the cache holds bytes that the disk does not, and calls them clean.

use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, Dir, Error as DiskError, File, SyncMethod};

use super::judge::{self, Chain, Part, Piece, Reading, Verdict};
use crate::error::Result;
use crate::files::notes::{self, CUTTING};
use crate::files::place::{PROBE, Place};
use crate::files::spares::SPARE;
use crate::segment::damage::Damage;
use crate::segment::format::BLOCK;
use crate::segment::head::{Head, first_index_of, segment_name};
use crate::segment::scan::{Closed, Scanned, scan, scan_around, scan_closed};

/// What a directory holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Survey {
    pub(crate) chain: Chain,
    /// Where the log ended when it was closed, if nothing was written since.
    pub(crate) closed: Option<Closed>,
    /// Somebody was cutting records off, and may not have come to an end.
    pub(crate) is_cutting: bool,
    /// Prepared files, and what a probe or an unfinished note left.
    pub(crate) leftovers: Vec<String>,
}

/// Looks at what there is.
pub(crate) fn survey(dir: &dyn Dir) -> Result<Survey> {
    // Before the names: whoever writes the log meanwhile may close it with segments that are not listed.
    let mut survey = Survey { closed: notes::closed(dir)?, ..Survey::default() };
    // A list passes over what is no file, and the log would seem to end before it.
    dir.refuse_strangers(&|name| first_index_of(name).is_some() || notes::is_name_alone(name))?;
    let mut names = Vec::new();
    for name in dir.list()? {
        if let Some(first_index) = first_index_of(&name) {
            names.push(first_index);
        } else if name == CUTTING {
            survey.is_cutting = true;
        } else if name.ends_with(SPARE) || name == PROBE || notes::is_unfinished(&name) {
            survey.leftovers.push(name);
        }
    }
    notes::refuse_second(dir)?;
    names.sort_unstable();
    let by_ends = if survey.is_cutting { None } else { chain_by_ends(dir, &names)? };
    survey.chain = match by_ends {
        Some(chain) => chain,
        None => judge::chain(names.iter().map(|&name| piece(dir, name)).collect::<Result<_>>()?),
    };
    Ok(survey)
}

fn chain_by_ends(dir: &dyn Dir, names: &[u64]) -> Result<Option<Chain>> {
    let (Some(&first), Some(&last)) = (names.first(), names.last()) else {
        return Ok(Some(Chain::default()));
    };
    let (Ok(first), Ok(last)) = (head(dir, first)?, head(dir, last)?) else { return Ok(None) };
    Ok(judge::chain_by_ends(names, &first, &last))
}

fn head(dir: &dyn Dir, first_index: u64) -> Result<std::result::Result<Head, Damage>> {
    Head::read(&*dir.open(&segment_name(first_index), Default::default())?, first_index)
}

fn piece(dir: &dyn Dir, first_index: u64) -> Result<Piece> {
    let file = dir.open(&segment_name(first_index), Default::default())?;
    let head = Head::read(&*file, first_index)?;
    let (mut scanned, mut is_short) = (None, false);
    if let Ok(head @ Head { header, link: None }) = head {
        is_short = file.len()? < header.segment_bytes;
        let link = head.link_or_nothing(first_index);
        scanned = Some(scan(file, header, link, u64::MAX)?);
    }
    Ok(Piece { first_index, head, scanned, is_short })
}

/// A segment as the disk has it.
#[derive(Debug)]
pub(crate) struct OnDisk {
    /// Writes, as the place's method wants it.
    pub(crate) written: Arc<dyn File>,
    /// Reads past the cache, where that is possible.
    file: Arc<dyn File>,
    pub(crate) head: std::result::Result<Head, Damage>,
}

/// The end of a log: what the judge says of it, and the last segment, to be written on.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) verdict: Verdict,
    pub(crate) readings: Vec<Reading>,
    pub(crate) newest: Option<OnDisk>,
}

/// Reads the segments that may not be durable, as far as they are to be kept. Up to `also_durable` somebody else says that all was.
pub(crate) fn read_end(place: &Place, survey: &Survey, mut also_durable: u64) -> Result<End> {
    for &first_index in &survey.chain.unbegun {
        // Its name was made durable, and what was written into it was not; or a mark in it knows better.
        let on_disk = OnDisk::open(place, first_index)?;
        let scanned = on_disk.scan(first_index, u64::MAX, None)?;
        also_durable = also_durable.max(scanned.map_or(0, |scanned| scanned.durable));
    }
    let mut readings = Vec::new();
    let mut newest = None;
    let closed = survey.closed.as_ref();
    let unsure = survey.chain.unsure().first().copied().unwrap_or(0);
    for &first_index in survey.chain.segments.iter().rev() {
        // What has no link on the disk says nothing of those before it, whatever the cache showed.
        let has_link = |reading: &Reading| reading.head.is_ok_and(|head| head.link.is_some());
        if first_index < unsure && readings.last().is_some_and(has_link) {
            break;
        }
        let on_disk = OnDisk::open(place, first_index)?;
        let until = match newest {
            // What stands there of records that were in a lost file was cut off before.
            None => survey.chain.wrong.first().map(|wrong| wrong.records.start() - 1),
            Some(_) => survey.chain.until(first_index),
        };
        let scanned = on_disk.scan(first_index, until.unwrap_or(u64::MAX), closed)?;
        let until = if newest.is_none() { None } else { until };
        let head = on_disk.head;
        // A mark may know better than the link: then a full segment need not be read.
        let is_all = survey.chain.wrong.is_empty()
            && head.is_ok_and(|head| head.link.is_some())
            && scanned.as_ref().is_some_and(|scanned| scanned.durable + 1 >= first_index);
        let is_first = newest.is_none();
        readings.push(Reading { first_index, head, until, scanned });
        newest.get_or_insert(on_disk);
        if is_first && is_all {
            break;
        }
    }
    readings.reverse();
    let verdict = judge::judge(&survey.chain, &readings, closed, also_durable);
    Ok(End { verdict, readings, newest })
}

impl End {
    /// Reads the segments again that lack durable records, around those that are damaged ([`crate::Options::keep_damaged`]).
    pub(crate) fn read_around_damage(&mut self, place: &Place, survey: &Survey) -> Result<()> {
        let durable = self.verdict.durable;
        for (reading, part) in self.readings.iter_mut().zip(&self.verdict.parts) {
            let (Part::Corrupt(_), Ok(Head { header, link: Some(link) })) = (part, reading.head)
            else {
                continue;
            };
            let file = OnDisk::open(place, reading.first_index)?.file;
            let until = reading.until.unwrap_or(u64::MAX);
            let scanned = scan_around(file, header, link, until, durable.min(until))?;
            reading.scanned = Some(scanned);
        }
        let closed = survey.closed.as_ref();
        self.verdict = judge::judge(&survey.chain, &self.readings, closed, durable);
        Ok(())
    }
}

impl OnDisk {
    /// Syncs the file, and reads its head.
    fn open(place: &Place, first_index: u64) -> Result<Self> {
        let written = place.dir.open(&segment_name(first_index), place.method.access)?;
        written.sync(place.method.call)?;
        let file = past_the_cache(place, first_index, &written)?;
        let head = Head::read(&*file, first_index)?;
        Ok(Self { written, file, head })
    }

    fn scan(
        &self,
        first_index: u64,
        until: u64,
        closed: Option<&Closed>,
    ) -> Result<Option<Scanned>> {
        scan_file(&self.file, self.head, first_index, until, closed)
    }

    /// Whether the cache shows what the disk has. If not, what a failed sync left there would be written
    /// with whatever shares its page.
    pub(crate) fn cache_agrees(&self, reading: &Reading, closed: Option<&Closed>) -> Result<bool> {
        if Arc::ptr_eq(&self.file, &self.written) {
            return Ok(true);
        }
        let first_index = reading.first_index;
        let cached = scan_file(&self.written, self.head, first_index, u64::MAX, closed)?;
        Ok(cached == reading.scanned)
    }

    /// What the last block holds before `end`.
    pub(crate) fn last_block(&self, end: u64) -> Result<Vec<u8>> {
        let block = BLOCK as u64;
        let mut bytes = AlignedBuf::zeroed(BLOCK, BLOCK);
        let len = usize::try_from(end % block).expect("less than a block");
        if len > 0 {
            self.file.read_at(&mut bytes, end / block * block)?;
        }
        Ok(bytes[..len].to_vec())
    }
}

/// What a segment holds up to record `until`: from near its end where it was closed.
pub(crate) fn scan_file(
    file: &Arc<dyn File>,
    head: std::result::Result<Head, Damage>,
    first_index: u64,
    until: u64,
    closed: Option<&Closed>,
) -> Result<Option<Scanned>> {
    let Ok(head) = head else { return Ok(None) };
    let link = head.link_or_nothing(first_index);
    let file = Arc::clone(file);
    let closed = closed.filter(|closed| {
        let names = (closed.salt, closed.first_index) == (head.header.salt, first_index);
        let fits = closed.frames_end <= head.header.segment_bytes;
        names && fits && head.link.is_some() && closed.last_index <= until
    });
    Ok(Some(match closed {
        Some(closed) => scan_closed(file, head.header, link, closed)?,
        None => scan(file, head.header, link, until)?,
    }))
}

/// A handle that reads what the disk has, where there is one; `file` otherwise.
pub(crate) fn past_the_cache(
    place: &Place,
    first_index: u64,
    file: &Arc<dyn File>,
) -> Result<Arc<dyn File>> {
    if place.method.access.direct {
        return Ok(Arc::clone(file));
    }
    match place.dir.open(&segment_name(first_index), SyncMethod::Direct.access()) {
        Ok(direct) if direct.alignment() <= BLOCK => Ok(direct),
        Ok(_) | Err(DiskError::Unsupported { .. }) => Ok(Arc::clone(file)),
        Err(error) => Err(error.into()),
    }
}
