//! What a broker has settled, looked at from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::serving::{Broker, plimsoll, text};

/// A broker's data: in its first chapter there are topic `small`, which is deleted, and both partitions of `orders`.
/// Nobody changes it.
pub(crate) fn settled() -> &'static Path {
    static DATA: OnceLock<PathBuf> = OnceLock::new();
    DATA.get_or_init(|| {
        // Nothing static is dropped: what the last run left goes now.
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chapters");
        fs::remove_dir_all(&dir).ok();
        let broker = Broker::serve(&dir, &["--chapter-bytes", "64KiB"]);
        broker.ok("topic create orders --partitions 2");
        broker.ok("topic create small");
        let send = |line: &str, records: &str| {
            let sent = broker.run(line, records);
            assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        };
        send("produce small --key-separator :", "key:hello\n");
        let numbers = |n: u32| (0..n).map(|number| format!("{number}\n")).collect::<String>();
        send("produce orders --partition 1 --compression gzip", &numbers(100));
        // It ends the chapter, and may begin another.
        send("produce orders --partition 0", &numbers(10_000));
        let listed = |holds: &dyn Fn(&Value) -> bool| {
            let begun = Instant::now();
            while !holds(&list(&dir)["shards"][0]) {
                assert!(begun.elapsed() < Duration::from_secs(60), "{}", list(&dir));
                thread::park_timeout(Duration::from_millis(20));
            }
        };
        listed(&|shard| shard["settled"]["chapter"].as_u64() >= Some(1));
        broker.ok("topic delete small");
        listed(&|shard| shard["files"][0]["live_runs"] == 2);
        // Beside the broker it is as good as without one.
        assert_eq!(look(&["verify", path(&dir)]).2, 0);
        assert_eq!(broker.stop(), Some(0));
        dir
    })
}

/// The same, to be changed.
pub(crate) fn copy() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-r").arg(settled().join(".")).arg(dir.path()).status();
    assert!(copied.unwrap().success());
    dir
}

/// What is answered, what is said, and the exit status.
fn look(args: &[&str]) -> (String, String, i32) {
    let output = plimsoll(&[&["chapter"], args].concat()).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn json(args: &[&str]) -> Value {
    let (answered, said, _) = look(&[args, &["--json"]].concat());
    serde_json::from_str(&answered).unwrap_or_else(|error| panic!("{error}: {answered}{said}"))
}

fn list(dir: &Path) -> Value {
    json(&["list", path(dir), "--runs"])
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn first_file(dir: &Path) -> PathBuf {
    dir.join("chapters-2/00000000.chapter")
}

/// The run of a partition in the first file, as a dump has it.
pub(crate) fn run_of(dir: &Path, topic: &str, partition: u32) -> Value {
    let (answered, said, status) = look(&["dump", path(&first_file(dir)), "--json"]);
    assert_eq!(status, 0, "{said}");
    let lines = answered.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut runs = lines.filter(|line| line["topic"] == topic && line["partition"] == partition);
    runs.next().unwrap_or_else(|| panic!("no {topic}/{partition} in\n{answered}"))
}

/// Changes the last byte of a run.
pub(crate) fn damage(dir: &Path, topic: &str, partition: u32) -> Value {
    let run = run_of(dir, topic, partition);
    let end = run["byte_offset"].as_u64().unwrap() + run["bytes"].as_u64().unwrap();
    let mut bytes = fs::read(first_file(dir)).unwrap();
    bytes[usize::try_from(end).unwrap() - 1] ^= 1;
    fs::write(first_file(dir), bytes).unwrap();
    run
}

#[test]
fn a_list_says_what_is_settled_and_what_of_it_lives() {
    let listed = list(settled());
    let shard = &listed["shards"][0];
    assert_eq!(shard["shard"], 2);
    let first = &shard["files"][0];
    assert_eq!((&first["file"], &first["first_chapter"]), (&"00000000.chapter".into(), &1.into()));
    assert_eq!((&first["runs"], &first["live_runs"]), (&3.into(), &2.into()));
    let runs = first["run"].as_array().unwrap();
    let lives: BTreeMap<_, _> = runs
        .iter()
        .map(|run| {
            ((run["topic"].as_str().unwrap(), run["partition"].as_u64().unwrap()), &run["live"])
        })
        .collect();
    assert_eq!(lives[&("orders", 0)], true);
    assert_eq!(lives[&("orders", 1)], true);
    assert_eq!(lives[&("small", 0)], false, "its topic is deleted");
    let live: u64 =
        runs.iter().filter(|run| run["live"] == true).filter_map(|run| run["bytes"].as_u64()).sum();
    assert_eq!(first["live_bytes"], live);
    assert!(listed["shards"][1]["files"].as_array().unwrap().is_empty());

    let (answered, _, status) = look(&["list", path(settled())]);
    assert_eq!(status, 0);
    assert!(answered.starts_with("shard 2: settled up to chapter "), "{answered}");
    assert!(!answered.contains("shard 3"), "it has no chapters: {answered}");
    assert!(!answered.contains("topic"), "runs are listed where that is asked for: {answered}");
    let (answered, _, _) = look(&["list", path(settled()), "--runs"]);
    let id = runs[0]["topic_id"].as_str().unwrap();
    assert!(answered.contains("orders") && answered.contains(id), "{answered}");
    assert!(answered.lines().any(|line| line.contains("small") && line.ends_with("deleted")));
}

#[test]
fn what_is_settled_is_read_without_a_broker() {
    let orders = ["--topic", "orders", "--partition"];
    let runs = list(settled());
    let files = runs["shards"][0]["files"].as_array().unwrap();
    let runs = files.iter().flat_map(|file| file["run"].as_array().unwrap());
    let of_0 = runs.filter(|run| run["topic"] == "orders" && run["partition"] == 0);
    let last = of_0.map(|run| run["last_offset"].as_u64().unwrap()).max().unwrap();
    let dir = path(settled());
    let cat = |args: &[&str]| look(&[&["cat", dir], args].concat());
    let (answered, said, status) = cat(&[&orders[..], &["0"]].concat());
    assert_eq!(status, 0, "{said}");
    let all: String = (0..=last).map(|number| format!("{number}\n")).collect();
    assert_eq!(answered, all);
    let (answered, _, status) = cat(&[&orders[..], &["1", "--from", "98", "--json"]].concat());
    let records = answered.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let records: Vec<Value> = records.collect();
    assert_eq!((status, records.len()), (0, 2), "{answered}");
    assert_eq!((&records[0]["offset"], &records[0]["value"]), (&98.into(), &"98".into()));
    assert!(records[0]["timestamp"].as_i64() > Some(0) && records[0]["key"].is_null());
    // By its id too; and the next offset may be asked for, which is not there yet.
    let id = run_of(settled(), "orders", 1)["topic_id"].as_str().unwrap().to_owned();
    let (answered, _, status) = cat(&["--topic-id", &id, "--partition", "1", "--from", "100"]);
    assert_eq!((answered.as_str(), status), ("", 0));
    for (args, why) in [
        (&["--topic-id", &id, "--partition", "1", "--from", "101"][..], "ends with 99"),
        (&["--topic-id", &id, "--partition", "7"], "nothing of partition 7"),
        (&["--topic", "none", "--partition", "0"], "no topic none is known there"),
        (&["--partition", "0"], "--topic"),
    ] {
        let (answered, said, status) = cat(args);
        assert_eq!((answered.as_str(), status), ("", 2), "{args:?}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_is_deleted_is_printed_of_a_file_and_not_of_a_directory() {
    let id = run_of(settled(), "small", 0)["topic_id"].as_str().unwrap().to_owned();
    let small = ["--topic-id", &id, "--partition", "0", "--json"];
    let (answered, said, status) = look(&[&["cat", path(settled())], &small[..]].concat());
    assert_eq!((answered.as_str(), status), ("", 2), "{said}");
    let file = first_file(settled());
    let (answered, said, status) = look(&[&["cat", path(&file)], &small[..]].concat());
    assert_eq!(status, 0, "{said}");
    let record: Value = serde_json::from_str(&answered).unwrap();
    assert_eq!((&record["key"], &record["value"]), (&"key".into(), &"hello".into()));
}

#[test]
fn a_flipped_byte_is_named_by_file_topic_partition_and_offsets() {
    let (answered, said, status) = look(&["verify", path(settled())]);
    assert_eq!(status, 0, "{answered}{said}");
    assert!(answered.starts_with("good: "), "{answered}");
    assert!(answered.ends_with("; 1 run is deleted, and was passed over\n"), "{answered}");
    assert_eq!(said, "", "where stderr is no terminal there is no progress");

    let dir = copy();
    let run = damage(dir.path(), "orders", 1);
    let id = run["topic_id"].as_str().unwrap();
    let named = format!(
        "chapters-2/00000000.chapter: topic orders ({id}), partition 1, chapter 1, offsets 0 to 99: other bytes"
    );
    let (answered, _, status) = look(&["verify", path(dir.path())]);
    assert_eq!(status, 1, "{answered}");
    assert!(answered.starts_with(&named), "{answered}");
    assert!(answered.contains("\ndamaged: 1 damaged of "), "{answered}");
    let verdict = json(&["verify", path(dir.path())]);
    assert_eq!((&verdict["state"], &verdict["deleted_runs"]), (&"damaged".into(), &1.into()));
    let [damaged] = &verdict["damaged"].as_array().unwrap()[..] else { panic!("{verdict}") };
    assert_eq!((&damaged["topic_id"], &damaged["partition"]), (&id.into(), &1.into()));
    assert_eq!(damaged["damage"][0]["last_offset"], 99);
    // Who prints records is told too; others are as good as ever.
    let cat =
        |partition| look(&["cat", path(dir.path()), "--topic", "orders", "--partition", partition]);
    let (answered, said, status) = cat("1");
    assert_eq!((answered.as_str(), status), ("", 1), "{said}");
    assert!(said.contains("--from 100 goes on behind it"), "{said}");
    assert_eq!(cat("0").2, 0);
}

#[test]
fn what_is_deleted_is_passed_over_in_a_directory_and_read_in_a_file() {
    let dir = copy();
    damage(dir.path(), "small", 0);
    let (answered, said, status) = look(&["verify", path(dir.path())]);
    assert_eq!(status, 0, "{answered}{said}");
    let (answered, _, status) = look(&["verify", path(&first_file(dir.path()))]);
    assert_eq!(status, 1);
    assert!(answered.contains("topic small ("), "{answered}");
    assert!(answered.contains("what is deleted may read as damaged"), "{answered}");
}

#[test]
fn a_missing_file_is_damage_and_one_that_nobody_names_is_news() {
    let dir = copy();
    fs::write(dir.path().join("chapters-2/00000099.chapter"), "half of one").unwrap();
    let (answered, _, status) = look(&["verify", path(dir.path())]);
    assert_eq!(status, 0, "{answered}");
    let stray = "chapters-2/00000099.chapter is not named by the manifest";
    assert!(answered.starts_with(stray), "{answered}");
    assert!(look(&["list", path(dir.path())]).0.contains("00000099.chapter is not named"));
    fs::remove_file(first_file(dir.path())).unwrap();
    for command in ["verify", "list"] {
        let (answered, _, status) = look(&[command, path(dir.path())]);
        assert_eq!(status, 1, "{answered}");
        assert!(answered.contains("00000000.chapter is missing"), "{answered}");
    }
}

/// A start would take the chapters for nobody's.
#[test]
fn a_manifest_that_is_lost_is_damage() {
    for file in ["manifest", "manifest and all chapters"] {
        let dir = copy();
        match file {
            "manifest" => fs::remove_file(dir.path().join("chapters-2/manifest")).unwrap(),
            _ => fs::remove_dir_all(dir.path().join("chapters-2")).unwrap(),
        }
        let (answered, _, status) = look(&["verify", path(dir.path())]);
        assert_eq!(status, 1, "{answered}");
        assert!(answered.contains("a newer manifest was lost"), "{answered}");
    }
    let dir = copy();
    let manifest = dir.path().join("chapters-2/manifest");
    let mut bytes = fs::read(&manifest).unwrap();
    bytes[30] ^= 1;
    fs::write(&manifest, bytes).unwrap();
    let (answered, _, status) = look(&["verify", path(dir.path())]);
    assert!(status == 1 && answered.contains("manifest is damaged"), "{answered}");
    let (answered, said, status) = look(&["list", path(dir.path())]);
    assert!(status == 1 && said.contains("manifest is damaged"), "{answered}{said}");
}

#[test]
fn what_tests_nothing_is_not_called_good() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    assert_eq!(Broker::start(&data).stop(), Some(0));
    let (answered, said, status) = look(&["verify", path(&data)]);
    assert_eq!(status, 0, "{said}");
    assert!(answered.starts_with("nothing was tested: no chapter is settled"), "{answered}");
    assert_eq!(json(&["verify", path(&data)])["state"], "nothing");
    assert!(look(&["list", path(&data)]).0.starts_with("no chapter is settled"));
    // What is no broker's is refused.
    let chapters = settled().join("chapters-2");
    for (place, why) in [
        (dir.path(), "it is not the data directory of a broker"),
        (&chapters, "name the directory of the broker above it"),
        (&dir.path().join("none"), "there is no "),
    ] {
        let (answered, said, status) = look(&["verify", path(place)]);
        assert_eq!((answered.as_str(), status), ("", 2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_look_changes_nothing() {
    let dir = copy();
    for other in ["chapters-2/00000099.chapter", "chapters-2/manifest.new", "state-2.new"] {
        fs::write(dir.path().join(other), "left behind").unwrap();
    }
    let all = || {
        let mut found = BTreeMap::new();
        let mut dirs = vec![dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => dirs.push(entry),
                    false => drop(found.insert(entry.clone(), fs::read(entry).unwrap())),
                }
            }
        }
        found
    };
    let before = all();
    let (data, file) = (path(dir.path()).to_owned(), first_file(dir.path()));
    for args in [
        &["list", &data, "--runs"][..],
        &["verify", &data],
        &["verify", path(&file)],
        &["dump", path(&file), "--blocks"],
        &["cat", &data, "--topic", "orders", "--partition", "0"],
    ] {
        assert_eq!(look(args).2, 0, "{args:?}");
    }
    assert!(all() == before, "something was changed");
}

#[test]
fn a_dump_says_what_a_file_says_of_itself() {
    let file = first_file(settled());
    let (answered, _, status) = look(&["dump", path(&file), "--blocks"]);
    assert_eq!(status, 0);
    let parts: Vec<_> = answered.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(parts[..4], ["header", "footer", "run", "block"], "{answered}");
    assert_eq!(parts.iter().filter(|part| **part == "run").count(), 3);
    let (answered, _, _) = look(&["dump", path(&file), "--blocks", "--json"]);
    let lines = answered.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = |name: &'static str| lines.clone().filter(move |line| line["part"] == name);
    assert_eq!(of("footer").next().unwrap()["file_bytes"], fs::metadata(&file).unwrap().len());
    let sum = |name| of(name).map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("run"), sum("block"));
    let dir = copy();
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(first_file(dir.path()), bytes).unwrap();
    for args in [&["dump"][..], &["verify"]] {
        let (answered, said, status) = look(&[args, &[path(&first_file(dir.path()))]].concat());
        assert_eq!(status, 1, "{said}");
        assert!(format!("{said}{answered}").contains("00000000.chapter is damaged"), "{said}");
    }
}

#[test]
fn every_help_of_chapters_has_examples() {
    for command in ["list", "verify", "dump", "cat"] {
        let (help, _, _) = look(&[command, "--help"]);
        let example = format!("plimsoll chapter {command}");
        assert!(help.contains("Examples:") && help.contains(&example), "{help}");
    }
    assert!(look(&["--help"]).0.contains("Examples:"));
}
