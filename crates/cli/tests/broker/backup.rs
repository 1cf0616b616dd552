//! A broker that runs is backed up, and restored, by the program.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::cluster::{Cluster, in_time, numbers, read, run as ask};
use crate::serving::{Broker, plimsoll, text};

/// What is answered, what is said, and the exit status.
fn run(args: &[&str]) -> (String, String, i32) {
    let output = plimsoll(args).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn json(args: &[&str]) -> Value {
    let (answered, said, status) = run(&[args, &["--json"]].concat());
    assert_eq!(status, 0, "{said}");
    serde_json::from_str(&answered).unwrap()
}

#[test]
fn a_broker_that_runs_is_backed_up_and_comes_back() {
    let tmp = tempfile::tempdir().unwrap();
    let [data, kept, restored] = ["data", "kept", "restored"].map(|name| tmp.path().join(name));
    let broker = Broker::serve(&data, &["--chapter-bytes", "64KiB"]);
    broker.ok("topic create orders --partitions 2");
    let numbers = |from: u32| (from..from + 8000).map(|n| format!("{n}\n")).collect::<String>();
    let send = |from| {
        let sent = broker.run("produce orders --partition 0", &numbers(from));
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    };
    let runs = |report: &Value, what: &str| report["shards"][2][what].as_u64().unwrap();
    send(0);
    json(&["backup", path(&data), path(&kept)]);
    send(8000);
    let before = json(&["backup", path(&data), path(&kept)]);
    let (_, said, status) = run(&["chapter", "verify", path(&kept)]);
    assert_eq!(status, 0, "{said}");
    let again = json(&["backup", path(&data), path(&kept)]);
    assert!(runs(&again, "kept_runs") >= runs(&before, "kept_runs"), "{again}");
    let (listed, said, status) = run(&["chapter", "list", path(&kept), "--runs"]);
    assert_eq!(status, 0, "{said}");
    assert!(runs(&again, "chapter") == 0 || listed.contains("orders"), "{listed}");

    let (answered, said, status) = run(&["restore", path(&kept), path(&restored)]);
    assert_eq!(status, 0, "{said}");
    assert!(answered.starts_with("restored: the broker "), "{answered}");
    assert_eq!(broker.stop(), Some(0));
    let broker = Broker::start(&restored);
    let consumed = broker.ok("consume orders --partition 0 --from earliest --max 16000");
    assert!(consumed == numbers(0) + &numbers(8000), "{} bytes", consumed.len());

    // What would be lost, or is not a backup, is refused with what to do.
    let refused = |args: &[&str], word: &str| {
        let (_, said, status) = run(args);
        assert_eq!(status, 2, "{said}");
        assert!(said.contains(word), "{said}");
    };
    refused(&["restore", path(&kept), path(&data)], "it is not empty");
    refused(&["restore", path(&data), path(&tmp.path().join("new"))], "it is not a backup");
    refused(&["backup", path(&data), path(&data.join("kept"))], "one in the other");
    refused(&["backup", path(&kept), path(&tmp.path().join("new"))], "not the data directory");
    refused(&["backup", path(&data), path(&restored)], "it is not empty");
    assert!(!data.join("kept").exists());

    // A byte of the backup changes: nothing is restored.
    let head = kept.join("backup");
    let mut bytes = fs::read(&head).unwrap();
    bytes[70] ^= 1;
    fs::write(&head, bytes).unwrap();
    let new = tmp.path().join("new");
    let (_, said, status) = run(&["restore", path(&kept), path(&new)]);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("is damaged") && !new.exists(), "{said}");
}

/// What was restored of a replica of three was no directory that a broker could start in, or one whose shards nobody led.
#[test]
fn a_replica_of_three_is_backed_up_while_records_come_and_becomes_a_broker_of_its_own() {
    let tmp = tempfile::tempdir().unwrap();
    let [kept, restored] = ["kept", "restored"].map(|name| tmp.path().join(name));
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("topics", || {
        ask(&brokers[0], "topic create first --if-not-exists", "")?;
        ask(&brokers[0], "topic create sure --if-not-exists --config flush.messages=1", "")
    });
    in_time("records", || ask(&brokers[0], "produce first", &numbers(0..100)));
    in_time("records", || ask(&brokers[1], "produce sure", &numbers(0..10)));
    // The second leads no shard of records: it is neither their founder nor preferred.
    std::thread::scope(|scope| {
        let more = scope.spawn(|| {
            in_time("records", || ask(&brokers[2], "produce first", &numbers(100..200)));
        });
        in_time("what was acknowledged is durable there", || {
            let taken = json(&["backup", path(&cluster.data(2)), path(&kept)]);
            assert_eq!(taken["doubts"], serde_json::json!([]), "{taken}");
            let log = |shard: usize| taken["shards"][shard]["last_log_index"].as_u64();
            let has_all = log(2) > Some(3) && log(3) > Some(3);
            if has_all && more.is_finished() { Ok(()) } else { Err(format!("{taken}")) }
        });
    });
    json(&["backup", path(&cluster.data(2)), path(&kept)]);
    let id = fs::read_to_string(cluster.data(2).join("cluster")).unwrap();
    drop(brokers);
    let report = json(&["restore", path(&kept), path(&restored)]);
    assert_eq!(report["came_from"].as_str(), Some(&id[..32]));
    assert_ne!(
        report["cluster"].as_str(),
        Some(&id[..32]),
        "the others must not take it for theirs"
    );
    let broker = Broker::start(&restored);
    let found = in_time("it is read", || read(&broker));
    assert!(found.len() >= 100, "{found:?}");
    assert_eq!(ask(&broker, "consume sure --from earliest", ""), Ok(numbers(0..10)));
    in_time("it takes records", || ask(&broker, "produce first", &numbers(1000..1010)));
    assert_eq!(broker.stop(), Some(0));
}
