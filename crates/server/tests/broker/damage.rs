//! What a disk has lost of one broker's chapters, or of its log, it has back from another.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_server::broker::{Node, Options, PartitionOverview, Seat, found};
use plimsoll_server::chapter::{Run, Survey};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::net::{Limits, Listener};
use plimsoll_sync::{Access, Dir, OsDir};

use super::chapters::chapters_of;
use super::forwarded::{create, metadata, three, three_of, until};
use super::{Broker, UNCOMMITTED};

/// The shards of topics that do not wait for the disk: each topic is in another.
const SHARED: [u32; 3] = [2, 4, 6];
const TOPICS: [&str; 3] = ["first", "second", "third"];
const RECORDS: u64 = 80;

fn chapters(root: &Path, node: u64, shard: u32) -> Arc<dyn Dir> {
    let dir = OsDir::create_all(root.join(node.to_string())).unwrap();
    dir.open_dir(&format!("chapters-{shard}")).unwrap()
}

/// Runs that somebody can read, each with its file, and whether all of it is as it was written.
fn runs(root: &Path, node: u64, shard: u32) -> Vec<(String, Run, bool)> {
    let survey = Survey::of(&*chapters(root, node, shard), shard).unwrap();
    let files = survey.files.into_iter().flat_map(|found| {
        let (name, opened) = (found.named.name(), found.opened.unwrap());
        let live: Vec<Run> =
            opened.runs.iter().filter(|run| !opened.is_deleted(run, None)).copied().collect();
        let is_whole = |run: &Run| opened.examine(run, |_| true).unwrap().is_empty();
        live.into_iter().map(|run| (name.clone(), run, is_whole(&run))).collect::<Vec<_>>()
    });
    files.collect()
}

fn flip(root: &Path, node: u64, shard: u32, name: &str, at: u64) {
    let file = chapters(root, node, shard).open(name, Access::default()).unwrap();
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, at).unwrap(), 1);
    file.write_at(&[byte[0] ^ 1], at).unwrap();
}

/// Has the leader of a topic do this.
fn at_leader<T>(
    brokers: &mut BTreeMap<u64, Broker>,
    topic: &str,
    act: impl FnOnce(&mut Broker) -> T,
) -> T {
    let mut leader = None;
    until("somebody leads it", || {
        let asked = brokers.values_mut().next().unwrap();
        let said = metadata(asked, topic, false).topics[0].partitions[0].leader_id;
        leader = u64::try_from(said).ok();
        leader.is_some()
    });
    act(brokers.get_mut(&leader.unwrap()).unwrap())
}

#[test]
fn three_brokers_with_different_bad_blocks_serve_each_others_records_and_heal() {
    let root = tempfile::tempdir().unwrap();
    let (root, every) = (root.path(), Some(Duration::from_secs(1)));
    let options = Options { scrub_every: every, ..chapters_of(8 << 10) };
    let mut brokers = three(root, &options);
    for topic in TOPICS {
        let asked = brokers.values_mut().next().unwrap();
        assert_eq!(create(asked, topic, 3), ErrorCode::None);
    }
    let value = |number: u64| format!("{number} {}", "x".repeat(500));
    for number in 0..RECORDS {
        for topic in TOPICS {
            until("it is taken", || {
                let produce = |broker: &mut Broker| broker.produce(topic, &value(number));
                at_leader(&mut brokers, topic, produce).error_code == ErrorCode::None
            });
        }
    }
    let settled = |broker: &Broker| Some(broker.chapters()).filter(|of| of.waiting == 0);
    until("all have settled as much", || {
        let settled: Vec<_> = brokers.values().map(settled).collect();
        let chapter = settled[0].map(|of| of.settled);
        chapter > Some(9) && settled.iter().all(|of| of.map(|of| of.settled) == chapter)
    });
    // Each has lost something else.
    for (nth, (node, shard)) in (1..=3).zip(SHARED).enumerate() {
        let all = runs(root, node, shard);
        let (name, run, _) = &all[nth];
        flip(root, node, shard, name, run.place + run.bytes / 2);
    }
    // Nobody who reads meets any of it.
    for topic in TOPICS {
        let found = at_leader(&mut brokers, topic, |broker| broker.consume(topic, UNCOMMITTED));
        let mut found: Vec<String> = found.into_iter().map(|(_, value)| value).collect();
        // One whose answer was lost was sent again.
        found.dedup();
        assert_eq!(found, (0..RECORDS).map(value).collect::<Vec<_>>(), "{topic}");
    }
    until("all is healed", || {
        brokers
            .values()
            .all(|broker| broker.chapters().healed == 1 && broker.chapters().damaged == 0)
    });
    for (node, shard) in (1..=3).flat_map(|node| SHARED.map(|shard| (node, shard))) {
        let all = runs(root, node, shard);
        assert!(all.iter().all(|(_, _, is_whole)| *is_whole), "node {node}, shard {shard}");
    }
    drop(brokers);
}

/// Where this text lies in a log.
fn find_in_log(dir: &Path, text: &[u8]) -> (PathBuf, u64) {
    let found = fs::read_dir(dir).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).ok()?;
        let at = bytes.windows(text.len()).position(|window| window == text)?;
        Some((path, at as u64))
    });
    found.expect("it is in the log")
}

fn serve(root: &Path, seat: &Seat) -> Broker {
    let options = Options { seat: Some(seat.clone()), ..Options::default() };
    let node = Node::open(&root.join(seat.node.to_string()), options).unwrap();
    let address = format!("{}:{}", seat.clients.0, seat.clients.1).parse().unwrap();
    let listener = node.runtime().block_on(Listener::bind(address, Limits::default()));
    Broker::serve(node, listener.unwrap())
}

/// Three brokers with a topic, and their seats.
fn three_with_orders(root: &Path) -> (BTreeMap<u64, Broker>, BTreeMap<u64, Seat>) {
    let cluster = found(&root.join("1")).unwrap();
    let seats = RefCell::new(BTreeMap::new());
    let mut brokers = three_of(&cluster, |id, seat| {
        seats.borrow_mut().insert(id, seat.clone());
        let options = Options { seat: Some(seat), ..Options::default() };
        Node::open(&root.join(id.to_string()), options).unwrap()
    });
    assert_eq!(create(brokers.get_mut(&1).unwrap(), "orders", 3), ErrorCode::None);
    (brokers, seats.into_inner())
}

fn leader_of_orders(brokers: &mut BTreeMap<u64, Broker>) -> u64 {
    let asked = brokers.values_mut().next().unwrap();
    let leader = metadata(asked, "orders", false).topics[0].partitions[0].leader_id;
    u64::try_from(leader).unwrap_or(0)
}

fn produce(brokers: &mut BTreeMap<u64, Broker>, value: &str) {
    until("it is taken", || {
        let leader = leader_of_orders(brokers);
        let leader = brokers.get_mut(&leader);
        leader.is_some_and(|leads| leads.produce("orders", value).error_code == ErrorCode::None)
    });
}

fn numbers(first: u64, end: u64) -> impl Iterator<Item = String> {
    (first..end).map(|number| format!("record number {number:03}"))
}

/// Changes a byte of a log where this text lies.
pub(super) fn damage(log: &Path, text: &[u8]) {
    let (file, byte) = find_in_log(log, text);
    let mut bytes = fs::read(&file).unwrap();
    bytes[usize::try_from(byte).unwrap()] ^= 1;
    fs::write(&file, bytes).unwrap();
}

/// Nothing before this broker has applied that the partition was opened: what it has acknowledged it need not know to be committed.
fn at_orders(broker: &Broker) -> Option<PartitionOverview> {
    broker.node.topic("orders")?.partition.pop()
}

/// Whether a shard's log is whole again, and what was lost of it was given.
fn is_healed(broker: &Broker, number: u32) -> bool {
    let shard = broker.node.shards().into_iter().find(|shard| shard.number == number).unwrap();
    shard.log_healed > 0 && shard.log_damaged == 0
}

fn in_doubt(broker: &Broker) -> Vec<u32> {
    let shards = broker.node.shards().into_iter().filter(|shard| shard.is_in_doubt);
    shards.map(|shard| shard.number).collect()
}

/// Of the brokers that are left all must have all.
fn until_all_is_read(brokers: &mut BTreeMap<u64, Broker>, count: u64) {
    let all: Vec<String> = numbers(0, count).collect();
    until("another leads, and has all", || {
        let leader = leader_of_orders(brokers);
        brokers.get_mut(&leader).is_some_and(|leads| {
            let is_led = leads.fetch("orders", 0, UNCOMMITTED).error_code == ErrorCode::None;
            let read = is_led.then(|| leads.consume("orders", UNCOMMITTED));
            let (offsets, mut values): (Vec<_>, Vec<_>) = read.into_iter().flatten().unzip();
            let has_no_gap = offsets.into_iter().zip(0..).all(|(offset, at)| offset == at);
            // One whose answer was lost was sent again: so there may be more.
            values.dedup();
            has_no_gap && values == all
        })
    });
}

/// It did not start again: its engine reads what follows its snapshot before it can ask anybody.
#[test]
fn a_broker_whose_log_is_damaged_where_it_starts_has_the_rest_back_from_the_others() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (brokers, seats) = three_with_orders(root);
    // At the end of a run it is noted who votes.
    brokers.into_values().for_each(|broker| broker.stop().close().unwrap());
    let mut brokers: BTreeMap<u64, Broker> =
        seats.iter().map(|(id, seat)| (*id, serve(root, seat))).collect();
    // Of what was written before them the later ones say that it is durable.
    numbers(0, 60).for_each(|value| produce(&mut brokers, &value));
    let leader = leader_of_orders(&mut brokers);
    let victim = (1..=3).find(|id| *id != leader).unwrap();
    until("some is durable", || {
        at_orders(&brokers[&victim]).is_some_and(|orders| orders.durable >= 60)
    });
    let at = |broker: &Broker| at_orders(broker).unwrap();
    let shard = at(&brokers[&victim]).shard;
    numbers(60, 120).for_each(|value| produce(&mut brokers, &value));
    until("all is durable", || at(&brokers[&victim]).durable >= 120);
    drop(brokers.remove(&victim).unwrap().stop());
    let own = root.join(victim.to_string());
    damage(&own.join(format!("shard-{shard}")), b"record number 010");
    numbers(120, 140).for_each(|value| produce(&mut brokers, &value));

    let broker = serve(root, &seats[&victim]);
    let said = broker.node.verdict().to_owned();
    assert!(said.contains(&format!("the disk has lost an entry of shard {shard}: ")), "{said}");
    assert!(!own.join(format!("damaged-{shard}")).exists(), "its log stays as it is");
    until("it has caught up", || {
        let orders = at_orders(&broker);
        !in_doubt(&broker).contains(&shard) && orders.is_some_and(|at| at.committed >= 140)
    });
    until("it is healed", || is_healed(&broker, shard));
    brokers.insert(victim, broker);
    brokers.remove(&leader).unwrap().close();
    until_all_is_read(&mut brokers, 140);
}

/// Each record was whole on one of them. A start set all of a log aside for one that it could not read: once all had been stopped and started, nobody
/// had the shard, and nobody could be asked for it.
#[test]
fn three_brokers_that_lose_records_while_they_are_stopped_have_them_back_from_each_other() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (mut brokers, seats) = three_with_orders(root);
    let start = || seats.iter().map(|(id, seat)| (*id, serve(root, seat))).collect();
    let stop = |brokers: BTreeMap<u64, Broker>| {
        brokers.into_values().for_each(|broker| broker.stop().close().unwrap());
    };
    for first in [0, 60] {
        numbers(first, first + 60).for_each(|value| produce(&mut brokers, &value));
        stop(brokers);
        // Another leads then, in another term.
        brokers = start();
    }
    until("it knows where they are", || at_orders(&brokers[&1]).is_some());
    let shard = at_orders(&brokers[&1]).unwrap().shard;
    stop(brokers);
    for (nodes, lost) in [([1, 2], 10), ([2, 3], 30), ([3, 1], 70)] {
        for node in nodes {
            let log = root.join(format!("{node}/shard-{shard}"));
            damage(&log, format!("record number {lost:03}").as_bytes());
        }
    }
    let mut brokers: BTreeMap<u64, Broker> = start();
    for broker in brokers.values() {
        let said = broker.node.verdict();
        assert!(said.contains(&format!("has lost 2 entries of shard {shard}: ")), "{said}");
        assert!(in_doubt(broker).is_empty(), "{:?}", in_doubt(broker));
    }
    until("all is healed", || brokers.values().all(|broker| is_healed(broker, shard)));
    until_all_is_read(&mut brokers, 120);
    stop(brokers);
    let brokers: BTreeMap<u64, Broker> = start();
    assert!(brokers.values().all(|broker| !broker.node.verdict().contains("has lost")));
}

/// Nor did one without a snapshot, as a log of topics never has one, and others none yet.
#[test]
fn a_broker_without_snapshots_whose_logs_are_damaged_has_the_rest_back_from_the_others() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (mut brokers, seats) = three_with_orders(root);
    // Of what was written before them the later ones say that it is durable.
    numbers(0, 60).for_each(|value| produce(&mut brokers, &value));
    let commit = |brokers: &mut BTreeMap<u64, Broker>, offset| {
        until("it is committed", || {
            let mut all = brokers.values_mut();
            all.any(|broker| broker.try_commit("orders", offset) == ErrorCode::None)
        });
    };
    commit(&mut brokers, 7);
    let leader = leader_of_orders(&mut brokers);
    let victim = (1..=3).find(|id| *id != leader).unwrap();
    until("some is durable", || {
        at_orders(&brokers[&victim]).is_some_and(|orders| orders.durable >= 60)
    });
    let at = |broker: &Broker| at_orders(broker).unwrap();
    let shard = at(&brokers[&victim]).shard;
    numbers(60, 120).for_each(|value| produce(&mut brokers, &value));
    until("all is durable", || at(&brokers[&victim]).durable >= 120);
    let own = root.join(victim.to_string());
    // What lies at the end of a log is missed by what was noted of it.
    let noted = |number| {
        let bytes = fs::read(own.join(format!("known-{number}"))).unwrap_or_default();
        bytes.get(24..32).map_or(0, |at| u64::from_le_bytes(at.try_into().unwrap()))
    };
    until("it is noted", || {
        let shards = brokers[&victim].node.shards();
        shards
            .iter()
            .filter(|shard| shard.number < 2)
            .all(|shard| noted(shard.number) >= shard.durable)
    });
    drop(brokers.remove(&victim).unwrap().stop());
    assert!(
        fs::read_dir(&own)
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().starts_with("state-") })
    );
    damage(&own.join("shard-0"), b"orders");
    damage(&own.join("shard-1"), b"orders");
    damage(&own.join(format!("shard-{shard}")), b"record number 010");
    numbers(120, 140).for_each(|value| produce(&mut brokers, &value));
    commit(&mut brokers, 9);

    let broker = serve(root, &seats[&victim]);
    let said = broker.node.verdict().to_owned();
    // Of these logs nothing behind it can be read.
    for number in [0, 1] {
        assert!(said.contains(&format!("entries of shard {number} from")), "{said}");
    }
    assert!(said.contains(&format!("the disk has lost an entry of shard {shard}: ")), "{said}");
    until("it is in doubt of nothing", || in_doubt(&broker).is_empty());
    until("it has caught up", || at_orders(&broker).is_some_and(|at| at.committed >= 140));
    until("it is healed", || is_healed(&broker, shard));
    for number in [0, 1] {
        let kept = own.join(format!("damaged-{number}"));
        until("what was kept goes", || fs::read_dir(&kept).unwrap().next().is_none());
    }
    brokers.insert(victim, broker);
    brokers.remove(&leader).unwrap().close();
    until_all_is_read(&mut brokers, 140);
    until("what was committed is known", || {
        brokers.values_mut().any(|broker| broker.committed("orders") == 9)
    });
    // And it starts again, in doubt of nothing.
    drop(brokers.remove(&victim).unwrap().stop());
    let broker = serve(root, &seats[&victim]);
    assert!(!broker.node.verdict().contains("in doubt"), "{}", broker.node.verdict());
    // Where nothing is left that says who else votes, it does not go on as if nothing were lost.
    drop(broker.stop());
    for entry in fs::read_dir(own.join("shard-0")).unwrap().map(Result::unwrap) {
        if entry.file_name() != "identity" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let options = Options { seat: Some(seats[&victim].clone()), ..Options::default() };
    let refused = Node::open(&own, options).unwrap_err().to_string();
    assert!(
        refused.contains("ends at entry 0") && refused.contains("restore a backup"),
        "{refused}"
    );
}
