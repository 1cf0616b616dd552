//! Logs that are whole, read by whoever asks, also beside their writer.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{
    Writer, append, cat, fails, interrupt, numbers, ok, path, plimsoll, run, scratch, segments,
    stat, texts, wait_until,
};

#[test]
fn a_part_of_the_log_is_printed_by_index_and_count() {
    let dir = numbers("part", 2000);
    assert_eq!(cat(&dir, &["--from", "1998"]), b"1998\n1999\n2000\n");
    assert_eq!(cat(&dir, &["--from", "7", "--to", "8"]), b"7\n8\n");
    assert_eq!(cat(&dir, &["--from", "1500", "--count", "1"]), b"1500\n");
    assert_eq!(ok(&["log", "tail", path(&dir), "-n", "2"]), "1999\n2000\n");
    let json = ok(&["log", "tail", path(&dir), "-n", "1", "--json"]);
    assert_eq!(json, "{\"index\":2000,\"payload\":\"2000\"}\n");
    assert_eq!(ok(&["log", "tail", path(&dir), "-n", "5000"]).lines().count(), 2000);
}

/// It proposed `plimsoll log append /etc`.
#[test]
fn a_log_is_proposed_only_in_a_directory_that_is_empty() {
    let dir = scratch("no log");
    fs::create_dir_all(&dir).unwrap();
    let (said, status) = fails(&["log", "cat", path(&dir)]);
    assert!(status == 2 && said.contains("`plimsoll log append"), "{said}");
    fs::write(dir.join("passwd"), "").unwrap();
    let (said, status) = fails(&["log", "cat", path(&dir)]);
    assert!(
        status == 2 && said.contains("there is no log in") && !said.contains("append"),
        "{said}"
    );
}

/// They printed nothing and exited with 0, as a log does that has no more.
#[test]
fn a_range_that_ends_before_it_begins_is_exit_2() {
    let dir = numbers("backwards", 10);
    let (said, status) = fails(&["log", "cat", path(&dir), "--from", "10", "--to", "5"]);
    assert!(status == 2 && said.contains("--to 5 comes before --from 10"), "{said}");
}

/// Some were an error, some printed nothing or less, and exited with 0.
#[test]
fn a_range_that_is_not_all_there_is_exit_2_after_what_is_there() {
    let dir = numbers("outside", 5000);
    ok(&["log", "truncate", path(&dir), "--before", "4000"]);
    let first: u64 = stat(&dir)["first_index"].as_u64().unwrap();
    let cat_fails = |more: &[&str]| {
        let (said, answered, status) = run(&[&["log", "cat", path(&dir)], more].concat());
        assert_eq!(status, 2, "{more:?}: {said}");
        (said, answered)
    };
    let huge = u64::MAX.to_string();
    for (more, missing) in [
        (&["--from", "5"][..], "5"),
        (&["--from", "0"], "0"),
        (&["--to", "5"], "5"),
        (&["--from", "3", "--to", "5"], "3"),
        (&["--from", "5", "--to", "4500"], "5"),
        (&["--from", "5002"], "5002"),
        (&["--from", "5001", "--to", "5001"], "5001"),
        (&["--from", "5002", "--to", "6000"], "5002"),
        (&["--from", &huge], &huge),
    ] {
        let (said, answered) = cat_fails(more);
        assert!(answered.is_empty(), "{more:?}: {answered}");
        let expected = format!("there is no record {missing}: the log has {first} to 5000\n");
        assert!(said.ends_with(&expected), "{more:?}: {said}");
    }
    let (said, answered) = cat_fails(&["--from", "4999", "--to", "5001"]);
    assert_eq!(answered, "4999\n5000\n");
    assert!(said.contains("no record 5001"), "{said}");
    let more = ["--from", "4999", "--to", "6000", "--count", "2"];
    assert_eq!(cat(&dir, &more), b"4999\n5000\n", "no more were asked for");
    assert_eq!(cat(&dir, &["--from", "5001"]), b"", "it is the next one");
    let (said, status) = fails(&["log", "dump", path(&dir), "--from", "5001"]);
    assert!(status == 2 && said.contains("no record 5001"), "{said}");
}

#[test]
fn a_record_of_a_log_without_any_is_exit_2() {
    let dir = scratch("none-yet");
    append(&dir, b"", &[]);
    assert_eq!(cat(&dir, &[]), b"");
    let (said, status) = fails(&["log", "cat", path(&dir), "--to", "1"]);
    assert!(status == 2 && said.contains("no record 1: the log has none"), "{said}");
}

#[test]
fn cat_prints_json_as_tail_does() {
    let dir = numbers("json", 3);
    let lines = ok(&["log", "tail", path(&dir), "--json"]);
    assert_eq!(lines.lines().next(), Some("{\"index\":1,\"payload\":\"1\"}"));
    assert_eq!(ok(&["log", "cat", path(&dir), "--json"]), lines);
    assert_eq!(ok(&["log", "cat", path(&dir), "--format", "json"]), lines);
    let (said, status) = fails(&["log", "cat", path(&dir), "--json", "--format", "length"]);
    assert!(status == 2 && said.contains("cannot be used with"), "{said}");
}

#[test]
fn what_is_no_directory_is_exit_2_and_said_to_be_a_file() {
    let dir = scratch("no-directory");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("orders.txt");
    fs::write(&file, "one\n").unwrap();
    for command in ["append", "cat", "tail", "stat", "verify", "dump"] {
        for wrong in [&file, &file.join("log")] {
            let (said, status) = fails(&["log", command, path(wrong)]);
            let expected = format!("{} is a file, and a log is a directory", path(&file));
            assert!(status == 2 && said.contains(&expected), "{command}: {said}");
        }
    }
    let (said, _) = fails(&["log", "append", path(&file)]);
    assert!(said.contains(&format!("`plimsoll log append DIR {}`", path(&file))), "{said}");
    assert_eq!(fs::read(&file).unwrap(), b"one\n");
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

/// It noticed when the next record came, which may be never.
#[test]
#[cfg(unix)]
fn tail_that_follows_ends_when_its_reader_does() {
    let dir = numbers("head", 100);
    let mut tail = plimsoll(&["log", "tail", "-f", path(&dir)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "91");
    drop(lines);
    let mut ended = None;
    wait_until(|| {
        ended = tail.try_wait().unwrap();
        ended.is_some()
    });
    let (said, _) = texts(&tail.wait_with_output().unwrap());
    assert_eq!((ended.unwrap().code(), &*said), (Some(0), ""));
}

/// It said "No space left on device", as of a log that is full.
#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_cannot_be_written_is_an_error_of_stdout() {
    let dir = numbers("full", 5000);
    for command in ["cat", "tail", "dump", "verify", "stat"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = plimsoll(&["log", command, path(&dir)]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        let said = texts(&output).0;
        assert!(said.starts_with("plimsoll: stdout: No space left"), "{command}: {said}");
    }
}

/// It was a panic.
#[test]
#[cfg(target_os = "linux")]
fn what_stderr_does_not_take_is_left_unsaid() {
    let dir = scratch("full-stderr");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = plimsoll(&["log", "append", path(&dir)]).stderr(full()).output().unwrap();
    let answered = texts(&output).1;
    assert_eq!((output.status.code(), &*answered), (Some(0), "nothing appended\n"));
    let output = plimsoll(&["log", "cat", "/no/such/log"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
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
