//! What no log gives back, a broker of several is given: the snapshot of a shard, and which chapters it has.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_server::broker::{Node, Options, Seat, found};
use plimsoll_server::chapter::MANIFEST;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::net::{Limits, Listener};
use plimsoll_server::seed::Seeding;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Dir, SyncMethod};

use super::chapters::chapters_of;
use super::damage::damage;
use super::forwarded::{create, metadata, three_of, until};
use super::{Broker, UNCOMMITTED};

/// Each is in a shard of its own.
const TOPICS: [&str; 3] = ["first", "second", "third"];
const RECORDS: usize = 50;

fn options(seat: &Seat) -> Options {
    Options { seat: Some(seat.clone()), ..chapters_of(8 << 10) }
}

fn open(root: &Path, seat: &Seat) -> Node {
    Node::open(&root.join(seat.node.to_string()), options(seat)).unwrap()
}

fn serve(node: Node, seat: &Seat) -> Broker {
    let address = format!("{}:{}", seat.clients.0, seat.clients.1).parse().unwrap();
    let listener = node.runtime().block_on(Listener::bind(address, Limits::default()));
    Broker::serve(node, listener.unwrap())
}

fn value(number: usize) -> String {
    format!("record number {number:03} {}", "x".repeat(900))
}

/// Has the leader of a topic do this, of the brokers that are left.
fn at_leader<T>(
    brokers: &mut BTreeMap<u64, Broker>,
    topic: &str,
    act: impl FnOnce(&mut Broker) -> T,
) -> Option<T> {
    let asked = brokers.values_mut().next().unwrap();
    let said = metadata(asked, topic, false).topics[0].partitions[0].leader_id;
    let leader = u64::try_from(said).ok()?;
    brokers.get_mut(&leader).map(act)
}

fn produce(brokers: &mut BTreeMap<u64, Broker>, numbers: std::ops::Range<usize>) {
    for (number, topic) in numbers.flat_map(|number| TOPICS.map(|topic| (number, topic))) {
        until("it is taken", || {
            let produced = |broker: &mut Broker| broker.produce(topic, &value(number)).error_code;
            at_leader(brokers, topic, produced) == Some(ErrorCode::None)
        });
    }
}

fn until_all_is_read(brokers: &mut BTreeMap<u64, Broker>, count: usize) {
    for topic in TOPICS {
        until("another leads, and has all", || {
            let read = |broker: &mut Broker| {
                let is_led = broker.fetch(topic, 0, UNCOMMITTED).error_code == ErrorCode::None;
                let read = is_led.then(|| broker.consume(topic, UNCOMMITTED));
                let mut read: Vec<_> = read.into_iter().flatten().map(|(_, value)| value).collect();
                // One whose answer was lost was sent again.
                read.dedup();
                read
            };
            let read = at_leader(brokers, topic, read).unwrap_or_default();
            read == (0..count).map(value).collect::<Vec<_>>()
        });
    }
}

fn shard_of(broker: &Broker, topic: &str) -> u32 {
    broker.node.topic(topic).unwrap().partition[0].shard
}

/// Changes a byte in the middle of a file.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

fn in_doubt(broker: &Broker) -> Vec<u32> {
    let shards = broker.node.shards().into_iter().filter(|shard| shard.is_in_doubt);
    shards.map(|shard| shard.number).collect()
}

/// It did not start again, though the others had all.
#[test]
fn a_broker_that_can_use_nothing_of_its_shards_is_given_all_of_them() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let cluster = found(&root.join("1")).unwrap();
    let seats = RefCell::new(BTreeMap::new());
    let mut brokers = three_of(&cluster, |id, seat| {
        seats.borrow_mut().insert(id, seat.clone());
        open(root, &seat)
    });
    let seats = seats.into_inner();
    for topic in TOPICS {
        assert_eq!(create(brokers.values_mut().next().unwrap(), topic, 3), ErrorCode::None);
    }
    produce(&mut brokers, 0..RECORDS);
    until("it is committed", || {
        brokers.values_mut().any(|broker| broker.try_commit("first", 7) == ErrorCode::None)
    });
    until("all is settled", || {
        brokers
            .values()
            .all(|broker| broker.chapters().settled > 9 && broker.chapters().waiting == 0)
    });
    // The founder: with an empty log it would be a cluster by itself.
    let victim = 1;
    let broker = brokers.remove(&victim).unwrap();
    let [first, second, third] = TOPICS.map(|topic| shard_of(&broker, topic));
    broker.close();
    let own = root.join(victim.to_string());
    // Where a segment begins: nobody else knows what stands there.
    let segment = own.join("shard-0/00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[4096..4160].fill(0xa5);
    fs::write(&segment, bytes).unwrap();
    flip(&own.join("state-1"));
    flip(&own.join(format!("chapters-{first}")).join("manifest"));
    fs::remove_file(own.join(format!("state-{second}"))).unwrap();
    damage(&own.join(format!("shard-{third}")), b"record number 005");
    let chapters =
        |number: u32| fs::read_dir(own.join(format!("chapters-{number}"))).unwrap().count();
    let had = [first, second, third].map(chapters);
    produce(&mut brokers, RECORDS..RECORDS + 20);

    let node = open(root, &seats[&victim]);
    let said = node.verdict().to_owned();
    // The chapters have that, and the snapshot goes further.
    assert!(!said.contains(&format!("of shard {third}")), "{said}");
    for number in [0, 1, first, second] {
        assert!(said.contains(&format!("the disk has of shard {number} cannot be used")), "{said}");
        let kept = own.join(format!("damaged-{number}"));
        assert!(fs::read_dir(&kept).unwrap().next().is_some(), "what there was is kept");
    }
    assert_eq!([first, second, third].map(chapters), had, "nobody else may have them");
    // As by a crash, before anything was given. The next start knows as much.
    drop(node);
    let broker = serve(open(root, &seats[&victim]), &seats[&victim]);
    assert!(broker.node.verdict().contains("cannot be used"), "{}", broker.node.verdict());
    let givers: Vec<Seeding> = brokers.values().map(|other| Seeding::begin(&other.node)).collect();
    let seeding = Seeding::begin(&broker.node);
    broker.node.runtime().clone().block_on(seeding.until_ready());
    assert!(seeding.end());
    broker.close();
    givers.into_iter().for_each(|giver| assert!(!giver.end()));

    let broker = serve(open(root, &seats[&victim]), &seats[&victim]);
    until("it is in doubt of nothing", || in_doubt(&broker).is_empty());
    for number in [0, 1, first, second] {
        let kept = own.join(format!("damaged-{number}"));
        until("what was kept goes", || fs::read_dir(&kept).unwrap().next().is_none());
    }
    brokers.insert(victim, broker);
    let other = brokers.keys().copied().find(|id| *id != victim).unwrap();
    brokers.remove(&other).unwrap().close();
    until_all_is_read(&mut brokers, RECORDS + 20);
    until("what was committed is known", || {
        brokers.values_mut().any(|broker| broker.committed("first") == 7)
    });
}

/// Nobody could give it back.
#[test]
fn a_broker_that_is_alone_does_not_begin_anew() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1500));
    broker.create("orders", &[]);
    for number in 0..30 {
        broker.produced("orders", &format!("{number}"));
    }
    broker.until_settled(2);
    let records = broker.consume("orders", UNCOMMITTED);
    broker.close();
    let flip = || {
        let state = disk.open("state-2", SyncMethod::ORDINARY.access()).unwrap();
        let mut byte = [0];
        state.read_at(&mut byte, 40).unwrap();
        state.write_sync_at(&[byte[0] ^ 1], 40, SyncMethod::ORDINARY).unwrap();
    };
    flip();
    let refused = Broker::start(&disk, chapters_of(1500)).err().unwrap().to_string();
    assert!(refused.contains("state-2"), "{refused}");
    // And all is as it was.
    flip();
    // Without its manifest it began with no chapters, and removed them.
    let chapters = disk.open_dir("chapters-2").unwrap();
    let had = chapters.list().unwrap();
    chapters.rename(MANIFEST, "away").unwrap();
    let refused = Broker::start(&disk, chapters_of(1500)).err().unwrap();
    assert!(format!("{refused:?}").contains("Unsettled"), "{refused:?}");
    chapters.rename("away", MANIFEST).unwrap();
    assert_eq!(chapters.list().unwrap(), had);
    let mut broker = Broker::open(&disk, chapters_of(1500));
    assert_eq!(broker.consume("orders", UNCOMMITTED), records);
    broker.close();
}

/// Nothing read them while a broker ran: what a disk had lost of them was found at the next start, which had nothing to write.
#[test]
fn a_scrub_finds_a_damaged_snapshot_and_manifest_and_has_them_written_anew() {
    let disk = Arc::new(SimDir::new());
    let every = Some(Duration::from_secs(1));
    let mut broker = Broker::open(&disk, Options { scrub_every: every, ..chapters_of(1500) });
    broker.create("orders", &[]);
    for number in 0..30 {
        broker.produced("orders", &format!("{number}"));
    }
    broker.until_settled(2);
    let records = broker.consume("orders", UNCOMMITTED);
    let chapters = disk.open_dir("chapters-2").unwrap();
    let files: [(&dyn Dir, &str); 2] = [(&*disk, "state-2"), (&*chapters, MANIFEST)];
    until("its state is kept", || disk.list().unwrap().iter().any(|name| name == "state-2"));
    let bytes = |(dir, name): &(&dyn Dir, &str)| {
        let file = dir.open(name, SyncMethod::ORDINARY.access()).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        (file, bytes)
    };
    for file in &files {
        let (file, bytes) = bytes(file);
        file.write_sync_at(&[bytes[30] ^ 1], 30, SyncMethod::ORDINARY).unwrap();
    }
    // As what starts next sees them.
    until("they are as they were", || {
        let mut next = Broker::start(&Arc::new(disk.power_cut(1)), chapters_of(1500));
        let read = next.as_mut().map(|next| next.consume("orders", UNCOMMITTED));
        read.is_ok_and(|read| read == records)
    });
    broker.close();
}
