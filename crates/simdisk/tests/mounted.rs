//! The mounted disk, proved on real filesystems: that flushes arrive, that what was not flushed is gone,
//! and that a lying disk is caught.
//!
//! These tests need root, FUSE and loop devices. Elsewhere each says SKIPPED and why, and with
//! `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_simdisk::block::{Belief, Event, Mode, Plan, State, Timeline, Trace, Wanted};
use plimsoll_simdisk::mounted::{
    Check, Error, Explore, Filesystem, Image, Program, Rig, RigOptions, Search, SearchOptions,
    Situation, Standing, Verdict, Visit, explore,
};
use plimsoll_sync::{Dir, OsDir, SyncMethod};

/// A disk with this filesystem, or a loud skip.
fn rig_or_skip(filesystem: Filesystem, change: impl FnOnce(&mut RigOptions)) -> Option<Rig> {
    let mut options = RigOptions::new(filesystem);
    change(&mut options);
    match Rig::start(options) {
        Ok(rig) => Some(rig),
        Err(error) => {
            let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|tier| tier == "realfs"), "{filesystem}: {error}");
            eprintln!("SKIPPED {filesystem}: {error}");
            None
        }
    }
}

/// What a power cut at the end of a trace leaves, if it takes all it can.
fn after_power_cut(trace: &Trace, belief: Belief) -> Image {
    let timeline = Timeline::of(&trace.events, belief);
    let state = State { point: trace.events.len(), mode: Mode::Durable };
    let platter = state.platter(&trace.base, &trace.events, &timeline);
    let filesystem = trace.about.filesystem.parse().unwrap();
    Image::mount(&platter, filesystem, "", false).unwrap()
}

fn flushes(trace: &Trace, from: usize) -> usize {
    trace.events[from..].iter().filter(|event| matches!(event, Event::Flush)).count()
}

/// A trace in which a file becomes durable.
fn small_trace(filesystem: Filesystem) -> Option<Trace> {
    let rig = rig_or_skip(filesystem, |_| {})?;
    let dir = OsDir::open(rig.directory()).unwrap();
    let file = dir.create("file", SyncMethod::Fsync.access()).unwrap();
    file.write_sync_at(b"durable", 0, SyncMethod::Fsync).unwrap();
    let trace = rig.trace(rig.point());
    drop((file, dir));
    rig.stop().unwrap();
    Some(trace)
}

#[test]
fn a_search_that_was_stopped_goes_on_there_and_ends_with_a_page() {
    let Some(trace) = small_trace(Filesystem::Ext4) else { return };
    let results = tempfile::tempdir().unwrap();
    let path = results.path().join("ext4.trace");
    let wanted = Wanted { states: 12, ..Wanted::default() };
    let options = || SearchOptions {
        wanted: &wanted,
        belief: Belief::default(),
        check: "test -d {dir}/lost+found",
        check_limit: Duration::from_secs(60),
        mount_options: "",
        workers: 2,
        fresh: false,
    };
    let never = AtomicBool::new(false);
    let mut first = Search::open(&path, &trace, options()).unwrap();
    assert!(first.findings().found.is_empty());
    assert!(!first.run(&never, |_, _| ControlFlow::Break(())).unwrap(), "it was stopped");
    let known: Vec<usize> = first.findings().found.keys().copied().collect();
    assert!(!known.is_empty() && known.len() < first.plan().states.len());
    assert!(
        matches!(Search::open(&path, &trace, options()), Err(Error::InUse { .. })),
        "two that write the same results would each find half"
    );
    drop(first);
    let mut second = Search::open(&path, &trace, options()).unwrap();
    assert_eq!(second.findings().found.keys().copied().collect::<Vec<_>>(), known);
    let whole = second.run(&never, |finding, standing| {
        assert!(!known.contains(&finding.number), "what is known is not visited again");
        assert_eq!(standing, Standing::Passed, "{finding:?}");
        ControlFlow::Continue(())
    });
    assert!(whole.unwrap());
    let all = second.plan().states.len();
    assert_eq!(second.findings().count(Standing::Passed), all);
    let page = second.page();
    assert_eq!(page.title, "What a power cut leaves on ext4");
    assert!(page.main.contains(&format!("All {all} crash states that were visited passed")));
}

#[test]
fn what_was_done_to_one_image_is_not_in_the_next() {
    for filesystem in Filesystem::ALL {
        let Some(rig) = rig_or_skip(filesystem, |_| {}) else { return };
        let dir = OsDir::open(rig.directory()).unwrap();
        for name in ["kept", "deleted"] {
            let file = dir.create(name, SyncMethod::Fsync.access()).unwrap();
            file.write_sync_at(&[7; 20_000], 0, SyncMethod::Fsync).unwrap();
        }
        dir.sync().unwrap();
        let trace = rig.trace(rig.point());
        drop(dir);
        rig.stop().unwrap();
        for number in 0..3 {
            let image = after_power_cut(&trace, Belief::default());
            let at = image.directory();
            for name in ["kept", "deleted"] {
                let found = fs::read(at.join(name)).unwrap();
                assert!(found == [7; 20_000], "{filesystem}: {name} in image {number}");
            }
            assert!(!at.join("leaked").exists(), "{filesystem}: image {number}");
            fs::remove_file(at.join("deleted")).unwrap();
            fs::write(at.join("kept"), [9; 30_000]).unwrap();
            fs::write(at.join("leaked"), vec![1; 3 << 20]).unwrap();
            image.unmount().unwrap();
        }
    }
}

#[test]
fn flushes_arrive_for_every_way_to_sync_and_what_was_not_synced_is_gone() {
    for filesystem in Filesystem::ALL {
        let Some(rig) = rig_or_skip(filesystem, |_| {}) else { return };
        let dir = OsDir::open(rig.directory()).unwrap();
        let methods = [SyncMethod::Fsync, SyncMethod::ODsync, SyncMethod::RwfDsync];
        for method in methods {
            let what = format!("{filesystem}: {method}");
            let file = dir.create(&format!("{method}"), method.access()).unwrap();
            let before = rig.point();
            file.write_sync_at(b"synced", 0, method).unwrap();
            let trace = rig.trace(rig.point());
            assert!(flushes(&trace, before) >= 1, "{what}: no flush arrived");
            let unsynced = rig.directory().join(format!("{method}-unsynced"));
            fs::write(&unsynced, "not synced").unwrap();
        }
        let trace = rig.trace(rig.point());
        drop(dir);
        rig.stop().unwrap();
        let image = after_power_cut(&trace, Belief::default());
        for method in methods {
            let path = image.directory().join(format!("{method}"));
            assert_eq!(fs::read(path).unwrap(), b"synced", "{filesystem}: {method}");
            let unsynced = image.directory().join(format!("{method}-unsynced"));
            let left = fs::read(unsynced).unwrap_or_default();
            assert!(left.iter().all(|&byte| byte == 0), "{filesystem}: {method}: {left:?}");
        }
    }
}

#[test]
fn what_a_disk_dropped_is_gone_after_the_power_cut() {
    for filesystem in Filesystem::ALL {
        let Some(rig) = rig_or_skip(filesystem, |_| {}) else { return };
        let dir = OsDir::open(rig.directory()).unwrap();
        let method = SyncMethod::Fsync;
        let file = dir.create("file", method.access()).unwrap();
        file.write_sync_at(b"first!", 0, method).unwrap();
        rig.set_faults(vec!["flush dropped sticky".parse().unwrap()], 1);
        file.write_sync_at(b"second", 0, method).unwrap();
        assert!(rig.faults_applied()[0].1 >= 1, "{filesystem}: a flush was dropped");
        assert_eq!(fs::read(rig.directory().join("file")).unwrap(), b"second");
        let trace = rig.trace(rig.point());
        drop((file, dir));
        rig.stop().unwrap();
        let image = after_power_cut(&trace, Belief::default());
        let left = fs::read(image.directory().join("file")).unwrap();
        assert_eq!(left, b"first!", "{filesystem}");
    }
}

/// Appends records of 16 bytes to a file and says after each sync how many there are.
fn appender(rig: &Rig, records: u64, sync: bool) {
    let dir = OsDir::open(rig.directory()).unwrap();
    let method = SyncMethod::Fdatasync;
    let file = dir.create("log", method.access()).unwrap();
    for record in 1..=records {
        let bytes = [record.to_le_bytes(), (!record).to_le_bytes()].concat();
        let at = (record - 1) * 16;
        if sync {
            file.write_sync_at(&bytes, at, method).unwrap();
        } else {
            file.write_at(&bytes, at).unwrap();
        }
        rig.mark(&record.to_string()).unwrap();
    }
}

/// Whether all that was said to be there is.
fn all_there(situation: &Situation<'_>) -> Verdict {
    let said: u64 = situation.last_mark().map_or(0, |mark| mark.parse().unwrap());
    let bytes = fs::read(situation.directory().join("log")).unwrap_or_default();
    let good = |&(record, bytes): &(u64, &[u8])| {
        bytes == [record.to_le_bytes(), (!record).to_le_bytes()].concat()
    };
    let found = (1..).zip(bytes.chunks(16)).take_while(good).count() as u64;
    if found >= said { Verdict::Ok } else { Verdict::Lost(format!("{found} of {said}")) }
}

/// How many states of a trace end how.
fn explored(trace: &Trace, belief: Belief, states: usize) -> (usize, Vec<Visit>) {
    let timeline = Timeline::of(&trace.events, belief);
    let plan = Plan::new(&trace.events, &timeline, &Wanted { states, ..Wanted::default() });
    let stop = AtomicBool::new(false);
    let how = Explore {
        trace,
        timeline: &timeline,
        states: &plan.states,
        workers: 2,
        mount_options: "",
        read_only: false,
        stop: &stop,
    };
    let mut bad = Vec::new();
    let mut visited = 0;
    let whole = explore(&how, &|situation| Ok(all_there(situation)), |visit| {
        visited += 1;
        if visit.verdict.is_failure() {
            bad.push(visit);
        }
        ControlFlow::Continue(())
    });
    assert!(whole.unwrap());
    assert_eq!(visited, plan.states.len());
    (visited, bad)
}

#[test]
fn a_program_that_syncs_loses_nothing_and_one_that_does_not_is_caught() {
    for filesystem in Filesystem::ALL {
        let Some(rig) = rig_or_skip(filesystem, |_| {}) else { return };
        appender(&rig, 30, true);
        let trace = rig.trace(rig.point());
        rig.stop().unwrap();
        let (_, bad) = explored(&trace, Belief::default(), 150);
        assert!(bad.is_empty(), "{filesystem}: {bad:?}");
        // The same recording, if the disk had lied: it must be seen.
        let lying = Belief { flushes_lie: true, ..Belief::default() };
        let (visited, bad) = explored(&trace, lying, 150);
        assert!(bad.len() > visited / 4, "{filesystem}: {} of {visited}", bad.len());
        let rig = rig_or_skip(filesystem, |_| {}).unwrap();
        appender(&rig, 30, false);
        let trace = rig.trace(rig.point());
        rig.stop().unwrap();
        let (_, bad) = explored(&trace, Belief::default(), 20);
        assert!(!bad.is_empty(), "{filesystem}: nothing was synced, and nobody noticed");
    }
}

#[test]
fn a_filesystem_without_barriers_is_caught() {
    let without = |options: &mut RigOptions| "barrier=0".clone_into(&mut options.mount_options);
    let Some(rig) = rig_or_skip(Filesystem::Ext4, without) else { return };
    let before = rig.point();
    appender(&rig, 30, true);
    let trace = rig.trace(rig.point());
    rig.stop().unwrap();
    assert_eq!(flushes(&trace, before), 0);
    let (visited, bad) = explored(&trace, Belief::default(), 100);
    assert!(bad.len() > visited / 4, "{} of {visited}", bad.len());
}

#[test]
fn one_state_is_the_same_disk_each_time() {
    let Some(rig) = rig_or_skip(Filesystem::Ext4, |_| {}) else { return };
    appender(&rig, 10, true);
    let trace = rig.trace(rig.point());
    rig.stop().unwrap();
    let path = tempfile::tempdir().unwrap().keep().join("ext4.trace");
    trace.save(&path).unwrap();
    let read = Trace::load(&path).unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert_eq!(read.id(), trace.id());
    for trace in [&trace, &read] {
        let timeline = Timeline::of(&trace.events, Belief::default());
        let state: State =
            format!("point={},mode=torn,seed=7", trace.events.len() / 2).parse().unwrap();
        let again = state.platter(&read.base, &read.events, &timeline);
        assert!(state.platter(&trace.base, &trace.events, &timeline) == again);
    }
}

/// Each mount replays what the log holds since it was last pushed out. An ordinary log of 64 MiB is not filled by
/// thousands of syncs.
#[test]
fn an_xfs_log_begins_anew_after_a_few_hundred_syncs_unless_it_is_chosen() {
    let logged = |log: &[&str]| {
        let args = log.iter().map(|&arg| arg.to_owned()).collect();
        let rig = rig_or_skip(Filesystem::Xfs, |options| options.mkfs_args = args)?;
        let dir = OsDir::open(rig.directory()).unwrap();
        let file = dir.create("file", SyncMethod::Fdatasync.access()).unwrap();
        for number in 0..600 {
            file.write_sync_at(&[1; 512], number * 512, SyncMethod::Fdatasync).unwrap();
        }
        let trace = rig.trace(rig.point());
        drop((file, dir));
        rig.stop().unwrap();
        let offset = |event: &Event| match event {
            Event::Write { byte_offset, .. } => Some(*byte_offset),
            _ => None,
        };
        // Some 75 are those of the data.
        let offsets: Vec<u64> = trace.events.iter().filter_map(offset).collect();
        let places: HashSet<u64> = offsets.iter().copied().collect();
        Some((trace.about.mkfs.join(" "), places.len()))
    };
    let Some((command, places)) = logged(&[]) else { return };
    assert!(places < 450, "{command}: {places} places");
    let Some((command, places)) = logged(&["-l", "size=64m"]) else { return };
    assert!(command.ends_with("-q -f -l size=64m"), "{command}");
    assert!(places > 600, "{command}: {places} places");
}

#[test]
fn a_workload_is_a_program_that_says_what_it_did() {
    let Some(mut rig) = rig_or_skip(Filesystem::Ext4, |_| {}) else { return };
    let script = "echo one > {dir}/a && sync && echo 1 >&$PLIMSOLL_MARK_FD && read answer <&$PLIMSOLL_MARK_FD \
                  && echo two > {dir}/b && sync && echo 2 >&$PLIMSOLL_MARK_FD && read again <&$PLIMSOLL_MARK_FD \
                  && test $answer = ok";
    let line = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    let (ended, point) = rig.run(&Program::new(line), &[], None, &|| false).unwrap();
    let trace = rig.trace(point);
    rig.stop().unwrap();
    assert_eq!(trace.about.ended, "exit status 0", "{ended:?}");
    let timeline = Timeline::of(&trace.events, Belief::default());
    let marks: Vec<&str> = timeline.marks(point).iter().map(|(_, text)| &**text).collect();
    assert_eq!(marks, ["1", "2"]);
    let state = State { point, mode: Mode::Durable };
    let check = |line: &str| {
        let image = after_power_cut(&trace, Belief::default());
        let program = Program::shell(line);
        let check = Check { program, limit: Duration::from_secs(20), aloud: false };
        let situation = Situation { state: &state, marks: timeline.marks(point) };
        let verdict = check.run(&situation, &[], &|| false).unwrap();
        image.unmount().unwrap();
        verdict
    };
    let right = "test $(cat {dir}/a) = one && test $(cat $PLIMSOLL_DIR/b) = two \
                 && test $PLIMSOLL_LAST_MARK = 2 && test $(wc -l < $PLIMSOLL_MARKS) = 2";
    assert_eq!(check(right), Verdict::Ok);
    assert_eq!(check("echo gone; exit 1"), Verdict::Lost("gone".to_owned()));
    assert_eq!(check("exit 2").name(), "reported");
    assert_eq!(check("exit 3").name(), "refused");
    assert_eq!(check("exit 7").name(), "broken");
    assert_eq!(check("kill -9 $$").name(), "broken");
    // One that leaves somebody behind does not keep the disk mounted.
    assert_eq!(check("cd {dir}; setsid sleep 1000 & exit 0"), Verdict::Ok);
}

#[test]
fn a_workload_that_is_stopped_leaves_nothing_behind() {
    let Some(mut rig) = rig_or_skip(Filesystem::Ext4, |_| {}) else { return };
    let stop = AtomicBool::new(false);
    let program = Program::shell("cd {dir}; sleep 1000 & sleep 1000");
    let (ended, _) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::park_timeout(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        });
        rig.run(&program, &[], None, &|| stop.load(Ordering::Relaxed)).unwrap()
    });
    assert_eq!(ended, plimsoll_simdisk::mounted::Ended::Stopped);
    rig.stop().unwrap();
    assert!(!Path::new(plimsoll_simdisk::mounted::DIRECTORY).join("lost+found").exists());
}

/// A server that a workload left behind in a mount namespace of its own holds a copy of our mounts.
#[test]
fn a_disk_that_somebody_else_has_mounted_is_said_and_not_waited_for() {
    let Some(rig) = rig_or_skip(Filesystem::Ext4, |_| {}) else { return };
    let dir = rig.directory().to_str().unwrap().to_owned();
    let script = format!("umount {dir} && echo ready && exec sleep 600");
    let mut stray = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(stray.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let stopped = rig.stop();
    stray.kill().unwrap();
    stray.wait().unwrap();
    let said = stopped.map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)));
    let said = said.unwrap_err();
    assert!(said.contains(&stray.id().to_string()), "{said}");
}

#[test]
fn a_listener_ends_though_its_socket_is_gone() {
    let Some(mut rig) = rig_or_skip(Filesystem::Ext4, |_| {}) else { return };
    let program = Program::shell("rm \"$PLIMSOLL_MARK_SOCKET\"");
    rig.run(&program, &[], Some(Duration::from_secs(60)), &|| false).unwrap();
    rig.stop().unwrap();
}
