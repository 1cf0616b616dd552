//! Chapters read from the disk itself, beside a broker or without one.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::chapters::{copy, damage, first_file, path, run_of, settled};
use crate::serving::{Broker, plimsoll, text};

/// What is answered, what is said, and the exit status.
fn scrub(args: &[&str]) -> (String, String, i32) {
    let output = plimsoll(&[&["broker", "scrub"], args].concat()).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

fn json(dir: &Path) -> Value {
    let (answered, said, _) = scrub(&[path(dir), "--json"]);
    serde_json::from_str(&answered).unwrap_or_else(|error| panic!("{error}: {answered}{said}"))
}

#[test]
fn a_scrub_names_what_is_bad_by_topic_partition_and_offsets() {
    let (answered, said, status) = scrub(&[path(settled())]);
    assert_eq!(status, 0, "{answered}{said}");
    assert!(answered.contains("good: "), "{answered}");
    assert!(answered.ends_with("; 1 run is deleted, and was passed over\n"), "{answered}");
    assert_eq!(said, "", "where stderr is no terminal there is no progress");

    let dir = copy();
    damage(dir.path(), "small", 0);
    let verdict = json(dir.path());
    assert_eq!(verdict["state"], "good", "what is deleted is not read: {verdict}");
    let run = damage(dir.path(), "orders", 1);
    let (answered, _, status) = scrub(&[path(dir.path()), "--rate", "unlimited"]);
    assert_eq!(status, 1, "{answered}");
    let named = format!(
        "chapters-2/00000000.chapter: topic orders ({}), partition 1, chapter 1, offsets 0 to 99: other bytes",
        run["topic_id"].as_str().unwrap()
    );
    assert!(answered.contains(&named), "{answered}");
    let verdict = json(dir.path());
    let [damaged] = &verdict["damaged"].as_array().unwrap()[..] else { panic!("{verdict}") };
    assert_eq!((&damaged["topic"], &damaged["partition"]), (&"orders".into(), &1.into()));
    assert!(verdict["through_cache"].is_array(), "{verdict}");
}

#[test]
fn a_scrub_says_what_is_missing_and_what_no_broker_has() {
    let dir = copy();
    fs::remove_file(first_file(dir.path())).unwrap();
    let (answered, _, status) = scrub(&[path(dir.path())]);
    assert!(status == 1 && answered.contains("00000000.chapter is missing"), "{answered}");
    fs::remove_file(dir.path().join("chapters-2/manifest")).unwrap();
    let (answered, _, status) = scrub(&[path(dir.path())]);
    assert!(status == 1 && answered.contains("a newer manifest was lost"), "{answered}");
    let dir = copy();
    fs::write(dir.path().join("chapters-2/manifest"), "none").unwrap();
    let (answered, _, status) = scrub(&[path(dir.path())]);
    assert!(status == 1 && answered.contains("manifest is damaged"), "{answered}");
    let nobodys = tempfile::tempdir().unwrap();
    let (_, said, status) = scrub(&[path(nobodys.path())]);
    assert!(status == 2 && said.contains("not the data directory of a broker"), "{said}");
    for rate in ["0", "-1", "fast", "16MiB/s"] {
        assert_eq!(scrub(&[path(settled()), &format!("--rate={rate}")]).2, 2, "{rate}");
    }
}

/// A broker deletes, merges and compacts while its chapters are scrubbed over and over.
#[test]
fn what_goes_while_it_is_scrubbed_is_no_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let broker = Broker::serve(&data, &["--chapter-bytes", "64KiB"]);
    broker.ok("topic create keyed --config cleanup.policy=compact");
    let mut is_damaged = false;
    thread::scope(|scope| {
        let producing = scope.spawn(|| {
            for round in 0..20 {
                let topic = format!("topic-{round}");
                broker.ok(&format!("topic create {topic}"));
                let lines: String = (0..4000).map(|n| format!("{}:{round} {n}\n", n % 7)).collect();
                for topic in ["keyed", &topic] {
                    let sent = broker.run(&format!("produce {topic} --key-separator :"), &lines);
                    assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
                }
                broker.ok(&format!("topic delete {topic}"));
            }
        });
        while !producing.is_finished() {
            // Slow enough that a file is open while some of it goes.
            let (answered, said, status) = scrub(&[path(&data), "--rate", "48KiB"]);
            is_damaged |= status != 0;
            assert!(!is_damaged, "{answered}{said}");
        }
    });
    assert_eq!(broker.stop(), Some(0));
    let verdict = json(&data);
    assert_eq!(verdict["state"], "good", "{verdict}");
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_ends_a_scrub_that_waits_and_says_what_it_has_not_read() {
    let mut waiting = plimsoll(&["broker", "scrub", path(settled()), "--rate", "1B"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let open = format!("/proc/{}/fd", waiting.id());
    let has_opened = || {
        let mut files =
            fs::read_dir(&open).unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        files.any(|file| file.extension().is_some_and(|is| is == "chapter"))
    };
    while !has_opened() {
        assert!(waiting.try_wait().unwrap().is_none(), "it has ended");
        thread::park_timeout(Duration::from_millis(5));
    }
    let asked = Command::new("kill").args(["-INT", &waiting.id().to_string()]).status();
    assert!(asked.unwrap().success());
    let ended = waiting.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(text(&ended.stdout).contains("interrupted: 0 damaged of "), "{}", text(&ended.stdout));
}

/// A filesystem of its own, in a mount namespace that goes with the commands: a byte is changed on its disk, below the
/// page cache, in which the chapter stays as it was.
#[test]
#[cfg(target_os = "linux")]
fn a_byte_that_is_flipped_on_the_disk_alone_is_found_past_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (image, mount) = (dir.path().join("image"), dir.path().join("mount"));
    fs::create_dir(&mount).unwrap();
    let script = "dd if=/dev/zero of=$1 bs=1M count=64 status=none && mkfs.ext4 -q -b 4096 $1 \
         && mount -o loop $1 $2 && cd $3 && cp -r cluster state-2 chapters-2 $2 && sync -f $2 && cat $2/chapters-2/* > /dev/null && echo ready \
         && read flipped && { $4 chapter verify $2 && ! $4 broker scrub $2; }";
    let arguments = [path(&image), path(&mount), path(settled()), env!("CARGO_BIN_EXE_plimsoll")];
    let mut disk = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args(arguments)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answered = BufReader::new(disk.stdout.take().unwrap());
    let mut ready = String::new();
    answered.read_line(&mut ready).unwrap();
    if ready != "ready\n" {
        let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|tier| tier == "realfs"), "{:?}", disk.wait());
        println!("SKIPPED: nothing can be mounted here: {:?}", disk.wait());
        return;
    }
    // A block in the middle of the run, and where it lies on the disk.
    let run = run_of(settled(), "orders", 0);
    let at = usize::try_from(run["byte_offset"].as_u64().unwrap()).unwrap().next_multiple_of(4096);
    let block = fs::read(first_file(settled())).unwrap()[at..][..4096].to_vec();
    let blocks = fs::read(&image).unwrap();
    let mut found = blocks.chunks(4096).enumerate().filter(|(_, there)| *there == block);
    let (number, _) = found.next().expect("it is on the disk");
    let bytes = OpenOptions::new().write(true).open(&image).unwrap();
    bytes.write_all_at(&[block[0] ^ 1], number as u64 * 4096).unwrap();
    disk.stdin.take().unwrap().write_all(b"\n").unwrap();
    let rest: Vec<String> = answered.lines().map(Result::unwrap).collect();
    assert!(disk.wait().unwrap().success(), "{rest:?}");
    assert!(rest[0].starts_with("good: "), "the page cache has it as it was: {rest:?}");
    let id = run["topic_id"].as_str().unwrap();
    let named =
        format!("chapters-2/00000000.chapter: topic ({id}), partition 0, chapter 1, offsets 0 to ");
    assert!(rest[1].starts_with(&named), "{rest:?}");
}

/// The value of a metric of shard 2, if it is there.
fn metric(broker: &Broker, name: &str) -> Option<f64> {
    let mut asking = TcpStream::connect(&broker.http).unwrap();
    asking.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut metrics = String::new();
    asking.read_to_string(&mut metrics).unwrap();
    let name = format!("{name}{{shard=\"2\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).map(|value| value.parse().unwrap())
}

#[test]
fn a_broker_scrubs_by_itself_as_often_as_it_is_told_to() {
    const ENDED: &str = "plimsoll_shard_scrub_ended_timestamp_seconds";
    let dir = copy();
    let run = damage(dir.path(), "orders", 1);
    let broker = Broker::serve(dir.path(), &["--scrub-every", "100ms"]);
    let begun = Instant::now();
    while metric(&broker, ENDED).is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was scrubbed");
        thread::park_timeout(Duration::from_millis(20));
    }
    // Nobody has read it.
    assert_eq!(metric(&broker, "plimsoll_shard_chapter_damaged_runs"), Some(1.0));
    let bytes = metric(&broker, "plimsoll_shard_scrub_bytes").unwrap();
    assert!(bytes > run["bytes"].as_f64().unwrap(), "{bytes}");
    assert_eq!(broker.stop(), Some(0));
}

#[test]
fn the_help_of_a_scrub_has_examples() {
    let (help, _, _) = scrub(&["--help"]);
    assert!(help.contains("Examples:") && help.contains("plimsoll broker scrub"), "{help}");
}
