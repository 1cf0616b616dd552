//! `plimsoll disk`, as somebody would use it: on real filesystems, as root. Elsewhere each test says
//! SKIPPED and why, and with `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

use std::fs;
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
    // The same command again has nothing left to do.
    let again = output(&args);
    assert!(text(&again).contains("going on after 120 of 120"), "{}", text(&again));
    let page = fs::read_to_string(dir.path().join("ext4.html")).unwrap();
    assert!(page.contains("All 120 crash states") && !page.contains("://"));
    // If the disk had lied, the same check must find it.
    let lying = [&args[..], &["--lying"]].concat();
    let lying = output(&lying);
    assert_eq!(lying.status.code(), Some(1), "{}", text(&lying));
    let lines = fs::read_to_string(dir.path().join("ext4.states.jsonl")).unwrap();
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
    let bad = String::from_utf8(careless.stdout).unwrap();
    let bad: Vec<Value> = bad.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let bad = bad.iter().find(|finding| finding["verdict"] == "lost").unwrap();
    let state = bad["state"].as_str().unwrap();
    let replayed = output(&["disk", "replay", path, state, "--check", CHECK]);
    assert_eq!(replayed.status.code(), Some(1), "{}", text(&replayed));
    assert!(text(&replayed).contains("the check says: lost"), "{}", text(&replayed));
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
    assert_eq!(fs::read_dir(out).unwrap().count(), 1);
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

#[test]
fn nothing_stays_mounted_or_attached_however_it_ends() {
    if !mounts() {
        return;
    }
    for how in ["-KILL", "-TERM", "-INT", "inner", "sync"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, device) = in_use(dir.path());
        assert!(is_attached(&device), "{how}: {device}");
        let task = format!("/proc/{0}/task/{0}/children", child.id());
        let inner = fs::read_to_string(task).unwrap().trim().parse().unwrap();
        let mut waiting = None;
        match how {
            "inner" => signal(inner, "-KILL"),
            // Killed while somebody waits for the disk: the last thread to die unmounted before it closed
            // /dev/fuse, waited for that sync, the sync for the disk, and the disk for the thread.
            "sync" => {
                signal(inner, "-STOP");
                waiting = Some(Command::new("sync").spawn().unwrap());
                std::thread::park_timeout(Duration::from_millis(300));
                signal(inner, "-KILL");
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
    assert_eq!(nobody(&["disk", "doctor"], "realfs").status.code(), Some(1));
    let run = nobody(&["disk", "run", "--", "true"], "");
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run).contains("root"), "{}", text(&run));
}

#[test]
fn a_mark_outside_of_a_recording_says_so() {
    let mark =
        plimsoll(&["disk", "mark", "1"]).env_remove("PLIMSOLL_MARK_SOCKET").output().unwrap();
    assert_eq!(mark.status.code(), Some(2));
    assert!(text(&mark).contains("disk record"), "{}", text(&mark));
}
