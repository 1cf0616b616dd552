//! [`Storage`]: what a replica has on its disk, and the newest of it in memory. The engine's store
//! and its readers share it, as does the door, which asks it how far the log is durable.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_log::{Ack, Log, Policy, Recovery, Retain};
use plimsoll_sync::Dir;

use super::disk::{Disk, Listener};
use super::error::{Error, Result};
use super::holes::Holes;
use super::identity::IdentityFile;
use super::onlookers::Onlookers;
use super::options::{Options, Testimony};
use super::patience::PATIENCE;
use super::record::{self, from_log, to_log};
use super::tail::{self, Tail};
use super::terms::Terms;
use super::types::{Entry, LogId};
use super::wounds::Wounds;

/// A replica's log, its identity, and the tail of the log.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) log: Log,
    pub(crate) identity: IdentityFile,
    tail: Mutex<Tail>,
    /// How far an entry is when the engine is told that this replica has it.
    pub(crate) promise: Ack,
    /// A voter whose disk is so far behind the log is slow.
    pub(crate) slow_after: Option<Duration>,
    /// Which payloads must be durable first, whatever the promise.
    pub(crate) must_sync: fn(&[u8]) -> bool,
    /// The last record that must be durable before the engine is told of it or of what comes behind
    /// it.
    pub(crate) must_be_durable: AtomicU64,
    pub(crate) onlookers: Onlookers,
    /// What of the log cannot be read.
    pub(crate) wounds: Wounds,
    /// What could not be when it was opened, and is borne.
    pub(crate) holes: OnceLock<Holes>,
    /// What is known beside the log of what cannot be.
    pub(crate) terms: Terms,
    pub(crate) disk: Arc<Disk>,
    /// Who keeps how far it is acknowledged.
    pub(crate) testimony: OnceLock<Arc<dyn Testimony>>,
    /// No other thread works for the log: what waits for the disk does so here.
    pub(crate) is_inline: bool,
    /// Entries are to be cut off, and the disk has no room for what that takes.
    pub(crate) cut_lacks_room: AtomicBool,
}

impl Storage {
    /// Opens what is there. The identity is durable on return, and no record is behind it: where
    /// there is a log without one, it was lost.
    pub(crate) fn open(dir: &Arc<dyn Dir>, options: Options) -> Result<(Self, Recovery)> {
        let Options { node, promise, must_sync, mut log, crew, start: _ } = options;
        let is_inline = !log.threads && crew.is_none();
        let disk = Arc::<Disk>::default();
        let slow_after = slow_after(log.policy).filter(|_| promise != Ack::Durable);
        log.observer = Some(Arc::new(Listener::new(&disk, log.observer.take())));
        let (log, recovery) = match crew {
            Some(crew) => crew.open_in(Arc::clone(dir), log)?,
            None => Log::open_in(Arc::clone(dir), log)?,
        };
        let identity = IdentityFile::open(&**dir, node, log.last_index() == 0)?;
        let storage = Self::of(dir, log, identity, promise, must_sync)?;
        storage.check_ends()?;
        Ok((Self { is_inline, disk, slow_after, ..storage }, recovery))
    }

    fn of(
        dir: &Arc<dyn Dir>,
        log: Log,
        identity: IdentityFile,
        promise: Ack,
        must_sync: fn(&[u8]) -> bool,
    ) -> Result<Self> {
        // Entries are read from files; what a crash left in the ring only is not in one yet.
        wait_until_written(&log)?;
        let last = match log.last_index() {
            last if last < log.first_index() => None,
            last => Some(read_one(&log, last)?),
        };
        let first_index = from_log(log.first_index()).expect("the log counts from 1");
        let purged = identity.known().purged;
        let tail = Tail::new(first_index, last, purged);
        let look_up = |index| read_one(&log, to_log(index)).ok();
        let terms = Terms::open(Arc::clone(dir), purged, tail.last(), look_up);
        let tail = Mutex::new(tail);
        let must_be_durable = AtomicU64::new(0);
        let (testimony, onlookers, is_inline) = (OnceLock::new(), Onlookers::default(), false);
        let wounds = Wounds::default();
        Ok(Self {
            log,
            identity,
            tail,
            promise,
            slow_after: None,
            must_sync,
            must_be_durable,
            onlookers,
            wounds,
            holes: OnceLock::new(),
            terms,
            disk: Arc::default(),
            testimony,
            is_inline,
            cut_lacks_room: AtomicBool::new(false),
        })
    }

    /// What was not taken out of the log is in it, and what was is before its next entry.
    fn check_ends(&self) -> Result<()> {
        match self.identity.known().purged {
            None => self.check_has(0),
            Some(purged) => self.check_has(purged.index.saturating_add(1)),
        }
    }

    /// The log has this entry, or it is the next.
    pub(crate) fn check_has(&self, wanted: u64) -> Result<()> {
        let first_index = from_log(self.log.first_index()).expect("the log counts from 1");
        // What was let go of may be in its first segment still.
        let purged =
            self.identity.known().purged.map_or(0, |purged| purged.index.saturating_add(1));
        let first_index = first_index.max(purged);
        // The log's last index is the engine's next.
        let next_index = self.log.last_index();
        if !(first_index..=next_index).contains(&wanted) {
            return Err(Error::Gap { first_index, next_index, wanted });
        }
        Ok(())
    }

    /// Why what the log has accepted, or is to cut off, waits: the disk has no room for it.
    pub(crate) fn lacks_room(&self) -> Option<Error> {
        if self.cut_lacks_room.load(Ordering::Relaxed) {
            let last_index = self.log.durable();
            return Some(plimsoll_log::Error::OutOfSpace { last_index }.into());
        }
        match self.log.health() {
            Err(why @ plimsoll_log::Error::OutOfSpace { .. }) => Some(why.into()),
            _ => None,
        }
    }

    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        // Each change of it is whole before anything can panic.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::purge`], up to an index; nothing if that is not in the log any more. What is gone by now.
    pub(crate) fn purge_to(&self, index: u64) -> Result<Option<LogId>> {
        if let Some(entry) = self.read(index..index + 1, 1)?.first() {
            self.purge(entry.log_id).inspect_err(|why| self.disk.see(why))?;
        }
        Ok(self.identity.known().purged)
    }

    /// Whether it has neither a vote nor an entry, nor ever had one that it let go of.
    pub(crate) fn has_nothing(&self) -> bool {
        self.identity.known().vote.is_none() && self.tail().last().is_none()
    }

    /// Whether the log has this very entry, or has let go of it: then it has, or had, all before it.
    pub(crate) fn has(&self, id: LogId) -> Result<bool> {
        if self.identity.known().purged >= Some(id) {
            return Ok(true);
        }
        let found = self.read(id.index..id.index + 1, 1)?;
        Ok(found.first().is_some_and(|found| found.log_id == id))
    }

    /// Whether what comes behind this entry was let go of.
    pub(crate) fn has_let_go_behind(&self, before: Option<LogId>) -> bool {
        self.tail().purged().is_some_and(|purged| before.is_none_or(|before| before < purged))
    }

    /// The entries that the log has of a range, from its first on, until they have `max_bytes`: at
    /// least one where there is one. Reads the disk for what is not in memory any more.
    pub(crate) fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>> {
        loop {
            let ends = self.ends();
            let read = self.try_read(range.clone(), max_bytes);
            // The disk is read without a lock: what was cut off or let go of meanwhile is not there, or others have its
            // place.
            if self.ends() == ends {
                return read;
            }
        }
    }

    /// Changes with each entry that leaves the log, before the log itself does.
    fn ends(&self) -> (u64, Option<LogId>) {
        (self.wounds.cuts(), self.tail().purged())
    }

    fn try_read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>> {
        let (old, newest) = {
            let tail = self.tail();
            let range = tail.clip(&range);
            let middle = tail.first_from(range.start).min(range.end);
            let mut budget = Budget(max_bytes);
            let newest = tail.newest(middle..range.end).take_while(|entry| budget.takes(entry));
            (range.start..middle, newest.cloned().collect())
        };
        if old.is_empty() {
            return Ok(newest);
        }
        let mut entries = self.read_log(old.clone(), max_bytes)?;
        let read_bytes: usize = entries.iter().map(tail::bytes).sum();
        if entries.len() as u64 == old.end - old.start && read_bytes < max_bytes {
            let mut budget = Budget(max_bytes - read_bytes);
            entries.extend(newest.into_iter().take_while(|entry| budget.takes(entry)));
        }
        Ok(entries)
    }

    /// Entries that the kernel has. What is damaged is noted, and taken from what another replica gave.
    fn read_log(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<Entry>> {
        let mut reader = self.log.read_from(to_log(range.start))?;
        let mut entries = Vec::new();
        let mut budget = Budget(max_bytes);
        for index in range {
            if budget.is_spent() {
                break;
            }
            let entry = match next_of(&mut reader, index) {
                Err(why @ Error::Log(plimsoll_log::Error::Corrupt(_))) => {
                    let Some(entry) = self.wounds.given(index) else {
                        self.wounds.note(why.damaged_from().unwrap_or(index).min(index));
                        return Err(why);
                    };
                    reader = self.log.read_from(to_log(index + 1))?;
                    entry
                }
                read => read?,
            };
            budget.take(&entry);
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Whether it can give all that it has, and knows who votes: nothing of its log is known to be damaged, nor was anything when its
    /// engine read that, and its disk has not failed.
    pub(crate) fn is_whole(&self) -> bool {
        !self.wounds.are_open() && !self.hid_members() && !self.disk.has_failed()
    }

    /// Whether its engine does not know who votes, until it is started again.
    pub(crate) fn hid_members(&self) -> bool {
        self.holes.get().is_some_and(Holes::hid_members)
    }

    /// Term and index, as the log counts, of the entry before the first that is known to be damaged, zeros where that is the first of all; if
    /// no more than that is `applied`.
    pub(crate) fn whole(&self, applied: Option<u64>) -> Option<(u64, u64)> {
        let damaged = self.wounds.first()?;
        if applied >= Some(damaged) {
            return None;
        }
        let Some(before) = damaged.checked_sub(1) else { return Some((0, 0)) };
        let purged = self.tail().purged().filter(|purged| purged.index == before);
        let id = purged.or_else(|| Some(self.look_up(before).ok()??.log_id))?;
        Some((id.leader_id.term, to_log(id.index)))
    }

    /// As [`Self::read`] of all of a range, with blank entries in the place of those that could not be read when it was opened.
    pub(crate) fn read_with_blanks(&self, range: Range<u64>) -> Result<Vec<Entry>> {
        let range = self.tail().clip(&range);
        let (mut entries, mut next) = (Vec::new(), range.start);
        for blank in self.holes.get().into_iter().flat_map(|holes| holes.blanks(&range)) {
            entries.extend(self.read(next..blank.log_id.index, usize::MAX)?);
            next = blank.log_id.index + 1;
            entries.push(blank);
        }
        entries.extend(self.read(next..range.end, usize::MAX)?);
        Ok(entries)
    }

    /// An entry by itself, if it is there; nothing is noted of one that is damaged.
    pub(crate) fn look_up(&self, index: u64) -> Result<Option<Entry>> {
        let in_memory = {
            let tail = self.tail();
            (tail.first_from(index) == index).then(|| tail.newest(index..index + 1).next().cloned())
        };
        match in_memory {
            Some(found) => Ok(found),
            None => next_of(&mut self.log.read_from(to_log(index))?, index).map(Some),
        }
    }

    /// The first entry from here on that is damaged, and how; the term of the one before it, in `term`. Reads the disk, and nothing is noted.
    pub(crate) fn first_damaged(
        &self,
        from: u64,
        term: &mut Option<u64>,
    ) -> Result<Option<(u64, Error)>> {
        let end = self.tail().next_index();
        if from >= end {
            return Ok(None);
        }
        let mut reader = self.log.read_from(to_log(from))?;
        for index in from..end {
            match next_of(&mut reader, index) {
                Ok(entry) => *term = Some(entry.log_id.leader_id.term),
                Err(why) if why.damaged_from().is_some() => return Ok(Some((index, why))),
                Err(why) => return Err(why),
            }
        }
        Ok(None)
    }

    /// The first entry behind a damaged one that is not damaged with it; `None` if that one can be read after all.
    pub(crate) fn end_of_damage(&self, index: u64) -> Result<Option<u64>> {
        let all = self.log.find_damage(to_log(index))?;
        // The log counts from 1.
        Ok(all.into_iter().find(|found| found.contains(&to_log(index))).map(|found| *found.end()))
    }

    /// The first entry behind the last of these that are damaged, if one of these is; `None` where none is damaged. Reads the disk, and
    /// nothing is noted.
    pub(crate) fn behind_damage(&self, range: Range<u64>) -> Result<Option<Option<LogId>>> {
        let (mut reader, mut found) = (None, None);
        for index in range.start..range.end.min(self.tail().next_index()) {
            let mut from = match reader.take() {
                Some(reader) => reader,
                None => self.log.read_from(to_log(index))?,
            };
            match next_of(&mut from, index) {
                Ok(entry) => {
                    found = found.map(|behind: Option<LogId>| behind.or(Some(entry.log_id)));
                    reader = Some(from);
                }
                Err(why) if why.damaged_from().is_some() => found = Some(None),
                Err(why) => return Err(why),
            }
        }
        Ok(found)
    }

    /// Keeps in which terms its entries are, and says whether that is done. Where the disk does not take it, a start may lack it; and a disk that
    /// fails has failed.
    pub(crate) fn keep_terms(&self) -> bool {
        let saved = self.terms.save().inspect_err(|why| {
            self.disk.see(why);
            tracing::debug!(%why, "in which terms the entries of a log are is not kept");
        });
        saved.is_ok()
    }

    /// These entries, if all are in memory.
    pub(crate) fn in_memory(&self, range: Range<u64>) -> Option<Vec<Entry>> {
        let tail = self.tail();
        let has_all = tail.clip(&range) == range && tail.first_from(range.start) == range.start;
        has_all.then(|| tail.newest(range).cloned().collect())
    }

    /// Takes everything up to an entry out of the log, once that is durable: what was taken out is
    /// never ahead of where the log ends after a power cut. That it is gone is durable on return;
    /// room is freed in whole segments. Waits for the disk.
    ///
    /// Whoever asks for less is told that it is gone by now.
    ///
    /// # Errors
    /// [`Error::Gap`] if the log ends before it: entries that were never here are seeded before the
    /// engine starts, and what it wants to skip would be a hole.
    pub(crate) fn purge(&self, purged: LogId) -> Result<()> {
        if self.identity.known().purged >= Some(purged) {
            return Ok(());
        }
        self.check_has(purged.index + 1)?;
        self.log.wait(to_log(purged.index), Ack::Durable)?.block()?;
        self.identity.save(|identity| identity.purged = identity.purged.max(Some(purged)))?;
        self.tail().purge(purged);
        self.log.truncate_before(Retain::From(to_log(purged.index + 1)))?;
        Ok(())
    }
}

/// How far a disk may be behind what its log's policy promises. A log takes nothing more once what it has is twice as old as it
/// should be (decision 0017), so one that is thrice as far behind does not keep up.
fn slow_after(policy: Policy) -> Option<Duration> {
    const LEAST: Duration = Duration::from_secs(1);
    match policy {
        Policy::Always => Some(LEAST),
        Policy::Interval { max_age, .. } => Some(max_age.saturating_mul(3).max(LEAST)),
        Policy::Never => None,
    }
}

/// Waits until files have what a crash left in the ring only; while a disk has no room for it, not for long.
fn wait_until_written(log: &Log) -> Result<()> {
    let written = log.wait(log.last_index(), Ack::Written)?;
    while let Err(why) = written.block_for(PATIENCE) {
        if !matches!(why, plimsoll_log::Error::TimedOut { .. }) {
            return Err(why.into());
        }
        log.health()?;
    }
    Ok(())
}

/// The entry that a reader comes to next. What left the tail is written: if it is not there it was cut off.
fn next_of(reader: &mut plimsoll_log::Reader, index: u64) -> Result<Entry> {
    let cut_off = || plimsoll_log::Error::Truncated { index: to_log(index) };
    let record = reader.next_record()?.ok_or_else(cut_off)?;
    record::decode(index, record.payload).map_err(|source| Error::NotAnEntry { index, source })
}

/// The log id of a record.
fn read_one(log: &Log, log_index: u64) -> Result<LogId> {
    let index = from_log(log_index).expect("the log counts from 1");
    let mut reader = log.read_from(log_index)?;
    let record = reader.next_record()?.expect("all of it is written");
    let entry = record::decode(index, record.payload);
    Ok(entry.map_err(|source| Error::NotAnEntry { index, source })?.log_id)
}

/// Bytes that are left; the first entry has room in any.
struct Budget(usize);

impl Budget {
    fn takes(&mut self, entry: &Entry) -> bool {
        let has_room = !self.is_spent();
        self.take(entry);
        has_room
    }

    fn is_spent(&self) -> bool {
        self.0 == 0
    }

    fn take(&mut self, entry: &Entry) {
        self.0 = self.0.saturating_sub(tail::bytes(entry));
    }
}

#[cfg(test)]
impl Storage {
    /// Of a log that may begin anywhere, as the engine's own suite wants it.
    pub(crate) fn anywhere(
        dir: &Arc<dyn Dir>,
        log: plimsoll_log::Options,
        promise: Ack,
        must_sync: fn(&[u8]) -> bool,
    ) -> Self {
        let (log, _) = Log::open_in(Arc::clone(dir), log).unwrap();
        let identity = IdentityFile::open(&**dir, 0, log.last_index() < log.first_index()).unwrap();
        Self::of(dir, log, identity, promise, must_sync).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use openraft::entry::RaftEntry;
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::Crash;

    use super::*;
    use crate::cluster::types::log_id;

    fn open(dir: &Arc<dyn Dir>, first_index: u64) -> Result<Storage> {
        open_log(dir, small(first_index))
    }

    fn small(first_index: u64) -> plimsoll_log::Options {
        plimsoll_log::Options {
            first_index: to_log(first_index),
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            ..plimsoll_log::Options::default()
        }
    }

    fn open_log(dir: &Arc<dyn Dir>, log: plimsoll_log::Options) -> Result<Storage> {
        let (node, promise) = (0, Ack::Buffered);
        let must_sync = |_: &[u8]| false;
        let options = Options { node, promise, must_sync, start: None, log, crew: None };
        Storage::open(dir, options).map(|(storage, _)| storage)
    }

    /// A directory whose identity says that everything up to entry 41 was taken out.
    fn seeded() -> Arc<dyn Dir> {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let identity = IdentityFile::open(&*dir, 0, true).unwrap();
        identity.save(|identity| identity.purged = Some(log_id(5, 41))).unwrap();
        dir
    }

    /// A broker that was killed with acknowledged entries in its ring only did not open again.
    #[test]
    fn what_only_the_ring_had_is_there_after_a_crash() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
            println!("SKIPPED: there is no /dev/shm");
            return;
        };
        let [ring, left] = ["ring", "left"].map(|name| memory.path().join(name));
        let open = |dir: Arc<SimDir>, threads| {
            let ring = plimsoll_log::Ring::File(ring.clone());
            let log = plimsoll_log::Options { threads, ring, ..small(0) };
            open_log(&(dir as Arc<dyn Dir>), log)
        };
        let dir = Arc::new(SimDir::new());
        let storage = open(Arc::clone(&dir), false).unwrap();
        let entry = Entry::new_blank(log_id(1, 0));
        let mut record = Vec::new();
        record::encode(&entry, &mut record);
        storage.log.append(&record).unwrap();
        assert_eq!(storage.log.written(), 0);
        // The process ends here, without a word. It is ours, so its ring becomes another file.
        let [crashed, full] = [(); 2].map(|()| Arc::new(dir.crash(Crash::Process, 0)));
        std::fs::copy(&ring, &left).unwrap();
        std::mem::forget(storage);
        let restore = || {
            std::fs::remove_file(&ring).unwrap();
            std::fs::copy(&left, &ring).unwrap();
        };
        restore();
        // A disk without room for it: the open ends, and says why.
        for on in [Operation::Write, Operation::Allocate, Operation::Create] {
            let kind = FaultKind::Fail(std::io::ErrorKind::StorageFull);
            full.inject(Fault::new(on, kind).sticky());
        }
        let why = open(full, true).unwrap_err();
        assert!(matches!(why, Error::Log(plimsoll_log::Error::OutOfSpace { .. })), "{why}");
        restore();
        let storage = open(crashed, true).unwrap();
        assert_eq!(storage.tail().last(), Some(entry.log_id));
        assert_eq!(storage.read(0..1, usize::MAX).unwrap(), [entry]);
    }

    #[test]
    fn a_log_with_a_gap_before_or_behind_it_is_refused() {
        for first_index in [0, 41, 43] {
            let refused = open(&seeded(), first_index).unwrap_err();
            assert!(matches!(refused, Error::Gap { wanted: 42, .. }), "{refused}");
        }
        let begins_late: Arc<dyn Dir> = Arc::new(SimDir::new());
        IdentityFile::open(&*begins_late, 0, true).unwrap();
        let refused = open(&begins_late, 42).unwrap_err();
        assert!(matches!(refused, Error::Gap { wanted: 0, .. }), "{refused}");
    }

    #[test]
    fn a_log_that_begins_at_n_goes_on_where_its_identity_says() {
        let storage = open(&seeded(), 42).unwrap();
        assert_eq!(storage.tail().last(), Some(log_id(5, 41)));
        assert_eq!(storage.tail().next_index(), 42);
    }
}
