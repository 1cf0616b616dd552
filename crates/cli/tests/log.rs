//! `plimsoll log` as a user meets it: what it prints where, what it leaves behind, how it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const SMALL: [&str; 4] = ["--segment-bytes", "64KiB", "--ring-bytes", "32KiB"];

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
fn a_part_of_the_log_is_printed_by_index_and_count() {
    let dir = numbers("part", 2000);
    assert_eq!(cat(&dir, &["--from", "1998"]), b"1998\n1999\n2000\n");
    assert_eq!(cat(&dir, &["--from", "7", "--to", "8"]), b"7\n8\n");
    assert_eq!(cat(&dir, &["--from", "1500", "--count", "1"]), b"1500\n");
    assert_eq!(cat(&dir, &["--from", "2001"]), b"", "it is the next one");
    let (said, status) = fails(&["log", "cat", path(&dir), "--from", "2002"]);
    assert!(status == 2 && said.contains("no record 2002") && said.contains("ends with 2000"));
    let (_, status) = fails(&["log", "cat", path(&dir), "--from", &u64::MAX.to_string()]);
    assert_eq!(status, 2);
    assert_eq!(ok(&["log", "tail", path(&dir), "-n", "2"]), "1999\n2000\n");
    let json = ok(&["log", "tail", path(&dir), "-n", "1", "--json"]);
    assert_eq!(json, "{\"index\":2000,\"payload\":\"2000\"}\n");
    assert_eq!(ok(&["log", "tail", path(&dir), "-n", "5000"]).lines().count(), 2000);
}

#[test]
fn a_directory_without_a_log_is_exit_2_and_is_left_alone() {
    let dir = scratch("no-log");
    for exists in [false, true] {
        for command in ["cat", "tail", "stat", "verify", "dump"] {
            let (said, status) = fails(&["log", command, path(&dir)]);
            assert_eq!(status, 2, "{command}: {said}");
            assert!(said.contains("there is no") && said.contains(path(&dir)), "{said}");
        }
        let (said, status) = fails(&["log", "truncate", path(&dir), "--before", "2"]);
        assert!(status == 2 && said.contains("there is no"), "{said}");
        assert_eq!(dir.exists(), exists);
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
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
fn tail_follows_another_process_across_segments_in_order() {
    let dir = scratch("follow");
    let mut writer = Writer::start(&dir, &[]);
    let mut lines = 0;
    let mut write = |writer: &mut Writer, n: usize| {
        for _ in 0..n {
            lines += 1;
            writer.line(&format!("{lines} {}", "x".repeat(200)));
        }
    };
    write(&mut writer, 10);
    wait_until(|| segments(&dir).len() == 1 && cat(&dir, &[]).ends_with(b"x\n"));
    let mut tail = plimsoll(&["log", "tail", "-f", "-n", "100000", path(&dir)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut followed = BufReader::new(tail.stdout.take().unwrap()).lines();
    for number in 1..=2000 {
        if number % 400 == 1 {
            write(&mut writer, if number == 1 { 390 } else { 400 });
        }
        let line = followed.next().unwrap().unwrap();
        assert!(line.starts_with(&format!("{number} ")), "{number}: {line}");
    }
    assert!(segments(&dir).len() > 5);
    // The writer goes, another one comes, and the same tail goes on.
    assert_eq!(writer.end().status.code(), Some(0));
    append(&dir, b"from another\n", &[]);
    assert_eq!(followed.next().unwrap().unwrap(), "from another");
    // Records are cut off, and others get their indexes.
    ok(&["log", "truncate", path(&dir), "--after", "1500", "--yes"]);
    append(&dir, b"instead\n", &[]);
    assert_eq!(followed.next().unwrap().unwrap(), "instead");
    interrupt(&tail);
    let output = tail.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(texts(&output).0, "records after 1500 were cut off\n");
}

#[test]
fn a_flipped_byte_is_exit_1_and_named_with_what_is_readable() {
    let dir = numbers("flipped", 5000);
    let damaged = &segments(&dir)[1];
    let name = damaged.file_name().unwrap().to_str().unwrap();
    flip(damaged, 5000);
    let (said, answered, status) = run(&["log", "verify", path(&dir)]);
    assert_eq!(status, 1, "{said}");
    assert!(answered.contains(&format!("corruption in {name} at byte offset ")), "{answered}");
    assert!(answered.contains("behind it") && answered.contains("still valid"), "{answered}");
    let (_, json, status) = run(&["log", "verify", path(&dir), "--json"]);
    let verdict: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &verdict["state"]), (1, &"corrupt".into()));
    let damage = &verdict["segments"][1]["damage"];
    let offset = damage["byte_offset"].as_u64().unwrap();
    assert!((4970..=5000).contains(&offset), "{damage}");
    let first_lost = damage["first_index"].as_u64().unwrap();
    assert_eq!(damage["behind"]["first_index"], first_lost + 1);
    assert_eq!(verdict["readable"][0]["last_index"], first_lost - 1);
    assert_eq!(verdict["readable"][1]["last_index"], 5000);
    // What is before it is printed, and what comes after the segment as well.
    let (said, answered, status) = run(&["log", "cat", path(&dir)]);
    assert_eq!((status, answered.lines().count() as u64), (1, first_lost - 1), "{said}");
    assert!(said.contains(name), "{said}");
    let after = verdict["readable"][1]["first_index"].as_u64().unwrap();
    assert_eq!(
        cat(&dir, &["--from", &after.to_string(), "--count", "1"]),
        format!("{after}\n").as_bytes()
    );
    // A dump says why, and goes on.
    let dumped = ok(&["log", "dump", path(&dir), "--segment", name, "--json", "--payload"]);
    let frames: Vec<Value> =
        dumped.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bad = frames.iter().position(|frame| frame["frame"] == "bad").unwrap();
    assert_eq!(frames[bad]["byte_offset"], offset);
    assert!(frames[bad]["reason"].as_str().unwrap().contains("checksum"));
    assert_eq!(frames[bad]["next_valid"], frames[bad + 1]["byte_offset"]);
    assert_eq!(frames[bad + 1]["payload"], (first_lost + 1).to_string());
    assert_eq!((&frames[0]["frame"], &frames[1]["frame"]), (&"header".into(), &"link".into()));
}

/// They once ended before it, as if there were no more.
#[test]
fn a_newest_segment_that_cannot_be_read_is_not_passed_over_in_silence() {
    for n in [5000, 10] {
        let dir = numbers("newest", n);
        let newest = segments(&dir).pop().unwrap();
        flip(&newest, 20);
        let name = newest.file_name().unwrap().to_str().unwrap();
        for command in ["cat", "tail", "verify", "stat"] {
            let (said, answered, status) = run(&["log", command, path(&dir)]);
            assert_eq!(status, 1, "{command}: {said}");
            assert!(said.contains(name) || answered.contains(name), "{command}: {said}");
        }
        let (said, _, status) = run(&["log", "tail", "-f", path(&dir)]);
        assert_eq!(status, 1, "{said}");
    }
}

#[test]
fn durable_records_are_given_up_only_on_request() {
    let dir = numbers("give-up", 100);
    let last = segments(&dir).pop().unwrap();
    flip(&last, 4200);
    let (said, _, status) = run(&["log", "stat", path(&dir)]);
    assert_eq!(status, 1, "{said}");
    let (said, status) = refused(&dir, b"more\n", &[]);
    assert!(status == 1 && said.contains("corruption"), "{said}");
    let cut = ["log", "truncate", path(&dir), "--after", "100", "--yes"];
    let (said, status) = fails(&cut);
    assert!(status == 1 && said.contains("corruption"), "{said}");
    let (said, _, status) = run(&[&cut[..], &["--accept-loss"]].concat());
    assert!(status == 0 && said.contains("given up"), "{said}");
    assert!(ok(&["log", "verify", path(&dir)]).contains("good"));
    append(&dir, b"more\n", &[]);
    assert!(cat(&dir, &[]).ends_with(b"more\n"));
}

#[test]
fn a_torn_tail_is_news_and_exit_0() {
    let dir = numbers("torn", 100);
    // What a write that was not finished leaves behind the last frame: a head without its payload.
    let dumped = ok(&["log", "dump", path(&dir), "--json"]);
    let empty: Value = serde_json::from_str(dumped.lines().last().unwrap()).unwrap();
    assert_eq!(empty["frame"], "empty");
    let at = usize::try_from(empty["byte_offset"].as_u64().unwrap()).unwrap();
    let segment = &segments(&dir)[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[at..at + 24].fill(2);
    bytes[at + 16..at + 20].copy_from_slice(&100_u32.to_le_bytes());
    fs::write(segment, bytes).unwrap();
    let said = ok(&["log", "verify", path(&dir)]);
    assert!(said.contains("torn") && said.contains("never acknowledged"), "{said}");
    let json: Value = serde_json::from_str(&ok(&["log", "verify", path(&dir), "--json"])).unwrap();
    assert_eq!(json["state"], "torn");
    assert_eq!(json["readable"][0]["last_index"], 100);
    let (said, answered) = texts(&append_output(&dir, b"101\n", &[]));
    assert!(said.contains("not finished"), "{said}");
    assert_eq!(answered, "record 101 appended (3 B), all durable\n");
    assert_eq!(json["readable"].as_array().unwrap().len(), 1);
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
    assert!(status == 2 && problem.contains(&format!("begins with {first}")), "{problem}");
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
    interrupt(&writer.child);
    let output = writer.child.wait_with_output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert_eq!(answered, "records 1 to 3 appended (11 B), all durable\n");
    let stat = stat(&dir);
    assert_eq!((&stat["durable"], &stat["may_be_lost"]), (&3.into(), &0.into()));
}

/// What the log itself cannot vouch for is called so, though nothing is wrong.
#[test]
#[cfg(unix)]
fn what_a_killed_process_had_not_synced_may_be_lost_and_stat_says_so() {
    let dir = scratch("killed");
    let mut writer = Writer::start(&dir, &["--policy", "never", "--ack", "written"]);
    writer.line("one");
    wait_until(|| segments(&dir).len() == 1 && cat(&dir, &[]) == b"one\n");
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let stat = stat(&dir);
    assert_eq!((&stat["last_index"], &stat["may_be_lost"]), (&1.into(), &1.into()));
    let said = ok(&["log", "stat", path(&dir)]);
    assert!(said.contains("record 1 may be lost"), "{said}");
    assert!(ok(&["log", "verify", path(&dir)]).contains("good: record 1"));
    append(&dir, b"two\n", &[]);
    assert_eq!(cat(&dir, &[]), b"one\ntwo\n");
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

/// A segment that was cut short after the log was closed was called good, and its records were gone.
#[test]
fn what_is_missing_behind_a_clean_end_is_damage() {
    let dir = numbers("cut-short", 100);
    let newest = segments(&dir).pop().unwrap();
    let file = fs::OpenOptions::new().write(true).open(dir.join(&newest)).unwrap();
    file.set_len(4096 + 1000).unwrap();
    let (_, answered, status) = run(&["log", "verify", path(&dir)]);
    assert!(status == 1 && answered.contains("to 100 were durable and are lost"), "{answered}");
    let (_, answered, status) = run(&["log", "stat", path(&dir)]);
    assert!(status == 1 && answered.contains("damage"), "{answered}");
}

#[test]
fn a_newest_segment_that_is_gone_is_missed() {
    let dir = numbers("gone", 5000);
    let newest = segments(&dir).pop().unwrap();
    fs::remove_file(dir.join(newest)).unwrap();
    let (_, answered, status) = run(&["log", "verify", path(&dir)]);
    assert!(status == 1 && answered.contains("to 5000 were durable and are lost"), "{answered}");
    assert!(answered.contains("readable: records 1 to "), "{answered}");
    let (said, _, status) = run(&["log", "dump", path(&dir)]);
    assert_eq!(status, 0, "{said}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = numbers("pipe", 5000);
    for command in ["cat", "dump", "verify", "stat"] {
        let mut child = plimsoll(&["log", command, path(&dir)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let (said, _) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{command}: {said}");
        assert!(said.is_empty(), "{command}: {said}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_cannot_be_written_is_an_error() {
    let dir = numbers("full", 5000);
    for command in ["cat", "tail", "dump", "verify", "stat"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = plimsoll(&["log", command, path(&dir)]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(texts(&output).0.contains("No space left"), "{}", texts(&output).0);
    }
}

#[test]
fn every_help_has_examples() {
    for command in ["append", "cat", "tail", "stat", "verify", "truncate", "dump"] {
        let help = ok(&["log", command, "--help"]);
        let example = format!("plimsoll log {command}");
        assert!(help.contains("Examples:") && help.contains(&example), "{help}");
    }
    assert!(ok(&["log", "--help"]).contains("Examples:"));
}

/// A process that appends what it is told to.
struct Writer {
    child: Child,
}

impl Writer {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = plimsoll(&[&["log", "append", path(dir)], &SMALL[..], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    fn line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

/// A log of the numbers from 1, closed.
fn numbers(name: &str, n: u64) -> PathBuf {
    let dir = scratch(name);
    let lines: String = (1..=n).map(|number| format!("{number}\n")).collect();
    append(&dir, lines.as_bytes(), &[]);
    dir
}

fn append_output(dir: &Path, input: &[u8], more: &[&str]) -> Output {
    // A log that is there knows the size of its segments, and nobody that of its ring.
    let size = if segments(dir).is_empty() { &SMALL[..] } else { &SMALL[2..] };
    let mut child = plimsoll(&[&["log", "append", path(dir)], size, more].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses does not read.
    child.stdin.take().unwrap().write_all(input).ok();
    child.wait_with_output().unwrap()
}

fn append(dir: &Path, input: &[u8], more: &[&str]) -> String {
    let output = append_output(dir, input, more);
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    answered
}

fn refused(dir: &Path, input: &[u8], more: &[&str]) -> (String, i32) {
    let output = append_output(dir, input, if more == SMALL { &[] } else { more });
    let (said, answered) = texts(&output);
    assert!(answered.is_empty(), "an error is not an answer: {answered}");
    (said, output.status.code().unwrap())
}

fn cat(dir: &Path, more: &[&str]) -> Vec<u8> {
    let output = plimsoll(&[&["log", "cat", path(dir)], more].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).0);
    output.stdout
}

fn stat(dir: &Path) -> Value {
    serde_json::from_str(&ok(&["log", "stat", path(dir), "--json"])).unwrap()
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension() == Some(OsStr::new("seg"))).collect();
    segments.sort();
    segments
}

fn flip(file: &Path, at: usize) {
    let mut bytes = Vec::new();
    fs::File::open(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::yield_now();
    }
}

/// A directory that is not there yet, on the disk that the project is built on.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{name}"));
    fs::remove_dir_all(&path).ok();
    path
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args);
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stderr), text(&output.stdout))
}

fn run(args: &[&str]) -> (String, String, i32) {
    let output = plimsoll(args).output().unwrap();
    let (said, answered) = texts(&output);
    (said, answered, output.status.code().unwrap())
}

fn ok(args: &[&str]) -> String {
    let (said, answered, status) = run(args);
    assert_eq!(status, 0, "{args:?}: {said}");
    answered
}

fn fails(args: &[&str]) -> (String, i32) {
    let (said, answered, status) = run(args);
    assert!(answered.is_empty(), "an error is not an answer: {answered}");
    (said, status)
}

/// A copy on a read-only mount, in a mount namespace that is gone with the command.
#[cfg(target_os = "linux")]
#[test]
fn a_log_on_a_read_only_mount_is_read_and_not_written() {
    let dir = numbers("read-only", 300);
    let on_read_only = |command: &str| {
        let script = format!(
            "mount --bind -o ro {0} {0} || exit 77; exec {1} log {command}",
            path(&dir),
            env!("CARGO_BIN_EXE_plimsoll"),
        );
        Command::new("unshare").args(["--mount", "sh", "-c", &script]).output()
    };
    let first = on_read_only(&format!("cat {} --count 1", path(&dir)));
    let mounted = first.as_ref().is_ok_and(|output| output.status.code() != Some(77));
    if !mounted || !first.as_ref().unwrap().stderr.is_empty() {
        let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
        assert!(!required.contains("realfs"), "PLIMSOLL_REQUIRE={required}, but: {first:?}");
        println!("SKIPPED: nothing can be mounted here: {first:?}");
        return;
    }
    assert_eq!(first.unwrap().stdout, b"1\n");
    for command in ["cat", "verify", "stat", "dump", "tail"] {
        let output = on_read_only(&format!("{command} {}", path(&dir))).unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }
    let output = on_read_only(&format!("append {} /dev/null", path(&dir))).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
}
