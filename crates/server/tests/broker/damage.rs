//! What a disk has lost of one broker's chapters is read from another's, and healed by that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_server::broker::Options;
use plimsoll_server::chapter::{Run, Survey};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_sync::{Access, Dir, OsDir};

use super::chapters::chapters_of;
use super::forwarded::{create, metadata, three, until};
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
    let asked = brokers.values_mut().next().unwrap();
    let leader = metadata(asked, topic, false).topics[0].partitions[0].leader_id;
    act(brokers.get_mut(&u64::try_from(leader).unwrap()).unwrap())
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
        let found: Vec<String> = found.into_iter().map(|(_, value)| value).collect();
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
