//! [`open`]: from what was found to a log that runs. What is behind a torn tail is cut off by beginning a
//! new segment, never by writing over it; what is not part of the log any more goes once the log is
//! durable elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_sync::{Dir, Held};

use super::judge::{Chain, Part, Verdict};
use super::survey::{End, Survey, read_end, survey};
use crate::append::intake::Intake;
use crate::append::ring::Ring;
use crate::append::ring_file::{Found, Left};
use crate::append::watermark::Marks;
use crate::commit::Commit;
use crate::commit::succession::{Beginning, Step, Successor};
use crate::commit::syncer::{Durable, Syncer};
use crate::commit::writer::Writer;
use crate::error::{Corruption, Error, Result};
use crate::files::Files;
use crate::files::list::Segments;
use crate::files::notes::{self, RingNote};
use crate::files::place::Place;
use crate::files::spares::{SPARE, Sizes, Stock};
use crate::options::{Options, Ring as RingPlace};
use crate::segment::active::{Active, Segment, staging_bytes};
use crate::segment::flusher::Flusher;
use crate::segment::format::Damage;
use crate::segment::head::segment_name;
use crate::shim::AtomicU64;
use crate::stats::Tell;

/// What opening a log found, and did about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// There was no log: this one is new.
    pub created: bool,
    /// The oldest record.
    pub first_index: u64,
    /// The newest. Everything up to it is durable now, but for what was replayed.
    pub last_index: u64,
    /// The log was closed, and nothing happened since.
    pub clean: bool,
    /// An unfinished last write, cut off. News, not an error: none of it was acknowledged as durable.
    pub torn_tail: Option<TornTail>,
    /// Files that were not part of the log any more, or not yet, and were removed.
    pub discarded: Vec<String>,
    /// Records that were found in the ring's file and in no segment.
    pub replayed: u64,
    /// Why the ring's file could not be used, if it held anything, or may have.
    pub ring_ignored: Option<String>,
    /// Durable records that are lost, given up by [`crate::Options::accept_loss`].
    pub lost: Option<Corruption>,
}

/// Where an unfinished last write was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub segment: String,
    /// Where the first record begins that is not there in whole.
    pub byte_offset: u64,
    /// What is wrong there.
    pub damage: Damage,
}

/// A log that is being opened.
struct Opening<'a> {
    options: &'a Options,
    survey: Survey,
    end: End,
    files: Files,
    recovery: Recovery,
}

/// Opens the log in a directory that is locked: everything that [`Recovery`] counts is durable, but for
/// what was in the ring's file.
pub(crate) fn open(
    dir: Arc<dyn Dir>,
    options: &Options,
    sizes: Sizes,
) -> Result<(Commit, Recovery)> {
    let place = Arc::new(Place::probe(dir, options.direct)?);
    // A process that crashed may have given a name and not synced it.
    place.dir.sync()?;
    let mut survey = survey(&*place.dir)?;
    if let Some(wrong) = &survey.chain.wrong
        && !options.accept_loss
    {
        return Err(Error::Corrupt(Box::new(wrong.clone())));
    }
    survey.chain.give_up_what_is_wrong();
    let end = read_end(&place, &survey)?;
    if let Some(lost) = &end.verdict.lost
        && !options.accept_loss
    {
        return Err(Error::Corrupt(Box::new(lost.clone())));
    }
    let clock = options.clock.clone();
    let created = survey.chain.log_id.is_none();
    let log_id = match survey.chain.log_id {
        Some(log_id) => log_id,
        None => u128::from(clock.unique()?) << 64 | u128::from(clock.unique()?),
    };
    let stock = Stock::new(Arc::clone(&place), log_id, clock.clone(), sizes);
    let segments = Segments::new(kept(&survey.chain, &end));
    let files = Files::new(place, log_id, clock, segments, stock);
    let recovery = Recovery {
        created,
        clean: end.verdict.is_clean,
        torn_tail: torn_tail(&end),
        lost: survey.chain.wrong.clone().or(end.verdict.lost.clone()),
        ..Recovery::default()
    };
    Opening { options, survey, end, files, recovery }.run()
}

/// The segments that stay.
fn kept(chain: &Chain, end: &End) -> Vec<u64> {
    let cut = cut(end);
    chain.segments.iter().copied().filter(|first| !cut.contains(first)).collect()
}

/// Segments of the chain that are behind the end of the log, or hold nothing that is kept.
fn cut(end: &End) -> Vec<u64> {
    let Verdict { parts, last_index, .. } = &end.verdict;
    let goes = |(reading, part): (&super::judge::Reading, &Part)| {
        let is_unlinked = reading.head.is_ok_and(|head| head.link.is_none());
        let goes = *part == Part::Cut || is_unlinked || reading.first_index > last_index + 1;
        goes.then_some(reading.first_index)
    };
    end.readings.iter().zip(parts).filter_map(goes).collect()
}

fn torn_tail(end: &End) -> Option<TornTail> {
    end.readings.iter().zip(&end.verdict.parts).find_map(|(reading, part)| match part {
        Part::Torn { byte_offset, damage } => Some(TornTail {
            segment: segment_name(reading.first_index),
            byte_offset: *byte_offset,
            damage: *damage,
        }),
        _ => None,
    })
}

impl Opening<'_> {
    fn run(mut self) -> Result<(Commit, Recovery)> {
        let mut last_index = self.end.verdict.last_index;
        if self.recovery.created && self.end.readings.is_empty() && self.recovery.lost.is_none() {
            last_index = last_index.max(self.options.first_index - 1);
        }
        let ring = self.ring(last_index)?;
        // Whatever is written from here on is behind the end that was noted.
        if self.survey.closed.is_some() {
            notes::forget_closed(self.files.dir())?;
        }
        let active = self.active(last_index)?;
        self.remove_leftovers(active.is_some())?;
        if ring.is_new {
            ring.ring.reset(self.files.log_id, ring.token);
        }
        let generation = match &active {
            Some(active) => active.segment.link.generation,
            None => self.survey.chain.generation,
        };
        let previous = self.end.verdict.previous;
        let (options, files) = (self.options, Arc::new(self.files));
        let marks = Arc::new(Marks::new(last_index, ring.accepted.max(last_index)));
        let durable = Durable { previous, position: ring.taken };
        let syncer = Syncer::new(
            Arc::clone(&marks),
            options.clock.clone(),
            options.policy,
            files.place.method.call,
            options.ring_bytes,
            durable,
        );
        let clock = options.clock.clone();
        let flusher = Arc::new(Flusher::inline(clock.clone()));
        let intake = Intake::new(ring.ring, marks, clock, options.max_batch_bytes());
        let staging = staging_bytes(options.ring_bytes);
        let writer = Writer::new(active, ring.taken, generation, flusher, staging);
        let tell = Tell::new(options.observer.clone());
        let mut commit =
            Commit::new(options.policy, intake, files, syncer, tell, writer, options.threads);
        commit.ring_outlives_us = options.ring != RingPlace::Memory;
        {
            let mut writer = commit.role();
            writer.begin(&commit)?;
        }
        self.recovery.first_index = commit.files.first_index();
        self.recovery.last_index = commit.intake.marks.appended.get();
        self.recovery.replayed = self.recovery.last_index - last_index;
        Ok((commit, self.recovery))
    }

    /// The segment to go on in: the last one, or a new one. `None` where the disk is full.
    fn active(&mut self, last_index: u64) -> Result<Option<Active>> {
        if let Some(active) = self.resumed()? {
            return Ok(Some(active));
        }
        let beginning = Beginning {
            first_index: last_index + 1,
            previous: self.end.verdict.previous,
            generation: self.survey.chain.generation + 1,
            durable: last_index,
        };
        let step = if self.recovery.created { Step::First } else { Step::Cut };
        let spare = match self.files.stock.take(0) {
            Ok(spare) => spare,
            // Its records can be read, and retention makes room.
            Err(error) if error.is_out_of_space() && !self.recovery.created => {
                tracing::warn!("the disk is full: the log is opened, and accepts nothing");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let staging = staging_bytes(self.options.ring_bytes);
        let next = Successor::stage(&self.files, spare, step, beginning, staging);
        next.enter(&self.files).map(Some)
    }

    fn resumed(&mut self) -> Result<Option<Active>> {
        let (Some(newest), Some(reading)) = (self.end.newest.take(), self.end.readings.last())
        else {
            return Ok(None);
        };
        if !self.end.verdict.resumes
            || self.recovery.lost.is_some()
            || !newest.cache_agrees(reading, self.survey.closed.as_ref())?
        {
            return Ok(None);
        }
        let head = newest.head.expect("what is damaged does not resume");
        let scanned = reading.scanned.clone().expect("what resumes was read");
        let segment = Segment {
            header: head.header,
            link: head.link.expect("a segment without a link does not resume"),
            file: Arc::clone(&newest.written),
            end: AtomicU64::new(scanned.records_end),
        };
        let tail = newest.last_block(scanned.frames_end)?;
        let ends = (scanned.records_end, scanned.frames_end);
        let staging = staging_bytes(self.options.ring_bytes);
        let last_index = scanned.last_index;
        Ok(Some(Active::resume(segment, scanned.sparse, last_index, ends, &tail, staging)))
    }

    /// What is not part of the log any more can go now, the newest first.
    fn remove_leftovers(&mut self, goes_on: bool) -> Result<()> {
        if !goes_on {
            // A full disk: what is there may still be needed.
            return Ok(());
        }
        let chain = &self.survey.chain;
        let newest = self.files.segments.newest();
        let mut gone = cut(&self.end);
        gone.extend(chain.stale.iter().chain(&chain.unbegun).copied());
        gone.sort_unstable();
        gone.dedup();
        for &first_index in gone.iter().rev() {
            if newest != Some(first_index) {
                self.files.stale.push(first_index);
            }
            self.recovery.discarded.push(segment_name(first_index));
        }
        let _retention = self.files.retention_turn();
        self.files.sweep()?;
        if self.survey.is_cutting || !self.recovery.created {
            notes::end_cut(self.files.dir())?;
        }
        for name in &self.survey.leftovers {
            // A probe's file is gone by now.
            if name.ends_with(SPARE) || notes::is_unfinished(name) {
                // So may an unfinished note be, whose place the ring's has taken.
                notes::remove(self.files.dir(), name)?;
            }
        }
        Ok(())
    }

    /// The ring, and what of it is not in a segment.
    fn ring(&mut self, last_index: u64) -> Result<OpenRing> {
        let capacity = self.options.ring_bytes;
        let dir = self.files.dir();
        let note = notes::ring(dir)?.filter(RingNote::is_of_this_boot);
        if let Some(note) = &note {
            refuse_another_ring(note, &self.options.ring)?;
        }
        let RingPlace::File(path) = &self.options.ring else {
            if let Some(note) = note {
                let path = note.path.display();
                self.recovery.ring_ignored =
                    Some(format!("the ring {path} is not here: what only it had is given up"));
            }
            notes::forget_ring(dir)?;
            return Ok(OpenRing::empty(Ring::in_memory(capacity)?, last_index, 0));
        };
        let path = canonical(path);
        let (ring, held) = Ring::in_file(&path, capacity)?;
        let token = self.files.clock.unique()?;
        let found = match held {
            Held::Nothing if note.is_some() => {
                Found::Unusable("it is gone, and with it what only it had")
            }
            Held::Nothing => Found::Nothing,
            Held::Words => ring.found(self.files.log_id, note.as_ref().map(|note| note.token)),
        };
        let mut open = OpenRing::empty(ring, last_index, token);
        match found {
            Found::Records(records) => open.replay(&records, last_index, &mut self.recovery),
            Found::Foreign => {
                return Err(Error::Options(format!(
                    "the ring {} belongs to another log: each needs its own",
                    path.display()
                )));
            }
            Found::Unusable(why) => self.recovery.ring_ignored = Some(why.to_owned()),
            Found::Nothing => {}
        }
        // In this order a crash at any point leaves a ring and a note that agree.
        if !open.is_new {
            open.ring.expect_token(token);
        }
        match notes::write_ring(dir, &RingNote::now(token, path.clone())) {
            // The note that stands is as good, if it is of this ring: nobody else has opened the log.
            Err(error) if error.is_out_of_space() && !open.is_new => {
                tracing::debug!(%error, "the note of the ring stays as it is");
            }
            written => {
                written?;
                if !open.is_new {
                    open.ring.take_token(token);
                }
            }
        }
        Ok(open)
    }
}

/// Refuses to go on without the ring that the note names, if it is there and may hold records.
fn refuse_another_ring(note: &RingNote, ring: &RingPlace) -> Result<()> {
    let named = matches!(ring, RingPlace::File(given) if canonical(given) == note.path);
    if named || !note.path.exists() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the log's newest records may be in the ring {}: open it with that ring; or remove the file \
         'ring' from the log's directory, and give them up",
        note.path.display()
    )))
}

/// A ring, and what of it is not in a segment.
struct OpenRing {
    ring: Ring,
    /// Where the first record begins that is in no segment.
    taken: u64,
    /// The last record in it, or of the segments if there is none.
    accepted: u64,
    /// It has still to be made this log's.
    is_new: bool,
    token: u64,
}

impl OpenRing {
    fn empty(ring: Ring, last_index: u64, token: u64) -> Self {
        Self { ring, taken: 0, accepted: last_index, is_new: true, token }
    }

    fn replay(&mut self, records: &[Left], last_index: u64, recovery: &mut Recovery) {
        let first = records.first().map_or(last_index + 1, |left| left.index);
        if first > last_index + 1 {
            recovery.ring_ignored = Some(format!("it begins with record {first}, after a gap"));
            return;
        }
        let next = records.iter().find(|left| left.index > last_index);
        self.taken = next.map_or(self.ring.filled(), |left| left.position);
        self.accepted = records.last().map_or(last_index, |left| left.index).max(last_index);
        self.ring.release(self.taken);
        self.is_new = false;
    }
}

/// The same path from wherever a process looks, as far as that is known.
fn canonical(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    match (parent, path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}
