//! One disk through many power cuts, while it is in use.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::common::{CHECK, PLIMSOLL, mounts, output, text};

#[test]
fn generations_live_on_one_disk_until_it_lies() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("failed");
    let run = format!(
        "i=$(cat {{dir}}/log 2>/dev/null | wc -l); while true; do i=$((i+1)); echo line >> {{dir}}/log; \
         sync {{dir}}/log || exit 1; {PLIMSOLL} disk mark $i; done"
    );
    // A torn last line would be counted as a line.
    let recover =
        "sed -i '/^line$/!d' {dir}/log 2>/dev/null; touch {dir}/log; sync {dir}/log {dir}";
    let args = [
        "disk",
        "cycle",
        "--run",
        &run,
        "--recover",
        recover,
        "--check",
        CHECK,
        // On a busy machine a first mark may take some hundreds of them.
        "--cut-after",
        "50ms..600ms",
    ];
    let out = out.to_str().unwrap();
    let good = output(&[&args[..], &["--cycles", "6", "-o", out]].concat());
    assert_eq!(good.status.code(), Some(0), "{}", text(&good));
    assert!(text(&good).contains("6 generations, ok"), "{}", text(&good));
    let lying = ["--fault", "flush dropped sticky", "--cycles", "40", "-o", out];
    let lying = output(&[&args[..], &lying].concat());
    assert_eq!(lying.status.code(), Some(1), "{}", text(&lying));
    assert!(text(&lying).contains("plimsoll disk replay"), "{}", text(&lying));
    let saved: Vec<_> = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(saved.len(), 1);
    // It has its end, and the line that is printed shows it.
    let saved = saved[0].to_str().unwrap();
    let explored = output(&["disk", "explore", saved, "--check", CHECK]);
    assert_eq!(explored.status.code(), Some(2), "{}", text(&explored));
    assert!(text(&explored).contains("replay"), "{}", text(&explored));
    let said = text(&lying);
    let printed = said.lines().find_map(|line| line.trim().strip_prefix("look at it:")).unwrap();
    let pasted = printed.trim().replacen("plimsoll", PLIMSOLL, 1).replace("--keep-mounted", "");
    let pasted = format!("{pasted} --check '{recover}; {}'", CHECK.replace('\'', "'\\''"));
    let pasted = Command::new("/bin/sh").args(["-c", &pasted]).output().unwrap();
    assert_eq!(pasted.status.code(), Some(1), "{}", text(&pasted));
    // A disk that lies may lose of the filesystem's journal too.
    let ends = ["the check says: lost", "the kernel does not mount it"];
    assert!(ends.iter().any(|end| text(&pasted).contains(end)), "{}", text(&pasted));
}

#[test]
fn a_cycle_that_has_nothing_to_check_does_not_pass() {
    if !mounts() {
        return;
    }
    let cycle = |run: &str| {
        output(&[
            "disk",
            "cycle",
            "--cycles",
            "9",
            "--cut-after",
            "5ms..9ms",
            "--check",
            "true",
            "--run",
            run,
        ])
    };
    for (run, said) in [
        ("no-such-program {dir}", "could not start"),
        ("echo x > {dir}/f", "had made no mark"),
        ("while true; do :; done", "5 generations made no mark"),
    ] {
        let nothing = cycle(run);
        assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing));
        assert!(text(&nothing).contains(said), "{}", text(&nothing));
    }
}

/// `record` said it, and here a line that was no mark went unnoticed.
#[test]
fn lines_that_could_not_be_marks_are_said() {
    if !mounts() {
        return;
    }
    // A line that is still in the pipe when the power goes is no mark: in one of five it was read.
    let run = "seq 2000 | tr -d '\\n'; echo; echo 'commit 1'; sleep 0.2; kill -USR1 1; sleep 1000";
    let args = ["disk", "cycle", "--cycles", "5", "--cut-on", "USR1", "--mark-on", ".*1.*"];
    let cut = output(&[&args[..], &["--check", "true", "--run", run]].concat());
    assert_eq!(cut.status.code(), Some(0), "{}", text(&cut));
    assert!(text(&cut).contains("matched --mark-on 5 could not be marks"), "{}", text(&cut));
}

#[test]
fn the_power_goes_when_the_signal_comes() {
    if !mounts() {
        return;
    }
    // It says 3 and 4 only after a synced 3, and never ends by itself.
    let run = format!(
        "echo noise; for i in 1 2 3; do echo line >> {{dir}}/log; sync {{dir}}/log {{dir}}; \
         {PLIMSOLL} disk mark $i; done; kill -USR1 1; sleep 1000"
    );
    let args = ["disk", "cycle", "--cycles", "1", "--cut-on", "USR1", "--json", "--check", CHECK];
    let cut = output(&[&args[..], &["--run", &run]].concat());
    assert_eq!(cut.status.code(), Some(0), "{}", text(&cut));
    let lines = String::from_utf8(cut.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "nothing but JSON: {lines:?}");
    assert_eq!((&lines[0]["marks"], &lines[0]["verdict"]), (&Value::from(3), &Value::from("ok")));
}
