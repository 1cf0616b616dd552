//! [`Terms`]: in which terms the entries of a log are, and the newest that say who votes: kept beside the log, for a start
//! that cannot read them there (`holes`).
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "plimsoTR"
//!            8      4  version: 1
//!           12      2  runs of entries of one term: n, at most 256
//!           14      2  entries that say who votes: m, at most 8
//!           16    16n  of each run: its first entry, as the engine counts; its term, all ones where that is not known
//!            …      …  of each such entry: its index, 8; bytes of its record, 4; its record, as `record` has it
//!            …      8  XXH3-64 of all before
//! ```
//!
//! Little-endian. Each run ends where the next begins. The file (`terms`) is made anew at each change ([`crate::whole`]), a while after that:
//! no append waits for it, so it may lack what came last, and have what was cut off since. It says nothing wrong of what is there for all that:
//!
//! * a term has one leader, and so one first entry, and two logs that have an entry of one term at one place have the same before it, whoever has them
//!   (Raft: election safety, log matching). So what the file has before an entry is so in every log that has that entry;
//! * it is used for what lies before an entry that can be read, from the run of that one's term back;
//! * runs of different histories have one between them of which no term is known, and nothing is said across that.
//!
//! That it is there no promise needs. Where runs are lacking at a start they are looked up in the log, as far as that can be read; entries that
//! say who votes are not.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::EntryPayload;
use plimsoll_sync::{Dir, File, SyncMethod};
use tokio::sync::Notify;
use twox_hash::XxHash3_64;

use super::error;
use super::record;
use super::types::{Entry, LogId};
use crate::cursor::{Cursor, Malformed};
use crate::whole;

/// The file, beside the log's.
const TERMS: &str = "terms";

const MAGIC: [u8; 8] = *b"plimsoTR";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const RUNS_MAX: usize = 256;
/// All that say who votes of a small log, most often.
const MEMBERS_MAX: usize = 8;
/// An entry that names more nodes than that is not kept.
const RECORD_BYTES_MAX: usize = 8 << 10;
const FILE_BYTES_MAX: usize =
    HEAD_BYTES + 16 * RUNS_MAX + MEMBERS_MAX * (12 + RECORD_BYTES_MAX) + 8;
/// The term of those of which none is known.
const UNKNOWN: u64 = u64::MAX;

/// Entries from this one on are of this term, up to where the next begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u64,
    term: Option<u64>,
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq)]
struct Known {
    /// One behind the other.
    runs: Vec<Run>,
    /// The newest entries that say who votes.
    members: Vec<Entry>,
}

/// What is known of the entries of a log, beside the log.
#[derive(Debug)]
pub(crate) struct Terms {
    dir: Arc<dyn Dir>,
    known: Mutex<Known>,
    /// What the file has; held while it is written.
    saved: Mutex<Known>,
    changed: Arc<Notify>,
}

impl Terms {
    /// What is known of a log that was let go of up to `purged`, and ends with `last`; `look_up` reads an entry of it.
    pub(crate) fn open(
        dir: Arc<dyn Dir>,
        purged: Option<LogId>,
        last: Option<LogId>,
        look_up: impl Fn(u64) -> Option<LogId>,
    ) -> Self {
        let saved = load(&*dir).unwrap_or_default();
        let mut known = saved.clone();
        known.begin_behind(purged);
        known.complete(purged, last, &look_up);
        known.end_with(last);
        let changed = Arc::<Notify>::default();
        changed.notify_one();
        Self { dir, known: Mutex::new(known), saved: Mutex::new(saved), changed }
    }

    /// This entry comes behind the last. Only one whose term is another, or that says who votes, is news.
    pub(crate) fn append(&self, entry: &Entry) {
        lock(&self.known).append(entry);
        self.changed.notify_one();
    }

    /// The log ends with this entry from now on, or has none: what there was behind it is cut off.
    pub(crate) fn cut_after(&self, last: Option<LogId>) {
        lock(&self.known).end_with(last);
        self.changed.notify_one();
    }

    /// The terms of entries that cannot be read, before one that can: runs of them, if all are known.
    pub(crate) fn of(&self, lost: &Range<u64>, behind: LogId) -> Option<Vec<(Range<u64>, u64)>> {
        lock(&self.known).of(lost, behind)
    }

    /// Of entries of this term, those that say who votes and are kept.
    pub(crate) fn members(&self, entries: &Range<u64>, term: u64) -> Vec<Entry> {
        let is_one = |id: LogId| entries.contains(&id.index) && id.leader_id.term == term;
        lock(&self.known).members.iter().filter(|entry| is_one(entry.log_id)).cloned().collect()
    }

    /// Notified once there is something to save.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Writes what has changed since it was last written. Durable on return.
    ///
    /// # Errors
    /// [`super::Error::Disk`]: the file is as it was, or has it.
    pub(crate) fn save(&self) -> error::Result<()> {
        let mut saved = lock(&self.saved);
        let known = lock(&self.known).clone();
        if *saved != known {
            let bytes = encode(&known);
            let fill =
                |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
            whole::create(&*self.dir, TERMS, fill)?;
            *saved = known;
        }
        Ok(())
    }
}

/// An entry that says who votes, as it is kept beside a log that is not open.
pub(super) struct Beside {
    entry: Entry,
    /// The log has entries behind it, and none that it cannot have beside it.
    fits: Option<bool>,
}

/// Those of a log. None where that cannot be read.
pub(super) fn members_beside(dir: &dyn Dir) -> Vec<Beside> {
    let all = load(dir).unwrap_or_default().members;
    all.into_iter().map(|entry| Beside { entry, fits: None }).collect()
}

impl Beside {
    /// The log has this one.
    pub(super) fn hold_against(&mut self, other: LogId) {
        let LogId { leader_id, index } = self.entry.log_id;
        let (term, others) = (leader_id.term, other.leader_id.term);
        let fits = match other.index.cmp(&index) {
            Ordering::Less => others <= term,
            Ordering::Equal => others == term,
            Ordering::Greater => others >= term,
        };
        // What was kept before the log had it durable a power cut may have taken from that.
        if !fits || other.index > index {
            self.fits = Some(fits && self.fits != Some(false));
        }
    }

    /// It, if it is in the log by what can be read of that.
    pub(super) fn is_in_log(&self) -> Option<&Entry> {
        Some(&self.entry).filter(|_| self.fits == Some(true))
    }
}

impl Known {
    fn append(&mut self, entry: &Entry) {
        let id = entry.log_id;
        let run = Run { first: id.index, term: Some(id.leader_id.term) };
        if self.runs.last().is_none_or(|last| last.term != run.term) {
            self.push(run);
        }
        if matches!(entry.payload, EntryPayload::Membership(_)) {
            self.members.push(entry.clone());
            let more = self.members.len().saturating_sub(MEMBERS_MAX);
            self.members.drain(..more);
        }
    }

    fn push(&mut self, run: Run) {
        self.runs.push(run);
        let more = self.runs.len().saturating_sub(RUNS_MAX);
        self.runs.drain(..more);
    }

    /// Forgets what is not in a log that ends so. Where its last run is not of the term of that, what lies between is not known.
    fn end_with(&mut self, last: Option<LogId>) {
        let Some(last) = last else { return *self = Self::default() };
        let term = last.leader_id.term;
        self.runs.retain(|run| run.first <= last.index && run.term.is_none_or(|it| it <= term));
        if self.runs.last().is_none_or(|newest| newest.term != Some(term)) {
            self.runs.retain(|run| run.first < last.index);
            match self.runs.last_mut() {
                Some(newest) if newest.first + 1 < last.index => {
                    let first = newest.first + 1;
                    self.push(Run { first, term: None });
                }
                Some(newest) => newest.term = None,
                None => {}
            }
            self.push(run_from(last));
        }
        let runs = std::mem::take(&mut self.runs);
        self.members.retain(|entry| {
            let LogId { leader_id, index } = entry.log_id;
            let found = run_at(&runs, index).and_then(|at| runs[at].term);
            let fits = found.is_none_or(|found| found == leader_id.term);
            index <= last.index && leader_id.term <= term && fits
        });
        self.runs = runs;
    }

    /// Forgets what was let go of, but for in which term that ended.
    fn begin_behind(&mut self, purged: Option<LogId>) {
        let Some(purged) = purged else { return };
        let before = self.runs.partition_point(|run| run.first <= purged.index);
        self.runs.drain(..before.saturating_sub(1));
        self.members.retain(|entry| entry.log_id.index > purged.index);
    }

    /// Has all runs of a log, if it had not, and the log can be read where they begin. Else it has what it had.
    fn complete(
        &mut self,
        purged: Option<LogId>,
        last: Option<LogId>,
        look_up: &impl Fn(u64) -> Option<LogId>,
    ) {
        let Some(last) = last else { return };
        let first = purged.map_or(0, |purged| purged.index + 1);
        // More were let go of.
        let begins =
            self.runs.len() == RUNS_MAX || self.runs.first().is_some_and(|run| run.first <= first);
        let ends = self.runs.last().is_some_and(|run| run.term == Some(last.leader_id.term));
        if begins && ends && self.runs.iter().all(|run| run.term.is_some()) {
            return;
        }
        let Some(first) = purged.or_else(|| look_up(0)) else { return };
        let mut runs = vec![run_from(first)];
        if find_runs(first, last, look_up, &mut runs) {
            self.runs.clear();
            runs.into_iter().for_each(|run| self.push(run));
        }
    }

    fn of(&self, lost: &Range<u64>, behind: LogId) -> Option<Vec<(Range<u64>, u64)>> {
        let is_of =
            |run: &Run| run.term == Some(behind.leader_id.term) && run.first <= behind.index;
        let mut at = self.runs.iter().rposition(is_of)?;
        let (mut found, mut end) = (Vec::new(), lost.end);
        while end > lost.start {
            let run = self.runs[at];
            let first = run.first.max(lost.start);
            if first < end {
                found.push((first..end, run.term?));
                end = first;
            }
            if end > lost.start {
                at = at.checked_sub(1)?;
            }
        }
        found.reverse();
        Some(found)
    }
}

/// Which run has this entry.
fn run_at(runs: &[Run], index: u64) -> Option<usize> {
    runs.partition_point(|run| run.first <= index).checked_sub(1)
}

fn run_from(id: LogId) -> Run {
    Run { first: id.index, term: Some(id.leader_id.term) }
}

/// Finds where terms begin behind `first`, up to `last`, by halves: they never fall. Whether all could be read that it takes.
fn find_runs(
    first: LogId,
    last: LogId,
    look_up: &impl Fn(u64) -> Option<LogId>,
    runs: &mut Vec<Run>,
) -> bool {
    if first.leader_id.term == last.leader_id.term {
        return true;
    }
    if first.index + 1 >= last.index {
        runs.push(run_from(last));
        return true;
    }
    let Some(middle) = look_up(first.index.midpoint(last.index)) else { return false };
    find_runs(first, middle, look_up, runs) && find_runs(middle, last, look_up, runs)
}

fn encode(known: &Known) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    let records: Vec<_> = known.members.iter().map(record_of).collect();
    let kept = || records.iter().filter(|(_, record)| record.len() <= RECORD_BYTES_MAX);
    for count in [known.runs.len(), kept().count()] {
        let count = u16::try_from(count).expect("they are few");
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    for Run { first, term } in &known.runs {
        bytes.extend_from_slice(&first.to_le_bytes());
        bytes.extend_from_slice(&term.unwrap_or(UNKNOWN).to_le_bytes());
    }
    for (index, record) in kept() {
        let record_bytes = u32::try_from(record.len()).expect("just seen");
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&record_bytes.to_le_bytes());
        bytes.extend_from_slice(record);
    }
    let check = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

fn record_of(entry: &Entry) -> (u64, Vec<u8>) {
    let mut record = Vec::new();
    record::encode(entry, &mut record);
    (entry.log_id.index, record)
}

/// What the file has, if there is one that can be used.
fn load(dir: &dyn Dir) -> Option<Known> {
    let file = dir.open(TERMS, SyncMethod::ORDINARY.access()).ok()?;
    decode(&whole::read_at(&*file, 0, FILE_BYTES_MAX + 1).ok()?)
}

fn decode(bytes: &[u8]) -> Option<Known> {
    let (checked, check) = bytes.split_last_chunk()?;
    let is_whole = u64::from_le_bytes(*check) == XxHash3_64::oneshot(checked);
    let known = decode_whole(checked).ok().filter(|_| is_whole)?;
    let terms = known.runs.iter().filter_map(|run| run.term);
    let rise = known.runs.is_sorted_by(|one, next| one.first < next.first) && terms.is_sorted();
    let say_who_votes = |entry: &Entry| matches!(entry.payload, EntryPayload::Membership(_));
    let are_members = known.members.iter().all(say_who_votes)
        && known.members.is_sorted_by(|one, next| one.log_id.index < next.log_id.index);
    (rise && are_members).then_some(known)
}

fn decode_whole(bytes: &[u8]) -> Result<Known, Malformed> {
    let mut from = Cursor::new(bytes, "terms");
    let (magic, version) = (from.array()?, from.u32()?);
    if magic != MAGIC || version != VERSION {
        return Err(Malformed::Field("the version of terms", u64::from(version)));
    }
    let counts = [from.u16()?, from.u16()?].map(usize::from);
    let mut known = Known::default();
    if counts[0] > RUNS_MAX || counts[1] > MEMBERS_MAX {
        return Err(Malformed::Field("a count of terms", counts[0].max(counts[1]) as u64));
    }
    for _ in 0..counts[0] {
        let (first, term) = (from.u64()?, from.u64()?);
        known.runs.push(Run { first, term: Some(term).filter(|term| *term != UNKNOWN) });
    }
    for _ in 0..counts[1] {
        let index = from.u64()?;
        let record_bytes = from.count(1, "the bytes of an entry")?;
        let not_an_entry = |_| Malformed::Field("an entry that says who votes", index);
        let entry = record::decode(index, from.bytes(record_bytes)?).map_err(not_an_entry)?;
        known.members.push(entry);
    }
    from.end()?;
    Ok(known)
}

/// A panic of who held it left it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For fuzzing: what is written of what a file says.
#[cfg(fuzzing)]
#[must_use]
pub fn terms_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(encode(&decode(bytes)?))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use openraft::BasicNode;
    use openraft::entry::RaftEntry;
    use plimsoll_simdisk::SimDir;

    use super::*;
    use crate::cluster::types::{Members, log_id};

    fn members(term: u64, index: u64) -> Entry {
        let nodes = BTreeMap::from([(index, BasicNode::new("here"))]);
        let members = Members::new(vec![BTreeSet::from([index])], nodes).unwrap();
        Entry::new(log_id(term, index), EntryPayload::Membership(members))
    }

    /// Entry 0 is of term 0, as a founder's, then each of the term that stands at its place.
    const TERMS: [u64; 12] = [0, 1, 1, 4, 4, 5, 5, 5, 7, 9, 9, 9];

    fn id(index: u64) -> LogId {
        let at = usize::try_from(index).unwrap();
        log_id(TERMS[at], index)
    }

    /// Of the whole log, in a directory.
    fn kept() -> Arc<dyn Dir> {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let terms = Terms::open(Arc::clone(&dir), None, None, |_| None);
        for index in 0..TERMS.len() as u64 {
            match index {
                0 | 2 | 6 => terms.append(&members(id(index).leader_id.term, index)),
                _ => terms.append(&Entry::new_blank(id(index))),
            }
        }
        terms.save().unwrap();
        dir
    }

    /// As a start finds it that can read none between.
    fn open(dir: &Arc<dyn Dir>, purged: Option<LogId>, last: u64) -> Terms {
        Terms::open(Arc::clone(dir), purged, Some(id(last)), |_| None)
    }

    /// The term of each that is lost.
    fn of(terms: &Terms, lost: Range<u64>) -> Option<Vec<u64>> {
        let runs = terms.of(&lost, id(lost.end))?;
        let mut next = lost.start;
        let mut found = Vec::new();
        for (run, term) in runs {
            assert_eq!(run.start, next);
            next = run.end;
            found.extend(run.map(|_| term));
        }
        assert_eq!(next, lost.end);
        Some(found)
    }

    #[test]
    fn what_is_lost_between_two_that_can_be_read_is_of_the_terms_that_it_was() {
        let terms = open(&kept(), None, 11);
        for (first, end) in (0..11).flat_map(|first| (first + 1..12).map(move |end| (first, end))) {
            let lost = usize::try_from(first).unwrap()..usize::try_from(end).unwrap();
            assert_eq!(of(&terms, first..end).as_deref(), Some(&TERMS[lost]), "{first}..{end}");
        }
        assert!(terms.of(&(3..5), log_id(6, 5)).is_none(), "another has the place behind it");
        assert_eq!(terms.members(&(0..12), 1), [members(1, 2)]);
        assert_eq!(terms.members(&(3..12), 5), [members(5, 6)]);
        assert_eq!(terms.members(&(3..6), 5), []);
    }

    /// The newest term began a moment before a power cut, and was not kept; the log has it.
    #[test]
    fn what_came_behind_what_is_kept_is_not_known_and_is_not_guessed() {
        let dir = kept();
        let more = log_id(11, 15);
        let terms = Terms::open(Arc::clone(&dir), None, Some(more), |_| None);
        assert_eq!(terms.of(&(3..8), id(8)).unwrap().len(), 2);
        for lost in [9..13, 10..12, 12..14, 9..15] {
            assert_eq!(terms.of(&lost, log_id(11, lost.end)), None, "{lost:?}");
        }
        assert_eq!(
            of(&terms, 7..10).as_deref(),
            Some(&TERMS[7..10]),
            "what is kept is known still"
        );
        // And so it is at the next start.
        terms.append(&Entry::new_blank(log_id(12, 16)));
        terms.save().unwrap();
        drop(terms);
        let again = Terms::open(dir, None, Some(log_id(12, 16)), |_| None);
        assert_eq!(again.of(&(10..16), log_id(12, 16)), None);
        assert_eq!(again.of(&(15..16), log_id(12, 16)), Some(vec![(15..16, 11)]));
    }

    #[test]
    fn what_is_not_kept_is_made_of_the_log() {
        for purged in [None, Some(id(4)), Some(id(11))] {
            let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
            let looked =
                |index| Some(id(index)).filter(|_| purged.is_none_or(|it| it.index < index));
            let terms = Terms::open(Arc::clone(&dir), purged, Some(id(11)), looked);
            terms.save().unwrap();
            drop(terms);
            let first = purged.map_or(0, |purged| purged.index + 1);
            let terms = open(&dir, purged, 11);
            if first < 11 {
                let lost = usize::try_from(first).unwrap()..11;
                assert_eq!(of(&terms, first..11).as_deref(), Some(&TERMS[lost]), "{purged:?}");
            }
        }
    }

    /// What was cut off, or lost in a power cut, others may have the places of.
    #[test]
    fn of_what_was_cut_off_nothing_is_said() {
        let terms = open(&kept(), None, 11);
        terms.cut_after(Some(id(3)));
        terms.append(&Entry::new_blank(log_id(10, 4)));
        assert_eq!(terms.of(&(2..4), log_id(10, 4)), Some(vec![(2..3, 1), (3..4, 4)]));
        assert_eq!(terms.members(&(0..12), 5), []);
        // The file has all of them still.
        let lost = Terms::open(kept(), None, Some(log_id(10, 9)), |_| None);
        assert_eq!(lost.of(&(3..8), log_id(10, 8)), None);
        assert_eq!(lost.of(&(2..9), log_id(10, 9)), None);
        let older = Terms::open(kept(), None, Some(log_id(2, 9)), |_| None);
        assert_eq!(older.of(&(3..8), log_id(2, 8)), None);
        assert_eq!(older.members(&(0..12), 5), []);
    }

    /// A start that could not look up kept what others had in the places of entries; a cut took away what told it from what the log has, and
    /// the next entry followed it (a review).
    #[test]
    fn a_cut_leaves_between_two_histories_that_nothing_is_known() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let terms = Terms::open(Arc::clone(&dir), None, None, |_| None);
        for (term, index) in [(1, 0), (2, 5)] {
            terms.append(&Entry::new_blank(log_id(term, index)));
        }
        terms.append(&members(3, 8));
        terms.save().unwrap();
        drop(terms);
        // Killed before it was saved that all from 5 on was cut off, and is of term 4.
        let truth = |index: u64| log_id(if index < 5 { 1 } else { 4 }, index);
        let terms = Terms::open(Arc::clone(&dir), None, Some(truth(10)), |index| {
            Some(truth(index)).filter(|_| index != 5)
        });
        terms.cut_after(Some(truth(8)));
        terms.append(&Entry::new_blank(log_id(6, 9)));
        terms.save().unwrap();
        drop(terms);
        let terms = Terms::open(dir, None, Some(log_id(6, 9)), |_| None);
        for first in 5..9 {
            let said = terms.of(&(first..9), log_id(6, 9));
            assert!(said.is_none() || said == Some(vec![(first..9, 4)]), "{first}: {said:?}");
        }
    }

    /// One that was cut off took the place of one that is in the log, if only two were kept.
    #[test]
    fn who_voted_by_what_was_cut_off_is_not_kept() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let terms = Terms::open(Arc::clone(&dir), None, None, |_| None);
        terms.append(&Entry::new_blank(log_id(1, 0)));
        terms.append(&members(1, 3));
        terms.append(&members(3, 8));
        terms.save().unwrap();
        drop(terms);
        let truth = |index: u64| log_id(if index < 5 { 1 } else { 4 }, index);
        let terms = Terms::open(dir, None, Some(truth(10)), |index| Some(truth(index)));
        terms.append(&members(4, 11));
        assert_eq!(lock(&terms.known).members, [members(1, 3), members(4, 11)]);
    }

    /// A founder that lost its first entry with others in a power cut, and something before it, leads by itself: nobody else has anything.
    #[test]
    fn who_voted_beside_a_log_counts_only_where_the_log_has_more_and_nothing_else_in_its_place() {
        let is_in = |others: &[(u64, u64)]| {
            let mut beside = Beside { entry: members(4, 6), fits: None };
            others.iter().for_each(|(term, index)| beside.hold_against(log_id(*term, *index)));
            beside.is_in_log().is_some()
        };
        assert!(is_in(&[(1, 0), (4, 5), (4, 7)]) && is_in(&[(9, 8), (4, 6)]));
        for others in [&[][..], &[(4, 5)], &[(4, 7), (5, 6)], &[(5, 5), (5, 7)], &[(3, 7), (4, 8)]]
        {
            assert!(!is_in(others), "{others:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let terms = Terms::open(Arc::clone(&dir), None, None, |_| None);
        for index in 0..2_000 {
            terms.append(&members(index, index));
        }
        terms.save().unwrap();
        drop(terms);
        let terms = Terms::open(dir, None, Some(log_id(1_999, 1_999)), |_| None);
        assert_eq!(terms.of(&(1_742..1_744), log_id(1_744, 1_744)), None);
        assert!(terms.of(&(1_744..1_999), log_id(1_999, 1_999)).is_some());
        assert_eq!(terms.members(&(0..2_000), 1_998).len(), 1);
    }

    #[test]
    fn a_file_with_any_bit_changed_says_nothing() {
        let bytes = encode(&lock(&open(&kept(), None, 11).known));
        assert!(decode(&bytes).is_some());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&changed).is_none(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_none(), "{end} bytes");
        }
    }
}
