//! Append and truncate: what is kept, what is said of it, and what is refused.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{
    SMALL, Writer, append, cat, fails, interrupt, numbers, ok, path, refused, scratch, segments,
    stat, texts, wait_until,
};

#[test]
fn lines_come_back_as_they_were_appended() {
    let dir = scratch("lines");
    let text = "one\n\nthree with \t and ü\nlast without an end";
    let said = append(&dir, text.as_bytes(), &[]);
    assert_eq!(said, "records 1 to 4 appended (41 B), all durable\n");
    assert_eq!(cat(&dir, &[]), format!("{text}\n").into_bytes());
    assert_eq!(append(&dir, b"", &[]), "nothing appended\n");
    let said: Value = serde_json::from_str(&append(&dir, b"five\n", &["--json"])).unwrap();
    let expected = (5, 5, 1, 4, 5);
    let fields = ["first_index", "last_index", "records", "payload_bytes", "durable"];
    let found = fields.map(|field| said[field].as_u64().unwrap());
    assert_eq!((found[0], found[1], found[2], found[3], found[4]), expected);
}

#[test]
fn length_prefixed_records_come_back_byte_for_byte_across_segments() {
    let dir = scratch("length");
    let mut input = Vec::new();
    for number in 0..500_u32 {
        let payload: Vec<u8> =
            (0..number * 7 % 1000).map(|at| (at ^ number).to_le_bytes()[0]).collect();
        input.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        input.extend(payload);
    }
    append(&dir, &input, &["--format", "length", "--batch", "7"]);
    assert_eq!(cat(&dir, &["--format", "length"]), input);
    assert!(segments(&dir).len() > 3);
    let copy = scratch("length-copy");
    append(&copy, &cat(&dir, &["--format", "length"]), &["--format", "length"]);
    assert_eq!(cat(&copy, &["--format", "length"]), input);
}

#[test]
fn a_new_log_begins_where_it_is_told_and_one_that_is_there_does_not() {
    let dir = scratch("first-index");
    let at_1000 = ["--first-index", "1000"];
    // Nothing is in it yet.
    append(&dir, b"", &at_1000);
    assert_eq!(
        append(&dir, b"one\ntwo\n", &at_1000),
        "records 1000 to 1001 appended (6 B), all durable\n"
    );
    assert_eq!(stat(&dir)["first_index"], 1000);
    assert_eq!(cat(&dir, &["--from", "1001"]), b"two\n");
    for wrong in ["1000", "1002", "1"] {
        let (said, status) = refused(&dir, b"three\n", &["--first-index", wrong]);
        assert!(status == 2 && said.contains("goes on with record 1002"), "{said}");
        assert!(dir.join("closed").exists(), "the note of its clean end is there, as it was");
    }
    assert_eq!(append(&dir, b"three\n", &[]), "record 1002 appended (5 B), all durable\n");
    let elsewhere = scratch("first-index-elsewhere");
    append(&elsewhere, b"", &[]);
    let (said, status) = refused(&elsewhere, b"one\n", &at_1000);
    assert!(status == 2 && said.contains("goes on with record 1\n"), "{said}");
}

/// It said that the log's directory had failed.
#[test]
#[cfg(target_os = "linux")]
fn a_ring_on_a_disk_is_refused_as_that() {
    let dir = scratch("ring-on-disk");
    let ring = scratch("ring-on-disk.ring");
    let (said, status) = refused(&dir, b"", &["--ring", path(&ring)]);
    fs::remove_file(&ring).ok();
    let expected = format!("plimsoll: {}: map {}", path(&dir), path(&ring));
    assert!(status == 2 && said.contains(&expected) && said.contains("tmpfs"), "{said}");
}

#[test]
fn options_that_cannot_be_make_no_directory() {
    let dir = scratch("no-options");
    for wrong in [["--segment-bytes", "1KiB"], ["--ring-bytes", "3MiB"], ["--first-index", "0"]] {
        let (said, status) = fails(&[&["log", "append", path(&dir)], &wrong[..]].concat());
        assert!(status == 2 && !dir.exists(), "{said}");
    }
}

/// It said "all durable" and "nothing would be lost" there too.
#[test]
#[cfg(target_os = "linux")]
fn what_is_in_memory_is_not_called_durable() {
    use plimsoll_sync::{Dir, OsDir, Overwrite};
    let memory = Path::new("/dev/shm");
    let is_memory = OsDir::open(memory).is_ok_and(|dir| dir.overwrite() == Overwrite::Memory);
    if !is_memory {
        eprintln!("SKIPPED: /dev/shm is not in memory here");
        return;
    }
    let tmp = tempfile::tempdir_in(memory).unwrap();
    let dir = tmp.path().join("log");
    let nothing = "nothing there survives a power cut";
    let said = append(&dir, b"one\ntwo\n", &[]);
    assert!(said.contains(nothing) && !said.contains("durable"), "{said}");
    let said = ok(&["log", "stat", path(&dir)]);
    assert!(said.contains(nothing) && !said.contains("nothing would be lost"), "{said}");
    let (appended, stat) = (append(&dir, b"three\n", &["--json"]), stat(&dir));
    let appended: Value = serde_json::from_str(&appended).unwrap();
    assert_eq!((&appended["in_memory"], &stat["in_memory"]), (&true.into(), &true.into()));
    assert_eq!(stat["may_be_lost"], 3);
    let too_large = format!("four\n{}\n", "x".repeat(20_000));
    let (said, status) = refused(&dir, too_large.as_bytes(), &[]);
    assert!(status == 2 && said.contains("record 4 appended; then"), "{said}");
    let on_disk = scratch("on-disk");
    append(&on_disk, b"one\n", &[]);
    assert_eq!(crate::common::stat(&on_disk)["in_memory"], false);
}

#[test]
fn each_file_is_a_record_and_so_is_all_of_stdin() {
    let dir = scratch("file");
    let files = scratch("file-inputs");
    fs::create_dir_all(&files).unwrap();
    let names = ["a", "b"].map(|name| files.join(name));
    fs::write(&names[0], "first\nfile").unwrap();
    fs::write(&names[1], [0xff, 0, 1]).unwrap();
    let names = names.each_ref().map(|name| name.to_str().unwrap());
    append(&dir, b"", &["--format", "file", names[0], names[1]]);
    append(&dir, b"all\nof it\n", &["--format", "file"]);
    let json = String::from_utf8(cat(&dir, &["--format", "json"])).unwrap();
    let records: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records[0]["payload"], "first\nfile");
    assert_eq!(records[1]["payload_hex"], "ff0001");
    assert_eq!((&records[2]["index"], &records[2]["payload"]), (&3.into(), &"all\nof it\n".into()));
}

#[test]
fn a_record_that_is_too_large_is_exit_2_and_what_came_before_is_durable() {
    let dir = scratch("too-large");
    let lines = format!("one\ntwo\n{}\nfour\n", "x".repeat(20_000));
    let (said, status) = refused(&dir, lines.as_bytes(), &SMALL);
    assert_eq!(status, 2, "{said}");
    assert!(
        said.contains("record 3") && said.contains("16360") && said.contains("up to 2"),
        "{said}"
    );
    assert_eq!(cat(&dir, &[]), b"one\ntwo\n");
    // Four bytes that say four gigabytes are not believed.
    let lies = [&[3, 0, 0, 0][..], b"abc", &[0xff; 4], b"abc"].concat();
    let (said, status) = refused(&dir, &lies, &["--format", "length"]);
    assert!(status == 2 && said.contains("4294967295") && said.contains("up to 3"), "{said}");
    let (said, status) = refused(&dir, lines.as_bytes(), &["--format", "file", "--batch", "2"]);
    assert!(status == 2 && said.contains("nothing was appended"), "{said}");
}

#[test]
fn input_that_breaks_off_in_a_record_is_exit_2_with_what_is_missing() {
    let dir = scratch("broken-input");
    let input = [&[3, 0, 0, 0][..], b"abc", &[9, 0, 0, 0], b"def"].concat();
    let (said, status) = refused(&dir, &input, &["--format", "length"]);
    assert!(status == 2 && said.contains("record 2: 3 of 9 bytes"), "{said}");
    assert!(said.contains("stdin") && said.contains("up to 1"), "{said}");
    let (said, _) = refused(&dir, &[1, 0], &["--format", "length"]);
    assert!(said.contains("2 of 4 bytes"), "{said}");
    let (said, status) = refused(&dir, b"", &["/no/such/file"]);
    assert!(status == 2 && said.contains("/no/such/file"), "{said}");
    assert_eq!(cat(&dir, &[]), b"abc\n");
}

#[test]
fn every_policy_and_ack_makes_everything_durable_at_the_end() {
    let profile = scratch("profile");
    fs::create_dir_all(&profile).unwrap();
    let profile = profile.join("durability-profile.json");
    let knee = r#"{"format":"plimsoll-durability-profile","version":1,
        "knee":{"arm":"x","at_risk_bytes":262144,"at_risk_ms":7.5}}"#;
    fs::write(&profile, knee).unwrap();
    let dir = scratch("policies");
    let arguments = [
        &["--policy", "never"][..],
        &["--policy", "everysec", "--ack", "written"],
        &["--policy", "always"],
        &["--policy", "auto", "--profile", path(&profile)],
        &["--interval", "20ms/64KiB", "--ack", "durable"],
    ];
    for (number, more) in arguments.into_iter().enumerate() {
        append(&dir, format!("{number}\n").as_bytes(), more);
        let stat: Value = stat(&dir);
        assert_eq!((&stat["durable"], &stat["may_be_lost"]), (&(number + 1).into(), &0.into()));
    }
    let (said, status) = refused(&dir, b"", &["--policy", "auto"]);
    assert!(status == 2 && said.contains("--profile"), "{said}");
    let (said, status) = refused(&dir, b"", &["--interval", "8MiB"]);
    assert!(status == 2 && said.contains("250ms"), "{said}");
}

#[test]
fn who_has_the_log_is_named_and_reading_goes_on_beside_it() {
    let dir = scratch("locked");
    let mut writer = Writer::start(&dir, &["--policy", "always"]);
    writer.line("one");
    wait_until(|| {
        dir.join("lock").exists() && segments(&dir).len() == 1 && cat(&dir, &[]) == b"one\n"
    });
    let pid = writer.child.id();
    let (said, status) = refused(&dir, b"two\n", &[]);
    assert!(status == 2 && said.contains(&format!("process {pid}")), "{said}");
    let (said, status) = fails(&["log", "truncate", path(&dir), "--after", "0", "--yes"]);
    assert!(status == 2 && said.contains(&format!("process {pid}")), "{said}");
    assert_eq!(stat(&dir)["writer_pid"], pid);
    assert!(ok(&["log", "verify", path(&dir)]).contains("good: record 1"));
    let output = writer.end();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stat(&dir)["open"], false);
}

#[test]
fn truncation_takes_whole_segments_from_the_old_end_and_exactly_what_was_said_from_the_new() {
    let dir = numbers("truncate", 5000);
    let truncate = |more: &[&str]| ok(&[&["log", "truncate", path(&dir)], more].concat());
    let said: Value = serde_json::from_str(&truncate(&["--before", "3000", "--json"])).unwrap();
    let first = said["first_index"].as_u64().unwrap();
    assert!((2..=3000).contains(&first), "{said}");
    assert_eq!(said["removed"], first - 1);
    let (problem, status) = fails(&["log", "cat", path(&dir), "--from", "1"]);
    assert!(status == 2 && problem.contains(&format!("has {first} to 5000")), "{problem}");
    assert!(truncate(&["--older-than", "7d"]).contains("nothing removed"));
    truncate(&["--keep-bytes", "128KiB"]);
    let n = segments(&dir).len();
    assert_eq!(n, 2, "segments have the size that they have, whatever the default is");
    let first = stat(&dir)["first_index"].as_u64().unwrap();
    let (problem, status) = fails(&["log", "truncate", path(&dir), "--after", "4990"]);
    assert!(status == 2 && problem.contains("--yes"), "{problem}");
    assert_eq!(stat(&dir)["last_index"], 5000);
    let (problem, status) = fails(&["log", "truncate", path(&dir), "--after", "5", "--yes"]);
    assert!(status == 2 && problem.contains(&format!("begins with {first}")), "{problem}");
    let said = truncate(&["--after", "4990", "--yes"]);
    assert_eq!(said, format!("records 4991 to 5000 removed; records {first} to 4990 left\n"));
    append(&dir, b"again\n", &[]);
    assert_eq!(ok(&["log", "tail", path(&dir), "-n", "2"]), "4990\nagain\n");
    let largest = u64::MAX.to_string();
    assert!(truncate(&["--after", &largest, "--yes"]).contains("nothing removed"));
    assert!(truncate(&["--after", "9999", "--yes"]).contains("nothing removed"));
    let (_, status) = fails(&["log", "truncate", path(&dir)]);
    assert_eq!(status, 2);
    let (_, status) = fails(&["log", "truncate", path(&dir), "--before", "1", "--after", "2"]);
    assert_eq!(status, 2);
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_was_appended_and_ends_with_130() {
    let dir = scratch("ctrl-c");
    let mut writer = Writer::start(&dir, &["--policy", "never", "--ack", "written"]);
    for line in ["one", "two", "three"] {
        writer.line(line);
    }
    wait_until(|| segments(&dir).len() == 1 && cat(&dir, &[]) == b"one\ntwo\nthree\n");
    // Waiting closes the input, which may be seen to end before the signal is.
    let _open = writer.child.stdin.take();
    interrupt(&writer.child);
    let output = writer.child.wait_with_output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(answered, "records 1 to 3 appended (11 B), all durable\n");
    let stat = stat(&dir);
    assert_eq!((&stat["durable"], &stat["may_be_lost"]), (&3.into(), &0.into()));
}

#[test]
#[cfg(target_os = "linux")]
fn a_ring_in_a_file_belongs_to_one_log() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return;
    }
    let ring = shm.join(format!("plimsoll-test-{}.ring", std::process::id()));
    fs::remove_file(&ring).ok();
    let dir = scratch("ring");
    let ring_arg = ["--ring", path(&ring)];
    append(&dir, b"one\n", &ring_arg);
    append(&dir, b"two\n", &ring_arg);
    assert_eq!(cat(&dir, &[]), b"one\ntwo\n");
    let sized = ["--ring", path(&ring), "--ring-bytes", "32KiB"];
    let said = ok(&[&["log", "truncate", path(&dir), "--before", "1"], &sized[..]].concat());
    assert_eq!(said, "nothing removed; records 1 to 2 left\n");
    let other = scratch("ring-other");
    let (said, status) = refused(&other, b"", &ring_arg);
    fs::remove_file(&ring).unwrap();
    assert!(status == 2 && said.contains("another log"), "{said}");
}
