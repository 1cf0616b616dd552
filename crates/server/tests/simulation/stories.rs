//! What the simulation found, told once.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_log::Policy;
use plimsoll_server::broker::{Options, Promise};
use plimsoll_server::kafka::compression::Compression;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir};

use crate::broker::{Broker, Produced, Wanted};
use crate::world::{copy, memory};

fn wanted(partitions: usize, is_durable: bool) -> Wanted {
    Wanted { partitions, is_durable, ..Wanted::default() }
}

/// The broker refused to start: its ring in memory had another size than it was asked for, after a crash and
/// after an end in order as well, and it was told to remove the only copy of what was acknowledged.
#[test]
fn a_broker_that_is_given_another_ring_size_starts_and_has_what_its_ring_had() {
    let with = |memory: &tempfile::TempDir, ring_bytes| Options {
        memory: Some(memory.path().to_owned()),
        flush: Policy::Never,
        ring_bytes,
        ..Options::default()
    };
    let ring_bytes = |broker: &Broker| {
        let shards = broker.node().shards();
        shards.iter().find(|shard| shard.number == 2).expect("the shared shard").ring_bytes
    };
    let (disk, first) = (Arc::new(SimDir::new()), memory());
    let mut broker = Broker::start(&disk, with(&first, 8 << 20)).unwrap();
    if broker.node().promise() != Promise::Memory {
        return println!("SKIPPED: no tmpfs");
    }
    assert!(broker.create("orders", wanted(1, false)));
    let one = Produced {
        topic: "orders".to_owned(),
        partition: 0,
        records: vec![1, 2],
        producer: None,
        compression: Compression::None,
    };
    assert_eq!(broker.produce(&[one]), Some(vec![Ok(0)]));
    disk.stop_at(disk.operations());
    let second = memory();
    copy(first.path(), second.path());
    let disk = Arc::new(disk.crash(Crash::Process, 0));
    drop((broker.stop(), first));

    let mut broker = Broker::start(&disk, with(&second, 4 << 20)).unwrap();
    assert_eq!(ring_bytes(&broker), 8 << 20, "what it had is read as it was written");
    assert!(broker.node().verdict().starts_with("nothing is lost"), "{}", broker.node().verdict());
    assert_eq!(broker.look("orders", 0).unwrap().records, [(0, 1), (1, 2)].into());
    broker.stop().close().unwrap();

    let broker = Broker::start(&disk, with(&second, 4 << 20)).unwrap();
    assert_eq!(
        ring_bytes(&broker),
        4 << 20,
        "after an end in order it has the size that is asked for"
    );
    broker.stop().close().unwrap();
}

/// Another topic of a name that was deleted had what groups had committed in the first: the answer to a
/// deletion did not wait until that was forgotten, and the name was free.
#[test]
fn a_topic_of_the_same_name_begins_anew_whenever_the_system_dies() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::start(&disk, Options::default()).unwrap();
    assert!(broker.create("orders", wanted(2, true)));
    assert!(broker.commit(0, "orders", 0, 7));
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.watch(move |moment| {
        for crash in [Crash::Process, Crash::PowerCut] {
            seen.lock().unwrap().push(moment.crash(crash, moment.number));
        }
    });
    assert!(broker.delete("orders"));
    assert!(broker.create("orders", wanted(1, true)));
    drop(broker.stop());
    let images = std::mem::take(&mut *images.lock().unwrap());
    let (mut old, mut new) = (0, 0);
    for image in images {
        let mut broker = Broker::start(&Arc::new(image), Options::default()).unwrap();
        let partitions = broker.node().topic("orders").map_or(0, |topic| topic.partition.len());
        let committed = broker.committed(0, "orders", 0).unwrap();
        match partitions {
            2 => old += 1,
            1 => new += 1,
            _ => {}
        }
        assert_eq!(committed, (partitions == 2).then_some(7), "{partitions} partitions");
        drop(broker.stop());
    }
    assert!(old > 0 && new > 0, "{old} images with the first, {new} with the second");
}

/// A start without the ring died between the first entry of its leadership and its mark: the log was as long
/// as the witness of the run before said, the start after it doubted nothing, and an offset named two records.
#[test]
fn a_start_that_dies_before_it_says_what_is_lost_hides_nothing() {
    let with = |memory: Option<&tempfile::TempDir>| Options {
        memory: memory.map(|memory| memory.path().to_owned()),
        flush: Policy::Never,
        ..Options::default()
    };
    let (disk, first) = (Arc::new(SimDir::new()), memory());
    let mut broker = Broker::start(&disk, with(Some(&first))).unwrap();
    if broker.node().promise() != Promise::Memory {
        return println!("SKIPPED: no tmpfs");
    }
    assert!(broker.create("orders", wanted(1, false)));
    let sent = |record| Produced {
        topic: "orders".to_owned(),
        partition: 0,
        records: vec![record],
        producer: None,
        compression: Compression::None,
    };
    // The first opens the partition, by a sync that it waits for; the next is in the ring alone.
    assert_eq!(broker.produce(&[sent(1)]), Some(vec![Ok(0)]));
    disk.stop_at(disk.operations());
    assert_eq!(broker.produce(&[sent(2)]), Some(vec![Ok(1)]));
    let kept = memory();
    copy(first.path(), kept.path());
    let disk = Arc::new(disk.crash(Crash::Process, 0));
    drop((broker.stop(), first));

    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.watch(move |moment| seen.lock().unwrap().push(moment.crash(Crash::Process, 0)));
    drop(Broker::start(&disk, with(None)).unwrap().stop());
    let images = std::mem::take(&mut *images.lock().unwrap());
    let (mut there, mut said) = (0, 0);
    for image in images {
        let memory = memory();
        copy(kept.path(), memory.path());
        let mut broker = Broker::start(&Arc::new(image), with(Some(&memory))).unwrap();
        let verdict = broker.node().verdict().to_owned();
        match broker.look("orders", 0).unwrap().records.get(&1) {
            Some(2) => there += 1,
            found => {
                assert_eq!(found, None);
                assert!(verdict.starts_with("records may be lost"), "{verdict}");
                said += 1;
            }
        }
        let next = broker.produce(&[sent(3)]).unwrap()[0].unwrap();
        assert!(next > 1, "offset {next} is given away again: {verdict}");
        drop(broker.stop());
    }
    assert!(there > 0 && said > 0, "{there} with the record, {said} without it");
}

/// A disk gave another sector than it was asked for: what a file says of another run, with a checksum that is right.
/// Who asked for one partition was served the records of the other.
#[test]
fn a_run_that_is_in_the_place_of_another_is_refused() {
    let disk = Arc::new(SimDir::new());
    // Of two batches of 5,000 bytes, in one entry or two.
    let options = Options { chapter_bytes: 6_000, ..Options::default() };
    let mut broker = Broker::start(&disk, options).unwrap();
    assert!(broker.create("orders", wanted(2, true)));
    let sent = |partition, record| Produced {
        topic: "orders".to_owned(),
        partition,
        records: vec![record],
        producer: None,
        compression: Compression::None,
    };
    assert_eq!(broker.produce(&[sent(0, 1), sent(1, 2)]), Some(vec![Ok(0), Ok(0)]));
    wait_until_settled(&broker);
    let (first, second) = (broker.look("orders", 0).unwrap(), broker.look("orders", 1).unwrap());
    assert_eq!((first.records, second.records), ([(0, 1)].into(), [(0, 2)].into()));

    let chapters = disk.open_dir("chapters-3").unwrap();
    let names = chapters.list().unwrap();
    let name = names.iter().find(|name| name.ends_with(".chapter")).unwrap();
    let file = chapters.open(name, Access::default()).unwrap();
    // Two runs of 128 bytes, and the footer, of as many.
    let mut runs = [0; 256];
    let runs_at = file.len().unwrap() - 128 - 256;
    file.read_at(&mut runs, runs_at).unwrap();
    runs.rotate_left(128);
    file.write_at(&runs, runs_at).unwrap();
    assert!(broker.look("orders", 0).is_none() && broker.look("orders", 1).is_none());
    drop(broker.stop());
}

#[expect(clippy::disallowed_methods, reason = "it waits for what is done in the background")]
fn wait_until_settled(broker: &Broker) {
    let begun = Instant::now();
    let is_open = |broker: &Broker| {
        let mut chapters = broker.node().shards().into_iter().filter_map(|shard| shard.chapters);
        chapters.any(|chapters| chapters.waiting > 0 || chapters.open_bytes > 0)
    };
    while is_open(broker) {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is settled");
        thread::sleep(Duration::from_millis(1));
    }
}
