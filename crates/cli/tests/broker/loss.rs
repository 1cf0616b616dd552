//! Three brokers as processes, all of which may have forgotten what they acknowledged: the shard is fenced, says what is
//! guaranteed, left and in doubt, and goes on once somebody who was shown that says so.
//!
//! They are killed, and have no memory that outlives a process: nothing proves that they forgot nothing.

use serde_json::Value;

use super::cluster::{Cluster, in_time, numbers, read, run};
use super::serving::{Broker, plimsoll, text};

/// The shard of records that are acknowledged before they are durable.
const SHARD: u64 = 2;

/// What `cluster status` says of the shard.
fn status(broker: &Broker) -> Result<Value, String> {
    let output = plimsoll(&["cluster", "status", "--json", "--http"]).arg(&broker.http).output();
    let said = text(&output.unwrap().stdout);
    let shards: Value = serde_json::from_str(&said).map_err(|why| why.to_string())?;
    let shards = shards.as_array().cloned().unwrap_or_default();
    shards.into_iter().find(|shard| shard["shard"] == SHARD).ok_or(said)
}

/// Waits until the shard is fenced, and as many answer: its status.
fn fenced(broker: &Broker, nodes: usize) -> Value {
    in_time("it is fenced", || {
        let now = status(broker)?;
        let is_all = now["rows"].as_array().map(Vec::len) == Some(nodes);
        if now["condition"] == "fenced" && is_all { Ok(now) } else { Err(now.to_string()) }
    })
}

fn recover(broker: &Broker, digest: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut recover = plimsoll(&["cluster", "recover", "--shard", "2", "--digest", digest]);
    let output = recover.args(["--http", &broker.http]).args(more).output().unwrap();
    (output.status.code(), text(&output.stderr))
}

fn begun(cluster: &Cluster) -> Vec<Broker> {
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("a topic with three copies", || {
        run(&brokers[0], "topic create first --partitions 2 --if-not-exists", "")?;
        run(&brokers[0], "topic list", "")
    });
    in_time("all vote", || {
        let now = status(&brokers[0])?;
        if now["voters"] == serde_json::json!([1, 2, 3]) { Ok(()) } else { Err(now.to_string()) }
    });
    in_time("records", || run(&brokers[0], "produce first", &numbers(0..100)));
    // All of it is durable on a majority, and known to be.
    in_time("all is durable", || {
        let now = status(&brokers[0])?;
        if now["guaranteed"] == now["committed"] { Ok(()) } else { Err(now.to_string()) }
    });
    brokers
}

#[test]
fn three_that_may_have_forgotten_stand_still_until_an_operator_who_was_shown_what_is_left_says_so()
{
    let cluster = Cluster::found();
    drop(begun(&cluster));
    let (first, second) = (cluster.start(1), cluster.start(2));
    let shown = fenced(&first, 2);
    assert_eq!(shown["missing"], serde_json::json!([3]));
    assert!(run(&first, "produce first", "7\n").is_err(), "nobody takes it");
    let said = plimsoll(&["cluster", "status", "--http"]).arg(&second.http).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = text(&said.stdout);
    for part in ["shard 2: FENCED", "no answer of node 3", "in doubt", "cluster recover --shard 2"]
    {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    let digest = shown["digest"].as_str().unwrap();
    let (code, why) = recover(&first, &"0".repeat(32), &[]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains(digest), "{why}");
    let (code, why) = recover(&first, digest, &["--dry-run"]);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(fenced(&first, 2)["generation"], 0, "it was said only");
    let (code, why) = recover(&first, digest, &[]);
    assert_eq!(code, Some(0), "{why}");
    assert!(why.contains("in generation 1, with the logs of nodes 1, 2"), "{why}");
    in_time("records again", || run(&second, "produce first", &numbers(100..200)));
    let found = in_time("all is there", || read(&first));
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    // Who was away hears of it.
    let third = cluster.start(3);
    in_time("it goes on too", || {
        let now = status(&third)?;
        let rows = now["rows"].as_array().cloned().unwrap_or_default();
        let is_well = |row: &Value| row["generation"] == 1 && row["is_in_doubt"] == false;
        if rows.len() == 3 && rows.iter().all(is_well) { Ok(()) } else { Err(now.to_string()) }
    });
    drop(first);
    in_time("without the first", || run(&third, "produce first", &numbers(200..300)));
    let found = in_time("all is there", || read(&third));
    assert_eq!(found, (0..300).collect::<Vec<_>>());
}

#[test]
fn three_that_may_have_forgotten_go_on_by_themselves_where_that_was_declared() {
    let cluster = Cluster::found().with(&["--on-majority-dirty", "auto-fence"]);
    drop(begun(&cluster));
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("records again", || run(&brokers[2], "produce first", &numbers(100..200)));
    let found = in_time("all is there", || read(&brokers[1]));
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    // It may just be opening again.
    let now = in_time("it goes on too", || status(&brokers[0]));
    assert_eq!(now["generation"], 1);
}
