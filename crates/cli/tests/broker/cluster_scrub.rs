//! Three brokers that an operator has read all their chapters again.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::chapters::first_file;
use super::cluster::{Cluster, in_time, run};
use super::joining::until_these_vote;
use super::seeding::{SMALL, settle, settled};
use super::serving::{Broker, plimsoll, text};

/// What is answered, what is said, and the exit status.
fn scrub(broker: &Broker, args: &[&str]) -> (String, String, Option<i32>) {
    let mut asking = plimsoll(&["cluster", "scrub", "--http", &broker.http]);
    let output = asking.args(args).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The phase of a shard on each node that answers, by its place among them.
fn phases(broker: &Broker, shard: usize) -> Vec<String> {
    let (said, why, _) = scrub(broker, &["--report", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{why}"));
    let nodes = report["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["shards"][shard]["phase"].as_str().unwrap_or("-").to_owned()).collect()
}

/// Flips a bit on the disk of a broker that runs, in the last byte of each run of the topic in a file.
fn flip(chapter: &Path) {
    let dumped = plimsoll(&["chapter", "dump", "--json"]).arg(chapter).output().unwrap();
    let parts = text(&dumped.stdout);
    let parts = parts.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let file = OpenOptions::new().read(true).write(true).open(chapter).unwrap();
    for run in parts.filter(|part| part["part"] == "run") {
        let at = run["byte_offset"].as_u64().unwrap() + run["bytes"].as_u64().unwrap() - 1;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

/// The same in all its files.
fn flip_all(dir: &Path) {
    for entry in fs::read_dir(dir.join("chapters-2")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|is| is == "chapter") {
            flip(&file);
        }
    }
}

fn metrics(broker: &Broker) -> String {
    let mut asking = TcpStream::connect(&broker.http).unwrap();
    asking.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut said = String::new();
    asking.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_scrub_of_a_cluster_heals_what_it_can_names_what_it_cannot_and_ends_with_who_began_it() {
    let cluster = Cluster::found().with(&SMALL);
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    let first = brokers[0].take().unwrap();
    until_these_vote(&first, &[1, 2, 3]);
    in_time("a topic", || run(&first, "topic create first --if-not-exists", ""));
    settle(&cluster, 1, &first, 0);
    in_time("all have a chapter", || match (2..=3).all(|node| settled(&cluster, node) > 0) {
        true => Ok(()),
        false => Err("one has none".to_owned()),
    });

    flip(&first_file(&cluster.data(2)));
    let (said, why, code) = scrub(&first, &["--rate", "unlimited"]);
    assert_eq!(code, Some(1), "{said}{why}");
    assert!(
        said.contains("damaged: 1 place found in ") && said.contains(", 1 healed, 0 left"),
        "{said}"
    );
    let (said, why, code) = scrub(&first, &["--rate", "unlimited", "--json"]);
    assert_eq!(code, Some(0), "{said}{why}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&report["state"], report["nodes"].as_array().unwrap().len()), (&"good".into(), 3));
    let read = report["nodes"][1]["shards"][0]["read_bytes"].as_u64().unwrap();
    assert!(read > 0 && report["nodes"][1]["shards"][0]["whole_ms"].as_u64() > Some(0), "{said}");

    // It ends everywhere with whoever began it.
    let watching = plimsoll(&["cluster", "scrub", "--http", &first.http, "--rate", "1KiB"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    in_time("they read", || match phases(&first, 0) {
        phases if phases == ["running"; 3] => Ok(()),
        phases => Err(format!("{phases:?}")),
    });
    let asked = Command::new("kill").args(["-INT", &watching.id().to_string()]).status();
    assert!(asked.unwrap().success());
    let ended = watching.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).contains("the scrub was stopped"), "{}", text(&ended.stdout));
    assert_eq!(
        (phases(&first, 0), phases(&first, 1)),
        (vec!["stopped".to_owned(); 3], vec!["stopped".to_owned(); 3])
    );

    // What nobody has is named, and so is who was not read.
    drop(brokers[2].take());
    flip_all(&cluster.data(1));
    flip_all(&cluster.data(2));
    let (said, why, code) = scrub(&first, &["--rate", "unlimited"]);
    assert_eq!(code, Some(1), "{said}{why}");
    assert!(said.contains("node 1, shard 2: topic first, partition 0, offsets "), "{said}");
    assert!(said.contains("node 2 has no such run"), "{said}");
    assert!(said.contains("node 3 says nothing: "), "{said}");
    assert!(said.contains("left as they are"), "{said}");

    // Whoever is no broker is refused, and counted.
    let config =
        fs::read_to_string(cluster.data(1).parent().unwrap().join("cluster.toml")).unwrap();
    let (_, address) = config.split_once("1=").unwrap();
    let mut stranger = TcpStream::connect(address.split(',').next().unwrap()).unwrap();
    stranger.write_all(&[b'G'; 200]).unwrap();
    in_time("it is counted", || {
        let said = metrics(&first);
        let has = |line: &str| said.lines().any(|found| found == line);
        let refused = |reason: &str, count| {
            has(&format!("plimsoll_peer_refused_total{{reason=\"{reason}\"}} {count}"))
        };
        let none = ["foreign-cluster", "oversized", "replayed", "old-incarnation", "version"];
        let is_so = has("plimsoll_peers_connected 1") && refused("damaged", 1);
        if is_so && none.iter().all(|reason| refused(reason, 0)) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn a_scrub_of_a_cluster_finds_what_a_disk_has_lost_of_a_log_and_has_it_healed() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    let first = &brokers[0];
    until_these_vote(first, &[1, 2, 3]);
    in_time("a topic", || run(first, "topic create first --if-not-exists", ""));
    let lines = format!("{}\n", "x".repeat(100_000)).repeat(20);
    in_time("records", || run(first, "produce first", &lines));
    let healed = |said: &str, shard: u32| {
        let named = format!("plimsoll_shard_log_healed_records{{shard=\"{shard}\"}}");
        let counts = said.lines().filter(|line| line.starts_with(&named));
        counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    in_time("what was written last is read, and good", || {
        let (said, why, code) = scrub(first, &["--rate", "unlimited", "--json"]);
        let report: Value = serde_json::from_str(&said).unwrap();
        let read = |shard: u64| {
            let shards = report["nodes"][1]["shards"].as_array().unwrap();
            let of = shards.iter().find(|of| of["shard"] == shard).unwrap();
            of["read_bytes"].as_u64().unwrap()
        };
        if code == Some(0) && read(0) > 0 && read(2) > 1 << 20 { Ok(()) } else { Err(said + &why) }
    });
    // Of topics, and of records.
    for (shard, what) in [(0, "first"), (2, "xxxxxxxx")] {
        let oldest = cluster.data(2).join(format!("shard-{shard}/00000000000000000001.seg"));
        let file = OpenOptions::new().read(true).write(true).open(&oldest).unwrap();
        let bytes = fs::read(&oldest).unwrap();
        let at = bytes.windows(what.len()).position(|bytes| bytes == what.as_bytes()).unwrap();
        file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
        assert_eq!(healed(&metrics(&brokers[1]), shard), 0);
    }
    let (said, why, code) = scrub(first, &["--rate", "unlimited"]);
    assert_eq!(code, Some(1), "{said}{why}");
    assert!(
        said.contains("damaged: 2 places found in ") && said.contains(", 2 healed, 0 left"),
        "{said}"
    );
    assert!([0, 2].iter().all(|shard| healed(&metrics(&brokers[1]), *shard) > 0));
    let (said, why, code) = scrub(first, &["--rate", "unlimited"]);
    assert_eq!(code, Some(0), "{said}{why}");
}
