//! `plimsoll disk`, as somebody would use it: on real filesystems, as root. Elsewhere each test says
//! SKIPPED and why, and with `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
/// Ten lines, each synced and then said.
const HONEST: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line >> {dir}/log && sync {dir}/log \
                      && \"$0\" disk mark $i; done";
/// The same, and nobody syncs.
const CARELESS: &str =
    "for i in 1 2 3 4 5 6 7 8 9 10; do echo line >> {dir}/log && \"$0\" disk mark $i; done";
const CHECK: &str = "n=$(cat {dir}/log 2>/dev/null | grep -c '^line$'); \
                     test \"$n\" -ge \"${PLIMSOLL_LAST_MARK:-0}\" || { echo \"$n lines\"; exit 1; }";

fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command.args(args).env_remove("PLIMSOLL_REQUIRE");
    command
}

fn output(args: &[&str]) -> Output {
    plimsoll(args).output().unwrap()
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Whether disks can be mounted here; a loud skip if not.
fn mounts() -> bool {
    let tiers: Value =
        serde_json::from_slice(&output(&["disk", "doctor", "--json"]).stdout).unwrap();
    let ext4 = tiers.as_array().unwrap().iter().find(|tier| tier["tier"] == "ext4").unwrap();
    let works = ext4["state"] == "available";
    if !works {
        let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|tier| tier == "realfs"), "{ext4}");
        eprintln!("SKIPPED ext4: {ext4}");
    }
    works
}

fn record(dir: &Path, workload: &str, more: &[&str]) {
    let out = dir.to_str().unwrap();
    let mut args = vec!["disk", "record", "-o", out];
    args.extend(more);
    args.extend(["--", "/bin/sh", "-c", workload, PLIMSOLL]);
    let recorded = output(&args);
    assert!(recorded.status.success(), "{}", text(&recorded));
    assert!(text(&recorded).contains("10 marks"), "{}", text(&recorded));
}

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
    // If the disk had lied, the same check must find it. What it found before stays.
    let lying = [&args[..], &["--lying"]].concat();
    let lying = output(&lying);
    assert_eq!(lying.status.code(), Some(1), "{}", text(&lying));
    assert!(text(&lying).contains("(what differs: lying)"), "{}", text(&lying));
    let kept = fs::read_to_string(dir.path().join("ext4.1.states.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 1 + 120);
    let lines = fs::read_to_string(&results).unwrap();
    let lost = lines.lines().find(|line| line.contains("\"lost\"")).unwrap();
    let lost: Value = serde_json::from_str(lost).unwrap();
    assert!(lost["said"].as_str().unwrap().contains("lines"), "{lost}");

    record(dir.path(), CARELESS, &[]);
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
fn a_state_that_does_not_mount_for_a_torn_sector_or_a_lie_has_not_passed() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &["--fs", "btrfs"]);
    let path = dir.path().join("btrfs.trace");
    let path = path.to_str().unwrap();
    let args = ["disk", "explore", path, "--states", "150", "--modes", "torn", "--tear", "512"];
    let verdicts = || {
        let lines = fs::read_to_string(dir.path().join("btrfs.states.jsonl")).unwrap();
        let found = lines.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of = |name| found.clone().filter(|finding| finding["verdict"] == name).count();
        (of("ok"), of("not-mounted"))
    };
    // What was synced is there wherever the filesystem is.
    let torn = output(&[&args[..], &["--check", CHECK]].concat());
    let (ok, apart) = verdicts();
    assert!(ok + apart == 150 && ok > 0, "{}", text(&torn));
    assert_eq!(torn.status.code(), Some(0), "{}", text(&torn));
    // Where flushes lie, too, the filesystem often is not: that the check is content shows nothing then.
    let lying = output(&[&args[..], &["--check", "true", "--lying"]].concat());
    let (ok, apart) = verdicts();
    assert!(ok + apart == 150 && ok > 0 && apart > 0, "{}", text(&lying));
    assert_eq!(lying.status.code(), Some(0), "{}", text(&lying));
    let said = format!("{apart} did not mount and could not be checked");
    assert!(text(&lying).contains(&said), "{}", text(&lying));
    let page = fs::read_to_string(dir.path().join("btrfs.html")).unwrap();
    assert!(page.contains(&format!("All {ok} crash states that could be checked passed")));
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

#[test]
fn faults_happen_and_are_counted() {
    if !mounts() {
        return;
    }
    let args = ["disk", "run", "--fault", "flush EIO sticky", "--", "/bin/sh", "-c"];
    let script = "echo x > {dir}/f; sync {dir}/f";
    let failed = output(&[&args[..], &[script]].concat());
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    assert!(text(&failed).contains("fault: flush EIO sticky: "), "{}", text(&failed));
    assert!(!text(&failed).contains("never happened"), "{}", text(&failed));
    let fine = output(&["disk", "run", "--fault", "read EIO nth=999999", "--", "true"]);
    assert_eq!(fine.status.code(), Some(0), "{}", text(&fine));
    assert!(text(&fine).contains("it never happened"), "{}", text(&fine));
    let wrong = output(&["disk", "run", "--fault", "flush lost", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).contains("dropped"), "{}", text(&wrong));
}

#[test]
fn a_slow_disk_is_slow() {
    if !mounts() {
        return;
    }
    let begun = Instant::now();
    let script = "for i in 1 2 3 4 5; do echo x >> {dir}/f; sync {dir}/f; done";
    let slow = ["disk", "run", "--latency", "antirez-2010", "--", "/bin/sh", "-c", script];
    let slow = output(&slow);
    assert!(slow.status.success(), "{}", text(&slow));
    assert!(begun.elapsed() > Duration::from_millis(5 * 40), "five flushes of 40 ms");
    // The same of what the lab measured on a disk.
    let result = include_str!("../../lab/testdata/result-v1-sync-cost.json");
    let mut result: Value = serde_json::from_str(result).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sync-cost.json");
    let run = |result: &Value| {
        fs::write(&path, result.to_string()).unwrap();
        let path = path.to_str().unwrap();
        output(&["disk", "run", "--latency", path, "--", "/bin/sh", "-c", script])
    };
    let other = run(&result);
    assert_eq!(other.status.code(), Some(2), "{}", text(&other));
    assert!(text(&other).contains("lab run sync-cost"), "{}", text(&other));
    for (number, (method, p50_ns)) in
        [("o_direct", 50_000), ("fdatasync", 60_000_000)].iter().enumerate()
    {
        let arm = &mut result["arms"][number];
        arm["method"] = Value::from(*method);
        arm["layout"] = Value::from("overwritten");
        arm["payload_bytes"] = Value::from(4096);
        arm["summaries"][0]["p50_ns"] = Value::from(*p50_ns);
    }
    let begun = Instant::now();
    let slow = run(&result);
    assert!(slow.status.success(), "{}", text(&slow));
    assert!(begun.elapsed() > Duration::from_millis(5 * 50), "five flushes of about 60 ms");
}

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
        "--cut-after",
        "5ms..60ms",
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
    assert!(text(&pasted).contains("the check says: lost"), "{}", text(&pasted));
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

#[test]
fn orphans_are_reaped() {
    if !mounts() {
        return;
    }
    // Each is left by its parent, and ends in a session of its own.
    let script = "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.01 & exit' & done; wait; sleep 0.5; \
                  exit $(cat /proc/[0-9]*/stat | grep -c ') Z ')";
    let run = output(&["disk", "run", "--", "/bin/sh", "-c", script]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
}

#[test]
fn what_is_interrupted_says_so_and_is_no_finding() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), HONEST, &[]);
    let trace = dir.path().join("ext4.trace");
    let trace = trace.to_str().unwrap();
    let begun = dir.path().join("begun");
    let wait = format!("touch {}; sleep 1000", begun.display());
    let mark = format!("{PLIMSOLL} disk mark 1; sleep 1000");
    let out = dir.path().to_str().unwrap();
    let cycle = ["disk", "cycle", "--cycles", "9", "--cut-after", "300ms..300ms", "-o", out];
    let (recover, check) =
        (["--recover", &wait, "--check", "true"], ["--recover", "true", "--check", &wait]);
    for args in [
        &["disk", "run", "--", "/bin/sh", "-c", &wait][..],
        &["disk", "cycle", "--cut-after", "1h..1h", "--check", "true", "--run", &wait],
        &[&cycle[..], &["--run", &mark], &recover].concat(),
        &[&cycle[..], &["--run", &mark], &check].concat(),
        &["disk", "replay", trace, "point=0,mode=arrived", "--check", &wait],
    ] {
        let child = plimsoll(args).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::remove_file(&begun).is_err() {
            assert!(Instant::now() < deadline, "{args:?} never began");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        signal(child.id(), "-INT");
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{args:?}: {}", text(&ended));
        assert!(text(&ended).contains("interrupted"), "{args:?}: {}", text(&ended));
        assert!(!text(&ended).contains("refused"), "{args:?}: {}", text(&ended));
    }
}

/// A disk in use, and the loop device that it is on.
fn in_use(dir: &Path) -> (Child, String) {
    let says = dir.join("says");
    let script = format!(
        "grep ' {{dir}} ' /proc/self/mounts > {0}.part && mv {0}.part {0}; cd {{dir}}; setsid sleep 3000 & \
         while true; do echo x >> {{dir}}/f; sync {{dir}}/f; done",
        says.display()
    );
    let mut child = plimsoll(&["disk", "run", "--", "/bin/sh", "-c", &script])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !says.exists() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "it never began");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let mounted = fs::read_to_string(&says).unwrap();
    let device = mounted.split(' ').next().unwrap();
    (child, device.rsplit('/').next().unwrap().to_owned())
}

fn is_attached(device: &str) -> bool {
    let path = format!("/sys/block/{device}/loop/backing_file");
    fs::read_to_string(path).is_ok_and(|backing| backing.contains("disk.img"))
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// The only one.
fn child_of(pid: u32) -> u32 {
    let task = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(task).unwrap().trim().parse().unwrap()
}

#[test]
fn nothing_stays_mounted_or_attached_however_it_ends() {
    if !mounts() {
        return;
    }
    for how in ["-KILL", "-TERM", "-INT", "first", "worker", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, device) = in_use(dir.path());
        assert!(is_attached(&device), "{how}: {device}");
        let first = child_of(child.id());
        let worker = child_of(first);
        let mut waiting = None;
        match how {
            "first" => signal(first, "-KILL"),
            "worker" => signal(worker, "-KILL"),
            // Killed while somebody waits for the disk: the last thread to die unmounted before it closed
            // /dev/fuse, waited for that sync, the sync for the disk, and the disk for the thread.
            "sync" => {
                signal(worker, "-STOP");
                waiting = Some(Command::new("sync").spawn().unwrap());
                std::thread::park_timeout(Duration::from_millis(300));
                signal(first, "-KILL");
            }
            how => signal(child.id(), how),
        }
        let status = child.wait().unwrap();
        assert!(!status.success(), "{how}: {status}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while is_attached(&device) {
            assert!(Instant::now() < deadline, "{how}: {device} is still attached");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        if let Some(mut sync) = waiting {
            sync.wait().unwrap();
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains("plimsoll-disk"), "{how}: {mounts}");
    }
}

#[test]
fn another_user_is_told_what_is_missing() {
    if !mounts() {
        return; // Only root can become somebody else.
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("plimsoll");
    fs::copy(PLIMSOLL, &copy).unwrap();
    let nobody = |args: &[&str], require: &str| {
        let mut command = Command::new(&copy);
        command.args(args).env("PLIMSOLL_REQUIRE", require).current_dir("/").uid(65534).gid(65534);
        command.output().unwrap()
    };
    let doctor = nobody(&["disk", "doctor"], "");
    assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor));
    let said = text(&doctor);
    assert!(said.contains("in-process   AVAILABLE"), "{said}");
    assert!(said.contains("ext4         SKIPPED") && said.contains("root"), "{said}");
    assert!(said.contains("not permitted"), "why: {said}");
    assert_eq!(nobody(&["disk", "doctor"], "realfs").status.code(), Some(1));
    let run = nobody(&["disk", "run", "--", "true"], "");
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run).contains("root") && text(&run).contains("not permitted"), "{}", text(&run));
    // Before anything else that is wrong, and before anything is made.
    let out = dir.path().join("out");
    let record = nobody(&["disk", "record", "-o", out.to_str().unwrap(), "--", "true"], "");
    assert!(text(&record).contains("root") && !out.exists(), "{}", text(&record));
    let explore = nobody(&["disk", "explore", "no-such-trace", "--check", "true"], "");
    assert!(text(&explore).contains("root"), "{}", text(&explore));
}

#[test]
fn a_mark_outside_of_a_recording_says_so() {
    let mark =
        plimsoll(&["disk", "mark", "1"]).env_remove("PLIMSOLL_MARK_SOCKET").output().unwrap();
    assert_eq!(mark.status.code(), Some(2));
    assert!(text(&mark).contains("disk record"), "{}", text(&mark));
}
