//! [`Opening`]: from what was found to a log that runs. What is not part of the log any more goes once
//! the log is durable elsewhere.

use plimsoll_sync::Held;

use crate::active::{Active, Segment};
use crate::core::{Core, Start, new_header};
use crate::error::{Error, Result};
use crate::format::{Frame, Link};
use crate::options::{Options, Ring as RingPlace, Tail};
use crate::place::{Blocks, Place, segment_name};
use crate::recovery::{self, Found, Recovery};
use crate::ring::{Found as Queue, Ring};
use crate::ring_note;
use crate::segments::{Entry, Segments};
use crate::shim::AtomicU64;
use crate::writer::Writer;

/// From what was found to a log that runs.
pub(crate) struct Opening {
    pub(crate) options: Options,
    pub(crate) places: Vec<Place>,
    pub(crate) found: Found,
    pub(crate) recovery: Recovery,
}

impl Opening {
    /// Goes on in the segment that can be written on, or in a new one.
    pub(crate) fn open(mut self) -> Result<(Core, Writer, Recovery)> {
        let found = &mut self.found;
        let last_index = found.last_index;
        let log_id = match found.survey.log_id {
            Some(log_id) => log_id,
            None => {
                self.recovery.created = true;
                let high = new_header(&self.options.clock, 0, self.options.segment_bytes)?.salt;
                let low = new_header(&self.options.clock, 0, self.options.segment_bytes)?.salt;
                u128::from(high) << 64 | u128::from(low)
            }
        };
        let generation = found.survey.generation;
        let (ring, taken, filled, accepted) = self.ring(log_id, last_index)?;
        let found = &mut self.found;
        let mut cut = std::mem::take(&mut found.cut);
        let mut entries = found.survey.entries.clone();
        entries.retain(|entry| !cut.contains(entry));
        // An empty segment of another size gives way: its name is needed, and it may be too small.
        let of_this_size = |resume: &recovery::Resume| {
            resume.scanned.last_index >= resume.piece.entry.first_index
                || resume.piece.header.segment_bytes == self.options.segment_bytes
        };
        let resume = found.resume.take();
        let gives_way = resume.as_ref().filter(|resume| !of_this_size(resume));
        cut.extend(gives_way.map(|resume| resume.piece.entry));
        let resume = resume.filter(of_this_size);
        let writes_on = resume.is_some();
        // A new segment also takes the place of an empty one, wherever that is.
        let mut gone: Vec<Entry> = cut.iter().chain(&found.survey.stale).copied().collect();
        gone.extend(entries.iter().filter(|old| !writes_on && old.first_index > last_index));
        gone.sort_by_key(|entry| std::cmp::Reverse(entry.first_index));
        let cuts = !writes_on || !gone.is_empty();
        if cuts && !self.recovery.created {
            self.places[0].begin_cut()?;
        }
        let active = match resume {
            Some(resume) => {
                let recovery::Resume { piece, scanned, file, tail } = resume;
                let segment = Segment {
                    name: segment_name(piece.entry.first_index),
                    place: piece.entry.place,
                    header: piece.header,
                    link: piece.link.expect("a segment without a link is not resumed"),
                    file,
                    end: AtomicU64::new(scanned.records_end),
                };
                let sparse = scanned.sparse;
                let ends = (scanned.records_end, scanned.frames_end);
                Active::resume(segment, sparse, last_index, ends, &tail, self.options.ring_bytes)
            }
            None => self.begin(log_id, last_index, generation + 1)?,
        };
        // Not before the log is there by name: whose ring it is, is in its segments.
        if filled == 0 {
            ring.reset(log_id);
        }
        let found = &self.found;
        if !writes_on {
            let entry = Entry { first_index: last_index + 1, place: active.segment.place };
            entries.retain(|old| old.first_index < entry.first_index);
            entries.push(entry);
        }
        self.recovery.torn_tail.clone_from(&found.torn_tail);
        self.recovery.lost.clone_from(&found.lost);
        self.recovery.clean = found.clean;
        // The log goes on elsewhere, so what is not part of it any more can go.
        let replaced = (active.segment.place, active.segment.link.first_index);
        for entry in gone {
            let name = segment_name(entry.first_index);
            if writes_on || (entry.place, entry.first_index) != replaced {
                self.places[entry.place].dir.remove(&name)?;
            }
            self.recovery.discarded.push(name);
        }
        for (number, place) in self.places.iter().enumerate() {
            let cutting = number == 0 && !self.recovery.created && !writes_on;
            if cutting || found.survey.is_cutting || !self.recovery.discarded.is_empty() {
                place.end_cut()?;
            }
        }
        for (place, name) in &found.survey.leftovers {
            // A probe's file is gone by now.
            if name.ends_with(crate::place::SPARE) {
                self.places[*place].dir.remove(name)?;
            }
        }
        let generation = active.segment.link.generation;
        let anchor = found.previous;
        let start = Start {
            log_id,
            last_index,
            ring,
            taken,
            filled,
            accepted,
            segments: Segments::new(entries),
            anchor,
        };
        let core = Core::new(self.options, self.places, start);
        let writer = Writer::new(&core, active, taken, generation);
        writer.tell_room(&core);
        writer.show(&core);
        self.recovery.first_index = core.first_index();
        self.recovery.last_index = accepted;
        self.recovery.replayed = accepted - last_index;
        Ok((core, writer, self.recovery))
    }

    /// A new segment after `last_index`, durable under its name.
    fn begin(&self, log_id: u128, last_index: u64, generation: u64) -> Result<Active> {
        let header = new_header(&self.options.clock, log_id, self.options.segment_bytes)?;
        let place = &self.places[0];
        let temporary = format!("{:016x}{}", header.salt, crate::place::SPARE);
        let spare = place.prepare(0, temporary, header, Blocks::Best)?;
        let previous = self.found.previous;
        let link = Link {
            first_index: last_index + 1,
            ordinal: previous.map_or(0, |previous| previous.ordinal + 1),
            generation,
            previous_salt: previous.map_or(0, |previous| previous.salt),
            previous_end: previous.map_or(0, |previous| previous.end),
            previous_first_index: previous.map_or(0, |previous| previous.first_index),
            durable: last_index,
            unix_ns: self.options.clock.unix_ns(),
        };
        let name = segment_name(last_index + 1);
        let mut active = Active::begin(name, 0, spare.file, header, link, self.options.ring_bytes);
        active.stage_frame(Frame::mark(last_index, generation), &[]);
        if self.options.tail == Tail::Pad {
            active.pad_block();
        }
        active.write(None)?;
        active.publish_end();
        active.segment.file.sync(place.method.call)?;
        active.enter(place, &spare.name)?;
        active.loose = false;
        Ok(active)
    }

    /// The ring, and what of it is not in a segment: where that begins, where the ring ends, and the
    /// last record in it. A ring that ends at 0 has still to be made this log's.
    fn ring(&mut self, log_id: u128, last_index: u64) -> Result<(Ring, u64, u64, u64)> {
        let capacity = self.options.ring_bytes;
        ring_note::write(&*self.places[0].dir, &self.options.ring)?;
        let RingPlace::File(path) = &self.options.ring else {
            return Ok((Ring::in_memory(capacity)?, 0, 0, last_index));
        };
        let (ring, held) = Ring::in_file(path, capacity)?;
        let queue = if held == Held::Nothing { Queue::Nothing } else { ring.found(log_id) };
        match queue {
            Queue::Records(records) => {
                let first = records.first().map_or(last_index + 1, |(_, index)| *index);
                if first > last_index + 1 {
                    self.recovery.ring_ignored =
                        Some(format!("it begins with record {first}, after a gap"));
                } else {
                    let filled = ring.filled();
                    let next = records.iter().find(|(_, index)| *index > last_index);
                    let taken = next.map_or(filled, |(position, _)| *position);
                    let accepted = records.last().map_or(last_index, |(_, index)| *index);
                    ring.release(taken);
                    return Ok((ring, taken, filled, accepted.max(last_index)));
                }
            }
            Queue::Unusable(why) if why.contains("another log") => {
                return Err(Error::Options(format!(
                    "the ring {} belongs to another log: each needs its own",
                    path.display()
                )));
            }
            Queue::Unusable(why) => self.recovery.ring_ignored = Some(why.to_owned()),
            Queue::Nothing => {}
        }
        Ok((ring, 0, 0, last_index))
    }
}
