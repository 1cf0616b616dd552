//! Records that are settled: read, expired, compacted, deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_server::broker::{ChaptersOverview, Options};
use plimsoll_server::kafka::batch::Batch;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::records::{Draft, Records};
use plimsoll_simdisk::{DiskOptions, Operation, SimDir};
use plimsoll_sync::Crash;

use super::{Broker, LATEST, UNCOMMITTED, unsynced};

/// The shards of topics that do not wait for the disk.
const SHARED: [u32; 3] = [2, 4, 6];

/// Nothing is read from memory, and so many bytes of entries are a chapter.
pub(super) fn chapters_of(chapter_bytes: u64) -> Options {
    Options { tail_bytes: 0, chapter_bytes, ..unsynced() }
}

impl Broker {
    /// Of all shards of topics that do not wait for the disk together; what their scrubs did is of the first.
    pub(super) fn chapters(&self) -> ChaptersOverview {
        let shards = self.node.shards();
        let shared = shards.iter().filter(|shard| SHARED.contains(&shard.number));
        let all = shared.map(|shard| shard.chapters.unwrap()).reduce(|all, of| ChaptersOverview {
            settled: all.settled + of.settled,
            waiting: all.waiting + of.waiting,
            open_bytes: all.open_bytes + of.open_bytes,
            files: all.files + of.files,
            runs: all.runs + of.runs,
            live_bytes: all.live_bytes + of.live_bytes,
            file_bytes: all.file_bytes + of.file_bytes,
            damaged: all.damaged + of.damaged,
            healed: all.healed + of.healed,
            ..all
        });
        all.unwrap()
    }

    /// Waits until this holds; time passes in the broker meanwhile.
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !holds(self) {
            assert!(Instant::now() < patience, "{what}: {:?}", self.chapters());
            let pause = async { tokio::time::sleep(Duration::from_millis(10)).await };
            self.node.runtime().block_on(pause);
        }
    }

    pub(super) fn until_settled(&mut self, at_least: u64) {
        self.until("chapters are settled", |broker| {
            let ChaptersOverview { settled, waiting, .. } = broker.chapters();
            settled >= at_least && waiting == 0
        });
    }

    /// Offset, key and value of each record that can be read.
    pub(super) fn keyed(&mut self, topic: &str) -> Vec<(i64, String, Option<String>)> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let fetched = self.fetch(topic, from, UNCOMMITTED);
            assert_eq!(fetched.error_code, ErrorCode::None, "{fetched:?}");
            let mut bytes = fetched.records.0.concat().into();
            let before = from;
            while let Some(batch) = Batch::take(&mut bytes).unwrap() {
                from = batch.header().last_offset() + 1;
                let records = Records::of(&batch, 1 << 20).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                all.extend(records.iter().map(|record| {
                    let record = record.unwrap();
                    (record.offset, text(record.key.unwrap()), record.value.map(text))
                }));
            }
            if from == before {
                return all;
            }
        }
    }
}

pub(super) fn keyed(records: &[(&str, Option<&str>)], compression: Compression) -> Bytes {
    let mut draft = Draft::default();
    for (key, value) in records {
        draft.push(1_000, Some(key.as_bytes()), value.map(str::as_bytes), &[]);
    }
    draft.batch(compression, None).pieces().concat().into()
}

#[test]
fn what_is_settled_is_read_as_it_came_and_goes_on_in_the_log() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1500));
    let topics = ["orders", "notes", "audit"];
    topics.iter().for_each(|topic| assert_eq!(broker.create(topic, &[]), ErrorCode::None));
    let mut produced: BTreeMap<&str, Vec<(i64, String)>> = BTreeMap::new();
    for number in 0..60 {
        let topic = topics[number % 7 % 3];
        let value = format!("{topic} {number}");
        let offset = broker.produced(topic, &value);
        produced.entry(topic).or_default().push((offset, value));
    }
    broker.until_settled(3);
    let check = |broker: &mut Broker| {
        for (topic, records) in &produced {
            assert_eq!(&broker.consume(topic, UNCOMMITTED), records);
            // One answer has all that fits, from however many chapters, and from the log.
            let mut all = broker.fetch(topic, 0, UNCOMMITTED).records.0.concat().into();
            let batches = std::iter::from_fn(|| Batch::take(&mut all).unwrap());
            assert_eq!(batches.count(), records.len());
            for (offset, value) in records {
                let fetched = broker.fetch(topic, *offset, UNCOMMITTED);
                let first = Batch::take(&mut fetched.records.0.concat().into()).unwrap().unwrap();
                assert_eq!(first.header().base_offset(), *offset, "{value}");
            }
        }
    };
    check(&mut broker);
    let ChaptersOverview { runs, open_bytes, .. } = broker.chapters();
    assert!(runs >= 9 && open_bytes > 0, "some is in chapters, and some in the log");
    broker.close();
    let mut broker = Broker::open(&Arc::new(disk.crash(Crash::PowerCut, 1)), chapters_of(1500));
    check(&mut broker);
    broker.close();
}

/// What lived longest kept everything that was written after it.
#[test]
fn a_deleted_topic_and_deleted_records_give_their_room_back() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(50_000));
    let much = "much ".repeat(1000);
    for topic in ["kept", "deleted"] {
        broker.create(topic, &[]);
    }
    broker.produced("kept", "the first of all");
    for _ in 0..40 {
        broker.produced("deleted", &much);
        broker.produced("kept", "more");
    }
    broker.until_settled(3);
    let before = broker.chapters();
    assert!(before.file_bytes > 100_000, "{before:?}");
    broker.delete("deleted");
    broker.until("room comes back", |broker| broker.chapters().file_bytes < 20_000);
    assert_eq!(broker.consume("kept", UNCOMMITTED).len(), 41);
    broker.close();
    let mut broker = Broker::open(&Arc::new(disk.crash(Crash::PowerCut, 1)), chapters_of(50_000));
    assert_eq!(broker.consume("kept", UNCOMMITTED).len(), 41);
    assert!(broker.chapters().file_bytes < 20_000, "nothing is resurrected");
    broker.close();
}

#[test]
fn what_is_held_is_at_most_twice_what_lives_and_what_is_not_settled() {
    const CHAPTER: u64 = 64 << 10;
    let mut broker = Broker::open(&Arc::new(SimDir::new()), chapters_of(CHAPTER));
    broker.create("forever", &[]);
    broker.create("bounded", &[("retention.bytes", "100000")]);
    let value = "value ".repeat(200);
    for number in 0..1500 {
        broker.produced("bounded", &value);
        if number % 50 == 0 {
            broker.produced("forever", &value);
        }
    }
    broker.until("the bound holds", |broker| {
        let of = broker.chapters();
        of.waiting == 0
            && of.file_bytes <= 2 * of.live_bytes + 4096 * of.files as u64
            && of.live_bytes <= 100_000 + 40_000 + 2 * CHAPTER
    });
    assert_eq!(broker.consume("forever", UNCOMMITTED).len(), 30);
    let left = broker.consume("bounded", UNCOMMITTED);
    let bytes = left.len() * 1200;
    assert!((100_000 - 1300..100_000 + 3 * 65_536).contains(&bytes), "{bytes} bytes are left");
    assert_eq!(left.last().unwrap().0, 1499);
    broker.close();
}

#[test]
fn of_each_key_the_newest_record_stays_where_it_was() {
    for compression in [Compression::None, Compression::Zstd] {
        let disk = Arc::new(SimDir::new());
        let mut broker = Broker::open(&disk, chapters_of(3000));
        broker.create("table", &[("cleanup.policy", "compact")]);
        let mut newest: BTreeMap<String, (i64, String)> = BTreeMap::new();
        let mut produced = BTreeMap::new();
        for number in 0..120 {
            let records: Vec<_> = (0..3)
                .map(|nth| (format!("key {}", (number * 3 + nth) % 7), format!("{number}.{nth}")))
                .collect();
            let borrowed: Vec<_> =
                records.iter().map(|(key, value)| (&**key, Some(&**value))).collect();
            let told = broker.produce_bytes("table", keyed(&borrowed, compression));
            assert_eq!(told.error_code, ErrorCode::None);
            for (offset, (key, value)) in (told.base_offset..).zip(records) {
                produced.insert(offset, (key.clone(), value.clone()));
                newest.insert(key, (offset, value));
            }
        }
        broker.until("it is compacted", |broker| broker.keyed("table").len() < 100);
        broker.until_settled(4);
        let check = |broker: &mut Broker| {
            let left = broker.keyed("table");
            assert!(left.is_sorted_by_key(|(offset, ..)| *offset));
            let mut found = BTreeMap::new();
            for (offset, key, value) in left {
                let value = value.unwrap();
                assert_eq!(produced[&offset], (key.clone(), value.clone()), "offset {offset}");
                found.insert(key, (offset, value));
            }
            assert_eq!(found, newest);
        };
        check(&mut broker);
        broker.close();
        let disk = Arc::new(disk.crash(Crash::PowerCut, 1));
        let mut broker = Broker::open(&disk, chapters_of(3000));
        check(&mut broker);
        assert!(broker.keyed("table").len() < 100, "what was compacted stays so");
        broker.close();
    }
}

/// A table that lost its beginning would be another table: Kafka 4.3.1 refuses it so.
#[test]
fn records_of_a_topic_that_is_only_compacted_are_not_deleted_by_offset() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), chapters_of(1000));
    for (topic, policy, told) in [
        ("table", "compact", ErrorCode::PolicyViolation),
        ("both", "compact,delete", ErrorCode::None),
        ("log", "delete", ErrorCode::None),
    ] {
        broker.create(topic, &[("cleanup.policy", policy)]);
        for value in ["1", "2"] {
            let batch = keyed(&[("a", Some(value))], Compression::None);
            assert_eq!(broker.produce_bytes(topic, batch).error_code, ErrorCode::None);
        }
        assert_eq!(broker.try_trim(topic, 1), told, "{policy}");
        let first = broker.fetch(topic, LATEST, UNCOMMITTED).log_start_offset;
        assert_eq!(first, i64::from(told == ErrorCode::None), "{policy}");
    }
    broker.close();
}

#[test]
fn a_tombstone_goes_after_its_time_and_what_it_deleted_stays_deleted() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1000));
    let settings = [("cleanup.policy", "compact"), ("delete.retention.ms", "0")];
    broker.create("table", &settings);
    let put = |broker: &mut Broker, key: &str, value: Option<&str>| {
        let told = broker.produce_bytes("table", keyed(&[(key, value)], Compression::None));
        assert_eq!(told.error_code, ErrorCode::None);
    };
    put(&mut broker, "a", Some("1"));
    put(&mut broker, "b", Some("1"));
    put(&mut broker, "a", None);
    let mut number = 0;
    broker.until("the tombstone goes", |broker| {
        for _ in 0..20 {
            number += 1;
            put(broker, "c", Some(&format!("{number}")));
        }
        broker.keyed("table").iter().all(|(_, key, _)| key != "a")
    });
    assert!(broker.keyed("table").contains(&(1, "b".to_owned(), Some("1".to_owned()))));
    broker.close();
    let disk = Arc::new(disk.crash(Crash::PowerCut, 1));
    let mut broker = Broker::open(&disk, chapters_of(1000));
    assert!(broker.keyed("table").iter().all(|(_, key, _)| key != "a"));
    broker.close();
}

/// A disk that is full recovers by each of these.
#[test]
fn a_full_disk_takes_records_again_once_some_are_deleted_or_expire() {
    let by_deleting = |broker: &mut Broker| broker.delete("orders");
    let by_trimming = |broker: &mut Broker| broker.trim("orders", i64::MAX);
    let by_size = |broker: &mut Broker| broker.alter("orders", "retention.bytes", "1000000");
    let ways: [(&str, &dyn Fn(&mut Broker)); 3] =
        [("a deletion", &by_deleting), ("a trim", &by_trimming), ("a bound", &by_size)];
    for (name, way) in ways {
        let capacity_bytes = Some(512 << 20);
        let disk = DiskOptions { capacity_bytes, history_steps: 0, ..DiskOptions::default() };
        let options = Options { chapter_bytes: 512 << 20, ..unsynced() };
        let mut broker = Broker::open(&Arc::new(SimDir::with(disk)), options);
        broker.create("orders", &[]);
        broker.create("notes", &[]);
        broker.produced("notes", "kept");
        let much = "much ".repeat(100_000);
        let refused = (0..2_000).any(|_| broker.produce("orders", &much).base_offset < 0);
        assert!(refused, "the disk is full by now");
        way(&mut broker);
        broker.until(name, |broker| broker.produce("notes", "1").error_code == ErrorCode::None);
        assert_eq!(broker.consume("notes", UNCOMMITTED)[0].1, "kept");
        broker.close();
    }
}

/// Too little of it is gone for a file to be written again.
#[test]
fn the_blocks_of_a_deleted_topic_are_given_back_in_place() {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk, chapters_of(1 << 20));
    let much = "much ".repeat(2000);
    for topic in ["kept", "deleted"] {
        broker.create(topic, &[]);
    }
    for number in 0..110 {
        broker.produced(if number % 4 == 0 { "deleted" } else { "kept" }, &much);
    }
    broker.until_settled(1);
    let before = broker.chapters();
    let is_punched = || {
        disk.history().iter().any(|step| step.operation == Operation::Punch && step.error.is_none())
    };
    assert!(!is_punched());
    broker.delete("deleted");
    broker.until("room comes back", |_| is_punched());
    assert_eq!(broker.chapters().file_bytes, before.file_bytes, "nothing is written again");
    assert_eq!(broker.consume("kept", UNCOMMITTED).len(), 82);
    broker.close();
}
