//! A disk in use, without a recording: faults, speed, and that nothing is left of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{HONEST, PLIMSOLL, mounts, output, plimsoll, record, signal, text};

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
    let result = include_str!("../../../lab/testdata/result-v1-sync-cost.json");
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
        &["disk", "explore", trace, "--check", &wait],
        &["disk", "record", "-o", out, "--force", "--setup", &wait, "--", "true"],
        &[
            "disk",
            "record",
            "-o",
            out,
            "--force",
            "--mark-on",
            "x",
            "--writeback",
            "--",
            "/bin/sh",
            "-c",
            &wait,
        ],
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
    assert!(said.contains("ext4         SKIPPED    root  "), "{said}");
    assert!(!said.contains("in-process   AVAILABLE  root"), "{said}");
    assert!(said.contains("only root can mount these"), "{said}");
    let tiers = nobody(&["disk", "doctor", "--json"], "").stdout;
    let tiers: Vec<Value> = serde_json::from_slice(&tiers).unwrap();
    let needs =
        |name: &str| tiers.iter().find(|tier| tier["tier"] == name).unwrap()["needs_root"] == true;
    assert!(needs("ext4") && needs("xfs") && needs("btrfs") && !needs("in-process"), "{tiers:?}");
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

/// The only one.
fn child_of(pid: u32) -> u32 {
    let task = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(task).unwrap().trim().parse().unwrap()
}
