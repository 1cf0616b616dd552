//! Searching a recording: what is found, what is said of it, and what is no pass.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{
    CARELESS, CHECK, HONEST, PLIMSOLL, mounts, output, plimsoll, record, signal, text,
};

#[test]
fn what_is_synced_survives_every_cut_and_what_is_not_is_named() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let trace = dir.path().join("ext4.trace");
    let path = trace.to_str().unwrap();
    let args = ["disk", "explore", path, "--check", CHECK, "--states", "120"];
    let explored = output(&args);
    assert_eq!(explored.status.code(), Some(0), "{}", text(&explored));
    assert!(text(&explored).contains("120 ok, 0 lost"), "{}", text(&explored));
    // As if it had been stopped: the same command again does what is left.
    let results = dir.path().join("ext4.states.jsonl");
    let lines = fs::read_to_string(&results).unwrap();
    let some: Vec<&str> = lines.lines().take(1 + 50).collect();
    fs::write(&results, some.join("\n") + "\n").unwrap();
    let again = output(&args);
    assert!(text(&again).contains("50 of 120 states are taken over"), "{}", text(&again));
    assert!(text(&again).contains("--fresh"), "{}", text(&again));
    assert!(text(&again).contains("70 states in"), "{}", text(&again));
    assert!(text(&again).contains("120 ok, 0 lost"), "{}", text(&again));
    let page = fs::read_to_string(dir.path().join("ext4.html")).unwrap();
    assert!(page.contains("All 120 crash states") && !page.contains("://"));
    // If the disk had lied, the same check must find it. What it found before stays where it was.
    let lying = [&args[..], &["--lying"]].concat();
    let lying = output(&lying);
    assert_eq!(lying.status.code(), Some(1), "{}", text(&lying));
    assert!(text(&lying).contains("page: ") && text(&lying).contains("ext4.lying.html"));
    let kept = fs::read_to_string(&results).unwrap();
    assert!(kept.lines().count() == 1 + 120 && !kept.contains("\"verdict\":\"lost\""));
    let lines = fs::read_to_string(dir.path().join("ext4.lying.states.jsonl")).unwrap();
    let lost = lines.lines().find(|line| line.contains("\"verdict\":\"lost\"")).unwrap();
    let lost: Value = serde_json::from_str(lost).unwrap();
    assert!(lost["said"].as_str().unwrap().contains("lines"), "{lost}");

    record(dir.path(), CARELESS, &["--force"]);
    let json = [&args[..], &["--json"]].concat();
    let careless = output(&json);
    assert_eq!(careless.status.code(), Some(1), "{}", text(&careless));
    let state = "point=1000000,mode=durable";
    let beyond = output(&["disk", "replay", path, state]);
    assert_eq!(beyond.status.code(), Some(2), "{}", text(&beyond));
    // What cannot be mounted at all is wrong, and found nothing.
    for (options, said) in
        [("data=nonsense", "even as it was"), ("journal_path=/x", "journal_path")]
    {
        let wrong = [&args[..], &["--mount-options", options, "--fresh"]].concat();
        let wrong = output(&wrong);
        assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
        assert!(text(&wrong).contains(said), "{}", text(&wrong));
    }
    let bad = String::from_utf8(careless.stdout).unwrap();
    let bad: Vec<Value> = bad.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bad = bad.iter().find(|finding| finding["verdict"] == "lost").unwrap();
    let state = bad["state"].as_str().unwrap();
    let replayed = output(&["disk", "replay", path, state, "--check", CHECK]);
    assert_eq!(replayed.status.code(), Some(1), "{}", text(&replayed));
    assert!(text(&replayed).contains("the check says: lost"), "{}", text(&replayed));
}

/// Each of these was a pass, of a disk that could not have failed or of states that nobody had asked for.
#[test]
fn what_tests_nothing_does_not_pass() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Nothing is written.
    let idle = output(&["disk", "record", "-o", path, "--mount-options", "ro", "--", "true"]);
    assert!(idle.status.success(), "{}", text(&idle));
    let explore = |more: &[&str]| {
        let args = ["disk", "explore", path, "--check", "true", "--states", "60"];
        output(&[&args[..], more].concat())
    };
    let idle = explore(&[]);
    assert_eq!(idle.status.code(), Some(3), "{}", text(&idle));
    assert!(text(&idle).contains("one and the same disk"), "{}", text(&idle));
    let torn = explore(&["--modes", "torn", "--json"]);
    assert_eq!((torn.status.code(), torn.stdout.len()), (Some(3), 0), "{}", text(&torn));
    assert!(text(&torn).contains("nothing of mode torn"), "{}", text(&torn));
    let summary = fs::read(dir.path().join("ext4.summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert!(summary["untested"].as_str().unwrap().contains("torn"), "{summary}");
    record(dir.path(), HONEST, &["--force"]);
    let all = explore(&[]);
    assert_eq!(all.status.code(), Some(0), "{}", text(&all));
    let said = text(&all);
    let of = |after: &str| {
        let (before, _) = said.split_once(after).unwrap_or_else(|| panic!("{after}: {said}"));
        before.rsplit([' ', '(']).next().unwrap().parse::<usize>().unwrap()
    };
    assert!(of(" had a mark before the cut") > 30, "{said}");
    assert!(of(" of them kept others") > 10 && of(" different disks") > 30, "{said}");
    let page = fs::read_to_string(dir.path().join("ext4.html")).unwrap();
    assert!(page.contains("of them kept others"), "{page}");
}

#[test]
fn a_reader_that_goes_away_ends_it_early_and_what_was_found_is_kept() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let path = dir.path().to_str().unwrap();
    let args = ["disk", "explore", path, "--check", CHECK, "--states", "120", "--json"];
    let mut child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let left = child.wait_with_output().unwrap();
    assert_eq!(left.status.code(), Some(0), "{}", text(&left));
    let lines = fs::read_to_string(dir.path().join("ext4.states.jsonl")).unwrap();
    assert!((1..120).contains(&(lines.lines().count() - 1)), "{lines}");
    let again = output(&args);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    assert!(text(&again).contains("of 120 states are taken over"), "{}", text(&again));
}

/// It printed what was planned as if all of it had been visited.
#[test]
fn a_search_that_is_interrupted_says_what_it_visited_and_of_what() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let path = dir.path().to_str().unwrap();
    let check = format!("sleep 0.05; {CHECK}");
    let args = ["disk", "explore", path, "--check", &check, "--states", "1000"];
    let child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let results = dir.path().join("ext4.states.jsonl");
    let found = || fs::read_to_string(&results).unwrap_or_default().lines().count();
    let deadline = Instant::now() + Duration::from_secs(60);
    while found() < 20 {
        assert!(Instant::now() < deadline, "it never began");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    signal(child.id(), "-INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended));
    let (said, visited) = (text(&ended), found() - 1);
    assert!(said.contains(&format!("{visited} ok, 0 lost")), "{said}");
    let visited = format!("visited {visited} of ");
    let (_, planned) = said.split_once(&visited).unwrap_or_else(|| panic!("{visited}: {said}"));
    let (planned, sides) = planned.split_once(" states: both sides of ").unwrap();
    assert!(planned.parse::<usize>().unwrap() > 50, "{said}");
    let mut words = sides.split(' ');
    let (some, all) = (words.next().unwrap(), words.nth(1).unwrap());
    let number = |word: &str| word.parse::<usize>().unwrap();
    assert!(number(some) < number(all), "{said}");
}

/// Five of them were shown as if there were no more.
#[test]
fn failures_that_are_not_shown_are_counted_and_a_broken_check_is_not_asked_why() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), CARELESS, &[]);
    let path = dir.path().to_str().unwrap();
    let explore = |check| output(&["disk", "explore", path, "--check", check, "--states", "60"]);
    let lost = explore(CHECK);
    let lost = text(&lost);
    let (before, _) = lost.split_once(" lost").unwrap();
    let bad: usize = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(bad > 5 && lost.contains(&format!("and {} more, in ", bad - 5)), "{lost}");
    assert!(lost.contains("ext4.states.jsonl") && lost.contains("why: "), "{lost}");
    // All that differ are fewer than were asked for, and it says so.
    let (_, visited) = lost.split_once("visited ").unwrap();
    let (visited, _) = visited.split_once(" states: both sides of ").unwrap();
    let all: usize = visited.parse().unwrap();
    assert_eq!(all < 60, lost.contains("hardly any more that differ"), "{lost}");
    let broken = explore("exit 9");
    assert_eq!(broken.status.code(), Some(1), "{}", text(&broken));
    let broken = text(&broken);
    assert!(
        broken.contains(&format!("{all} broken")) && !broken.contains("disk shrink"),
        "{broken}"
    );
    assert!(broken.contains("the check is broken"), "{broken}");
}

#[test]
fn a_state_that_does_not_mount_for_a_torn_sector_or_a_lie_has_not_passed() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &["--fs", "btrfs"]);
    let path = dir.path().join("btrfs.trace");
    let path = path.to_str().unwrap();
    let args = ["disk", "explore", path, "--states", "150", "--modes", "torn", "--tear", "512"];
    let verdicts = |name| {
        let lines = fs::read_to_string(dir.path().join(name)).unwrap();
        let found = lines.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = |name| found.clone().filter(|finding| finding["verdict"] == name).count();
        (of("ok"), of("not-mounted"))
    };
    // What was synced is there wherever the filesystem is.
    let torn = output(&[&args[..], &["--check", CHECK]].concat());
    let (ok, apart) = verdicts("btrfs.states.jsonl");
    assert!(ok + apart == 150 && ok > 0, "{}", text(&torn));
    assert_eq!(torn.status.code(), Some(0), "{}", text(&torn));
    // Where flushes lie, too, the filesystem often is not: that the check is content shows nothing then.
    let lying = output(&[&args[..], &["--check", "true", "--lying"]].concat());
    let (ok, apart) = verdicts("btrfs.lying.states.jsonl");
    assert!(ok + apart == 150 && ok > 0 && apart > 0, "{}", text(&lying));
    assert_eq!(lying.status.code(), Some(0), "{}", text(&lying));
    let said = format!("{apart} did not mount and could not be checked");
    assert!(text(&lying).contains(&said), "{}", text(&lying));
    let page = fs::read_to_string(dir.path().join("btrfs.lying.html")).unwrap();
    assert!(page.contains(&format!("All {ok} crash states that could be checked passed")));
}

/// It was a failure of each of 2000 states.
#[test]
fn a_check_that_is_not_there_stops_before_any_state_is_visited() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let trace = dir.path().join("ext4.trace");
    let script = dir.path().join("verify");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    let script = script.to_str().unwrap();
    let visited = || {
        let lines = fs::read_to_string(dir.path().join("ext4.states.jsonl")).unwrap_or_default();
        lines.lines().count().saturating_sub(1)
    };
    let (path, state) = (trace.to_str().unwrap(), "point=0,mode=arrived");
    let endless = format!("{PLIMSOLL} disk mark 1; sleep 1000");
    for (check, said) in
        [("./no-such-check {dir}", "not found"), (script, "denied"), ("exit 127", "said nothing")]
    {
        for args in [
            &["disk", "explore", path, "--states", "30", "--check", check][..],
            &["disk", "replay", path, state, "--json", "--check", check],
            &["disk", "cycle", "--cycles", "1", "--run", &endless, "--check", check],
        ] {
            let ended = output(args);
            assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", text(&ended));
            let shown = text(&ended);
            assert!(shown.contains("cannot be started") && shown.contains(said), "{shown}");
        }
        assert_eq!(visited(), 0);
    }
    // One that a state takes away is a finding of that state.
    let check = "test -e {dir}/log || no-such-program";
    let explored = output(&["disk", "explore", path, "--states", "30", "--check", check]);
    assert_eq!(
        explored.status.code(),
        Some(2),
        "it is tried where there is no log: {}",
        text(&explored)
    );
    let check = "test ! -e {dir}/log || no-such-program";
    let explored = output(&["disk", "explore", path, "--states", "30", "--check", check]);
    assert_eq!(explored.status.code(), Some(1), "{}", text(&explored));
    let said = text(&explored);
    let (_, broken) = said.split_once("broken: ").unwrap_or_else(|| panic!("{said}"));
    let (state, _) = broken.split_once(": ").unwrap();
    let shrunk = text(&output(&["disk", "shrink", path, state, "--check", check]));
    assert!(shrunk.contains("the check is broken: the check cannot be started"), "{shrunk}");
}

#[test]
fn a_check_that_fails_and_says_nothing_is_said_with_its_status() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), CARELESS, &[]);
    let path = dir.path().join("ext4.trace");
    let path = path.to_str().unwrap();
    for (check, verdict, said) in [
        ("exit 1", "lost", "the check ended with status 1 and said nothing"),
        ("exit 3", "refused", "the check ended with status 3 and said nothing"),
        ("exit 9", "broken", "the check ended with status 9 and said nothing"),
        ("kill -ABRT $$", "broken", "the check was ended by signal 6 and said nothing"),
        ("echo why; exit 9", "broken", "the check ended with status 9: why"),
        ("echo why; exit 1", "lost", "why"),
    ] {
        let args = ["disk", "explore", path, "--states", "5", "--check", check, "--json"];
        let lines = String::from_utf8(output(&args).stdout).unwrap();
        let finding: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&finding["verdict"], &finding["said"]), (&verdict.into(), &said.into()));
    }
}

#[test]
fn a_check_of_nothing_is_no_check() {
    for check in ["", " \n"] {
        let explored = output(&["disk", "explore", "none.trace", "--check", check]);
        let said = text(&explored);
        assert_eq!(explored.status.code(), Some(2), "{said}");
        assert!(said.contains("an empty line checks nothing"), "{said}");
        let replay = ["disk", "replay", "none.trace", "point=0,mode=durable", "--check", check];
        assert!(text(&output(&replay)).contains("an empty line checks nothing"));
    }
}
