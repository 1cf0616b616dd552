//! Recording software as it is: what never syncs, what cannot be made to say marks, what is there already.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::common::{
    CARELESS, CHECK, HONEST, mounts, output, plimsoll, record_args, recording, signal, text,
};

/// Explores, and returns the summary.
fn explore(trace: &Path, check: &str, states: &str) -> (Output, Value) {
    let path = trace.to_str().unwrap();
    let explored = output(&["disk", "explore", path, "--check", check, "--states", states]);
    let summary = fs::read(trace.with_extension("summary.json")).unwrap();
    (explored, serde_json::from_slice(&summary).unwrap())
}

/// It had no write in flight at any moment, so no state could keep one and lose another.
#[test]
fn software_that_never_syncs_has_something_to_reorder_with_writeback() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Pages of a file that is there, one after the other, in place.
    let setup = "dd if=/dev/zero of={dir}/data bs=4096 count=8 2>/dev/null";
    let workload = "for i in 0 1 2 3 4 5 6 7; do printf full | \
                    dd of={dir}/data bs=4096 seek=$i conv=notrunc 2>/dev/null; sleep 0.1; done; \
                    \"$0\" disk mark all";
    // What is later must not be there without what is earlier.
    let check = "gap=; for i in 0 1 2 3 4 5 6 7; do \
                 if [ \"$(dd if={dir}/data bs=1 skip=$((i * 4096)) count=4 2>/dev/null)\" = full ]; \
                 then test -z \"$gap\" || { echo \"$i and not $gap\"; exit 1; }; else gap=$i; fi; done";
    let trace = dir.path().join("ext4.trace");
    let plain = recording(dir.path(), &["--setup", setup], workload);
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain));
    let (explored, summary) = explore(&trace, check, "100");
    assert_eq!(summary["tested"]["reordered"], 0, "{}", text(&explored));
    fs::remove_file(&trace).unwrap();
    let written = recording(
        dir.path(),
        &["--setup", setup, "--writeback", "--mount-options", "commit=60"],
        workload,
    );
    assert_eq!(written.status.code(), Some(0), "{}", text(&written));
    // The flushes at the end are none of the program's.
    assert!(text(&written).contains("No flush arrived"), "{}", text(&written));
    let (explored, summary) = explore(&trace, check, "100");
    assert_eq!(explored.status.code(), Some(1), "{}", text(&explored));
    assert!(summary["tested"]["reordered"].as_u64() >= Some(5), "{summary}");
    assert!(text(&explored).contains(" and not "), "{}", text(&explored));
}

#[test]
fn a_line_that_matches_is_a_mark_and_is_still_printed() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Both ways out, one line in two pieces, one too long for a mark, the last as it ends.
    let workload = "line() { echo line >> {dir}/log; sync {dir}/log; }; \
                    for i in 1 2 3 4; do line; echo \"commit $i of 5\"; done; line; sleep 0.1; \
                    printf 'comm' >&2; sleep 0.1; echo 'it 5 of 5' >&2; \
                    echo \"commit $(seq 2000 | tr -d '\\n') of\"; printf 'commit 6 of 5'";
    let recorded = recording(dir.path(), &["--mark-on", "commit ([0-9]+) of"], workload);
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded));
    let said = text(&recorded);
    assert!(said.contains("5 marks"), "{said}");
    assert!(said.contains("commit 3 of 5\n") && said.contains("commit 6 of 5"), "{said}");
    assert!(said.contains("matched --mark-on 1 could not be marks: a mark is at most"), "{said}");
    // Each is there after what it rests on.
    let trace = dir.path().join("ext4.trace");
    let (explored, summary) = explore(&trace, CHECK, "60");
    assert_eq!(explored.status.code(), Some(0), "{}", text(&explored));
    assert!(summary["tested"]["marked"].as_u64() > Some(10), "{summary}");
    let check = "test \"$(tail -n 1 $PLIMSOLL_MARKS)\" = 5";
    let end = output(&[
        "disk",
        "replay",
        trace.to_str().unwrap(),
        "point=0,mode=arrived",
        "--check",
        check,
    ]);
    assert_eq!(end.status.code(), Some(1), "{}", text(&end));
    fs::remove_file(&trace).unwrap();
    let silent = recording(dir.path(), &["--mark-on", "never"], "echo something");
    assert!(text(&silent).contains("No line matched --mark-on"), "{}", text(&silent));
    fs::remove_file(&trace).unwrap();
    let long = recording(dir.path(), &["--mark-on", "1.*"], "seq 2000 | tr -d '\\n'; echo");
    let said = text(&long);
    assert!(said.contains("1 could not be marks") && said.contains("there are no marks"), "{said}");
    assert!(!said.contains("No line matched"), "one did: {said}");
    let wrong = recording(dir.path(), &["--mark-on", "("], "true");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).contains("--mark-on: "), "{}", text(&wrong));
}

#[test]
fn a_trace_that_is_there_is_not_replaced_unasked_nor_its_findings_taken_for_another_s() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("ext4.trace");
    let first = recording(dir.path(), &[], HONEST);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    let (explored, _) = explore(&trace, CHECK, "30");
    assert_eq!(explored.status.code(), Some(0), "{}", text(&explored));
    let found = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
    let (before, states) = (fs::read(&trace).unwrap(), found("ext4.states.jsonl").unwrap());
    // Before anything is run, and on none of the filesystems.
    let again = recording(dir.path(), &["--fs", "xfs,ext4"], "exit 9");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert!(text(&again).contains("there already") && text(&again).contains("--force"));
    assert!(fs::read(&trace).unwrap() == before && !dir.path().join("xfs.trace").exists());
    let forced = recording(dir.path(), &["--force"], CARELESS);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced));
    assert!(fs::read(&trace).unwrap() != before);
    assert_eq!(found("ext4.states.jsonl"), None, "nothing was found of this one");
    assert!(found("ext4.html").is_none() && found("ext4.summary.json").is_none());
    assert_eq!(found("ext4.1.states.jsonl").as_ref(), Some(&states));
    assert!(text(&forced).contains("ext4.1.states.jsonl"), "{}", text(&forced));
    let (explored, _) = explore(&trace, CHECK, "30");
    assert_eq!(explored.status.code(), Some(1), "{}", text(&explored));
    assert!(!text(&explored).contains("taken over"), "{}", text(&explored));
    // The first trace again: its findings are its own still.
    fs::write(&trace, &before).unwrap();
    let (explored, _) = explore(&trace, CHECK, "30");
    assert_eq!(explored.status.code(), Some(0), "{}", text(&explored));
    assert!(text(&explored).contains("30 of 30 states are taken over"), "{}", text(&explored));
}

/// It was moved aside first; where that failed an hour of recording was gone.
#[test]
fn a_recording_is_saved_though_what_was_found_of_the_one_before_cannot_be_moved() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("ext4.trace");
    fs::write(&trace, "the one before").unwrap();
    let found = File::create(dir.path().join("ext4.states.jsonl")).unwrap();
    found.lock().unwrap(); // as `explore` does
    let forced = recording(dir.path(), &["--force"], HONEST);
    let said = text(&forced);
    assert_eq!(forced.status.code(), Some(2), "{said}");
    assert!(said.contains("10 marks") && said.contains("is saved, but"), "{said}");
    assert!(said.contains("another `explore`"), "{said}");
    assert_ne!(fs::read(&trace).unwrap(), b"the one before");
}

/// It ended with 0 where Ctrl-C came after one filesystem and before the next.
#[test]
fn a_recording_that_is_interrupted_between_two_filesystems_is_no_success() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = record_args(dir.path(), &["--fs", "ext4,btrfs,xfs"], "exit 0");
    let mut child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // Kept, so that what it says of the others has a reader.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("ext4.trace: "), "{line}");
    signal(child.id(), "-INT");
    let ended = child.wait_with_output().unwrap();
    let said = text(&ended);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("xfs: interrupted: nothing is saved"), "{said}");
    assert!(dir.path().join("ext4.trace").exists() && !dir.path().join("xfs.trace").exists());
}

/// Only one of them was.
#[test]
fn what_goes_wrong_on_two_filesystems_at_once_is_said_of_both() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let more = ["--fs", "ext4,btrfs", "--jobs", "2", "--setup", "exit 3"];
    let failed = recording(dir.path(), &more, "true");
    let said = text(&failed);
    assert_eq!(failed.status.code(), Some(2), "{said}");
    assert!(said.contains("plimsoll: ext4: ") && said.contains("plimsoll: btrfs: "), "{said}");
}

/// Each waits for the others: one after another they would wait for ever.
#[test]
fn several_filesystems_are_recorded_at_once_each_with_its_own_disk() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let meet = dir.path().join("meet");
    fs::create_dir(&meet).unwrap();
    let workload = format!(
        "t=$(grep \" {{dir}} \" /proc/self/mounts | cut -d' ' -f3); echo $t > {{dir}}/f; \
         sync {{dir}}/f; touch {0}/$t; i=0; \
         while test $(ls {0} | wc -l) -lt 2; do sleep 0.05; i=$((i+1)); test $i -lt 600 || exit 9; done; \
         test $(cat {{dir}}/f) = $t && \"$0\" disk mark $t",
        meet.display()
    );
    let out = dir.path().join("out");
    let recorded = recording(&out, &["--fs", "ext4,btrfs", "--jobs", "2"], &workload);
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded));
    for name in ["ext4", "btrfs"] {
        let trace = out.join(format!("{name}.trace"));
        let (explored, _) =
            explore(&trace, "test -z \"$PLIMSOLL_LAST_MARK\" || grep -q . {dir}/f", "20");
        assert_eq!(explored.status.code(), Some(0), "{}", text(&explored));
        assert!(text(&recorded).contains(&format!("{name}.trace: ")), "{}", text(&recorded));
    }
}

#[test]
fn where_no_trace_can_be_saved_no_workload_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let workload = format!("touch {}", ran.display());
    let (linked, made) = (dir.path().join("linked"), dir.path().join("made"));
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink("nothing", linked.join("ext4.trace")).unwrap();
    fs::create_dir_all(made.join("ext4.trace")).unwrap();
    for (out, more, why) in [
        (Path::new("/proc"), &[][..], "no trace can be saved in /proc: give another directory"),
        (&linked, &[], "is there already"),
        (&made, &["--force"], "is a directory"),
    ] {
        let recorded = recording(out, more, &workload);
        let said = text(&recorded);
        assert_eq!(recorded.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.contains("-o"), "{said}");
    }
    assert!(!ran.exists(), "what it did would be lost");
    assert!(fs::symlink_metadata(linked.join("ext4.trace")).unwrap().is_symlink());
}
