//! [`heal`]: what a replica's disk has lost of its log is fetched from another replica, and put back.
//!
//! No leader is needed for it, and no agreement: by Raft's log matching, two logs that have an entry of the same term
//! and index have the same entries before it. So this replica names an entry of its own that lies behind what is
//! damaged and that it knows (it can be read, or it is the last, whose id the engine holds). Another that has that
//! very entry has what is missing, be it committed or not, and whether it leads, votes or is in doubt itself. What
//! survives of a damaged frame is held against what comes (`Log::heal`).
//!
//! Meanwhile what was fetched is served from memory. What nobody has any more, as all have let go of it, and what a
//! segment cannot be without, is not healed by entry: the replica is seeded.

use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use plimsoll_log::Error as LogError;
use tokio::time::sleep;

use super::apply::Apply;
use super::behind::{Behind, Lack};
use super::error::{Error, Result};
use super::message::{Answer, AskEntries, Request};
use super::network::Network;
use super::record::{self, from_log, to_log};
use super::standing::Standing;
use super::state::Engine;
use super::storage::Storage;
use super::types::{Entry, LogId};

/// The others may have by then what they have not yet.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(2);
/// Bytes of entries that are given at once, at most, and the entry that goes beyond: a frame has room for them.
const BYTES_MAX: usize = 4 << 20;

/// What the task that heals works with.
pub(crate) struct Healing<S: Apply> {
    pub(crate) node: u64,
    pub(crate) engine: Engine<S>,
    pub(crate) storage: Weak<Storage>,
    pub(crate) network: Network,
    pub(crate) standing: Arc<Standing>,
    pub(crate) behind: Arc<Behind>,
}

/// Heals whatever is noted, as long as the group lives.
pub(crate) async fn heal<S: Apply>(healing: Healing<S>) {
    let Some(mut found) = healing.storage.upgrade().map(|storage| storage.wounds.watch()) else {
        return;
    };
    let mut members = healing.engine.server_metrics();
    // The others are tried before it is tried again.
    let mut failed = None;
    loop {
        let others: Vec<u64> = {
            let now = members.borrow_and_update();
            let nodes = now.membership_config.membership().nodes().map(|(id, _)| *id);
            nodes.filter(|id| *id != healing.node).collect()
        };
        let Some(storage) = healing.storage.upgrade() else { return };
        storage.wounds.set_tended(!others.is_empty());
        drop(storage);
        let noted = {
            let found = found.borrow_and_update();
            if found.has_ended {
                return;
            }
            let next = failed.and_then(|failed| found.open.range(failed + 1..).next());
            next.or_else(|| found.open.first()).copied()
        };
        let Some(noted) = noted.filter(|_| !others.is_empty()) else {
            // Once nobody is left who could note anything the group has ended.
            let has_ended = tokio::select! {
                changed = found.changed() => changed.is_err(),
                changed = members.changed() => changed.is_err(),
            };
            if has_ended {
                return;
            }
            continue;
        };
        healing.engine.runtime_config().elect(false);
        match healing.tend(noted, &others).await {
            Ok(records) => {
                failed = None;
                tracing::info!(noted, records, "damaged records of the log are healed");
            }
            Err(why) => {
                failed = Some(noted);
                tracing::warn!(noted, %why, "a damaged record of the log is not healed");
                sleep(REST_AFTER_FAILURE).await;
            }
        }
        let Some(storage) = healing.storage.upgrade() else { return };
        if storage.is_whole() && !healing.standing.is_dirty() {
            healing.engine.runtime_config().elect(true);
        }
    }
}

impl<S: Apply> Healing<S> {
    /// Heals the segment that has this entry. How many entries were damaged.
    async fn tend(&self, noted: u64, others: &[u64]) -> Result<u64> {
        let find = move |storage: &Storage| Ok(storage.log.find_damage(to_log(noted))?);
        let damaged = match self.block(find).await {
            Ok(damaged) if damaged.is_empty() && self.storage()?.look_up(noted).is_ok() => {
                // It was healed with what lies beside it.
                self.storage()?.wounds.close(noted, 0);
                return Ok(0);
            }
            Ok(damaged) => damaged,
            // Retention has taken it, or it was cut off.
            Err(Error::Log(LogError::OutOfRange { .. })) => {
                self.storage()?.wounds.close(noted, 0);
                return Ok(0);
            }
            Err(why) => {
                if matches!(why, Error::Log(LogError::Corrupt(_))) {
                    let leader = self.engine.metrics().borrow_watched().current_leader;
                    self.is_lost(leader.or(others.first().copied()), noted);
                }
                return Err(why);
            }
        };
        for records in &damaged {
            self.fetch(records, others).await?;
        }
        self.block(move |storage| {
            let record = |index| {
                let entry = storage.wounds.given(from_log(index)?)?;
                let mut record = Vec::new();
                record::encode(&entry, &mut record);
                Some(record)
            };
            Ok(storage.log.heal(to_log(noted), record)?)
        })
        .await?;
        let healed = damaged.iter().map(|records| records.end() - records.start() + 1).sum();
        self.storage()?.wounds.close(noted, healed);
        Ok(healed)
    }

    /// Asks for records that are damaged, and for those behind them to which no reader comes, until it has all: an answer
    /// has as many as a frame has room for.
    async fn fetch(&self, records: &RangeInclusive<u64>, others: &[u64]) -> Result<()> {
        let not_an_index = || Error::Stopped { why: "a log counts from 1".to_owned() };
        let mut first = from_log(*records.start()).ok_or_else(not_an_index)?;
        let cuts = self.storage()?.wounds.cuts();
        // The log's index is the engine's next.
        let behind = *records.end();
        let proof = self.block(move |storage| Ok(storage.known_from(behind))).await?;
        let Some(proof) = proof else {
            return Err(Error::Stopped { why: "nothing behind it is known".to_owned() });
        };
        let end = proof.index.max(behind);
        while first < behind {
            let entries = self.fetch_some(first..end, proof, others).await?;
            first += entries.len() as u64;
            if !self.storage()?.wounds.give(entries, cuts) {
                return Err(Error::Stopped {
                    why: "some of the log was cut off meanwhile".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Asks one node after the other for the first of these.
    async fn fetch_some(
        &self,
        wanted: Range<u64>,
        proof: LogId,
        others: &[u64],
    ) -> Result<Vec<Entry>> {
        let first = wanted.start;
        let request = Request::Give(AskEntries { first, end: wanted.end, proof });
        let (mut gone, mut is_one_away) = (None, false);
        for &node in others {
            match self.network.ask(node, &request).await {
                Ok(Answer::Given(entries)) if are_of(&entries, &wanted, proof) => {
                    return Ok(entries);
                }
                Ok(Answer::LetGo(through)) if through >= first => gone = Some((node, through)),
                Ok(_) => {}
                Err(why) => {
                    is_one_away = true;
                    tracing::debug!(node, %why, "it gives no entries");
                }
            }
        }
        // Who is away may have it.
        if let Some((node, through)) = gone.filter(|_| !is_one_away) {
            self.is_lost(Some(node), through);
        }
        let why = format!("nobody who is there has entry {first}");
        Err(Error::Stopped { why })
    }

    /// What is damaged cannot be healed by entry: whoever opened this replica is told that it must be seeded. Not
    /// while it leads: then nobody else need have all that it has.
    fn is_lost(&self, from: Option<u64>, through: u64) {
        let leads = self.engine.metrics().borrow_watched().state == ServerState::Leader;
        if let Some(leader) = from.filter(|_| !leads) {
            self.behind.learn(Lack { leader, through });
        }
    }

    fn storage(&self) -> Result<Arc<Storage>> {
        let ended = || Error::Stopped { why: "it was closed".to_owned() };
        self.storage.upgrade().ok_or_else(ended)
    }

    /// Does what waits for the disk, and sees whether that has failed.
    async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Storage) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let work = |storage: &Storage| work(storage).inspect_err(|why| storage.disk.see(why));
        let storage = self.storage()?;
        if storage.is_inline {
            return work(&storage);
        }
        let done = tokio::task::spawn_blocking(move || work(&storage)).await;
        done.unwrap_or_else(|why| Err(Error::Stopped { why: why.to_string() }))
    }
}

/// Whether these are entries that were asked for, from the first on, in an order in which a log has them.
fn are_of(entries: &[Entry], wanted: &Range<u64>, proof: LogId) -> bool {
    let follow = (wanted.start..).zip(entries).all(|(index, entry)| entry.log_id.index == index);
    let rise = entries.is_sorted_by_key(|entry| entry.log_id.leader_id.term);
    let end = wanted.start + entries.len() as u64;
    let last = entries.last().map(|last| last.log_id);
    let fits =
        last.is_some_and(|last| last <= proof && (last.index < proof.index || last == proof));
    follow && rise && fits && end <= wanted.end
}

impl Storage {
    /// The id of an entry that can be read, from this one on: the nearest that is found soon, or the last of the log.
    fn known_from(&self, index: u64) -> Option<LogId> {
        let last = self.tail().last()?;
        let mut step = 1;
        let mut at = index;
        while at < last.index {
            // What cannot be read is not noted: it is looked for what can.
            if let Ok(Some(entry)) = self.look_up(at) {
                return Some(entry.log_id);
            }
            at += step;
            step *= 2;
        }
        Some(last)
    }

    /// What another replica asks for, if this one's log is as that one's.
    pub(crate) fn give(&self, asked: &AskEntries) -> Answer {
        let AskEntries { first, end, proof } = *asked;
        if let Some(purged) = self.identity.known().purged.filter(|purged| purged.index >= first) {
            return Answer::LetGo(purged.index);
        }
        let knows = self.read(proof.index..proof.index + 1, 1);
        let has = knows.is_ok_and(|found| found.first().is_some_and(|it| it.log_id == proof));
        // What is damaged here too is noted, and not given.
        let entries = if has { self.read(first..end, BYTES_MAX) } else { Ok(Vec::new()) };
        Answer::Given(entries.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use openraft::entry::RaftEntry;
    use openraft::raft::{AppendEntriesRequest, VoteRequest};
    use openraft::storage::RaftLogStorage;
    use plimsoll_log::{Ack, Dumped, Kind, SegmentState, View};
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::{Access, Dir};
    use tokio::time::timeout;

    use super::*;
    use crate::cluster::log_store::LogStore;
    use crate::cluster::message::{AskDurable, Fitness, Refusal};
    use crate::cluster::types::Vote;
    use crate::cluster::{
        Answered, Begin, Carrier, Group, Options, Receiver, Recovered, Stop, Unreached,
    };

    const PATIENCE: Duration = Duration::from_secs(60);
    /// More than a replica keeps in memory.
    const ENTRIES: u64 = 14;

    #[derive(Debug)]
    struct Nothing;

    impl Apply for Nothing {
        type Answer = ();

        fn apply(&mut self, _: u64, _: u64, _: Option<&Bytes>) -> std::result::Result<(), Stop> {
            Ok(())
        }
    }

    type Heard = BTreeMap<u64, Receiver<Nothing>>;

    /// Those that hear each other.
    #[derive(Debug, Default, Clone)]
    struct Net(Arc<Mutex<Heard>>, u64);

    impl Net {
        fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Carrier for Net {
        fn ask(
            &self,
            to: u64,
            _: bool,
            request: Vec<Bytes>,
        ) -> BoxFuture<'static, std::result::Result<Answered, Unreached>> {
            let (heard, from) = (self.heard().get(&to).cloned(), self.1);
            Box::pin(async move {
                let away = || Unreached { to, why: "it is away".to_owned() };
                let answer = heard.ok_or_else(away)?.answer(from, 1, &request.concat().into());
                Ok(Answered { incarnation: 1, answer: answer.await.concat().into() })
            })
        }
    }

    struct One {
        dir: Arc<SimDir>,
        group: Arc<Group<Nothing>>,
    }

    fn start(node: u64, net: &Net) -> One {
        let disk = Arc::new(SimDir::new());
        let dir: Arc<dyn Dir> = Arc::clone(&disk) as _;
        let log = plimsoll_log::Options { segment_bytes: 5 << 20, ..Default::default() };
        let (promise, must_sync) = (Ack::Buffered, |_: &[u8]| false);
        let options = Options { node, promise, must_sync, start: None, log, crew: None };
        let carrier = Arc::new(Net(Arc::clone(&net.0), node));
        let begin = Begin { carrier, founds: node == 1, ..Begin::alone() };
        let group = Recovered::open(&dir, options).unwrap().start_as(begin, Nothing).unwrap();
        net.heard().insert(node, group.receiver());
        One { dir: disk, group: Arc::new(group) }
    }

    impl One {
        async fn reaches(&self, index: u64) {
            let reached = async {
                // The log's last is the engine's next.
                while self.group.applied() < Some(index) || self.group.synced() <= index {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, reached).await.expect("it gets all of it");
        }

        /// Damages bytes of the frame of an entry, from there on.
        fn damage(&self, entry: u64, from: u64, bytes: &[u8]) {
            let view = View::of(Arc::clone(&self.dir) as Arc<dyn Dir>).unwrap();
            let mut found = None;
            for segment in view.outline().unwrap() {
                let see = |dumped: Dumped<'_>| {
                    if let Dumped::Frame { byte_offset, frame, .. } = dumped
                        && (frame.kind, frame.index) == (Kind::Record, to_log(entry))
                    {
                        found = Some((segment.segment.clone(), byte_offset));
                    }
                    Ok::<(), LogError>(())
                };
                view.dump(&segment, see).unwrap();
            }
            let (name, at) = found.expect("it is there");
            self.dir.open(&name, Access::default()).unwrap().write_at(bytes, at + from).unwrap();
        }

        fn read(&self, entry: u64) -> Result<Option<Bytes>> {
            Ok(self.group.read(entry, 1)?.swap_remove(0).1)
        }

        async fn until_healed(&self, entries: u64) {
            let healed = async {
                while self.group.healed() != (entries, 0) {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, healed).await.expect("it is healed");
        }

        fn is_whole(&self) -> bool {
            let view = View::of(Arc::clone(&self.dir) as Arc<dyn Dir>).unwrap();
            let segments = view.verify(&|_, _| ()).unwrap();
            !segments.iter().any(|found| matches!(found.state, SegmentState::Corrupt(_)))
        }

        async fn act(&self, request: Request) -> std::result::Result<Answer, Refusal> {
            self.group.receiver().act(request).await
        }
    }

    fn payload(number: u64) -> Bytes {
        vec![u8::try_from(number).unwrap(); 1 << 20].into()
    }

    async fn propose(group: &Group<Nothing>) -> u64 {
        let leadership = group.wait_to_lead().await.unwrap();
        let mut last = 0;
        for number in 0..ENTRIES {
            last = group.propose(leadership, payload(number)).await.unwrap().index;
        }
        last
    }

    /// Three that vote and have the same entries on their disks, and the last of them.
    async fn three(net: &Net) -> ([One; 3], u64) {
        let nodes = [1, 2, 3].map(|node| start(node, net));
        let leader = &nodes[0].group;
        leader.wait_to_lead().await.unwrap();
        leader.add(2, "").await.unwrap();
        leader.add(3, "").await.unwrap();
        leader.set_voters([1, 2, 3]).await.unwrap();
        let last = propose(leader).await;
        for node in &nodes {
            node.reaches(last).await;
        }
        (nodes, last)
    }

    fn tell(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(story);
    }

    /// A block that rotted in a log was an error for ever, for whoever read it, and for whoever was to be sent it.
    #[test]
    fn three_replicas_with_different_bad_blocks_in_their_logs_heal_each_other() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            // A byte of a record; a block with the frame's head, of which nothing is left; the other way round.
            nodes[0].damage(first, 500_000, &[0xa5]);
            nodes[1].damage(first + 1, 0, &[0xa5; 4096]);
            nodes[2].damage(first + 2, 0, &[0; 512]);
            nodes[2].damage(first + 4, 70_000, &[0; 512]);
            // One that is asked finds its own damage, and may have healed it before it is read here.
            let heard = std::mem::take(&mut *net.heard());
            for (node, entry) in nodes.iter().zip(first..) {
                assert!(node.read(entry).is_err());
            }
            *net.heard() = heard;
            for (node, entry) in nodes.iter().zip(first..) {
                let read = node.group.read_patiently(entry, 1).await.unwrap();
                let number = entry - first;
                assert_eq!(read, [(entry, Some(payload(number)))]);
            }
            // In another segment, and nobody came to it yet.
            let read = nodes[2].group.read_patiently(first + 4, 1).await.unwrap();
            assert_eq!(read, [(first + 4, Some(payload(4)))]);
            for (node, entries) in nodes.iter().zip([1, 1, 2]) {
                node.until_healed(entries).await;
                assert!(node.is_whole());
                for number in 0..ENTRIES {
                    assert_eq!(node.read(first + number).unwrap(), Some(payload(number)));
                }
            }
        });
        net.heard().clear();
    }

    #[test]
    fn a_replica_whose_log_is_damaged_neither_votes_nor_counts_for_d_until_it_is_healed() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            let heard = std::mem::take(&mut *net.heard());
            nodes[1].damage(first + 3, 500_000, &[0xa5]);
            assert!(nodes[1].read(first + 3).is_err());
            let vote = Vote::new(99, 3);
            let ask = || VoteRequest::new(vote, nodes[1].group.storage.tail().last());
            for request in [Request::Vote(ask()), Request::PreVote(ask())] {
                assert_eq!(nodes[1].act(request).await.unwrap_err(), Refusal::DoesNotVote);
            }
            let tail = nodes[0].group.storage.tail().last().unwrap();
            let leader = Vote::new_committed(tail.leader_id.term, 1);
            let asked = || {
                Request::Durable(AskDurable {
                    vote: leader,
                    last: tail,
                    durable: None,
                    syncs: false,
                })
            };
            let answer = nodes[1].act(asked()).await.unwrap();
            assert!(
                matches!(answer, Answer::Durable(None, Fitness { votes: false, .. })),
                "{answer:?}"
            );
            *net.heard() = heard;
            nodes[1].until_healed(1).await;
            let answer = nodes[1].act(asked()).await.unwrap();
            assert!(
                matches!(answer, Answer::Durable(Some(_), Fitness { votes: true, .. })),
                "{answer:?}"
            );
            assert!(nodes[1].act(Request::PreVote(ask())).await.is_ok());
        });
        net.heard().clear();
    }

    /// What is asked for is given only where the log is the same: by what comes behind it.
    #[test]
    fn entries_are_given_only_to_whoever_has_what_follows_them() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            let known = nodes[0].group.storage.look_up(first + 3).unwrap().unwrap().log_id;
            let ask = |proof| Request::Give(AskEntries { first, end: first + 2, proof });
            let Answer::Given(entries) = nodes[1].act(ask(known)).await.unwrap() else { panic!() };
            assert_eq!(entries.len(), 2);
            let other = crate::cluster::types::log_id(known.leader_id.term + 1, known.index);
            let Answer::Given(entries) = nodes[1].act(ask(other)).await.unwrap() else { panic!() };
            assert_eq!(entries.len(), 0);
        });
        net.heard().clear();
    }

    #[test]
    fn what_all_others_have_let_go_of_is_not_healed_and_the_replica_says_that_it_must_be_seeded() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            for node in [&nodes[0], &nodes[2]] {
                let group = Arc::clone(&node.group);
                tokio::task::spawn_blocking(move || group.purge(first + 5)).await.unwrap().unwrap();
            }
            nodes[1].damage(first + 3, 500_000, &[0xa5]);
            assert!(nodes[1].read(first + 3).is_err());
            let lacks = async {
                while nodes[1].group.lack().is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, lacks).await.expect("it says so");
            assert_eq!(nodes[1].group.lack().map(|lack| lack.through), Some(first + 5));
        });
        net.heard().clear();
    }

    /// It was tried again every two seconds for ever.
    #[test]
    fn a_disk_that_fails_while_a_segment_is_healed_counts_as_failed() {
        const EIO: i32 = 5;
        for on in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename] {
            let net = Net::default();
            tell(async {
                let (nodes, last) = three(&net).await;
                let first = last + 1 - ENTRIES;
                nodes[1].damage(first + 3, 500_000, &[0xa5]);
                nodes[1].dir.inject(Fault::new(on, FaultKind::FailRaw(EIO)).sticky());
                assert!(nodes[1].read(first + 3).is_err());
                let fails = nodes[1].group.until_disk_fails();
                let why = timeout(PATIENCE, fails).await.expect("it counts as failed");
                assert_eq!(Some(why), nodes[1].group.why_disk_failed());
            });
            net.heard().clear();
        }
    }

    /// A disk that lost a record for good is one from which others take over; what it cannot read it may still be given.
    #[test]
    fn a_read_that_fails_while_a_segment_is_healed_is_no_disk_that_fails() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            nodes[1].damage(first + 3, 500_000, &[0xa5]);
            assert!(nodes[1].read(first + 3).is_err());
            nodes[1].dir.inject(Fault::new(Operation::Read, FaultKind::FailRaw(5)).times(3));
            nodes[1].until_healed(1).await;
            assert_eq!(nodes[1].group.why_disk_failed(), None);
        });
        net.heard().clear();
    }

    /// It ended the engine, and nobody was asked for the record.
    #[test]
    fn what_is_found_damaged_where_entries_are_cut_off_is_healed_and_then_they_are() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let kept = last + 4 - ENTRIES;
            let storage = &nodes[1].group.storage;
            let id = storage.look_up(kept).unwrap().unwrap().log_id;
            nodes[1].damage(kept, 500_000, &[0xa5]);
            // As its engine does for another leader.
            let mut store = LogStore::new(Arc::clone(storage));
            let cut = timeout(PATIENCE, store.truncate_after(Some(id))).await;
            cut.expect("it is healed").unwrap();
            nodes[1].until_healed(1).await;
            assert_eq!(storage.log.last_index(), to_log(kept));
            assert_eq!(nodes[1].read(kept).unwrap(), Some(payload(3)));
        });
        net.heard().clear();
    }

    /// The engine waits with it, and must not keep a broker that is asked to stop from stopping.
    #[test]
    fn a_replica_that_waits_for_room_to_cut_entries_off_says_so_and_can_be_closed() {
        let net = Net::default();
        tell(async {
            let ([leader, ..], last) = three(&net).await;
            let group = &leader.group;
            let agreed = group.storage.look_up(last).unwrap().unwrap().log_id;
            let leadership = group.wait_to_lead().await.unwrap();
            net.heard().clear();
            // Nobody else hears of this one.
            let alone = group.propose(leadership, payload(0));
            assert!(timeout(Duration::from_millis(100), alone).await.is_err());
            let full = FaultKind::Fail(std::io::ErrorKind::StorageFull);
            leader.dir.inject(Fault::new(Operation::Create, full).sticky());
            // The first finds a file that is ready; each cuts off what the one before it sent.
            let waits = async {
                for term in 100.. {
                    let id = crate::cluster::types::log_id(term, last + 1);
                    let request = AppendEntriesRequest {
                        vote: Vote::new_committed(term, 3),
                        prev_log_id: Some(agreed),
                        entries: vec![Entry::new_blank(id)],
                        leader_commit: None,
                    };
                    leader.act(Request::Append(request)).await.unwrap();
                }
            };
            let lacks = async {
                while group.lacks_room().is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                () = waits => {}
                told = timeout(PATIENCE, lacks) => told.expect("it waits, and says so"),
            }
            let group = Arc::into_inner(leader.group).expect("nobody else has it");
            let closed = tokio::task::spawn_blocking(|| group.close());
            timeout(PATIENCE, closed).await.expect("it closes").unwrap().ok();
        });
    }

    /// Any other was named as the leader, be it there or not: whoever seeds asks the one that is named first.
    #[test]
    fn where_a_segment_cannot_be_healed_the_replica_is_seeded_by_who_leads() {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            nodes[0].group.hand_over(3).await.unwrap();
            while nodes[1].group.leader() != Some(3) {
                sleep(Duration::from_millis(5)).await;
            }
            let away = net.heard().remove(&1);
            // What a segment follows no other node knows.
            let view = View::of(Arc::clone(&nodes[1].dir) as Arc<dyn Dir>).unwrap();
            let name = view.outline().unwrap().remove(0).segment;
            let segment = nodes[1].dir.open(&name, Access::default()).unwrap();
            segment.write_at(&[0xa5; 64], 4096).unwrap();
            nodes[1].damage(first, 500_000, &[0xa5]);
            assert!(nodes[1].read(first).is_err());
            let lacks = async {
                while nodes[1].group.lack().is_none() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, lacks).await.expect("it says so");
            assert_eq!(nodes[1].group.lack(), Some(Lack { leader: 3, through: first }));
            drop(away);
        });
        net.heard().clear();
    }

    #[test]
    fn alone_a_damaged_record_stays_an_error_that_names_it() {
        let net = Net::default();
        tell(async {
            let one = start(1, &net);
            let last = propose(&one.group).await;
            one.reaches(last).await;
            one.damage(last + 1 - ENTRIES, 500_000, &[0xa5]);
            let read = one.group.read_patiently(last + 1 - ENTRIES, 1).await.unwrap_err();
            assert_eq!(read.damaged_from(), Some(last + 1 - ENTRIES));
        });
        net.heard().clear();
    }
}
