//! What is torn, what is corrupt, and where the log ends: decided here and nowhere else, from what was
//! read. No I/O, no clock; `open`, readers, [`crate::View`] and `verify` all ask this.
//!
//! 1. [`chain`]: of the files that call themselves segments, which are the log. Segments of an older
//!    generation that begin where a younger one already is are left from a cut, and are not.
//! 2. [`judge`]: of segments that were read, what each holds of what it should. Where valid records end
//!    the log ends, with a *torn tail* if nothing says that more was durable, and *corruption* otherwise.
//!
//! Transcripts of both, to be read, are in `testdata/`.

use std::ops::RangeInclusive;

use crate::error::Corruption;
use crate::segment::damage::Damage;
use crate::segment::format::{INDEX_END, generation_bits};
use crate::segment::handle::Previous;
use crate::segment::head::{Head, segment_name};
use crate::segment::scan::{Closed, Scanned, Stop};

/// A file that calls itself a segment.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) first_index: u64,
    pub(crate) head: Result<Head, Damage>,
    /// What all of it says, where its link does not validate.
    pub(crate) scanned: Option<Scanned>,
    /// It is shorter than its header says: it was more than it is.
    pub(crate) is_short: bool,
}

/// Which files are the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// First indexes of its segments, oldest first.
    pub(crate) segments: Vec<u64>,
    pub(crate) log_id: Option<u128>,
    pub(crate) generation: u64,
    /// What the newest link calls durable.
    pub(crate) durable: u64,
    /// Segments that are not part of the log any more.
    pub(crate) stale: Vec<u64>,
    /// Segments that have their name and no link, and say nothing of what came before them.
    pub(crate) unbegun: Vec<u64>,
    /// The last record that the marks in those call durable: some link was damaged, then.
    pub(crate) unbegun_durable: u64,
    /// Files that cannot be part of it, whatever they are called.
    pub(crate) unusable: Vec<(u64, Damage)>,
    /// What cannot be, in the order of the records that it concerns.
    pub(crate) wrong: Vec<Corruption>,
}

/// A segment of the chain, as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) first_index: u64,
    pub(crate) head: Result<Head, Damage>,
    /// The last record that it should have; `None` if no other segment follows.
    pub(crate) until: Option<u64>,
    /// `None` if nobody looked: its head is damaged, or it is believed to hold what it should.
    pub(crate) scanned: Option<Scanned>,
}

/// What a segment holds of what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it, and another follows.
    Whole,
    /// All of it, and the log ends here.
    End,
    /// A write that was not finished, none of which was ever called durable. The log ends before it.
    Torn { byte_offset: u64, damage: Damage },
    /// Not these records, which were durable.
    Corrupt(Corruption),
    /// Behind the end of the log.
    Cut,
}

/// What is to be said of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Of each segment that was read.
    pub(crate) parts: Vec<Part>,
    /// The last record before the first that is missing.
    pub(crate) last_index: u64,
    /// Where it ends, for the link of a segment that follows.
    pub(crate) previous: Option<Previous>,
    /// The last record that anything calls durable.
    pub(crate) durable: u64,
    /// Whether the last segment can be written on: nothing stands behind its end that could come back.
    pub(crate) resumes: bool,
    /// The log was closed, and nothing happened since.
    pub(crate) is_clean: bool,
    /// The first records that are lost.
    pub(crate) lost: Option<Corruption>,
}

/// The chain, where the numbers of the first and the last segment fit their count: then nothing is
/// missing, and two heads are enough, however long the log.
pub(crate) fn chain_by_ends(names: &[u64], first: &Head, last: &Head) -> Option<Chain> {
    let (old, new) = (first.link?, last.link?);
    let ascends = names.is_sorted_by(|a, b| a < b);
    let counted = new.ordinal.checked_sub(old.ordinal) == Some(names.len() as u64 - 1);
    let fits = first.header.log_id == last.header.log_id && old.generation <= new.generation;
    (ascends && counted && fits).then(|| Chain {
        segments: names.to_vec(),
        log_id: Some(last.header.log_id),
        generation: new.generation,
        durable: new.durable,
        ..Chain::default()
    })
}

/// The chain, from every head.
pub(crate) fn chain(pieces: Vec<Piece>) -> Chain {
    let mut chain = Chain::default();
    let mut usable = Vec::new();
    for piece in pieces {
        match piece.head {
            Ok(head) => usable.push((piece, head)),
            Err(damage) => chain.refuse(piece.first_index, damage),
        }
    }
    // Of files of two logs those are foreign that are fewer, or older.
    let with = |id: u128| usable.iter().filter(|(_, head)| head.header.log_id == id).count();
    chain.log_id = usable.iter().map(|(_, head)| head.header.log_id).max_by_key(|&id| with(id));
    usable.sort_by_key(|(piece, _)| piece.first_index);
    let mut kept: Vec<(Piece, Head)> = Vec::new();
    for (piece, head) in usable {
        if Some(head.header.log_id) != chain.log_id {
            chain.refuse(piece.first_index, Damage::Foreign);
            continue;
        }
        let is_older = match head.link {
            Some(link) => link.generation < chain.generation,
            None => piece.is_older_than(chain.generation),
        };
        if is_older {
            chain.stale.push(piece.first_index);
            continue;
        }
        chain.generation = head.link.map_or(chain.generation, |link| link.generation);
        kept.push((piece, head));
    }
    chain.drop_uncounted(&mut kept);
    for pair in kept.windows(2) {
        if let (Some(old), Some(new)) = (pair[0].1.link, pair[1].1.link)
            && new.ordinal != old.ordinal + 1
        {
            let first = new.previous_first_index.clamp(old.first_index, new.first_index - 1);
            chain.note_wrong(new.first_index, first..=new.first_index - 1, Damage::Missing);
        }
    }
    chain.drop_unbegun(&mut kept);
    chain.segments = kept.iter().map(|(piece, _)| piece.first_index).collect();
    chain.durable = kept.last().and_then(|(_, head)| head.link).map_or(0, |link| link.durable);
    chain
}

impl Piece {
    /// Whether its marks, where its link does not validate, are of a generation before this one.
    fn is_older_than(&self, generation: u64) -> bool {
        let marks = self.scanned.as_ref().and_then(|scanned| scanned.generation_bits);
        let behind = |bits| generation_bits(generation.wrapping_sub(u64::from(bits)));
        // What a mark has of a generation begins again from 0.
        marks.is_some_and(|bits| (1..generation_bits(u64::MAX) / 2).contains(&behind(bits)))
    }
}

impl Chain {
    /// A segment without a link between two whose numbers follow one another is none of the log: it
    /// failed as it was begun, and the log went on before it.
    fn drop_uncounted(&mut self, kept: &mut Vec<(Piece, Head)>) {
        let mut at = 0;
        while at < kept.len() {
            let after = (at + 1..kept.len()).find(|&next| kept[next].1.link.is_some());
            if let (Some(old), Some(after)) = (kept[at].1.link, after)
                && kept[after].1.link.is_some_and(|new| new.ordinal == old.ordinal + 1)
            {
                self.stale.extend(kept.drain(at + 1..after).map(|(piece, _)| piece.first_index));
            }
            at += 1;
        }
    }

    /// The newest segments may have no link: never begun, or damaged. What was never begun says nothing
    /// of what came before it.
    fn drop_unbegun(&mut self, kept: &mut Vec<(Piece, Head)>) {
        let mut damaged = Vec::new();
        while let Some((piece, head)) = kept.pop_if(|(_, head)| head.link.is_none()) {
            let first_index = piece.first_index;
            let scanned = piece.scanned.as_ref().expect("what has no link was read");
            if scanned.durable >= first_index {
                let records = first_index..=scanned.durable;
                self.note_wrong(first_index, records, Damage::Content("link"));
            }
            let before = kept.last().and_then(|(_, before)| before.link);
            // It is of another generation than the one before it, whose records it cut off then.
            let cuts = scanned.generation_bits.is_some_and(|bits| {
                before.is_none_or(|before| generation_bits(before.generation) != bits)
            });
            if scanned.durable >= first_index || cuts || piece.is_short {
                damaged.push((piece, head));
            } else {
                self.unbegun_durable = self.unbegun_durable.max(scanned.durable);
                self.unbegun.push(first_index);
            }
        }
        kept.extend(damaged.into_iter().rev());
    }

    fn refuse(&mut self, first_index: u64, damage: Damage) {
        self.unusable.push((first_index, damage));
        self.note_wrong(first_index, first_index..=u64::MAX, damage);
    }

    fn note_wrong(&mut self, first_index: u64, records: RangeInclusive<u64>, damage: Damage) {
        let wrong =
            Corruption { segment: segment_name(first_index), byte_offset: 0, damage, records };
        // Of a file that cannot be used its successor says that it is missing: it is wrong once.
        let start = |of: &Corruption| *of.records.start();
        if let Err(at) = self.wrong.binary_search_by_key(&start(&wrong), start) {
            self.wrong.insert(at, wrong);
        }
    }

    /// Gives up the first record that is wrong and everything behind it: those files are stale.
    pub(crate) fn give_up_what_is_wrong(&mut self) {
        let Some(wrong) = self.wrong.first() else { return };
        let keep = self.segments.partition_point(|first| first < wrong.records.start());
        self.stale.extend(self.segments.drain(keep..));
        // They would be in the way of every later open.
        self.stale.extend(self.unusable.drain(..).map(|(first_index, _)| first_index));
    }

    /// Takes away what is before a record: retention has.
    pub(crate) fn forget_before(&mut self, first_index: u64) {
        for segments in [&mut self.segments, &mut self.stale, &mut self.unbegun] {
            segments.retain(|&first| first >= first_index);
        }
        self.unusable.retain(|&(first, _)| first >= first_index);
        self.wrong.retain(|wrong| *wrong.records.start() >= first_index);
    }

    /// What is wrong first behind this segment.
    pub(crate) fn wrong_behind(&self, first_index: u64) -> Option<&Corruption> {
        self.wrong.iter().find(|wrong| *wrong.records.start() > first_index)
    }

    /// The last record that a segment should have, if another follows, readable or not.
    pub(crate) fn until(&self, first_index: u64) -> Option<u64> {
        let unusable = self.unusable.iter().map(|(first, _)| *first);
        let others = self.segments.iter().copied().chain(unusable);
        others.filter(|other| *other > first_index).min().map(|next| next - 1)
    }

    /// Which segments may hold records that are not durable: from the one of the first record that the
    /// newest link does not call so.
    pub(crate) fn unsure(&self) -> &[u64] {
        let after = self.segments.partition_point(|first| *first <= self.durable + 1);
        &self.segments[after.saturating_sub(1)..]
    }

    /// The last record before any that was read: where a log goes on of which nothing is left.
    fn before_all(&self) -> u64 {
        let first = self.segments.first().or(self.unbegun.last()).copied();
        // Where nothing is left, numbers go on where what is lost began.
        let first = first.or(self.wrong.first().map(|wrong| *wrong.records.start()));
        first.map_or(0, |first| (first - 1).min(INDEX_END - 1))
    }

    /// The last record that the note of a clean end calls durable, if nothing was cut off since.
    pub(crate) fn durable_when_closed(&self, closed: Option<&Closed>) -> u64 {
        let counts = |closed: &&Closed| {
            self.log_id.is_none_or(|log_id| closed.log_id == log_id)
                && closed.generation >= self.generation
        };
        closed.filter(counts).map_or(0, |closed| closed.last_index)
    }
}

/// Judges a log by the newest of its segments: those that are not read are believed. `also_durable`: what
/// was found elsewhere, in segments that are not in the chain.
pub(crate) fn judge(
    chain: &Chain,
    readings: &[Reading],
    closed: Option<&Closed>,
    also_durable: u64,
) -> Verdict {
    let called = readings.iter().enumerate().filter_map(|(at, reading)| {
        let durable = reading.scanned.as_ref()?.durable;
        // What it has to leave to one whose link says that it was begun was cut off.
        let is_begun = |next: &&Reading| next.head.is_ok_and(|head| head.link.is_some());
        let next = readings[at + 1..].iter().find(is_begun);
        Some(next.map_or(durable, |next| durable.min(next.first_index - 1)))
    });
    let called = called.fold(chain.durable, u64::max);
    let noted = chain.durable_when_closed(closed);
    let durable = called.max(noted).max(also_durable).max(chain.unbegun_durable);
    let mut verdict = Verdict {
        parts: Vec::with_capacity(readings.len()),
        last_index: chain.before_all(),
        previous: None,
        durable,
        resumes: false,
        is_clean: false,
        lost: None,
    };
    let mut has_ended = false;
    for reading in readings {
        let part = if has_ended { Part::Cut } else { part(reading, durable) };
        // Behind what is lost readers read on, and the log does not.
        if !has_ended && verdict.lost.is_none() {
            verdict.reach(reading, &part);
        }
        has_ended |= matches!(part, Part::End | Part::Torn { .. });
        verdict.parts.push(part);
    }
    if verdict.lost.is_none() && durable > verdict.last_index {
        // Nothing was read of it: no file is left, or none that follows.
        let (segment, damage) = match closed {
            Some(closed) => (segment_name(closed.first_index), Damage::Missing),
            None => (String::new(), Damage::Missing),
        };
        let records = verdict.last_index + 1..=durable;
        verdict.lost = Some(Corruption { segment, byte_offset: 0, damage, records });
    }
    let last = readings.last().and_then(|reading| reading.scanned.as_ref());
    let ends_well = verdict.parts.last() == Some(&Part::End) && verdict.lost.is_none();
    verdict.is_clean = ends_well
        && verdict.resumes
        && durable == verdict.last_index
        && last.is_some_and(|scanned| scanned.stop == Stop::Empty);
    verdict
}

/// What a segment holds of what it should, where records up to `durable` were durable.
fn part(reading: &Reading, durable: u64) -> Part {
    let Reading { first_index, until, .. } = *reading;
    let segment = segment_name(first_index);
    let head = match reading.head {
        Ok(head) => head,
        Err(damage) => {
            let records = first_index..=until.unwrap_or(u64::MAX);
            return Part::Corrupt(Corruption { segment, byte_offset: 0, damage, records });
        }
    };
    let Some(scanned) = &reading.scanned else { return Part::Whole };
    // Without its link nothing tells whether what it holds belongs to the log.
    let last_index = if head.link.is_some() { scanned.last_index } else { first_index - 1 };
    let is_whole = until.is_some_and(|until| last_index >= until) && head.link.is_some();
    if is_whole {
        return Part::Whole;
    }
    let (byte_offset, damage) = scanned.damage();
    let lost = durable.min(until.unwrap_or(u64::MAX));
    if last_index < lost {
        let damage = if head.link.is_some() { damage } else { Damage::Content("link") };
        let records = last_index + 1..=lost;
        return Part::Corrupt(Corruption { segment, byte_offset, damage, records });
    }
    let is_torn =
        until.is_some() || head.link.is_none() || matches!(scanned.stop, Stop::Damaged { .. });
    if is_torn { Part::Torn { byte_offset, damage } } else { Part::End }
}

impl Verdict {
    /// The log reaches into this segment.
    fn reach(&mut self, reading: &Reading, part: &Part) {
        let Reading { first_index, until, .. } = *reading;
        if let Part::Corrupt(lost) = part {
            // What comes behind cannot be kept either: a log has no hole.
            let last = (*lost.records.end()).max(self.durable);
            self.lost = Some(Corruption { records: *lost.records.start()..=last, ..lost.clone() });
        }
        let Ok(Head { header, link: Some(link) }) = reading.head else { return };
        let Some(scanned) = &reading.scanned else {
            self.last_index = until.expect("what is believed is followed by another");
            return;
        };
        self.last_index = scanned.last_index;
        self.previous = if scanned.last_index >= first_index {
            let (salt, end, ordinal) = (header.salt, scanned.records_end, link.ordinal);
            Some(Previous { salt, end, first_index, ordinal })
        } else {
            Previous::of_link(&link)
        };
        self.resumes = until.is_none()
            && matches!(part, Part::End | Part::Torn { .. })
            && !matches!(scanned.stop, Stop::Sealed | Stop::Superseded)
            && !scanned.more_behind;
    }
}
