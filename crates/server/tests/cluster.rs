//! A group of one, on a disk that forgets: what was answered is there, and no leadership comes
//! back.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_log::{Ack, Crew, CrewOptions};
use plimsoll_server::cluster::{Apply, Committed, Error, Group, Leadership, Options, Stop};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir, OsDir};

/// What was applied: index, term, payload.
type Applied = Arc<Mutex<Vec<(u64, u64, Option<Bytes>)>>>;

/// Remembers what is applied, and answers with its length.
#[derive(Default)]
struct Remembers(Applied);

impl Apply for Remembers {
    type Answer = usize;

    fn apply(&mut self, index: u64, term: u64, payload: Option<&Bytes>) -> Result<usize, Stop> {
        if payload.is_some_and(|payload| *payload == "impossible") {
            return Err(Stop("this cannot be applied".to_owned()));
        }
        self.0.lock().unwrap().push((index, term, payload.cloned()));
        Ok(payload.map_or(0, Bytes::len))
    }
}

struct Node {
    group: Group<Remembers>,
    applied: Applied,
}

fn options(promise: Ack) -> Options {
    Options {
        node: 7,
        promise,
        must_sync: |payload| payload.starts_with(b"sync"),
        log: plimsoll_log::Options {
            segment_bytes: 256 << 10,
            ring_bytes: 64 << 10,
            ..plimsoll_log::Options::default()
        },
        start: None,
        crew: None,
    }
}

fn open_with(disk: &Arc<SimDir>, options: Options) -> Result<Node, Error> {
    let state = Remembers::default();
    let applied = Arc::clone(&state.0);
    let dir: Arc<dyn Dir> = Arc::clone(disk) as _;
    let (group, _) = Group::open(&dir, options, state)?;
    Ok(Node { group, applied })
}

fn open(disk: &Arc<SimDir>, promise: Ack) -> Node {
    open_with(disk, options(promise)).unwrap()
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

impl Node {
    fn lead(&self) -> Leadership {
        wait(self.group.wait_to_lead()).unwrap()
    }

    fn propose(&self, leadership: Leadership, payload: &str) -> Result<Committed<usize>, Error> {
        wait(self.group.propose(leadership, Bytes::copy_from_slice(payload.as_bytes())))
    }

    /// The payloads that were applied, in order.
    fn payloads(&self) -> Vec<Bytes> {
        self.applied.lock().unwrap().iter().filter_map(|(_, _, payload)| payload.clone()).collect()
    }
}

/// What a node finds that comes up on this disk, and the leadership that it wins.
fn found_on(disk: SimDir, promise: Ack) -> (Vec<Bytes>, Leadership) {
    let node = open(&Arc::new(disk), promise);
    let leadership = node.lead();
    (node.payloads(), leadership)
}

#[test]
fn alone_it_leads_at_once_and_answers_in_order() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    assert_eq!(leadership, Leadership { term: 1, since: 1 });
    assert_eq!(node.group.leadership(), Some(leadership));
    for (number, payload) in ["a", "bb", "ccc"].into_iter().enumerate() {
        let committed = node.propose(leadership, payload).unwrap();
        let index = leadership.since + 1 + number as u64;
        assert_eq!(committed, Committed { index, answer: payload.len() });
        assert_eq!(node.group.applied(), Some(index));
        assert_eq!(node.group.committed(), Some(index));
    }
    let applied = node.applied.lock().unwrap();
    let indexes: Vec<_> = applied.iter().map(|(index, term, _)| (*index, *term)).collect();
    assert_eq!(indexes, [(0, 0), (1, 1), (2, 1), (3, 1), (4, 1)]);
}

#[test]
fn many_proposals_at_once_are_each_answered() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Durable);
    let leadership = node.lead();
    // Far more than the ring takes, so that the store waits for room.
    let payload = Bytes::from(vec![7; 8 << 10]);
    wait(async {
        let all = (0..64).map(|_| node.group.propose(leadership, payload.clone()));
        let answers = futures_util::future::join_all(all).await;
        for (number, committed) in answers.into_iter().enumerate() {
            assert_eq!(committed.unwrap().index, 2 + number as u64);
        }
    });
    assert_eq!(node.group.durable(), node.group.committed());
}

#[test]
fn a_group_that_was_closed_goes_on_in_a_new_term() {
    let disk = Arc::new(SimDir::new());
    let mut terms = Vec::new();
    for run in 0..4 {
        let node = open(&disk, Ack::Buffered);
        let leadership = node.lead();
        assert_eq!(node.payloads().len(), run, "what is replayed");
        node.propose(leadership, &format!("of run {run}")).unwrap();
        terms.push(leadership.term);
        node.group.close().unwrap();
    }
    assert_eq!(terms, [1, 2, 3, 4]);
}

#[test]
fn a_leader_that_comes_back_never_resumes_its_term() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let before = node.lead();
    for crash in [Crash::Process, Crash::System, Crash::PowerCut] {
        for seed in 0..5 {
            let again = open(&Arc::new(disk.crash(crash, seed)), Ack::Buffered);
            let after = again.lead();
            assert!(after.term > before.term, "{after:?} after {before:?}");
            let refused = again.propose(before, "as if nothing had happened");
            assert!(matches!(refused, Err(Error::NotLeader { term }) if term == before.term));
            assert_eq!(again.payloads(), Vec::<Bytes>::new());
        }
    }
}

#[test]
fn no_power_cut_takes_what_was_answered_as_durable() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Durable);
    let leadership = node.lead();
    let mut answered = Vec::new();
    for number in 0..12 {
        let payload = format!("number {number}");
        node.propose(leadership, &payload).unwrap();
        answered.push(Bytes::from(payload));
        for seed in 0..3 {
            let (found, after) = found_on(disk.power_cut(seed), Ack::Durable);
            assert_eq!(found, answered, "seed {seed}");
            assert!(after.term > leadership.term);
        }
    }
}

#[test]
fn no_crash_of_the_process_takes_what_was_answered_as_written() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Written);
    let leadership = node.lead();
    for number in 0..12 {
        node.propose(leadership, &format!("number {number}")).unwrap();
        let (found, _) = found_on(disk.crash(Crash::Process, 0), Ack::Written);
        assert_eq!(found, node.payloads());
    }
}

#[test]
fn at_every_moment_a_power_cut_leaves_a_beginning_of_what_was_proposed() {
    let disk = Arc::new(SimDir::new());
    open(&disk, Ack::Buffered).group.close().unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.watch(move |moment| {
        seen.lock().unwrap().push(moment.crash(Crash::PowerCut, moment.number));
    });
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    for number in 0..20 {
        let payload = format!("{}{number}", if number % 4 == 0 { "sync" } else { "" });
        node.propose(leadership, &payload).unwrap();
    }
    wait(node.group.wait_durable(node.group.applied().unwrap())).unwrap();
    let proposed = node.payloads();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 10, "{} moments", images.len());
    for image in images {
        let (found, after) = found_on(image, Ack::Buffered);
        assert_eq!(found, proposed[..found.len()]);
        assert!(after.term > leadership.term || found.is_empty());
    }
    let (found, after) = found_on(disk.power_cut(1), Ack::Buffered);
    assert_eq!(found, proposed);
    assert!(after.term > leadership.term);
}

#[test]
fn a_group_whose_founding_was_cut_off_is_founded_again() {
    let disk = Arc::new(SimDir::new());
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.watch(move |moment| {
        for crash in [Crash::Process, Crash::PowerCut] {
            seen.lock().unwrap().push(moment.crash(crash, moment.number));
        }
    });
    open(&disk, Ack::Buffered).lead();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 20, "{} moments", images.len());
    for image in images {
        let node = open(&Arc::new(image), Ack::Durable);
        node.propose(node.lead(), "the first").unwrap();
        assert_eq!(node.payloads(), ["the first"]);
    }
}

/// Many lives of one replica: each proposes, and ends by a crash.
#[test]
fn no_life_takes_back_what_an_earlier_one_promised() {
    let mut disk = Arc::new(SimDir::new());
    let mut history: Vec<Bytes> = Vec::new();
    let (mut promised, mut last_term) = (0, 0);
    for life in 0..60 {
        let promise = [Ack::Buffered, Ack::Written, Ack::Durable][life / 3 % 3];
        let crash = [Crash::Process, Crash::System, Crash::PowerCut][life % 3];
        let node = open(&disk, promise);
        let leadership = node.lead();
        assert!(leadership.term > last_term, "life {life}");
        last_term = leadership.term;
        let found = node.payloads();
        assert!(found.len() >= promised, "life {life}: {} of {promised}", found.len());
        assert_eq!(found, history[..found.len()], "life {life}");
        history.truncate(found.len());
        for number in 0..life % 5 {
            let payload = format!("{number} of life {life}");
            node.propose(leadership, &payload).unwrap();
            history.push(Bytes::from(payload));
        }
        let durable = node.group.durable();
        let next = disk.crash(crash, life as u64);
        promised = match (promise, crash) {
            (Ack::Durable, _) | (Ack::Written, Crash::Process) => history.len(),
            _ => {
                let applied = node.applied.lock().unwrap();
                let is_durable = |index: u64| Some(index) <= durable;
                applied.iter().filter(|(index, _, p)| p.is_some() && is_durable(*index)).count()
            }
        };
        disk = Arc::new(next);
    }
}

#[test]
fn what_must_sync_is_durable_once_it_is_answered_and_so_is_all_before_it() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    node.propose(leadership, "in memory").unwrap();
    let index = node.propose(leadership, "sync: opened").unwrap().index;
    assert!(node.group.durable() >= Some(index));
    for seed in 0..5 {
        let (found, _) = found_on(disk.power_cut(seed), Ack::Buffered);
        assert_eq!(found, ["in memory", "sync: opened"]);
    }
}

#[test]
fn who_waits_for_durable_has_it() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    let index = node.propose(leadership, "worth a sync").unwrap().index;
    wait(node.group.wait_durable(index)).unwrap();
    assert_eq!(node.group.durable(), Some(index));
    assert_eq!(found_on(disk.power_cut(3), Ack::Buffered).0, ["worth a sync"]);
}

#[test]
fn what_is_too_large_is_refused_and_the_group_goes_on() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    let most = usize::try_from(node.group.max_payload_bytes()).unwrap();
    let refused = node.propose(leadership, &"x".repeat(most + 1));
    assert!(matches!(refused, Err(Error::TooLarge { bytes, .. }) if bytes == most + 1));
    assert_eq!(node.propose(leadership, &"x".repeat(most)).unwrap().answer, most);
}

#[test]
fn what_cannot_be_applied_stops_the_replica_and_says_why() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    let stopped = node.propose(leadership, "impossible").unwrap_err().to_string();
    assert!(stopped.contains("stopped"), "{stopped}");
    let after = node.propose(leadership, "possible").unwrap_err().to_string();
    assert!(after.contains("this cannot be applied"), "{after}");
}

#[test]
fn a_disk_that_fails_stops_the_group_and_nothing_is_answered() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Durable);
    let leadership = node.lead();
    node.propose(leadership, "before").unwrap();
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        let fail = FaultKind::Fail(std::io::ErrorKind::Other);
        disk.inject(Fault::new(operation, fail).sticky());
    }
    let failed = node.propose(leadership, "after").unwrap_err();
    assert!(matches!(failed, Error::Stopped { .. }), "{failed:?}");
    assert_eq!(node.group.leadership(), None, "what has stopped leads no more");
    assert!(node.group.close().is_err());
}

/// The engine, in the middle of an append, waits for room; who closed the group waited for the engine.
#[test]
fn a_group_that_waits_for_room_can_be_closed() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Buffered);
    let leadership = node.lead();
    for on in [Operation::Write, Operation::Allocate, Operation::Create] {
        let kind = FaultKind::Fail(std::io::ErrorKind::StorageFull);
        disk.inject(Fault::new(on, kind).sticky());
    }
    let payload = Bytes::from(vec![b'.'; 10_000]);
    for _ in 0..20 {
        // More than the ring holds.
        wait(node.group.submit(leadership, payload.clone())).map(drop).ok();
    }
    let (closed, is_closed) = mpsc::channel();
    thread::spawn(move || closed.send(node.group.close().is_err()));
    assert_eq!(is_closed.recv_timeout(Duration::from_secs(60)), Ok(true));
}

#[test]
fn a_lost_identity_is_told() {
    let disk = Arc::new(SimDir::new());
    open(&disk, Ack::Buffered).group.close().unwrap();
    disk.remove("identity").unwrap();
    let lost = open_with(&disk, options(Ack::Buffered)).err();
    assert!(matches!(lost, Some(Error::IdentityLost { .. })), "{lost:?}");
}

/// A byte of the first record flipped before anything called it durable: the open waited for ever, for a
/// leader that nobody could elect.
#[test]
fn a_log_without_its_members_is_told() {
    let disk = Arc::new(SimDir::new());
    let node = open(&disk, Ack::Written);
    node.lead();
    let disk = Arc::new(disk.crash(Crash::Process, 0));
    // The first record's; the log's header has a block before it.
    let segment = disk.open("00000000000000000001.seg", Access::default()).unwrap();
    let mut byte = [0];
    segment.read_at(&mut byte, 4190).unwrap();
    segment.write_at(&[!byte[0]], 4190).unwrap();
    let found = open_with(&disk, options(Ack::Written)).err();
    assert!(matches!(found, Some(Error::MembersLost)), "{found:?}");
}

#[test]
fn the_directory_of_another_node_is_refused() {
    let disk = Arc::new(SimDir::new());
    open(&disk, Ack::Buffered).group.close().unwrap();
    let other = Options { node: 8, ..options(Ack::Buffered) };
    let refused = open_with(&disk, other).err();
    assert!(matches!(refused, Some(Error::OtherNode { found: 7, asked: 8 })), "{refused:?}");
}

#[test]
fn a_real_disk_keeps_a_group() {
    let tmp = tempfile::tempdir().unwrap();
    let dir: Arc<dyn Dir> = Arc::new(OsDir::open(tmp.path()).unwrap());
    for run in 0..3_u8 {
        let state = Remembers::default();
        let applied = Arc::clone(&state.0);
        let (group, recovery) = Group::open(&dir, options(Ack::Durable), state).unwrap();
        assert_eq!(recovery.created, run == 0);
        let node = Node { group, applied };
        let leadership = node.lead();
        assert_eq!(leadership.term, u64::from(run) + 1);
        assert_eq!(node.payloads().len(), usize::from(run));
        node.propose(leadership, "once a run").unwrap();
        node.group.close().unwrap();
    }
}

#[test]
fn groups_share_a_crew() {
    let crew = Arc::new(Crew::start(CrewOptions::default()).unwrap());
    let nodes: Vec<_> = (0..4)
        .map(|_| {
            let options = Options { crew: Some(Arc::clone(&crew)), ..options(Ack::Durable) };
            open_with(&Arc::new(SimDir::new()), options).unwrap()
        })
        .collect();
    for node in &nodes {
        node.propose(node.lead(), "one of many").unwrap();
    }
    for node in nodes {
        node.group.close().unwrap();
    }
}
