//! What `open` finds and makes of it. `docs/recovery.md` goes through every case.
//!
//! 1. **Survey**: which files there are, which of them are the log. Segments of an older generation
//!    that begin where a younger one already is are left from a truncation, and are not.
//! 2. **Scan** from the segment of the first record that the newest segment does not call durable.
//! 3. **Judge**: where valid records end, a *torn tail* if nothing says that more was durable, and
//!    *corruption* otherwise.
//! 4. **Mend**: what is behind a torn tail is cut off by beginning a new segment, never by writing
//!    over it.
//!
//! Before a byte is believed directory and file are synced, and it is read past the page cache where that is
//! possible: after a failed sync the cache holds bytes that the disk does not, and calls them clean.

use std::sync::Arc;

use plimsoll_sync::{Access, AlignedBuf, Dir, Error as DiskError, File, SyncMethod};

use crate::active::Previous;
use crate::error::{Corruption, Error, Result};
use crate::format::{
    BLOCK, BLOCK_BYTES, Damage, Decoded, Frame, HEADER_BYTES, Header, INDEX_END, Kind, Link,
    generation_bits,
};
use crate::place::{CUTTING, Place, SPARE, first_index_of, segment_name};
use crate::scan::{Scanned, Stop, scan};
use crate::second_note;
use crate::segments::Entry;

/// What opening a log found, and did about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// There was no log: this one is new.
    pub created: bool,
    /// The oldest record.
    pub first_index: u64,
    /// The newest. Everything up to it is durable now.
    pub last_index: u64,
    /// The log was closed, and nothing happened since.
    pub clean: bool,
    /// An unfinished last write, cut off. News, not an error: none of it was acknowledged as durable.
    pub torn_tail: Option<TornTail>,
    /// Files that were not part of the log any more, or not yet, and were removed.
    pub discarded: Vec<String>,
    /// Records that were found in the ring's file and in no segment.
    pub replayed: u64,
    /// Why the ring's file could not be used, if it held anything.
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

/// A file that calls itself a segment.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) entry: Entry,
    pub(crate) header: Header,
    /// `None` if it does not validate: the segment was never synced.
    pub(crate) link: Option<Link>,
}

/// What the directories hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Survey {
    /// The log's files, oldest first.
    pub(crate) entries: Vec<Entry>,
    pub(crate) log_id: Option<u128>,
    pub(crate) generation: u64,
    /// Somebody was cutting records off, and may not have come to an end.
    pub(crate) is_cutting: bool,
    /// What the newest link calls durable.
    pub(crate) durable: u64,
    /// Segments that are not part of the log any more.
    pub(crate) stale: Vec<Entry>,
    /// Segments that have their name and no link.
    pub(crate) unbegun: Vec<Entry>,
    /// The last record that the marks in those call durable: some link was damaged, then.
    pub(crate) unbegun_durable: u64,
    /// Files that cannot be part of it, whatever they are called.
    pub(crate) unusable: Vec<Entry>,
    /// Prepared files, and what a probe left.
    pub(crate) leftovers: Vec<(usize, String)>,
    /// The first thing that cannot be.
    pub(crate) wrong: Option<Corruption>,
}

/// Where a log goes on.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) survey: Survey,
    pub(crate) last_index: u64,
    /// The segment that holds it, where it can be written on; otherwise a new one begins.
    pub(crate) resume: Option<Resume>,
    /// Where the last record ends, for the link of a new segment.
    pub(crate) previous: Option<Previous>,
    /// Segments of the survey that are cut off, newest last.
    pub(crate) cut: Vec<Entry>,
    pub(crate) clean: bool,
    pub(crate) torn_tail: Option<TornTail>,
    pub(crate) lost: Option<Corruption>,
}

/// A segment to write on.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) piece: Piece,
    pub(crate) scanned: Scanned,
    pub(crate) file: Arc<dyn File>,
    /// What its last block holds.
    pub(crate) tail: Vec<u8>,
}

/// Reads header and link.
pub(crate) fn read_piece(
    dir: &dyn Dir,
    entry: Entry,
) -> Result<std::result::Result<Piece, Damage>> {
    read_piece_of(&*dir.open(&segment_name(entry.first_index), Access::default())?, entry)
}

fn read_piece_of(file: &dyn File, entry: Entry) -> Result<std::result::Result<Piece, Damage>> {
    // The header's block, and the one that begins with the link.
    let mut head = AlignedBuf::zeroed(2 * BLOCK, BLOCK);
    let held = file.read_at(&mut head, 0)?;
    let header = match header_of(&head[..held.min(BLOCK)], entry)? {
        Ok(header) => header,
        Err(damage) => return Ok(Err(damage)),
    };
    let frames = &head[BLOCK.min(held)..held];
    let link = match Frame::decode(frames, header.salt, BLOCK_BYTES, header.segment_bytes) {
        Decoded::Frame(frame) if frame.kind == Kind::Link => {
            Link::decode(frame.index, frame.payload(frames)).ok()
        }
        _ => None,
    };
    // A link to another place is none.
    let link = link.filter(|link| link.first_index == entry.first_index);
    Ok(Ok(Piece { entry, header, link }))
}

/// Reads the header alone, of a file that was not opened past the cache.
pub(crate) fn read_header(
    file: &dyn File,
    entry: Entry,
) -> Result<std::result::Result<Header, Damage>> {
    let mut bytes = [0; HEADER_BYTES];
    let held = file.read_at(&mut bytes, 0)?;
    header_of(&bytes[..held], entry)
}

fn header_of(bytes: &[u8], entry: Entry) -> Result<std::result::Result<Header, Damage>> {
    if entry.first_index > INDEX_END {
        return Ok(Err(Damage::Index(entry.first_index)));
    }
    match Header::decode(bytes) {
        // Not damaged, and not ours to judge.
        Err(Damage::Version(version)) => {
            Err(Error::Version { segment: segment_name(entry.first_index), version })
        }
        decoded => Ok(decoded),
    }
}

/// Looks at what there is. Changes nothing.
pub(crate) fn survey(places: &[&dyn Dir]) -> Result<Survey> {
    let mut survey = Survey::default();
    for (place, dir) in places.iter().enumerate() {
        for name in dir.list()? {
            if let Some(first_index) = first_index_of(&name) {
                survey.entries.push(Entry { first_index, place });
            } else if name == CUTTING {
                survey.is_cutting = true;
            } else if name.ends_with(SPARE) || name == "probe.tmp" {
                survey.leftovers.push((place, name));
            }
        }
    }
    if let [alone] = places {
        second_note::check(*alone)?;
    }
    survey.entries.sort_by_key(|entry| entry.first_index);
    if survey.is_cutting || !survey.two_heads(places)? {
        survey.all_heads(places)?;
    }
    Ok(survey)
}

impl Survey {
    /// Where the numbers of the first and the last segment fit their count, nothing is missing: two
    /// heads are enough, however long the log.
    fn two_heads(&mut self, places: &[&dyn Dir]) -> Result<bool> {
        let (Some(&first), Some(&last)) = (self.entries.first(), self.entries.last()) else {
            return Ok(true);
        };
        let read = |entry: Entry| read_piece(places[entry.place], entry);
        let (Ok(first), Ok(last)) = (read(first)?, read(last)?) else {
            return Ok(false);
        };
        let (Some(old), Some(new)) = (first.link, last.link) else {
            return Ok(false);
        };
        let ascends = self.entries.is_sorted_by(|a, b| a.first_index < b.first_index);
        let counted = new.ordinal.checked_sub(old.ordinal) == Some(self.entries.len() as u64 - 1);
        let fits = first.header.log_id == last.header.log_id && old.generation <= new.generation;
        if !(ascends && counted && fits) {
            return Ok(false);
        }
        self.log_id = Some(last.header.log_id);
        self.generation = new.generation;
        self.durable = new.durable;
        Ok(true)
    }

    /// Reads every head, and decides which segments are the log.
    fn all_heads(&mut self, places: &[&dyn Dir]) -> Result<()> {
        let mut pieces = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            match read_piece(places[entry.place], entry)? {
                Ok(piece) => pieces.push(piece),
                Err(damage) => {
                    self.unusable.push(entry);
                    self.is_wrong(entry, entry.first_index..=u64::MAX, damage);
                }
            }
        }
        // Of files of two logs those are foreign that are fewer, or older.
        let with = |id: u128| pieces.iter().filter(|piece| piece.header.log_id == id).count();
        self.log_id = pieces.iter().map(|piece| piece.header.log_id).max_by_key(|&id| with(id));
        // Of two with one name, in two directories, the younger one counts.
        pieces
            .sort_by_key(|piece| (piece.entry.first_index, piece.link.map(|link| link.generation)));
        let mut kept: Vec<Piece> = Vec::new();
        for piece in pieces {
            if Some(piece.header.log_id) != self.log_id {
                self.unusable.push(piece.entry);
                self.is_wrong(piece.entry, piece.entry.first_index..=u64::MAX, Damage::Foreign);
                continue;
            }
            if let Some(link) = piece.link {
                if link.generation < self.generation {
                    self.stale.push(piece.entry);
                    continue;
                }
                self.generation = link.generation;
            }
            let again =
                kept.last().is_some_and(|last| last.entry.first_index == piece.entry.first_index);
            if again {
                self.stale.extend(kept.pop().map(|last| last.entry));
            }
            kept.push(piece);
        }
        self.drop_uncounted(&mut kept);
        for pair in kept.windows(2) {
            if let (Some(old), Some(new)) = (pair[0].link, pair[1].link)
                && new.ordinal != old.ordinal + 1
            {
                let first = new.previous_first_index.clamp(old.first_index, new.first_index - 1);
                self.is_wrong(pair[1].entry, first..=new.first_index - 1, Damage::Missing);
            }
        }
        self.ends_without_links(places, &mut kept)?;
        self.entries = kept.iter().map(|piece| piece.entry).collect();
        let newest = kept.last().and_then(|piece| piece.link);
        self.durable = newest.map_or(0, |link| link.durable);
        Ok(())
    }

    /// A segment without a link between two whose numbers follow one another is none of the log: it
    /// failed as it was begun, and the log went on before it.
    fn drop_uncounted(&mut self, kept: &mut Vec<Piece>) {
        let mut at = 0;
        while at < kept.len() {
            let after = (at + 1..kept.len()).find(|&next| kept[next].link.is_some());
            let (Some(old), Some(after)) = (kept[at].link, after) else {
                at += 1;
                continue;
            };
            let new = kept[after].link.expect("just found");
            if new.ordinal == old.ordinal + 1 {
                self.stale.extend(kept.drain(at + 1..after).map(|piece| piece.entry));
            }
            at += 1;
        }
    }

    /// The newest segments may have no link: never begun, or damaged. What was never begun says nothing
    /// of what came before it.
    fn ends_without_links(&mut self, places: &[&dyn Dir], kept: &mut Vec<Piece>) -> Result<()> {
        let mut damaged = Vec::new();
        while let Some(piece) = kept.pop_if(|piece| piece.link.is_none()) {
            let entry = piece.entry;
            let name = segment_name(entry.first_index);
            let file = places[entry.place].open(&name, Access::default())?;
            let link = nothing_known(entry.first_index);
            let scanned = scan(Arc::clone(&file), piece.header, link, u64::MAX)?;
            if scanned.durable >= entry.first_index {
                self.is_wrong(entry, entry.first_index..=scanned.durable, Damage::Content("link"));
            }
            let before = kept.last().and_then(|before| before.link);
            if was_begun(&scanned, entry, before) || is_cut_short(&*file, &piece)? {
                damaged.push(piece);
            } else {
                self.unbegun_durable = self.unbegun_durable.max(scanned.durable);
                self.unbegun.push(entry);
            }
        }
        kept.extend(damaged.into_iter().rev());
        Ok(())
    }

    fn is_wrong(&mut self, entry: Entry, records: std::ops::RangeInclusive<u64>, damage: Damage) {
        let segment = segment_name(entry.first_index);
        let wrong = Corruption { segment, byte_offset: 0, damage, records };
        match &self.wrong {
            Some(earlier) if earlier.records.start() <= wrong.records.start() => {}
            _ => self.wrong = Some(wrong),
        }
    }

    /// What is wrong behind this file, if the survey found that.
    pub(crate) fn lost_after(&self, entry: Entry) -> Option<&Corruption> {
        self.wrong.as_ref().filter(|wrong| *wrong.records.start() > entry.first_index)
    }

    /// Where the scan begins: the file of the first record that the newest link does not call durable.
    pub(crate) fn scan_from(&self) -> usize {
        let after = self.entries.partition_point(|entry| entry.first_index <= self.durable + 1);
        after.saturating_sub(1)
    }
}

/// Reads what must be read, and judges. Syncs what it reads, and changes nothing else.
pub(crate) fn find(places: &[Place], accept_loss: bool) -> Result<Found> {
    let dirs: Vec<&dyn Dir> = places.iter().map(|place| &*place.dir).collect();
    // A process that crashed may have given a name and not synced it.
    dirs.iter().try_for_each(|dir| dir.sync())?;
    let mut survey = survey(&dirs)?;
    let mut lost = survey.wrong.clone();
    if let Some(wrong) = lost.as_ref().filter(|_| !accept_loss) {
        return Err(Error::Corrupt(Box::new(wrong.clone())));
    }
    if let Some(wrong) = &lost {
        // Nothing from the first lost record on.
        let keep =
            survey.entries.partition_point(|entry| entry.first_index < *wrong.records.start());
        survey.stale.extend(survey.entries.drain(keep..));
        // They would be in the way of every later open.
        survey.stale.append(&mut survey.unusable);
    }
    let mut found = Found {
        last_index: {
            // Where nothing is left, numbers go on where what is lost began.
            let first = survey.entries.first().or(survey.unbegun.last());
            let first = first.map(|first| first.first_index);
            let lost = lost.as_ref().map(|wrong| *wrong.records.start());
            first.or(lost).map_or(0, |first| (first - 1).min(INDEX_END - 1))
        },
        survey,
        resume: None,
        previous: None,
        cut: Vec::new(),
        clean: false,
        torn_tail: None,
        lost: None,
    };
    let mut durable = 0;
    let unbegun = std::mem::take(&mut found.survey.unbegun);
    let mut read = read_end(places, &found.survey)?;
    let mut unlinked = Vec::new();
    while let Some(last) = read.pop_if(|last| matches!(last.piece, Ok(Piece { link: None, .. }))) {
        let before = read.last().and_then(|before| before.piece.as_ref().ok()?.link);
        if last.was_begun(before)? {
            read.push(last);
            break;
        }
        unlinked.push(last);
    }
    for entry in unbegun {
        unlinked.push(OnDisk::open(places, entry)?);
    }
    for unlinked in unlinked {
        // Its name was made durable, and what was written into it was not; or a mark in it knows
        // better.
        if let Ok(piece) = &unlinked.piece {
            let link = nothing_known(unlinked.entry.first_index);
            let scanned = scan(Arc::clone(&unlinked.file), piece.header, link, u64::MAX)?;
            durable = durable.max(scanned.durable);
        }
        found.cut.push(unlinked.entry);
    }
    let unlinked = found.cut.clone();
    let mut stopped: Option<(Entry, Scanned)> = None;
    let firsts: Vec<u64> = read.iter().map(|on_disk| on_disk.entry.first_index).collect();
    let count = read.len();
    for (number, OnDisk { entry, file, written, piece, whole }) in read.into_iter().enumerate() {
        let piece = match piece {
            Ok(piece) => piece,
            Err(damage) => {
                let segment = segment_name(entry.first_index);
                let records = entry.first_index..=u64::MAX;
                let wrong = Corruption { segment, byte_offset: 0, damage, records };
                if !accept_loss {
                    return Err(Error::Corrupt(Box::new(wrong)));
                }
                lost.get_or_insert(wrong);
                found.cut.extend(
                    found.survey.entries.iter().filter(|old| old.first_index >= entry.first_index),
                );
                break;
            }
        };
        let until = match firsts.get(number + 1) {
            Some(next) => next - 1,
            // What stands there of records that were in a lost file was cut off before.
            None => lost.as_ref().map_or(u64::MAX, |wrong| wrong.records.start() - 1),
        };
        let link = piece.link.unwrap_or_else(|| nothing_known(entry.first_index));
        let scanned = match whole {
            Some(scanned) if until == u64::MAX => scanned,
            _ => scan(Arc::clone(&file), piece.header, link, until)?,
        };
        durable = durable.max(scanned.durable);
        if stopped.is_some() {
            // Behind the end: only what it says of others counts.
            found.cut.push(entry);
            continue;
        }
        found.last_index = scanned.last_index;
        if scanned.last_index >= link.first_index {
            found.previous = Some(Previous {
                salt: piece.header.salt,
                end: scanned.records_end,
                first_index: link.first_index,
                ordinal: link.ordinal,
            });
        } else if piece.link.is_some() {
            found.previous = Previous::of_link(&link);
        }
        if number + 1 < count && scanned.last_index >= until && piece.link.is_some() {
            continue;
        }
        // Written on only if the cache shows what the disk has: what a failed sync left there would
        // be written with whatever shares its page.
        let resumes = number + 1 == count
            && piece.link.is_some()
            && !matches!(scanned.stop, Stop::Sealed | Stop::Superseded)
            && !scanned.more_behind
            && (Arc::ptr_eq(&file, &written)
                || scan(Arc::clone(&written), piece.header, link, until)? == scanned);
        if piece.link.is_none() {
            found.cut.push(entry);
        }
        if resumes {
            let tail = last_block(&*file, scanned.frames_end)?;
            found.resume = Some(Resume { piece, scanned: scanned.clone(), file: written, tail });
        }
        stopped = Some((entry, scanned));
    }
    let scanned = stopped.as_ref().map(|(_, scanned)| scanned);
    let (byte_offset, damage) = scanned.map_or((0, Damage::Missing), Scanned::damage);
    let at = stopped.as_ref().map(|(entry, _)| *entry).or(unlinked.first().copied());
    let segment = at.map_or_else(String::new, |entry| segment_name(entry.first_index));
    if durable > found.last_index && lost.is_none() {
        let records = found.last_index + 1..=durable;
        let wrong = Corruption { segment, byte_offset, damage, records };
        if !accept_loss {
            return Err(Error::Corrupt(Box::new(wrong)));
        }
        found.resume = None;
        lost = Some(wrong);
    } else if scanned.is_some_and(|scanned| matches!(scanned.stop, Stop::Damaged { .. }))
        || found.cut.len() > unlinked.len()
    {
        found.torn_tail = Some(TornTail { segment, byte_offset, damage });
    }
    found.clean = found.resume.is_some()
        && found.torn_tail.is_none()
        && durable == found.last_index
        && scanned.is_some_and(|scanned| scanned.stop == Stop::Empty);
    found.lost = lost;
    Ok(found)
}

/// A segment as the disk has it.
struct OnDisk {
    entry: Entry,
    /// Reads past the cache, where that is possible.
    file: Arc<dyn File>,
    /// Writes, as the place's method wants it.
    written: Arc<dyn File>,
    piece: std::result::Result<Piece, Damage>,
    /// What all of it says, if somebody looked.
    whole: Option<Scanned>,
}

impl OnDisk {
    /// Syncs the file, and reads its head.
    fn open(places: &[Place], entry: Entry) -> Result<Self> {
        let place = &places[entry.place];
        let written = place.dir.open(&segment_name(entry.first_index), place.method.access)?;
        written.sync(place.method.call)?;
        let file = past_the_cache(place, entry, &written)?;
        let piece = read_piece_of(&*file, entry)?;
        Ok(Self { entry, file, written, piece, whole: None })
    }

    /// Looks whether it says that all before it is durable.
    fn says_all_before_is_durable(&mut self) -> Result<bool> {
        let Ok(Piece { header, link: Some(link), .. }) = self.piece else { return Ok(false) };
        let scanned = scan(Arc::clone(&self.file), header, link, u64::MAX)?;
        Ok(self.whole.insert(scanned).durable + 1 >= link.first_index)
    }

    /// Whether a segment without a link had one once. `before` is the link of the one before it.
    fn was_begun(&self, before: Option<Link>) -> Result<bool> {
        let Ok(piece) = &self.piece else { return Ok(true) };
        let link = nothing_known(self.entry.first_index);
        let scanned = scan(Arc::clone(&self.file), piece.header, link, u64::MAX)?;
        Ok(was_begun(&scanned, self.entry, before) || is_cut_short(&*self.file, piece)?)
    }
}

/// A file that has lost its end was more than it is.
fn is_cut_short(file: &dyn File, piece: &Piece) -> Result<bool> {
    Ok(file.len()? < piece.header.segment_bytes)
}

/// Whether a segment without a link had one once: its marks call records of its own durable, or it is
/// of another generation than the one before it, whose records it cut off then.
fn was_begun(scanned: &Scanned, entry: Entry, before: Option<Link>) -> bool {
    let cuts = |bits| before.is_none_or(|before| generation_bits(before.generation) != bits);
    scanned.durable >= entry.first_index || scanned.generation_bits.is_some_and(cuts)
}

/// The segments that may not be durable, oldest first, and one before them that has a link.
fn read_end(places: &[Place], survey: &Survey) -> Result<Vec<OnDisk>> {
    let from = survey.scan_from();
    let Some((&newest, older)) = survey.entries[from..].split_last() else {
        return Ok(Vec::new());
    };
    let mut newest = OnDisk::open(places, newest)?;
    // A mark may know better than the link: then a full segment need not be read.
    let is_all = survey.wrong.is_none() && newest.says_all_before_is_durable()?;
    let mut read = Vec::new();
    for &entry in older.iter().filter(|_| !is_all) {
        read.push(OnDisk::open(places, entry)?);
    }
    read.push(newest);
    for &entry in survey.entries[..from].iter().rev() {
        if !matches!(read.first(), Some(OnDisk { piece: Ok(Piece { link: None, .. }), .. })) {
            break;
        }
        read.insert(0, OnDisk::open(places, entry)?);
    }
    Ok(read)
}

/// What stands in for the link of a segment that has none.
pub(crate) fn nothing_known(first_index: u64) -> Link {
    Link {
        first_index,
        ordinal: 0,
        generation: 0,
        previous_salt: 0,
        previous_end: 0,
        previous_first_index: 0,
        durable: 0,
        unix_ns: 0,
    }
}

/// A handle that reads what the disk has, where there is one; `file` otherwise.
fn past_the_cache(place: &Place, entry: Entry, file: &Arc<dyn File>) -> Result<Arc<dyn File>> {
    if place.method.access.direct {
        return Ok(Arc::clone(file));
    }
    match place.dir.open(&segment_name(entry.first_index), SyncMethod::Direct.access()) {
        Ok(direct) if direct.alignment() <= BLOCK => Ok(direct),
        Ok(_) | Err(DiskError::Unsupported { .. }) => Ok(Arc::clone(file)),
        Err(error) => Err(error.into()),
    }
}

/// What a block holds before `end`.
fn last_block(file: &dyn File, end: u64) -> Result<Vec<u8>> {
    let block = BLOCK as u64;
    let mut bytes = AlignedBuf::zeroed(BLOCK, BLOCK);
    let len = usize::try_from(end % block).expect("less than a block");
    if len > 0 {
        file.read_at(&mut bytes, end / block * block)?;
    }
    Ok(bytes[..len].to_vec())
}
