//! [`open`]: from what was found to a log that runs. What is behind a torn tail is cut off by beginning a
//! new segment, never by writing over it; what is not part of the log any more goes once the log is
//! durable elsewhere.

use std::sync::Arc;

use plimsoll_sync::Dir;

use super::judge::{Chain, Part, Verdict};
use super::ring::{self, OpenRing};
use super::survey::{End, Survey, read_end, survey};
use crate::append::intake::{Intake, Limits};
use crate::append::marks::Marks;
use crate::commit::Commit;
use crate::commit::succession::{Beginning, Step, Successor};
use crate::commit::syncer::{Durable, Syncer};
use crate::commit::writer::Writer;
use crate::crew::shared::Shared;
use crate::error::{Corruption, Error, Result};
use crate::files::Files;
use crate::files::list::Segments;
use crate::files::notes;
use crate::files::place::Place;
use crate::files::spares::{SPARE, Sizes, Stock};
use crate::options::{Options, Ring as RingPlace};
use crate::segment::active::{Active, STAGING_BYTES_IN_CREW, staging_bytes};
use crate::segment::damage::Damage;
use crate::segment::flusher::Flusher;
use crate::segment::handle::Segment;
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
    /// An unfinished last write, cut off. News, not an error: nothing in the log says that any of it was
    /// durable. A mark of that comes at most once in 4 KiB: what was synced since the last one and rotted
    /// afterwards looks the same.
    pub torn_tail: Option<TornTail>,
    /// Files that were not part of the log any more, or not yet, and were removed.
    pub discarded: Vec<String>,
    /// Records that were found in the ring's file and in no segment.
    pub replayed: u64,
    /// Why the ring's file could not be used, if it held anything, or may have.
    pub ring_ignored: Option<String>,
    /// Durable records that are lost, given up by [`crate::Options::accept_loss`].
    pub lost: Option<Corruption>,
    /// Durable records that are damaged, and were kept ([`crate::Options::keep_damaged`]): those that were met, to where the log was durable. There
    /// may be others before them.
    pub damaged: Option<Corruption>,
}

/// Where an unfinished last write was cut off, or what looks like one: nothing in the log says that what
/// stood there was durable.
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
    crew: Option<&'a Shared>,
}

/// Opens the log in a directory that is locked: everything that [`Recovery`] counts is durable, but for
/// what was in the ring's file.
pub(crate) fn open(
    dir: Arc<dyn Dir>,
    options: &Options,
    crew: Option<&Shared>,
) -> Result<(Commit, Recovery)> {
    ring::check_path(&options.ring)?;
    let full = options.segment_bytes;
    let (place, sizes) = match crew {
        Some(crew) => (crew.place(dir, options.direct)?, Shared::sizes(full)),
        None => (Place::find(dir, options.direct)?, Sizes { first: full, full }),
    };
    let place = Arc::new(place);
    // A process that crashed may have given a name and not synced it.
    place.dir.sync()?;
    let mut survey = survey(&*place.dir)?;
    survey.chain.give_up_what_is_wrong();
    // Of what a log begins behind, it has nothing.
    let also_durable = if options.durable < options.first_index { 0 } else { options.durable };
    let mut end = read_end(&place, &survey, also_durable)?;
    let mut damaged = None;
    if let Some(lost) = end.verdict.lost.clone()
        && options.keep_damaged
    {
        end.read_around_damage(&place, &survey)?;
        let left = end.verdict.lost.as_ref().map(|left| *left.records.start());
        damaged = Some(lost).filter(|lost| left != Some(*lost.records.start()));
    }
    // Where it would be cut.
    let wrong = survey.chain.wrong.first();
    let lost = wrong.into_iter().chain(&end.verdict.lost).min_by_key(|lost| *lost.records.start());
    let lost = lost.cloned();
    if let Some(lost) = &lost
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
    let recent = crew.map(|crew| Arc::clone(&crew.recent)).unwrap_or_default();
    let segments = Segments::new(kept(&survey.chain, &end), &recent);
    let files = Files::new(place, log_id, clock, segments, stock);
    let recovery = Recovery {
        created,
        clean: end.verdict.is_clean,
        torn_tail: torn_tail(&end),
        lost,
        damaged,
        ..Recovery::default()
    };
    Opening { options, survey, end, files, recovery, crew }.run()
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
        let in_crew = self.crew.is_some();
        let ring = OpenRing::open(&self.files, self.options, last_index, in_crew)?;
        self.recovery.ring_ignored.clone_from(&ring.ignored);
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
        let staging = self.staging_bytes();
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
        let budget = self.crew.map(|crew| Arc::clone(&crew.budget));
        let most = budget.as_ref().map_or(u64::MAX, |budget| budget.most());
        let limits = Limits {
            batch_bytes: options.max_batch_bytes().min(most),
            held_bytes: options.policy.accepted_bytes_max(),
        };
        let intake = Intake::new(ring.ring, marks, clock, limits, budget.clone());
        let writer = Writer::new(active, ring.taken, generation, flusher, staging);
        let tell = Tell::new(options.observer.clone());
        let mut commit =
            Commit::new(options.policy, intake, files, syncer, tell, writer, options.threads);
        commit.ring_outlives_us = options.ring != RingPlace::Memory;
        commit.budget = budget;
        {
            let mut writer = commit.role();
            writer.begin(&commit)?;
        }
        self.recovery.first_index = commit.files.first_index();
        self.recovery.last_index = commit.intake.marks.appended.get();
        self.recovery.replayed = self.recovery.last_index - last_index;
        Ok((commit, self.recovery))
    }

    fn staging_bytes(&self) -> usize {
        let bytes = staging_bytes(self.options.ring_bytes);
        if self.crew.is_some() { bytes.min(STAGING_BYTES_IN_CREW) } else { bytes }
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
        let staging = self.staging_bytes();
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
        let staging = self.staging_bytes();
        let last_index = scanned.last_index;
        Ok(Some(Active::resume(segment, scanned.sparse, last_index, ends, &tail, staging)))
    }

    /// What is not part of the log any more can go now, the newest first.
    fn remove_leftovers(&mut self, goes_on: bool) -> Result<()> {
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
        }
        if !goes_on {
            // A full disk: they go before retention takes anything, or once the log goes on.
            return Ok(());
        }
        self.recovery.discarded.extend(gone.into_iter().rev().map(segment_name));
        let _retention = self.files.retention_turn();
        self.files.sweep()?;
        if self.survey.is_cutting || !self.recovery.created {
            notes::end_cut(self.files.dir())?;
        }
        for name in &self.survey.leftovers {
            // A probe's file is gone by now, and an unfinished note where another was written.
            if notes::is_unfinished(name) {
                notes::remove_unfinished(self.files.dir())?;
            } else if name.ends_with(SPARE) {
                self.files.dir().remove(name)?;
            }
        }
        Ok(())
    }
}
