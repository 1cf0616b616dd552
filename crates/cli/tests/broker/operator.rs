//! What `plimsoll broker` says of a broker, and of a place for one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};

use crate::serving::{Broker, plimsoll, text};

fn run(args: &[&str]) -> Output {
    plimsoll(args).output().unwrap()
}

#[test]
fn a_broker_is_asked_how_it_is_and_stops_with_somebody_still_asking() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(&dir.path().join("data"));
    let status = run(&["broker", "status", "--http", &broker.http]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status.stderr));
    let said = text(&status.stdout);
    assert!(said.starts_with("a power cut would take nothing now"), "{said}");
    assert!(said.contains("0 topics, 0 partitions, 0 groups"), "{said}");
    let json = run(&["broker", "status", "--http", &broker.http, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["shards"].as_array().unwrap().len(), 6);

    // Somebody keeps a connection, and a wait is under way: neither holds up the end.
    let mut idle = TcpStream::connect(&broker.http).unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    broker.ok("topic create t");
    let mut waiting = TcpStream::connect(&broker.http).unwrap();
    let wait = "GET /topics/t/0/wait?offset=0 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    waiting.write_all(wait.as_bytes()).unwrap();
    // Before the next answer, it is taken.
    run(&["broker", "status", "--http", &broker.http]);
    broker.ok("topic create two --config min.insync.replicas=2");
    let status = run(&["broker", "status", "--http", &broker.http]);
    let (code, said) = (status.status.code(), text(&status.stdout));
    let refuses = "\n  REFUSES: producers to topic two get NOT_ENOUGH_REPLICAS: min.insync.replicas asks for more than the 1 in sync\n";
    assert!(code == Some(1) && said.contains(refuses), "{code:?}: {said}");
    assert_eq!(broker.stop(), Some(0));
    let mut told = String::new();
    waiting.read_to_string(&mut told).unwrap();
    assert!(told.contains("the broker is stopping"), "{told}");
}

#[test]
fn where_no_broker_answers_that_is_said() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let status = run(&["broker", "status", "--http", &address]);
    assert_eq!(status.status.code(), Some(2));
    let told = text(&status.stderr);
    assert!(told.contains(&format!("no broker answers on {address}")), "{told}");
}

#[test]
fn a_doctor_says_what_a_directory_is_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let doctor = || {
        let path = data.to_str().unwrap();
        let found = run(&["broker", "doctor", "--dir", path, "--memory", "none", "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        let findings = found.as_array().unwrap().clone();
        let said = |what: &str| {
            let found = findings.iter().find(|finding| finding["what"] == what);
            found.map_or(String::new(), |found| found["said"].as_str().unwrap().to_owned())
        };
        (said("directory"), said("last run"))
    };
    assert!(doctor().0.contains("a start makes it"));
    assert!(!data.exists());
    fs::create_dir(&data).unwrap();
    fs::write(data.join("cluster"), "0".repeat(32)).unwrap();
    assert!(doctor().0.contains("is not what a broker wrote there"), "it has no checksum");
    fs::remove_file(data.join("cluster")).unwrap();
    let broker = Broker::start(&data);
    assert!(doctor().0.starts_with("of the broker "));
    assert!(doctor().1.contains("it runs"), "{}", doctor().1);
    assert_eq!(broker.stop(), Some(0));
    assert_eq!(doctor().1, "closed: everything was durable");
    // It ends with what holds it, as killed.
    drop(Broker::start(&data));
    assert!(doctor().1.contains("it did not close "), "{}", doctor().1);

    fs::create_dir(dir.path().join("other")).unwrap();
    fs::write(dir.path().join("other/file"), "x").unwrap();
    let other = dir.path().join("other");
    let found = run(&["broker", "doctor", "--dir", other.to_str().unwrap(), "--memory", "none"]);
    assert!(text(&found.stdout).contains("is no broker's yet"), "{}", text(&found.stdout));

    // No log that is open was taken for four that are closed.
    fs::remove_dir_all(data.join("shard-1")).unwrap();
    assert!(doctor().1.starts_with("shard-1 is not there"), "{}", doctor().1);
}

/// Rings on a disk were promised to be as slow as that disk; a start does not use them.
#[test]
fn a_doctor_says_of_rings_what_a_start_does() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (data, memory) = (dir.path().join("data"), dir.path().join("memory"));
    let doctor = ["broker", "doctor", "--json", "--dir"];
    let found = plimsoll(&doctor).arg(&data).arg("--memory").arg(&memory).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let rings = found.as_array().unwrap().iter().find(|finding| finding["what"] == "rings");
    let rings = rings.unwrap()["said"].as_str().unwrap().to_owned();
    let mut serve = plimsoll(&["serve", "--listen", "127.0.0.1:0", "--http", "none", "--dir"]);
    let serve = serve.arg(&data).arg("--memory").arg(&memory).stderr(Stdio::piped());
    let mut serving = serve.spawn().unwrap();
    let mut news = BufReader::new(serving.stderr.take().unwrap()).lines().map(Result::unwrap);
    let promise = news.find(|line| line.starts_with("an acknowledged record")).unwrap();
    serving.kill().unwrap();
    serving.wait().unwrap();
    let waits = promise.contains("is with the kernel");
    assert_eq!(rings.contains("waits for the kernel"), waits, "{rings}; {promise}");
    assert_eq!(promise.contains("plimsoll broker doctor looks why"), waits, "{promise}");
}

/// It left its directory as a broker that was killed does, and the next start spoke of losses.
#[test]
fn a_start_whose_address_is_taken_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0".to_owned();
    for (listen, http, flag) in [(&taken, &free, "--listen"), (&free, &taken, "--http")] {
        let args = ["serve", "--memory", "none", "--listen", listen, "--http", http, "--dir"];
        let refused = plimsoll(&args).arg(&data).output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains(&format!("{flag} says where else")), "{told}");
        assert!(!data.exists(), "{told}");
    }
}

#[test]
fn an_http_address_that_others_reach_must_be_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let serve = ["serve", "--http", "0.0.0.0:0", "--memory", "none", "--dir"];
    let refused = plimsoll(&serve).arg(&data).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let told = text(&refused.stderr);
    assert!(told.contains("--allow-anyone"), "{told}");
    assert!(!data.exists(), "nothing was made");
}
