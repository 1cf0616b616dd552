//! One state of a recording: replayed, shrunk, looked at.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{CHECK, HONEST, PLIMSOLL, mounts, output, plimsoll, record, signal, text};

/// "verdict": "ok", of what nobody had asked.
#[test]
fn a_replay_without_a_check_does_not_say_that_it_is_ok() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let path = dir.path().join("ext4.trace");
    let replay = ["disk", "replay", path.to_str().unwrap(), "point=0,mode=arrived"];
    let json = output(&[&replay[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", text(&json));
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["verdict"], Value::Null, "{answer}");
    let said = text(&output(&replay));
    assert!(said.contains("it mounts; nothing was checked"), "{said}");
    let checked = output(&[&replay[..], &["--json", "--check", "true"]].concat());
    let answer: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(answer["verdict"], "ok", "{answer}");
}

#[test]
fn a_dropped_flush_shrinks_to_the_file_whose_write_it_lost() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &["--fault", "flush dropped sticky after=8"]);
    let path = dir.path().join("ext4.trace");
    let path = path.to_str().unwrap();
    let args = ["disk", "explore", path, "--check", CHECK, "--states", "60", "--json"];
    let explored = String::from_utf8(output(&args).stdout).unwrap();
    let findings = explored.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lost = findings.filter(|finding| finding["verdict"] == "lost");
    // The last moment: everything since the eighth line is in danger.
    let lost = lost.max_by_key(|finding| finding["number"].as_u64()).unwrap();
    let state = lost["state"].as_str().unwrap();
    let shrunk = output(&["disk", "shrink", path, state, "--check", CHECK, "--json"]);
    assert_eq!(shrunk.status.code(), Some(0), "{}", text(&shrunk));
    let shrunk: Value = serde_json::from_slice(&shrunk.stdout).unwrap();
    let left = shrunk["lost"].as_array().unwrap();
    assert!(left.len() == 1 && shrunk["lost_before"].as_u64() >= Some(1), "{shrunk}");
    let name = left[0]["of"][0]["name"].as_str().unwrap();
    assert!(name == "log" || name.contains("journal"), "{shrunk}");
    // A check that is broken has not said that nothing fails.
    let broken = output(&["disk", "shrink", path, state, "--check", "exit 9"]);
    assert_eq!(broken.status.code(), Some(2), "{}", text(&broken));
    assert!(text(&broken).contains("the check is broken: "), "{}", text(&broken));
    // A cache that holds nothing: what was answered is there, whatever becomes of flushes.
    let args = ["disk", "explore", path, "--check", CHECK, "--states", "40", "--cache"];
    let none = output(&[&args[..], &["0"]].concat());
    assert_eq!(none.status.code(), Some(0), "{}", text(&none));
    // With a small one there is something to lose, and the lines that are printed show it again.
    let small = output(&[&args[..], &["64KiB", "--mount-options", "noatime"]].concat());
    assert_eq!(small.status.code(), Some(1), "{}", text(&small));
    let said = text(&small);
    let printed = said.lines().find_map(|line| line.trim().strip_prefix("why:")).unwrap();
    assert!(printed.contains("--cache 65536 --mount-options noatime"), "{said}");
    let pasted = printed.trim().replacen("plimsoll", PLIMSOLL, 1);
    let pasted = Command::new("/bin/sh").args(["-c", &pasted]).output().unwrap();
    assert_eq!(pasted.status.code(), Some(0), "{printed}: {}", text(&pasted));
    assert!(text(&pasted).contains("look at it: plimsoll disk replay"), "{}", text(&pasted));
}

#[test]
fn what_is_kept_mounted_can_be_looked_at_with_the_line_that_is_printed() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let path = dir.path().join("ext4.trace");
    let path = path.to_str().unwrap();
    let mut kept = plimsoll(&["disk", "replay", path, "point=0,mode=arrived", "--keep-mounted"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(kept.stderr.take().unwrap()).lines();
    let line = lines.find_map(|line| {
        line.unwrap().split_once("nsenter").map(|(_, line)| format!("nsenter{line}"))
    });
    let line = line.expect("a line to enter with");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    // One that stays must not keep it mounted.
    let typed =
        b"ls -d lost+found; sleep 1000 > /dev/null 2>&1 & echo self=$(readlink /proc/self)\n";
    shell.stdin.take().unwrap().write_all(typed).unwrap();
    let seen = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
    assert!(seen.contains("lost+found"), "{seen}");
    assert!(!seen.contains("self=\n"), "it is not among those that it sees: {seen}");
    signal(kept.id(), "-INT");
    assert_eq!(kept.wait().unwrap().code(), Some(0));
}
