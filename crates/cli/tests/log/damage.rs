//! Logs that are damaged, torn or killed: the verdict, its exit status, and what is still printed.

use std::fs;

use serde_json::Value;

use crate::common::{
    Writer, append, append_output, cat, fails, flip, numbers, ok, path, refused, run, scratch,
    segments, stat, texts, wait_until,
};

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
    // What verify names to look at it is a command that shows it.
    let from = (first_lost + 1).to_string();
    let shown = ok(&["log", "dump", path(&dir), "--segment", name, "--from", &from, "--payload"]);
    assert!(shown.contains(&format!("\"{from}\"")), "{shown}");
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

/// Of a thousand segments the one that is bad was to be looked for.
#[test]
fn verify_prints_what_is_bad_and_the_rest_with_details() {
    let dir = numbers("details", 5000);
    let names: Vec<_> = segments(&dir).iter().map(|path| name(path)).collect();
    let n = names.len();
    let said = ok(&["log", "verify", path(&dir)]);
    assert_eq!(said, format!("good: records 1 to 5000, in {n} segments\n"));
    let said = ok(&["log", "verify", path(&dir), "--details"]);
    let listed: Vec<_> = said.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(listed[..n], names[..]);
    assert!(said.ends_with(&format!("good: records 1 to 5000, in {n} segments\n")), "{said}");
    flip(&segments(&dir)[1], 5000);
    let (_, said, status) = run(&["log", "verify", path(&dir)]);
    assert!(status == 1 && said.starts_with(&names[1]), "{said}");
    assert!(names.iter().filter(|name| said.contains(&**name)).count() == 1, "{said}");
    let good = format!("{} of {n} segments are good; --details lists them\n", n - 1);
    assert!(said.ends_with(&good), "{said}");
    let (_, said, status) = run(&["log", "verify", path(&dir), "--details"]);
    assert!(status == 1 && names.iter().all(|name| said.contains(&**name)), "{said}");
}

fn name(path: &std::path::Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
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
    let known = "nothing in the log says that it was durable";
    assert!(said.contains("torn") && said.contains(known), "{said}");
    let json: Value = serde_json::from_str(&ok(&["log", "verify", path(&dir), "--json"])).unwrap();
    assert_eq!(json["state"], "torn");
    // What may be behind it need not be: that there is no such record is said.
    let (said, _, status) = run(&["log", "dump", path(&dir), "--from", "999999"]);
    assert!(status == 2 && said.contains("no record 999999"), "{said}");
    assert_eq!(json["readable"][0]["last_index"], 100);
    let (said, answered) = texts(&append_output(&dir, b"101\n", &[]));
    assert!(said.contains("not finished") && said.contains(known), "{said}");
    assert_eq!(answered, "record 101 appended (3 B), all durable\n");
    assert_eq!(json["readable"].as_array().unwrap().len(), 1);
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
    let known = "no record is known to be durable: record 1 may be lost";
    assert!(said.contains(known), "{said}");
    assert!(ok(&["log", "verify", path(&dir)]).contains("good: record 1"));
    append(&dir, b"two\n", &[]);
    assert_eq!(cat(&dir, &[]), b"one\ntwo\n");
}

/// A log says what is durable once in 4 KiB of records, so more may be: it was said as if no more were.
#[test]
#[cfg(unix)]
fn stat_says_what_is_durable_at_least() {
    let dir = scratch("at-least");
    let mut writer = Writer::start(&dir, &["--policy", "always"]);
    let long = "x".repeat(5000);
    writer.line(&long);
    wait_until(|| segments(&dir).len() == 1 && cat(&dir, &[]).len() == 5001);
    writer.line("two");
    wait_until(|| cat(&dir, &[]).len() == 5005);
    let said = ok(&["log", "stat", path(&dir)]);
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let known = "at least record 1 would be there; record 2 may be lost";
    assert!(said.contains(known), "{said}");
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

/// Of two holes the second was once taken for the end, and the exit status was 0.
#[test]
fn each_of_two_holes_is_exit_1_to_whoever_prints_what_is_before_it() {
    let dir = numbers("holes", 10_000);
    fs::remove_file(dir.join("closed")).unwrap();
    let segments = segments(&dir);
    let first = |number: usize| -> u64 {
        segments[number].file_stem().unwrap().to_str().unwrap().parse().unwrap()
    };
    for hole in [1, 3] {
        fs::remove_file(&segments[hole]).unwrap();
    }
    for hole in [1, 3] {
        let from = first(hole - 1).to_string();
        let (said, answered, status) = run(&["log", "cat", path(&dir), "--from", &from]);
        assert_eq!(status, 1, "{said}");
        assert!(said.contains(&format!("records {} to ", first(hole))), "{said}");
        assert_eq!(answered.lines().count() as u64, first(hole) - first(hole - 1), "{said}");
    }
    let (said, answered, status) = run(&["log", "verify", path(&dir)]);
    assert_eq!(status, 1, "{said}");
    for hole in [1, 3] {
        let lost = format!("records {} to {} were durable", first(hole), first(hole + 1) - 1);
        assert!(answered.contains(&lost), "{answered}");
    }
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

/// "All durable", in a file or a directory that was gone by then.
#[test]
fn an_append_to_what_somebody_removed_meanwhile_is_an_error() {
    for is_all in [false, true] {
        let dir = scratch("removed");
        let mut writer = Writer::start(&dir, &["--policy", "always"]);
        writer.line("one");
        wait_until(|| segments(&dir).len() == 1 && cat(&dir, &[]) == b"one\n");
        match is_all {
            true => fs::remove_dir_all(&dir).unwrap(),
            false => fs::remove_file(&segments(&dir)[0]).unwrap(),
        }
        writer.line("two");
        let output = writer.end();
        let (said, answered) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("may not all be durable"), "{said}");
        assert!(!answered.contains("all durable"), "{answered}");
    }
}
