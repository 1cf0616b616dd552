//! Partitions go on under other brokers, as an operator asks for it.

use serde_json::Value;

use super::cluster::{Cluster, in_time, numbers, read, run};
use super::joining::until_these_vote;

#[test]
fn a_topic_moves_to_the_brokers_that_are_named_and_keeps_its_records() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    let first = &brokers[0];
    until_these_vote(first, &[1, 2, 3]);
    in_time("a topic", || run(first, "topic create first --partitions 3 --if-not-exists", ""));
    in_time("it takes records", || run(first, "produce first", &numbers(0..100)));
    let leaders = || -> Vec<Value> {
        let said = run(first, "topic describe first --json", "").unwrap();
        let said: Value = serde_json::from_str(&said).unwrap();
        let partitions = said["partitions"].as_array().unwrap();
        partitions.iter().map(|partition| partition["leader"].clone()).collect()
    };
    let said = in_time("all moves to one", || run(first, "topic move first --to 2", ""));
    assert!(said.contains("partition 2 of first is led by broker 2"), "{said}");
    assert_eq!(leaders(), [2, 2, 2]);
    in_time("it takes records", || run(first, "produce first", &numbers(100..200)));
    let said = in_time("it is spread", || run(first, "topic move first --to 3 --to 1 --json", ""));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["partitions"][1], serde_json::json!({ "partition": 1, "leader": 1 }));
    assert_eq!(leaders(), [3, 1, 3]);
    in_time("one moves", || run(first, "topic move first --partition 1 --to 2", ""));
    assert_eq!(leaders(), [3, 2, 3]);
    in_time("it has all", || {
        let found = read(first)?;
        if found == (0..200).collect::<Vec<_>>() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    for (wrong, says) in [
        ("topic move first --partition 9 --to 2", "has no partition 9: they are 0 to 2"),
        ("topic move first --to 9", "broker 9 is not there, of brokers there are 1, 2, 3"),
        ("topic move none --to 2", "there is no such topic"),
    ] {
        let why = run(first, wrong, "").unwrap_err();
        assert!(why.contains(says), "{wrong}: {why}");
    }
}
