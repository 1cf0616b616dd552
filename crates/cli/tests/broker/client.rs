//! `plimsoll topic`, `group`, `produce` and `consume`, asked of a broker.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use crate::serving::{Broker, plimsoll, text};

impl Broker {
    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// What is said on stderr, where that is all.
    fn refused(&self, line: &str) -> String {
        let output = self.run(line, "");
        assert_eq!(output.status.code(), Some(2), "{line}: {}", text(&output.stdout));
        assert!(output.stdout.is_empty(), "an error is not an answer: {}", text(&output.stdout));
        text(&output.stderr)
    }

    fn produce(&self, line: &str, input: &str) -> (String, String) {
        let output = self.run(&format!("produce {line}"), input);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        (text(&output.stdout), said)
    }
}

#[test]
fn a_topic_is_made_described_changed_and_deleted() {
    let broker = Broker::fresh();
    assert_eq!(broker.ok("topic list"), "no topics\n");
    let made = broker.ok("topic create orders --partitions 3 --config flush.messages=1");
    assert_eq!(made, "topic orders made, with 3 partitions\n");
    assert!(broker.refused("topic create orders").contains("topic orders: "));
    let again = broker.json("topic create orders --if-not-exists");
    assert_eq!(again["created"], false);
    assert!(broker.refused("topic create other --config nonsense=1").contains("nonsense"));

    let described = broker.ok("topic describe orders");
    assert!(described.starts_with("topic      orders, 3 partitions\n"), "{described}");
    let promise = "promise    a record is durable before it is acknowledged\n";
    assert!(described.contains(promise), "{described}");
    assert!(described.contains("settings   flush.messages=1\n"), "{described}");
    let changed = "topic alter orders --config retention.ms=3600000 --delete-config flush.messages";
    broker.refused(&format!("{changed} --partitions 2"));
    broker.ok("topic alter orders --config retention.ms=3600000 --partitions 4");
    let described = broker.json("topic describe orders");
    assert_eq!(described["settings"]["retention.ms"], "3600000");
    assert_eq!(described["partitions"].as_array().unwrap().len(), 4);
    assert_eq!(described["partitions"][3]["high_watermark"], 0);
    broker.ok("topic alter orders --delete-config retention.ms");
    assert!(broker.json("topic describe orders")["settings"]["retention.ms"].is_null());

    broker.ok("topic delete orders");
    assert_eq!(broker.json("topic list"), serde_json::json!([]));
    let said = broker.refused("topic describe orders");
    assert_eq!(said, "plimsoll: topic orders: there is no such topic\n");
}

#[test]
fn what_is_produced_is_consumed_in_each_compression() {
    let broker = Broker::fresh();
    broker.ok("topic create t");
    for (place, how) in ["none", "gzip", "snappy", "lz4", "zstd"].iter().enumerate() {
        let (answer, said) = broker.produce(&format!("t --compression {how}"), &format!("{how}\n"));
        assert!(answer.is_empty());
        assert_eq!(said, format!("1 record acknowledged: offset {place} of partition 0\n"));
    }
    assert_eq!(broker.ok("consume t"), "none\ngzip\nsnappy\nlz4\nzstd\n");
    assert_eq!(broker.ok("consume t --from 3"), "lz4\nzstd\n");
    assert_eq!(broker.ok("consume t --from 1 --max 2"), "gzip\nsnappy\n");
    assert_eq!(broker.ok("consume t --from latest"), "");
    assert_eq!(broker.ok("consume t --from 2020-01-01T00:00:00Z --max 1"), "none\n");
    assert_eq!(broker.ok("consume t --from 2120-01-01T00:00:00Z"), "");
    assert_eq!(broker.ok("consume t --isolation read_committed --max 1"), "none\n");
    let said = broker.refused("consume t --from 6");
    assert_eq!(said, "plimsoll: partition 0 of t has offsets 0 to 5, not 6\n");
}

#[test]
fn a_record_comes_back_with_its_key_and_headers() {
    let broker = Broker::fresh();
    broker.ok("topic create t --partitions 3");
    let (answer, _) =
        broker.produce("t --key-separator => --header h=v --json", "abc=>1\nabc=>2\n");
    let batch: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&batch["first_offset"], &batch["last_offset"]), (&0.into(), &1.into()));
    let consumed = broker.ok("consume t --json");
    let records: Vec<Value> =
        consumed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2, "{consumed}");
    assert_eq!(records[1]["partition"], batch["partition"], "one key, one partition");
    assert_eq!(records[1]["offset"], 1);
    assert_eq!((&records[1]["key"], &records[1]["value"]), (&"abc".into(), &"2".into()));
    assert_eq!(records[1]["headers"], serde_json::json!([{ "key": "h", "value": "v" }]));
    assert!(records[1]["timestamp"].as_i64().unwrap() > 1_700_000_000_000);

    let output = broker.run("produce t --key-separator =>", "a=>1\nb\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("; then: line 2 has no \"=>\""));
    assert!(broker.refused("produce t --partition 3").contains("has 3 partitions, and not that"));
    let (_, said) = broker.produce("t --acks 0", "x\n");
    assert_eq!(said, "1 record sent; with --acks 0 nobody says whether they arrived\n");
}

#[test]
fn thousands_of_records_come_back_in_their_order() {
    let broker = Broker::fresh();
    broker.ok("topic create t");
    let lines: String = (0..50_000).map(|number| format!("record {number}\n")).collect();
    let (answer, said) = broker.produce("t --compression lz4 --json", &lines);
    assert_eq!(said, "50000 records acknowledged: offsets 0 to 49999 of partition 0\n");
    let batches = answer.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let counted: i64 = batches.map(|batch| batch["records"].as_i64().unwrap()).sum();
    assert_eq!(counted, 50_000);
    assert_eq!(broker.ok("consume t"), lines);
    assert_eq!(broker.ok("consume t --from 49998"), "record 49998\nrecord 49999\n");
}

/// `| head` wants no more, and that is no error.
/// It waited for ever for a record below the offset at which the partition goes on.
#[test]
fn reading_ends_behind_what_a_fence_gave_up() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path());
    broker.ok("topic create t");
    broker.produce("t", "kept\n");
    // It may have forgotten something, for all it knows.
    drop(broker);
    let broker = Broker::start(dir.path());
    let end = broker.json("topic describe t")["partitions"][0]["high_watermark"].as_i64().unwrap();
    assert!(end > 1, "a fence: {end}");
    assert_eq!(broker.ok("consume t --from earliest"), "kept\n");
    assert_eq!(broker.ok("consume t --from 1"), "", "from within the gap");
    assert_eq!(broker.ok(&format!("consume t --from {}", end - 1)), "");
    broker.ok("consume t --group g");
    let group = broker.json("group describe g");
    assert_eq!(group["partitions"][0]["lag"], 0, "{group}");
    broker.produce("t", "after\n");
    assert_eq!(broker.ok("consume t --from earliest"), "kept\nafter\n");
}

#[test]
fn a_reader_that_leaves_ends_a_consumer_that_follows() {
    let broker = Broker::fresh();
    broker.ok("topic create t");
    broker.produce("t", "1\n2\n3\n");
    let mut consumer = plimsoll(&["consume", "t", "--follow", "--broker", &broker.addr])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(consumer.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "1\n");
    assert_eq!(consumer.wait().unwrap().code(), Some(0));
}

#[test]
fn a_consumer_that_follows_prints_what_comes_until_it_is_interrupted() {
    let broker = Broker::fresh();
    broker.ok("topic create t");
    broker.produce("t", "before\n");
    let mut consumer = plimsoll(&["consume", "t", "--follow", "--broker", &broker.addr])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(consumer.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "before");
    broker.produce("t", "after\n");
    assert_eq!(lines.next().unwrap(), "after");
    let id = consumer.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    assert_eq!(consumer.wait().unwrap().code(), Some(130));
}

#[test]
fn a_group_is_set_back_described_and_deleted() {
    let broker = Broker::fresh();
    broker.ok("topic create t --partitions 2");
    broker.produce("t --partition 0", "1\n2\n3\n");
    assert_eq!(broker.ok("group list"), "no groups\n");
    assert_eq!(broker.refused("group describe g"), "plimsoll: there is no group g\n");
    let dry = broker.ok("group reset g --topic t --to-latest --dry-run");
    assert!(dry.starts_with("group g would go on so in t; nothing was changed:\n"), "{dry}");
    assert_eq!(broker.ok("group list"), "no groups\n", "nothing was changed");

    broker.ok("group reset g --topic t --to-earliest");
    assert_eq!(broker.ok("group list"), "g\n");
    let described = broker.json("group describe g");
    let first = &described["partitions"][0];
    assert_eq!(
        (&first["committed"], &first["end"], &first["lag"]),
        (&0.into(), &3.into(), &3.into())
    );
    let reset = broker.json("group reset g --topic t --to-time 2120-01-01T00:00:00Z");
    assert_eq!(
        reset["partitions"][0],
        serde_json::json!({
            "partition": 0, "was": 0, "now": 3, "end": 3,
        })
    );
    assert_eq!(broker.json("group describe g")["partitions"][0]["lag"], 0);
    let said = broker.refused("group reset g --topic t --to-offset 2");
    assert_eq!(said, "plimsoll: partition 1 of t has offsets 0 to 0, and not 2\n");

    assert_eq!(broker.ok("group delete g"), "group g deleted\n");
    broker.refused("group delete g");
    assert_eq!(broker.ok("group list"), "no groups\n");
}

#[test]
fn a_group_goes_on_where_it_was() {
    let broker = Broker::fresh();
    broker.ok("topic create t --partitions 2");
    broker.produce("t --partition 0", "1\n2\n");
    broker.produce("t --partition 1", "3\n");
    assert_eq!(broker.ok("consume t --group g --max 1").lines().count(), 1);
    assert_eq!(broker.ok("consume t --group g").lines().count(), 2);
    broker.produce("t --partition 1", "4\n");
    assert_eq!(broker.ok("consume t --group g"), "4\n");
    assert_eq!(broker.ok("consume t --group g"), "");
    let described = broker.json("group describe g");
    assert_eq!(described["members"], serde_json::json!([]), "who ends leaves");
    assert_eq!(described["partitions"][1]["lag"], 0);
    assert_eq!(broker.ok("consume t --group other --from latest"), "");
}

#[test]
fn members_of_a_group_share_a_topic_and_print_each_record_once() {
    let broker = Broker::fresh();
    broker.ok("topic create t --partitions 2");
    broker.produce("t --partition 0", "1\n");
    broker.produce("t --partition 1", "2\n");
    let (sender, printed) = mpsc::channel();
    let join = || {
        let args = ["consume", "t", "--group", "g", "--follow", "--broker", &broker.addr];
        let mut member = plimsoll(&args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(member.stdout.take().unwrap()).lines();
        let sender = sender.clone();
        thread::spawn(move || lines.for_each(|line| sender.send(line.unwrap()).unwrap()));
        member
    };
    let mut members = vec![join()];
    let mut all = vec![printed.recv().unwrap(), printed.recv().unwrap()];
    members.push(join());
    let readers = || -> BTreeSet<String> {
        let described = broker.json("group describe g");
        let partitions = described["partitions"].as_array().unwrap().clone();
        partitions.iter().filter_map(|part| part["member"].as_str().map(str::to_owned)).collect()
    };
    // Each look is a question to the broker.
    while readers().len() < 2 {}
    broker.produce("t --partition 0", "3\n");
    broker.produce("t --partition 1", "4\n");
    all.extend([printed.recv().unwrap(), printed.recv().unwrap()]);
    for mut member in members {
        let id = member.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert_eq!(member.wait().unwrap().code(), Some(130));
    }
    drop(sender);
    all.extend(printed);
    all.sort_unstable();
    assert_eq!(all, ["1", "2", "3", "4"]);
}

#[test]
fn where_there_is_no_broker_it_is_said_where_it_was_looked_for() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = plimsoll(&["topic", "list", "--broker", &free.to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let expected =
        format!("plimsoll: no broker can be reached at {free}; --broker says where one is: ");
    assert!(said.starts_with(&expected), "{said}");
}
