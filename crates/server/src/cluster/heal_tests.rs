//! What a disk has lost of a log comes back from other replicas, on simulated disks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
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
    Answered, Begin, Carrier, Group, Needed, Options, Place, Receiver, Recovered, Stop, Unreached,
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

/// Those that hear each other, who asks, and who is not heard when it asks.
#[derive(Debug, Default, Clone)]
struct Net(Arc<Mutex<Heard>>, u64, Arc<AtomicU64>);

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
        let heard = heard.filter(|_| self.2.load(Ordering::Relaxed) != from);
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
    let one = start_on(Arc::new(SimDir::new()), node, net, None);
    net.heard().insert(node, one.group.receiver());
    one
}

/// Starts on this disk, with what a snapshot covers that stands there. Nobody hears it yet.
fn start_on(disk: Arc<SimDir>, node: u64, net: &Net, start: Option<Place>) -> One {
    let dir: Arc<dyn Dir> = Arc::clone(&disk) as _;
    let log = plimsoll_log::Options { segment_bytes: 5 << 20, ..Default::default() };
    let (promise, must_sync) = (Ack::Buffered, |_: &[u8]| false);
    let covered = start.as_ref().map(Place::index);
    let options = Options { node, promise, must_sync, start, log, crew: None };
    let carrier = Arc::new(Net(Arc::clone(&net.0), node, Arc::clone(&net.2)));
    let begin = Begin { carrier, founds: node == 1, ..Begin::alone() };
    let recovered = Recovered::open(&dir, options).unwrap();
    recovered.let_go_of_damage(covered).unwrap();
    let group = recovered.start_as(begin, Nothing).unwrap();
    if let Some(covered) = covered {
        group.cover(covered);
    }
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

    async fn purges(&self, through: u64) -> Result<()> {
        let group = Arc::clone(&self.group);
        tokio::task::spawn_blocking(move || group.purge(through)).await.unwrap()
    }

    /// Ends in order. Nobody else has the group.
    async fn close(self, node: u64, net: &Net) -> Arc<SimDir> {
        net.heard().remove(&node);
        let group = Arc::into_inner(self.group).unwrap();
        tokio::task::spawn_blocking(move || group.close()).await.unwrap().unwrap();
        self.dir
    }

    /// Damages bytes of the frame of an entry, from there on.
    fn damage(&self, entry: u64, from: u64, bytes: &[u8]) {
        damage(&self.dir, entry, from, bytes);
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

fn damage(disk: &Arc<SimDir>, entry: u64, from: u64, bytes: &[u8]) {
    let view = View::of(Arc::clone(disk) as Arc<dyn Dir>).unwrap();
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
    disk.open(&name, Access::default()).unwrap().write_at(bytes, at + from).unwrap();
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
fn a_replica_whose_log_is_damaged_votes_and_neither_takes_over_nor_counts_for_d_until_it_is_healed()
{
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let heard = std::mem::take(&mut *net.heard());
        nodes[1].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[1].read(first + 3).is_err());
        let vote = Vote::new(99, 3);
        let last = nodes[1].group.storage.tail().last();
        let ask = || VoteRequest::new(vote, last);
        assert!(nodes[1].act(Request::PreVote(ask())).await.is_ok());
        let take_over = TransferLeaderRequest::new(Vote::new_committed(1, 1), 2, last);
        let refused = nodes[1].act(Request::TakeOver(take_over)).await;
        assert_eq!(refused.unwrap_err(), Refusal::DoesNotVote);
        let tail = nodes[0].group.storage.tail().last().unwrap();
        let leader = Vote::new_committed(tail.leader_id.term, 1);
        let asked = || {
            Request::Durable(AskDurable { vote: leader, last: tail, durable: None, syncs: false })
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
    });
    net.heard().clear();
}

/// A snapshot covers it, and the others have let go of it: it was to be seeded, and two of three that had lost the same record
/// were no majority that votes.
#[test]
fn what_is_damaged_and_covered_by_a_snapshot_is_let_go_of_and_nobody_is_seeded() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let sound = Arc::clone(&nodes[2].group);
        tokio::task::spawn_blocking(move || sound.purge(first + 5)).await.unwrap().unwrap();
        let heard = std::mem::take(&mut *net.heard());
        for node in &nodes[..2] {
            node.group.cover(first + 5);
            node.damage(first + 3, 500_000, &[0xa5]);
            node.damage(first + 5, 500_000, &[0xa5]);
            assert!(node.read(first + 3).is_err());
            assert!(node.read(first + 5).is_err());
        }
        *net.heard() = heard;
        for node in &nodes[..2] {
            let let_go = async {
                while node.group.gone_damaged() == 0 {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, let_go).await.expect("it is let go of");
            node.until_healed(0).await;
            assert_eq!((node.group.gone_damaged(), node.group.lack()), (2, None));
            // What was behind it is there.
            assert_eq!(node.read(first + 7).unwrap(), Some(payload(7)));
            // Who reads the file finds it again, as the segment stays.
            let group = Arc::clone(&node.group);
            tokio::task::spawn_blocking(move || group.purge(first + 6)).await.unwrap().unwrap();
            assert!(!node.group.storage.log.find_damage(to_log(first + 5)).unwrap().is_empty());
            node.group.storage.wounds.note(first + 5);
            node.until_healed(0).await;
        }
        // Where the machine is busy another may lead by now: they did not hear each other for a while.
        let leads = async {
            loop {
                if let Some(leads) = nodes.iter().find(|node| node.group.leadership().is_some()) {
                    return leads;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let leads = timeout(PATIENCE, leads).await.expect("somebody leads");
        let leadership = leads.group.wait_to_lead().await.unwrap();
        let next = leads.group.propose(leadership, payload(99)).await.unwrap().index;
        for node in &nodes {
            node.reaches(next).await;
        }
    });
    net.heard().clear();
}

/// Two of three had lost a record that the third had let go of, and one of them was away: nobody was elected.
#[test]
fn who_has_a_whole_log_is_elected_by_the_vote_of_one_that_has_not() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let sound = Arc::clone(&three.group);
        tokio::task::spawn_blocking(move || sound.purge(first + 5)).await.unwrap().unwrap();
        let mut heard = std::mem::take(&mut *net.heard());
        two.damage(first + 3, 500_000, &[0xa5]);
        assert!(two.read(first + 3).is_err());
        heard.remove(&1);
        drop(one);
        *net.heard() = heard;
        // Which gives it all again, though the first may have what is missing: it does not count for D before.
        let lacks = async {
            while two.group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
        assert_eq!(two.group.lack(), Some(Lack { leader: 3, through: first + 5 }));
        assert_eq!((two.group.leader(), two.group.healed()), (Some(3), (0, 1)));
    });
    net.heard().clear();
}

/// The newest entries are in memory: nobody is asked for those, and nobody need be there.
#[test]
fn what_is_damaged_on_the_disk_and_is_in_memory_is_healed_from_there() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        net.heard().clear();
        let node = &nodes[1];
        node.damage(last - 1, 500_000, &[0xa5]);
        assert!(node.read(last - 1).is_ok(), "it is not read from the disk");
        // Files say what was durable some records later only, so who looks from outside may take it for torn.
        let damaged = || node.group.storage.log.find_damage(to_log(last - 1)).unwrap();
        assert_eq!(damaged(), [to_log(last - 1)..=to_log(last - 1)]);
        node.group.storage.wounds.note(last - 1);
        node.until_healed(1).await;
        assert_eq!(damaged(), []);
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

/// It was said to be healed, with no records.
#[test]
fn what_goes_with_its_segment_before_it_is_healed_is_let_go_of_and_not_healed() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let heard = std::mem::take(&mut *net.heard());
        nodes[1].damage(first, 500_000, &[0xa5]);
        assert!(nodes[1].read(first).is_err());
        assert_eq!((nodes[1].group.healed(), nodes[1].group.gone_damaged()), ((0, 1), 0));
        let group = Arc::clone(&nodes[1].group);
        tokio::task::spawn_blocking(move || group.purge(first + 5)).await.unwrap().unwrap();
        *net.heard() = heard;
        nodes[1].until_healed(0).await;
        assert_eq!(nodes[1].group.gone_damaged(), 1);
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

/// The engine waited for the record, and who was to heal it for the engine, which was to say what others have to prove.
#[test]
fn an_engine_that_waits_to_cut_off_at_a_damaged_record_is_not_asked_what_it_knows() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let group = &nodes[0].group;
        let agreed = group.storage.look_up(last).unwrap().unwrap().log_id;
        let leadership = group.wait_to_lead().await.unwrap();
        // Nobody else hears of these, and what was agreed is in no memory any more.
        let heard = std::mem::take(&mut *net.heard());
        for number in 0..ENTRIES {
            drop(group.submit(leadership, payload(number)).await.unwrap());
        }
        while group.synced() <= last + ENTRIES {
            sleep(Duration::from_millis(5)).await;
        }
        nodes[0].damage(last, 500_000, &[0xa5]);
        *net.heard() = heard;
        let id = crate::cluster::types::log_id(100, last + 1);
        let append = Request::Append(AppendEntriesRequest {
            vote: Vote::new_committed(100, 3),
            prev_log_id: Some(agreed),
            entries: vec![Entry::new_blank(id)],
            leader_commit: None,
        });
        let appended = timeout(PATIENCE, nodes[0].act(append)).await.expect("it cuts them off");
        appended.unwrap();
        nodes[0].until_healed(1).await;
    });
    net.heard().clear();
}

/// Who heals waited until the engine knew of it, the engine for the state, and the state for the other record.
#[test]
fn what_is_covered_is_let_go_of_though_the_state_waits_for_another_damaged_record() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], covered) = three(&net).await;
        let (place, ()) = two.group.snapshot(|_| ()).await.unwrap().unwrap();
        let last = propose(&one.group).await;
        for node in [&one, &two, &three] {
            node.reaches(last).await;
        }
        let disk = two.close(2, &net).await;
        net.2.store(2, Ordering::Relaxed);
        let two = start_on(disk, 2, &net, Some(place));
        two.damage(covered + 4, 500_000, &[0xa5]);
        net.heard().insert(2, two.group.receiver());
        while !two.group.storage.wounds.watch().borrow().open.contains(&(covered + 4)) {
            sleep(Duration::from_millis(5)).await;
        }
        two.damage(covered, 500_000, &[0xa5]);
        two.group.storage.wounds.note(covered);
        while two.group.gone_damaged() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        net.2.store(0, Ordering::Relaxed);
        two.reaches(last).await;
        two.until_healed(1).await;
        drop((one, three));
    });
    net.heard().clear();
}

/// One of them was told that the log had a gap, and an engine that was asked twice at once answered one, and the other waited.
#[test]
fn two_that_let_go_at_once_both_do_and_the_engine_comes_to_know() {
    let net = Net::default();
    tell(async {
        let one = start(1, &net);
        let leadership = one.group.wait_to_lead().await.unwrap();
        let mut last = 0;
        for _ in 0..400 {
            let small = Bytes::from_static(b"small");
            last = one.group.propose(leadership, small).await.unwrap().index;
        }
        one.reaches(last).await;
        for through in (1..last).step_by(2) {
            let (first, second) = tokio::join!(one.purges(through), one.purges(through + 1));
            assert!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
        }
        let known = async {
            let metrics = one.group.engine.metrics();
            while metrics.borrow_watched().purged.map(|gone| gone.index) < Some(last - 1) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, known).await.expect("it knows");
    });
    net.heard().clear();
}

/// Its engine reads the first entry behind what was let go of, and where terms change, and no start went on.
#[test]
fn what_is_damaged_before_the_snapshot_is_let_go_of_at_a_start() {
    // The first; one in the midst; all but the first, so that nothing that can be read is behind them.
    for damaged in [0..1, 5..6, 1..ENTRIES - 3] {
        for starts in [1, 2] {
            let net = Net::default();
            tell(async {
                let mut one = start(1, &net);
                let end = propose(&one.group).await;
                one.purges(end - ENTRIES + 3).await.unwrap();
                let first = end - ENTRIES + 4;
                let (place, ()) = one.group.snapshot(|_| ()).await.unwrap().unwrap();
                assert_eq!(place.index(), end);
                one.reaches(propose(&one.group).await).await;
                for _ in 1..starts {
                    // Which begins another term.
                    one = start_on(one.close(1, &net).await, 1, &net, Some(place.clone()));
                    one.reaches(propose(&one.group).await).await;
                }
                let disk = one.close(1, &net).await;
                damaged.clone().for_each(|at| damage(&disk, first + at, 500_000, &[0xa5]));
                let one = start_on(disk, 1, &net, Some(place));
                let next = propose(&one.group).await;
                assert_eq!(one.read(next).unwrap(), Some(payload(ENTRIES - 1)));
            });
            net.heard().clear();
        }
    }
}

/// All that is damaged in a segment was asked for, and of some of it nobody had anything any more: the replica was to be seeded.
#[test]
fn what_others_have_is_healed_beside_what_all_have_let_go_of() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in &nodes {
            node.purges(first + 5).await.unwrap();
        }
        nodes[1].damage(first + 5, 500_000, &[0xa5]);
        nodes[1].damage(first + 7, 500_000, &[0xa5]);
        let found = nodes[1].group.storage.log.find_damage(to_log(first + 7)).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        nodes[1].group.storage.wounds.note(first + 7);
        nodes[1].until_healed(1).await;
        assert_eq!(nodes[1].read(first + 7).unwrap(), Some(payload(7)));
        assert_eq!(nodes[1].group.lack(), None);
    });
    net.heard().clear();
}

/// It was to be seeded by one that had less, and its own log with what nobody else had was to go.
#[test]
fn while_nobody_leads_nobody_is_seeded() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        three.purges(first + 5).await.unwrap();
        let leadership = one.group.wait_to_lead().await.unwrap();
        let third = net.heard().remove(&3).unwrap();
        let newest = one.group.propose(leadership, payload(7)).await.unwrap().index;
        one.group.wait_durable(newest).await.unwrap();
        let away = net.heard().remove(&1).unwrap();
        net.2.store(1, Ordering::Relaxed);
        two.damage(first + 3, 500_000, &[0xa5]);
        // Where a segment begins: it cannot be healed by entry at all.
        let view = View::of(Arc::clone(&two.dir) as Arc<dyn Dir>).unwrap();
        let name = view.outline().unwrap().remove(0).segment;
        two.dir.open(&name, Access::default()).unwrap().write_at(&[0xa5; 64], 4096).unwrap();
        assert!(two.read(first + 3).is_err());
        net.heard().insert(3, third);
        let begun = Instant::now();
        while begun.elapsed() < GOES_WITHIN * 2 {
            assert_eq!((two.group.lack(), two.group.needed()), (None, None));
            sleep(Duration::from_millis(5)).await;
        }
        net.heard().insert(1, away);
        net.2.store(0, Ordering::Relaxed);
        let lacks = async {
            while two.group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
        let (needed, end) = (two.group.needed().unwrap(), two.group.storage.tail().last().unwrap());
        assert_eq!(needed.ends, (end.leader_id.term, end.index + 1));
        assert!(end.index >= newest, "who has less gives nothing");
    });
    net.heard().clear();
}

/// It stayed so for ever: what it cannot read nobody else can send it, and it is not seeded while it leads.
#[test]
fn a_leader_that_cannot_be_healed_is_one_that_had_better_hand_over_and_is_seeded_then() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in &nodes[1..] {
            node.purges(first + 5).await.unwrap();
        }
        nodes[0].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[0].read(first + 3).is_err());
        assert!(!nodes[0].group.is_damaged());
        let damaged = async {
            while !nodes[0].group.is_damaged() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, damaged).await.expect("it says so");
        assert_eq!((nodes[0].group.lack(), nodes[0].group.needed()), (None, None));
        nodes[0].group.hand_over(3).await.unwrap();
        let lacks = async {
            while nodes[0].group.needed().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
    });
    net.heard().clear();
}

/// It was seeded all the same, and by then may have been what led.
#[test]
fn what_is_healed_after_all_is_not_lacking_any_more() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in [&nodes[0], &nodes[2]] {
            node.purges(first + 5).await.unwrap();
        }
        let node = &nodes[1];
        node.damage(first + 3, 500_000, &[0xa5]);
        assert!(node.read(first + 3).is_err());
        while node.group.lack().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_ne!(node.group.needed(), None);
        node.group.cover(first + 5);
        node.until_healed(0).await;
        assert_eq!((node.group.lack(), node.group.needed()), (None, None::<Needed>));
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
