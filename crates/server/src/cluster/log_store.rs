//! [`LogStore`]: what the engine appends to, cuts and votes in.
//!
//! *When the engine is told that an entry is here* is the one rule that differs from what it
//! expects ("the callback means on disk"). It is told when the entry has reached the promise of
//! this shard (buffered, written or durable); where that is less than durable, what may be
//! forgotten is made good by how a replica re-enters, and not by a sync here. Two kinds of entries
//! are durable first in any case: memberships, and payloads that say so
//! ([`super::Options::must_sync`]). The engine takes a callback for the word that *everything
//! before* is here too, so nothing behind such an entry is reported before it.
//!
//! Invariants:
//! * a vote is durable in both slots before `save_vote` returns; as the engine saves it before it
//!   appends an entry of that term, the vote of a term is durable before any entry of it exists;
//! * what must be durable and was appended before a vote is durable before it: a founder that was cut
//!   off between its first membership and its vote has both, the first or neither;
//! * an entry that was cut off before it was reported never is, and that fails nothing;
//! * once the disk has failed nothing is reported any more, neither as here nor as failed ([`Disk`]);
//! * what is cut off is gone, durably, before anything is appended in its place, however long that waits for room or
//!   for another replica;
//! * the engine's thread waits for no disk: appends go to the ring, waits call back, and what has
//!   to be durable on return (votes, cuts) is done on a thread of the runtime for blocking work.
//!
//! **What was committed is not stored.** A commit index that survives a crash may be above a log
//! that did not, and the engine would apply what is not there. It learns it again from the first
//! entry of a term.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};
use plimsoll_log::{Ack, Error as LogError};

use super::disk::Disk;
use super::error::{Error, Result};
use super::log_reader::LogReader;
use super::options::Testimony;
use super::record::{self, from_log, to_log};
use super::storage::Storage;
use super::types::{Entry, LogId, Types, Vote};

/// How long an entry waits before it looks again for room that nobody calls out.
const LOOK: Duration = Duration::from_millis(1);
/// The same for a cut: each look makes a file.
const LOOK_FOR_CUT: Duration = Duration::from_millis(100);

/// The engine's store of entries and votes.
#[derive(Debug)]
pub(crate) struct LogStore {
    storage: Arc<Storage>,
    /// The record that is being put together.
    record: Vec<u8>,
}

impl LogStore {
    pub(crate) fn new(storage: Arc<Storage>) -> Self {
        Self { storage, record: Vec::new() }
    }

    /// Puts an entry into the ring and the tail, and returns its index in the log. Waits, and holds
    /// up no thread, while there is no room.
    async fn buffer(&mut self, entry: Entry) -> Result<u64> {
        let log = &self.storage.log;
        record::encode(&entry, &mut self.record);
        let index = loop {
            match log.try_append(&self.record) {
                Err(LogError::WouldBlock { .. }) => self.wait_for_room().await?,
                appended => break appended?,
            }
        };
        assert_eq!(index, to_log(entry.log_id.index), "one relation of indexes");
        if self.must_be_durable(&entry) {
            self.storage.must_be_durable.fetch_max(index, Relaxed);
        }
        let mut tail = self.storage.tail();
        let (term, before) = (entry.log_id.leader_id, tail.last().map(|last| last.leader_id));
        if before != Some(term) || matches!(entry.payload, EntryPayload::Membership(_)) {
            self.storage.terms.append(&entry);
        }
        tail.push(entry, log.written());
        drop(tail);
        Ok(index)
    }

    /// The ring lets go of what is durable.
    async fn wait_for_room(&self) -> Result<()> {
        let log = &self.storage.log;
        match log.wait(log.durable() + 1, Ack::Durable) {
            Ok(wait) => wait.await?,
            // All of it is durable: a segment is being made, or the disk has no room for one.
            Err(LogError::OutOfRange { .. }) => tokio::time::sleep(LOOK).await,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn wait_for_what_must_be_durable(&self) -> Result<()> {
        let (log, pending) = (&self.storage.log, self.storage.must_be_durable.load(Relaxed));
        if pending > log.durable() {
            log.wait(pending, Ack::Durable)?.await?;
        }
        Ok(())
    }

    fn must_be_durable(&self, entry: &Entry) -> bool {
        match &entry.payload {
            EntryPayload::Blank => false,
            EntryPayload::Normal(payload) => (self.storage.must_sync)(&payload.0),
            EntryPayload::Membership(_) => true,
        }
    }

    /// Tells the engine once everything up to a record of the log is as far as was promised.
    fn report(&self, log_index: u64, callback: IOFlushed<Types>) {
        let log = &self.storage.log;
        let level = match self.storage.must_be_durable.load(Relaxed) {
            pending if pending > log.durable() => Ack::Durable,
            _ if self.storage.onlookers.may_be_there() => Ack::Durable,
            _ => self.storage.promise,
        };
        let testimony = self.storage.testimony.get();
        let disk = Arc::clone(&self.storage.disk);
        let told = Told { callback, testimony: testimony.cloned(), log_index, disk };
        if level == Ack::Buffered {
            return told.complete(Ok(()));
        }
        match log.wait(log_index, level) {
            Ok(wait) => wait.then(|how| told.complete(how)),
            Err(error) => told.complete(Err(error)),
        }
    }
}

/// Who is told that a record is as far as was promised.
struct Told {
    callback: IOFlushed<Types>,
    testimony: Option<Arc<dyn Testimony>>,
    log_index: u64,
    disk: Arc<Disk>,
}

impl Told {
    /// What was cut off is not here, and that is no failure: whoever cut it knows.
    fn complete(self, how: plimsoll_log::Result<()>) {
        let Self { callback, testimony, log_index, disk } = self;
        if let Err(why) = &how {
            disk.look_at(why);
        }
        if disk.has_failed() {
            // An error would end the engine, which has to tell the others that it leads no more.
            return;
        }
        let index = from_log(log_index).expect("the log counts from 1");
        let how = match how {
            Err(LogError::Truncated { .. }) => return,
            Err(error) => Err(io::Error::other(error)),
            // An acknowledgement is known before it leaves.
            Ok(()) => testimony
                .map_or(Ok(()), |testimony| testimony.acknowledges(index))
                .map_err(io::Error::other),
        };
        callback.io_completed(how);
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let tail = self.storage.tail();
        Ok(LogState { last_purged_log_id: tail.purged(), last_log_id: tail.last() })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader::new(Arc::clone(&self.storage))
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.wait_for_what_must_be_durable().await?;
        let vote = *vote;
        if let Some(saved) = self.storage.identity.known().vote {
            // Votes are ordered in part only: of two nodes in one term neither is greater, and a replica votes for one.
            let goes_on = vote >= saved;
            if !goes_on {
                let of = |vote: Vote| (vote.leader_id.term, vote.leader_id.voted_for);
                return Err(io::Error::other(Error::TwoLeaders {
                    saved: of(saved),
                    told: of(vote),
                }));
            }
        }
        let save =
            move |storage: &Storage| storage.identity.save(|identity| identity.vote = Some(vote));
        Ok(self.block(save).await?)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut last = None;
        for entry in entries {
            let index = self.buffer(entry).await;
            last = Some(index.inspect_err(|why| self.storage.disk.see(why))?);
        }
        match last {
            Some(last) => self.report(last, callback),
            None => callback.io_completed(Ok(())),
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        // Readers do not see from here on what is about to go.
        let next_index = {
            let mut tail = self.storage.tail();
            if !tail.cut_after(last) {
                return Ok(());
            }
            self.storage.terms.cut_after(tail.last());
            tail.next_index()
        };
        self.storage.must_be_durable.fetch_min(next_index, Relaxed);
        self.storage.wounds.cut_from(next_index);
        self.until_cut_off(next_index).await?;
        // Not before: until then some of it may still be acknowledged. Who dies in between is taken for one
        // that forgot.
        match self.storage.testimony.get() {
            Some(testimony) => testimony.cuts(next_index).map_err(io::Error::other),
            None => Ok(()),
        }
    }

    async fn purge(&mut self, purged: LogId) -> io::Result<()> {
        Ok(self.block(move |storage| storage.purge(purged)).await?)
    }
}

impl LogStore {
    /// Cuts off what the log has from an entry on. Waits, as appends do, while the disk has no room for that; and, as
    /// readers do, for what is damaged where it ends then, while other replicas are asked for it.
    async fn until_cut_off(&self, next_index: u64) -> Result<()> {
        let storage = &self.storage;
        let mut wounds = storage.wounds.watch();
        loop {
            // The record before the next entry's.
            let cut = move |storage: &Storage| Ok(storage.log.truncate_after(next_index)?);
            let done = self.block(cut).await;
            let is_full = matches!(done, Err(Error::Log(LogError::OutOfSpace { .. })));
            match (storage.cut_lacks_room.swap(is_full, Relaxed), is_full) {
                (false, true) => tracing::warn!(
                    next_index,
                    "entries are to be cut off, and the disk has no room for that: free some"
                ),
                (true, false) => tracing::info!(next_index, "there is room to cut entries off"),
                _ => {}
            }
            match done {
                Err(_full) if is_full => tokio::time::sleep(LOOK_FOR_CUT).await,
                Err(why) => {
                    let Some(damaged) = why.damaged_from() else {
                        // Whatever it is that the disk refuses: it cannot follow its leader with that.
                        if let Error::Log(LogError::Disk(why)) = &why
                            && !why.is_out_of_descriptors()
                        {
                            storage.disk.fails(|| why.to_string());
                        }
                        return Err(why);
                    };
                    // What comes behind is to go.
                    storage.wounds.note(damaged.min(next_index.saturating_sub(1)));
                    if !storage.wounds.are_tended() || wounds.changed().await.is_err() {
                        return Err(why);
                    }
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Does what waits for a disk, and holds up no other task meanwhile.
    async fn block(
        &self,
        work: impl FnOnce(&Storage) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let work = |storage: &Storage| work(storage).inspect_err(|why| storage.disk.see(why));
        if self.storage.is_inline {
            return work(&self.storage);
        }
        let storage = Arc::clone(&self.storage);
        match tokio::task::spawn_blocking(move || work(&storage)).await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Stopped { why: "its runtime has ended".to_owned() }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use openraft::entry::RaftEntry;
    use openraft::type_config::TypeConfigExt;
    use openraft::{BasicNode, RaftLogReader};
    use plimsoll_log::{Clock, Options};
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::{Crash, Dir};
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::cluster::types::{Members, Payload, log_id};

    const EIO: i32 = 5;

    type Signal = tokio::sync::oneshot::Receiver<io::Result<()>>;

    /// A store whose log does nothing unless it is driven.
    fn store_on(dir: Arc<SimDir>, promise: Ack) -> LogStore {
        let log = Options {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            threads: false,
            clock: Clock::manual(7),
            ..Options::default()
        };
        let dir: Arc<dyn Dir> = dir;
        let must_sync = |payload: &[u8]| payload.starts_with(b"sync");
        LogStore::new(Arc::new(Storage::anywhere(&dir, log, promise, must_sync)))
    }

    fn store(promise: Ack) -> LogStore {
        store_on(Arc::new(SimDir::new()), promise)
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
    }

    fn normal(index: u64, payload: &'static [u8]) -> Entry {
        Entry::new(log_id(1, index), EntryPayload::Normal(Payload(Bytes::from_static(payload))))
    }

    fn members(index: u64) -> Entry {
        let alone = Members::from(BTreeMap::from([(0, BasicNode::new(""))]));
        Entry::new(log_id(1, index), EntryPayload::Membership(alone))
    }

    async fn append(store: &mut LogStore, entry: Entry) -> Signal {
        let (signal, told) = Types::oneshot();
        store.append([entry], IOFlushed::signal(signal)).await.unwrap();
        told
    }

    fn drive(store: &LogStore) {
        while store.storage.log.drive().unwrap() {}
    }

    #[test]
    fn nobody_votes_twice_in_a_term_or_in_an_older_one() {
        for second in [Vote::new(4, 2), Vote::new(3, 9), Vote::new(4, 1)] {
            let voted = std::panic::catch_unwind(|| {
                run(async {
                    let mut store = store(Ack::Buffered);
                    store.save_vote(&Vote::new_committed(4, 1)).await.unwrap();
                    store.save_vote(&second).await.unwrap();
                });
            });
            assert!(voted.is_err(), "{second}");
        }
    }

    #[test]
    fn an_entry_is_reported_once_it_is_as_far_as_promised() {
        run(async {
            let mut buffered = store(Ack::Buffered);
            let mut told = append(&mut buffered, normal(0, b"a")).await;
            told.try_recv().unwrap().unwrap();
            for promise in [Ack::Written, Ack::Durable] {
                let mut store = store(promise);
                let mut told = append(&mut store, normal(0, b"a")).await;
                assert_eq!(told.try_recv().unwrap_err(), TryRecvError::Empty);
                drive(&store);
                told.try_recv().unwrap().unwrap();
                assert_eq!(store.storage.log.written(), 1);
                assert!(promise == Ack::Written || store.storage.log.durable() == 1);
            }
        });
    }

    /// A founding hung for ever once its vote had survived a power cut, and its members had not.
    #[test]
    fn what_must_be_durable_is_so_before_a_vote_that_comes_after_it() {
        // What blocks runs one after the other.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build();
        runtime.unwrap().block_on(async {
            let mut store = store(Ack::Buffered);
            drop(append(&mut store, members(0)).await);
            let storage = Arc::clone(&store.storage);
            let vote = Vote::new_committed(1, 0);
            let mut voting = std::pin::pin!(store.save_vote(&vote));
            assert!(futures_util::poll!(&mut voting).is_pending());
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert_eq!(storage.identity.known().vote, None);
            while storage.log.drive().unwrap() {}
            voting.await.unwrap();
            assert_eq!(storage.identity.known().vote, Some(vote));
        });
    }

    #[test]
    fn what_must_sync_holds_up_all_behind_it_and_nothing_before() {
        run(async {
            for first in [members(1), normal(1, b"sync me")] {
                let mut store = store(Ack::Buffered);
                let mut before = append(&mut store, normal(0, b"a")).await;
                let mut pending = append(&mut store, first).await;
                let mut behind = append(&mut store, normal(2, b"b")).await;
                before.try_recv().unwrap().unwrap();
                assert_eq!(pending.try_recv().unwrap_err(), TryRecvError::Empty);
                assert_eq!(behind.try_recv().unwrap_err(), TryRecvError::Empty);
                drive(&store);
                assert_eq!(store.storage.log.durable(), 3);
                pending.try_recv().unwrap().unwrap();
                behind.try_recv().unwrap().unwrap();
                let mut later = append(&mut store, normal(3, b"c")).await;
                later.try_recv().unwrap().unwrap();
            }
        });
    }

    #[test]
    fn an_entry_that_was_cut_off_fails_nothing() {
        run(async {
            let mut store = store(Ack::Durable);
            let mut kept = append(&mut store, normal(0, b"kept")).await;
            let mut cut = append(&mut store, normal(1, b"cut")).await;
            store.truncate_after(Some(log_id(1, 0))).await.unwrap();
            let mut next = append(&mut store, normal(1, b"another")).await;
            drive(&store);
            kept.try_recv().unwrap().unwrap();
            // It may have been durable before it was cut; if not, nobody is told anything.
            assert!(!matches!(cut.try_recv(), Ok(Err(_))));
            next.try_recv().unwrap().unwrap();
            let entries = store.storage.read(0..9, usize::MAX).unwrap();
            assert_eq!(entries, [normal(0, b"kept"), normal(1, b"another")]);
        });
    }

    #[test]
    fn entries_are_read_from_the_disk_and_from_memory_as_one() {
        run(async {
            let dir = Arc::new(SimDir::new());
            let all: Vec<_> = (0..6).map(|index| normal(index, b"payload")).collect();
            let mut store = store_on(Arc::clone(&dir), Ack::Written);
            for entry in &all[..3] {
                drop(append(&mut store, entry.clone()).await);
            }
            drive(&store);
            let mut store = store_on(Arc::new(dir.crash(Crash::Process, 0)), Ack::Buffered);
            for entry in &all[3..] {
                drop(append(&mut store, entry.clone()).await);
            }
            let read = |range, bytes| store.storage.read(range, bytes).unwrap();
            assert_eq!(read(0..9, usize::MAX), all);
            assert_eq!(read(2..4, usize::MAX), all[2..4]);
            assert_eq!(read(4..5, usize::MAX), all[4..5]);
            assert_eq!(read(0..2, usize::MAX), all[..2]);
            assert_eq!(read(0..9, 1), all[..1]);
            let four = all[..4].iter().map(crate::cluster::tail::bytes).sum();
            assert_eq!(read(0..9, four), all[..4]);
        });
    }

    /// A store with so many entries, none of which is in memory, and its disk.
    async fn store_of_old(entries: u64) -> (LogStore, Arc<SimDir>) {
        let dir = Arc::new(SimDir::new());
        let mut store = store_on(Arc::clone(&dir), Ack::Written);
        for index in 0..entries {
            drop(append(&mut store, normal(index, b"payload")).await);
        }
        drive(&store);
        let dir = Arc::new(dir.crash(Crash::Process, 0));
        (store_on(Arc::clone(&dir), Ack::Written), dir)
    }

    /// It was an error of one shard's engine, and the node went on with the others.
    #[test]
    fn a_disk_that_fails_while_entries_are_cut_off_counts_as_failed() {
        for on in [Operation::Create, Operation::Write, Operation::Sync, Operation::Read] {
            run(async {
                let (mut store, dir) = store_of_old(6).await;
                store.storage.disk.is_shared(true);
                dir.inject(Fault::new(on, FaultKind::FailRaw(EIO)).sticky());
                store.truncate_after(Some(log_id(1, 2))).await.unwrap_err();
                assert!(store.storage.disk.has_failed(), "{on}");
            });
        }
    }

    /// It ended the shard's engine until a restart.
    #[test]
    fn on_a_full_disk_a_cut_waits_for_room_and_says_so() {
        run(async {
            let (mut store, dir) = store_of_old(6).await;
            let storage = Arc::clone(&store.storage);
            storage.disk.is_shared(true);
            let full = FaultKind::Fail(io::ErrorKind::StorageFull);
            dir.inject(Fault::new(Operation::Create, full).times(4));
            {
                let mut cut = std::pin::pin!(store.truncate_after(Some(log_id(1, 2))));
                while storage.lacks_room().is_none() {
                    let waits = tokio::time::timeout(LOOK, &mut cut).await;
                    assert!(waits.is_err(), "{waits:?}");
                }
                cut.await.unwrap();
            }
            assert!(storage.lacks_room().is_none() && !storage.disk.has_failed());
            drop(append(&mut store, Entry::new_blank(log_id(2, 3))).await);
            assert_eq!(storage.log.last_index(), to_log(3));
        });
    }

    /// It was a panic.
    #[test]
    fn an_entry_that_is_cut_off_while_it_is_read_is_an_error() {
        run(async {
            let storage = store_of_old(6).await.0.storage;
            // As a reader finds it that looked what there is before the cut, and reads after it.
            storage.log.truncate_after(to_log(2)).unwrap();
            for read in [storage.read(3..4, usize::MAX).map(drop), storage.look_up(3).map(drop)] {
                let why = read.unwrap_err();
                assert!(matches!(why, Error::Log(LogError::Truncated { index: 4 })), "{why}");
            }
        });
    }

    /// A replica whose log was cut while it sent old entries, or served them, ended in a panic, or an error ended its engine.
    #[test]
    fn what_is_read_while_entries_are_cut_off_is_what_there_was_before_or_after() {
        const ENTRIES: u64 = 300;
        for kept in (10..ENTRIES).step_by(20) {
            run(async {
                let (mut store, _) = store_of_old(ENTRIES).await;
                let storage = Arc::clone(&store.storage);
                let begun = Arc::new(std::sync::Barrier::new(2));
                let reads = {
                    let begun = Arc::clone(&begun);
                    move || {
                        begun.wait();
                        loop {
                            let read = storage.read(0..ENTRIES, usize::MAX).unwrap();
                            let of = |term| {
                                read.iter().filter(move |it| it.log_id.leader_id.term == term)
                            };
                            match (of(1).count() as u64, of(2).count()) {
                                (ENTRIES, 0) => {}
                                (first, 0) if first == kept => {}
                                (first, 1) if first == kept => return,
                                mixed => panic!("{mixed:?} of {kept} and 1"),
                            }
                        }
                    }
                };
                let reader = std::thread::spawn(reads);
                begun.wait();
                store.truncate_after(Some(log_id(1, kept - 1))).await.unwrap();
                drop(append(&mut store, Entry::new_blank(log_id(2, kept))).await);
                reader.join().unwrap();
            });
        }
    }

    #[test]
    fn what_was_purged_stays_so_after_a_power_cut() {
        run(async {
            let dir = Arc::new(SimDir::new());
            let mut store = store_on(Arc::clone(&dir), Ack::Written);
            for index in 0..3 {
                drop(append(&mut store, normal(index, b"payload")).await);
            }
            store.purge(log_id(1, 1)).await.unwrap();
            for seed in 0..10 {
                let mut found = store_on(Arc::new(dir.power_cut(seed)), Ack::Written);
                let state = found.get_log_state().await.unwrap();
                assert_eq!(state.last_purged_log_id, Some(log_id(1, 1)));
                let mut reader = found.get_log_reader().await;
                let left = reader.try_get_log_entries(0..).await.unwrap();
                assert!(left.is_empty() || left == [normal(2, b"payload")], "{left:?}");
                let next = 2 + left.len() as u64;
                drop(append(&mut found, normal(next, b"goes on")).await);
            }
        });
    }

    #[test]
    fn a_log_is_not_purged_beyond_its_end() {
        run(async {
            let mut store = store(Ack::Buffered);
            drop(append(&mut store, normal(0, b"a")).await);
            store.purge(log_id(1, 1)).await.unwrap_err();
            assert_eq!(store.get_log_state().await.unwrap().last_purged_log_id, None);
            store.purge(log_id(1, 0)).await.unwrap();
            let state = store.get_log_state().await.unwrap();
            assert_eq!(state.last_purged_log_id, Some(log_id(1, 0)));
            assert_eq!(state.last_log_id, Some(log_id(1, 0)));
        });
    }
}
