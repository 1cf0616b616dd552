//! A segment in which durable records are damaged is exchanged for a file with the bytes that it had.
//!
//! The bytes of a segment never change once written, so that is the one thing which may come in its place:
//! the same header, link, and salt, each frame where it was. Nothing else of the log knows of it: the
//! generation stays, the next segment's link is true, and no file is stale. The order of steps is
//! that of every segment that replaces others: write, sync, verify, rename.

use std::ops::RangeInclusive;
use std::sync::Arc;

use plimsoll_sync::{Access, AlignedBuf, File};

use super::Commit;
use super::writer::Turn;
use crate::error::{Error, Result};
use crate::files::spares::spare_name;
use crate::open::survey::past_the_cache;
use crate::segment::damage::Damage;
use crate::segment::format::{BLOCK, BLOCK_BYTES};
use crate::segment::gaps::{Gap, gaps};
use crate::segment::head::{Head, segment_name};
use crate::segment::header::Header;

/// So much of a segment is copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A sealed segment, and what of it cannot be read.
struct Wounded {
    first_index: u64,
    last_index: u64,
    /// Where its records end, as the next segment says.
    records_end: Option<u64>,
    header: Header,
    generation: u64,
    /// Reads what the disk has.
    file: Arc<dyn File>,
    gaps: Vec<Gap>,
}

/// A full segment, as it was read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The records that it has.
    pub records: RangeInclusive<u64>,
    /// Bytes that were read.
    pub bytes: u64,
    /// Records that cannot be read: all of them where more is damaged than records, the segment's header or link.
    pub damaged: Vec<RangeInclusive<u64>>,
}

impl Commit {
    /// Reads the segment that has this record again, if it is full and durable.
    pub(crate) fn check(&self, index: u64) -> Result<Option<Checked>> {
        // Nobody takes the segment away meanwhile, nor cuts it.
        let _retention = self.files.retention_turn();
        let durable = self.intake.marks.durable.get();
        let index = index.max(self.files.first_index());
        let span = self.files.segments.span(index);
        let span = span.and_then(|span| Some((span.first_index, span.last_index?)));
        let Some((first, last)) = span.filter(|(_, last)| *last <= durable) else {
            return Ok(None);
        };
        let file = self.files.dir().open(&segment_name(first), self.files.place.method.access)?;
        let bytes = file.len()?;
        let records = first..=last;
        match self.look_at(index) {
            Ok(wounded) => {
                let bytes = wounded.records_end.unwrap_or(bytes);
                let damaged = wounded.missing().collect();
                Ok(Some(Checked { records, bytes, damaged }))
            }
            Err(Error::Corrupt(_)) => {
                let damaged = vec![records.clone()];
                Ok(Some(Checked { records, bytes, damaged }))
            }
            Err(why) => Err(why),
        }
    }

    /// Has another segment follow the one that is written, if that has records.
    pub(crate) fn seal_all(&self) -> Result<()> {
        let last = self.intake.marks.appended.get();
        if last < self.files.first_index() {
            return Ok(());
        }
        match self.seal(last) {
            // Retention, or a cut, took it meanwhile.
            Err(Error::OutOfRange { .. }) => Ok(()),
            sealed => sealed,
        }
    }

    /// Which records of the segment that has this one cannot be read.
    pub(crate) fn find_damage(&self, index: u64) -> Result<Vec<RangeInclusive<u64>>> {
        self.seal(index)?;
        let _retention = self.files.retention_turn();
        Ok(self.look_at(index)?.missing().collect())
    }

    /// Exchanges the segment that has this record for one in which all can be read.
    pub(crate) fn heal(
        &self,
        index: u64,
        mut record: impl FnMut(u64) -> Option<Vec<u8>>,
    ) -> Result<()> {
        self.seal(index)?;
        // Nobody takes the segment away meanwhile, nor cuts it.
        let _retention = self.files.retention_turn();
        let wounded = self.look_at(index)?;
        let (mut patches, mut left) = (Vec::new(), Vec::new());
        for gap in &wounded.gaps {
            let mut first = (gap.first < gap.next).then(|| record(gap.first));
            if first == Some(None) {
                left.push(gap.at);
                continue;
            }
            let mut record =
                |index| first.take_if(|_| index == gap.first).unwrap_or_else(|| record(index));
            let mut old = vec![0; usize::try_from(gap.end - gap.at).expect("a segment is small")];
            read(&*wounded.file, &mut old, gap.at)?;
            let of = (wounded.header.salt, wounded.generation);
            let filled = gap.fill(of, &old, &mut record);
            patches.push((gap.at, filled.map_err(|damage| wounded.corrupt(gap, damage))?));
        }
        if patches.is_empty()
            && let Some(gap) = wounded.gaps.first()
        {
            return Err(wounded.corrupt(gap, Damage::Missing));
        }
        let name = spare_name(self.clock().unique()?);
        let healed = self.write_healed(&name, &wounded, &patches, &left);
        let exchanged = healed.and_then(|()| {
            Ok(self.files.dir().rename(&name, &segment_name(wounded.first_index))?)
        });
        if exchanged.is_err() {
            // Of no use, if it is still there; the next open would remove it.
            self.files.dir().remove(&name).ok();
        }
        // Also where the new name may not be durable: it is there, or the old file is.
        self.files.segments.exchange(wounded.first_index);
        exchanged
    }

    /// Has another segment follow the one that has this record, if it is the one that is written, and makes
    /// all of it durable.
    fn seal(&self, index: u64) -> Result<()> {
        let (first_index, last_index) =
            (self.files.first_index(), self.intake.marks.appended.get());
        if index < first_index || index > last_index {
            return Err(Error::OutOfRange { index, first_index, last_index });
        }
        let last_of = |index| self.files.segments.span(index).and_then(|span| span.last_index);
        if last_of(index).is_some_and(|last| last <= self.intake.marks.durable.get()) {
            return Ok(());
        }
        let mut writer = self.role_by_force();
        writer.drain(self, last_index)?;
        if last_of(index).is_some() {
            return Ok(());
        }
        match writer.rotate(self, 0) {
            Err(error @ Error::OutOfSpace { .. }) => Err(error),
            Err(error) => match writer.fail(self, error)? {
                Turn::Stuck => Err(Error::OutOfSpace { last_index }),
                Turn::Idle | Turn::Worked => Ok(()),
            },
            Ok(()) => Ok(()),
        }
    }

    /// The segment that has a record, as the disk has it. In the turn of retention.
    fn look_at(&self, index: u64) -> Result<Wounded> {
        let (files, place) = (&self.files, &self.files.place);
        let span = files.segments.span(index).filter(|span| span.last_index.is_some());
        let Some((first_index, last_index)) =
            span.and_then(|span| Some((span.first_index, span.last_index?)))
        else {
            let (first_index, last_index) = (files.first_index(), self.intake.marks.appended.get());
            return Err(Error::OutOfRange { index, first_index, last_index });
        };
        let name = segment_name(first_index);
        let written = place.dir.open(&name, place.method.access)?;
        let file = past_the_cache(place, first_index, &written)?;
        let corrupt = |damage| Error::corrupt(&*name, 0, damage, first_index..=last_index);
        let Head { header, link } = Head::read(&*file, first_index)?.map_err(corrupt)?;
        let link = link.ok_or_else(|| corrupt(Damage::Content("link")))?;
        let next = files.head(last_index + 1)?.ok().and_then(|head| head.link);
        let next = next.filter(|next| next.previous_salt == header.salt);
        let records_end = next.map(|next| next.previous_end);
        let records = (first_index, last_index);
        let found = gaps(Arc::clone(&file), header, records, records_end)?.map_err(corrupt)?;
        Ok(Wounded {
            first_index,
            last_index,
            records_end,
            header,
            generation: link.generation,
            file,
            gaps: found,
        })
    }

    /// Writes a file with the bytes of the segment and these in their places. It is durable on return, and
    /// was read again: only what begins at these places is damaged still.
    fn write_healed(
        &self,
        name: &str,
        wounded: &Wounded,
        patches: &[(u64, Vec<u8>)],
        stays: &[u64],
    ) -> Result<()> {
        let place = &self.files.place;
        place.dir.create(name, Access::default())?.keep_in_place()?;
        let file = place.dir.open(name, place.method.access)?;
        let mut piece = AlignedBuf::zeroed(PIECE_BYTES, file.alignment().max(BLOCK));
        let (mut at, mut held) = (0, PIECE_BYTES);
        while held == PIECE_BYTES {
            held = wounded.file.read_at(&mut piece, at)?;
            patch(&mut piece[..held], at, patches);
            // The last block of a file that is short is filled up with zeros.
            let whole = if file.alignment() > 1 { held.next_multiple_of(BLOCK) } else { held };
            piece[held..whole].fill(0);
            file.write_at(&piece[..whole], at)?;
            at += held as u64;
        }
        file.sync(place.method.call)?;
        let records = (wounded.first_index, wounded.last_index);
        let left = gaps(file, wounded.header, records, wounded.records_end)?;
        match left.as_deref().map(|left| left.iter().find(|gap| !stays.contains(&gap.at))) {
            Ok(None) => Ok(()),
            Ok(Some(gap)) => Err(wounded.corrupt(gap, Damage::FrameChecksum)),
            Err(&damage) => Err(wounded.corrupt(&wounded.gaps[0], damage)),
        }
    }
}

impl Wounded {
    /// The records that cannot be read.
    fn missing(&self) -> impl Iterator<Item = RangeInclusive<u64>> {
        let missing = self.gaps.iter().filter(|gap| gap.first < gap.next);
        missing.map(|gap| gap.first..=gap.next - 1)
    }

    fn corrupt(&self, gap: &Gap, damage: Damage) -> Error {
        let last = gap.next.saturating_sub(1).max(gap.first);
        Error::corrupt(segment_name(self.first_index), gap.at, damage, gap.first..=last)
    }
}

/// Puts what lies in this piece of the file in its place.
fn patch(piece: &mut [u8], at: u64, patches: &[(u64, Vec<u8>)]) {
    let end = at + piece.len() as u64;
    for (from, bytes) in patches {
        let (begin, stop) = ((*from).max(at), (from + bytes.len() as u64).min(end));
        if begin < stop {
            let within = |place: u64, start: u64| {
                usize::try_from(place - start).expect("a segment is small")
            };
            piece[within(begin, at)..within(stop, at)]
                .copy_from_slice(&bytes[within(begin, *from)..within(stop, *from)]);
        }
    }
}

/// Reads bytes that need not begin or end with a block.
fn read(file: &dyn File, buf: &mut [u8], at: u64) -> Result<()> {
    let start = at / BLOCK_BYTES * BLOCK_BYTES;
    let skipped = usize::try_from(at - start).expect("less than a block");
    let whole = (skipped + buf.len()).next_multiple_of(BLOCK);
    let mut blocks = AlignedBuf::zeroed(whole, BLOCK);
    let held = file.read_at(&mut blocks, start)?.min(skipped + buf.len()).max(skipped);
    buf[..held - skipped].copy_from_slice(&blocks[skipped..held]);
    Ok(())
}
