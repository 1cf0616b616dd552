//! `plimsoll lab` as a user meets it: what it prints where, what it leaves behind, how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use plimsoll_lab::result::ExperimentResult;
use serde_json::Value;

const EXPERIMENTS: [&str; 9] = [
    "sync-cost",
    "write-during-sync",
    "writeback-stall",
    "many-files",
    "sync-interval",
    "full-flush",
    "group-commit",
    "durable-rename",
    "cache-flush",
];

#[test]
fn list_names_every_experiment_with_its_question() {
    let listed = ok(&["lab", "list"]);
    for experiment in EXPERIMENTS {
        assert!(listed.contains(experiment), "{listed}");
    }
    let json: Value = serde_json::from_str(&ok(&["lab", "list", "--json"])).unwrap();
    assert_eq!(json[0]["name"], "sync-cost");
}

#[test]
fn explain_says_the_source_and_how_it_can_mislead() {
    for experiment in EXPERIMENTS {
        let explained = ok(&["lab", "explain", experiment]);
        assert!(explained.contains("Source: "), "{explained}");
        assert!(explained.contains("mislead"), "{explained}");
    }
}

#[test]
fn every_help_has_examples() {
    let commands = [
        &["--help"][..],
        &["lab", "--help"],
        &["lab", "run", "--help"],
        &["lab", "report", "--help"],
    ];
    for command in commands {
        let help = ok(command);
        assert!(help.contains("Examples:") && help.contains("plimsoll lab"), "{help}");
    }
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(ok(&["completions", shell]).contains("plimsoll"), "{shell}");
    }
}

#[test]
fn an_unknown_name_gets_the_nearest_one_and_exit_2() {
    let (said, status) = fails(&["lab", "run", "sync-costs"]);
    assert_eq!(status, 2);
    assert!(said.contains("sync-cost"), "{said}");
    let (said, status) = fails(&["lab", "run", "sync-cost", "--profil", "full"]);
    assert_eq!(status, 2);
    assert!(said.contains("--profile"), "{said}");
    let (said, status) = fails(&["lab", "--budget", "10"]);
    assert_eq!(status, 2);
    assert!(said.contains("60s"), "{said}");
}

#[test]
fn a_missing_directory_is_refused_with_its_cure_and_exit_2() {
    let (said, status) = fails(&["lab", "--dir", "/no/such/directory"]);
    assert_eq!(status, 2);
    assert!(said.contains("/no/such/directory") && said.contains("--dir"), "{said}");
    let file = scratch("a-file").join("file");
    fs::write(&file, "").unwrap();
    let (said, status) = fails(&["lab", "--dir", file.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(said.contains("not a directory"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_directory_in_memory_is_refused_because_nothing_is_durable_there() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return;
    }
    // Others use it as well.
    let ours = || entries(memory).into_iter().filter(|entry| is_scratch(entry)).count();
    let before = ours();
    let (said, status) = fails(&["lab", "--dir", "/dev/shm"]);
    assert_eq!(status, 2);
    assert!(said.contains("tmpfs") && said.contains("nothing there is durable"), "{said}");
    assert!(said.contains("--dir"), "{said}");
    assert_eq!(ours(), before);
}

#[test]
fn a_run_says_first_what_it_writes_where_then_answers_and_leaves_only_results() {
    let dir = scratch("run");
    let output = plimsoll(&run_args(&dir, &["--only", "fsync/overwritten/4KiB"])).output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("Writing in ")
            && first.contains(" at a time")
            && first.contains(dir.to_str().unwrap()),
        "{first}"
    );
    assert!(first.contains("nothing else is touched"), "{first}");
    assert!(answered.starts_with("sync-cost: "), "{answered}");
    assert!(answered.contains("A durable 4 KiB write costs"), "{answered}");
    assert!(!answered.contains('\x1b'), "no colours where nobody sees them");
    assert_eq!(entries(&dir), [dir.join("out")], "the scratch directory is gone");
    let saved =
        ["durability-profile.json", "sync-cost.json"].map(|name| dir.join("out").join(name));
    assert_eq!(entries(&dir.join("out")), saved);
    assert!(answered.contains("In short"), "{answered}");
    let saved = fs::read_to_string(dir.join("out/sync-cost.json")).unwrap();
    let result = ExperimentResult::parse(&saved).unwrap();
    assert_eq!(result.seed, 7);
    let arm = &result.arms[0];
    assert_eq!((arm.name.as_str(), arm.payload_bytes), ("fsync/overwritten/4KiB", 4096));
    assert!(arm.p50_ns().unwrap() > 0 && result.environment.cpus > 0);
    assert_eq!(arm.summaries[0].n as u64, arm.durable_operations);
}

#[test]
#[cfg(target_os = "linux")]
fn a_machine_kept_busy_is_stamped_noisy_with_its_cause() {
    struct Hogs(Vec<std::process::Child>);
    impl Drop for Hogs {
        fn drop(&mut self) {
            for hog in &mut self.0 {
                hog.kill().ok();
                hog.wait().ok();
            }
        }
    }
    let hog = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let _hogs = Hogs((0..2 * cpus).map(hog).collect());
    let dir = scratch("busy");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB", "--only", "none/append/4KiB"]);
    let output = plimsoll(&args).output().unwrap();
    let (_, answered) = texts(&output);
    let saved = fs::read_to_string(dir.join("out/sync-cost.json")).unwrap();
    let result = ExperimentResult::parse(&saved).unwrap();
    let noisy = result.warnings.iter().find(|w| w.kind == plimsoll_lab::warning::Kind::Noisy);
    let noisy = noisy.unwrap_or_else(|| panic!("not stamped: {answered}"));
    assert!(noisy.text.contains("CPU"), "{noisy}");
    assert!(answered.contains("busy machine"), "{answered}");
}

#[test]
fn json_is_the_only_thing_on_stdout_and_equals_what_is_saved() {
    let dir = scratch("json");
    let args = run_args(&dir, &["--only", "fsync/clean", "--json"]);
    let output = plimsoll(&args).output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let printed: Value = serde_json::from_str(&answered).unwrap();
    let saved = fs::read_to_string(dir.join("out/sync-cost.json")).unwrap();
    assert_eq!(printed[0], serde_json::from_str::<Value>(&saved).unwrap());
}

#[test]
fn a_report_is_one_page_of_the_results_and_replaces_the_one_before() {
    let dir = scratch("report");
    let saved = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/testdata");
    let page = dir.join("page.html");
    fs::write(&page, "before").unwrap();
    assert!(ok(&["lab", "report", saved, "-o", page.to_str().unwrap()]).is_empty());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>"));
    let (cost, race) = (html.find("What does one durable"), html.find("Does write(2) wait"));
    assert!(cost.unwrap() < race.unwrap());
    assert_eq!(entries(&dir), [page]);
}

#[test]
fn a_report_of_what_is_no_result_names_the_file_and_is_exit_2() {
    let dir = scratch("no-report");
    let file = dir.join("torn.json");
    fs::write(&file, "{\"format\":\"plimsoll-lab-res").unwrap();
    let page = dir.join("page.html");
    for path in [&file, &dir, &dir.join("nowhere")] {
        let (path, page) = (path.to_str().unwrap(), page.to_str().unwrap());
        let (said, status) = fails(&["lab", "report", path, "-o", page]);
        assert_eq!(status, 2, "{said}");
        assert!(said.contains("torn.json") || said.contains("nowhere"), "{said}");
    }
    assert!(!page.exists());
}

#[test]
fn an_arm_that_nobody_has_is_exit_2() {
    let dir = scratch("no-arm");
    let output = plimsoll(&run_args(&dir, &["--only", "fsink"])).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let (said, _) = texts(&output);
    assert!(said.contains("fsink") && said.contains("fsync/"), "the nearest names: {said}");
    assert!(entries(&dir).is_empty(), "found out before anything is written");
}

#[test]
fn a_disk_that_is_too_slow_for_its_use_is_exit_1() {
    let dir = scratch("for");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB", "--for", "1ns"]);
    let output = plimsoll(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("it is NOT"), "{}", texts(&output).1);
    // A limit that cannot be decided, on a disk too slow for a p99 in a second, is no pass either.
    let dir = scratch("for-enough");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB", "--for", "1h"]);
    let output = plimsoll(&args).output().unwrap();
    let decided = !texts(&output).1.contains("too few samples");
    assert_eq!(output.status.code(), Some(if decided { 0 } else { 1 }));
    let (said, status) = fails(&["lab", "--for", "mysql"]);
    assert!(status == 2 && said.contains("etcd"), "{said}");
}

#[test]
fn results_of_another_run_are_not_overwritten() {
    let dir = scratch("twice");
    fs::create_dir(dir.join("out")).unwrap();
    fs::write(dir.join("out/sync-cost.json"), "precious").unwrap();
    let output = plimsoll(&run_args(&dir, &["--only", "fsync/clean"])).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(entries(&dir), [dir.join("out")]);
    assert_eq!(fs::read(dir.join("out/sync-cost.json")).unwrap(), b"precious");
}

/// It once ended the process in the middle, with status 0 and the scratch directory left behind.
#[test]
fn a_reader_that_goes_away_ends_the_run_and_leaves_nothing() {
    let dir = scratch("pipe");
    let args = run_args(&dir, &["--only", "fsync/clean"]);
    let mut child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).0);
    assert_eq!(entries(&dir), [dir.join("out")]);
}

#[test]
#[cfg(target_os = "linux")]
fn an_answer_that_cannot_be_written_is_an_error() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = scratch("full");
    let args = run_args(&dir, &["--only", "fsync/clean", "--json"]);
    for args in [args, vec!["lab".to_owned(), "list".to_owned()]] {
        let output = plimsoll(&args).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(texts(&output).0.contains("No space left"), "{}", texts(&output).0);
    }
    assert_eq!(entries(&dir), [dir.join("out")]);
}

#[test]
fn a_race_of_writes_and_syncs_keeps_its_series() {
    let dir = scratch("race");
    let out = dir.join("out");
    let (dir, out) = (dir.to_str().unwrap(), out.to_str().unwrap());
    let only = ["--only", "fsync, same descriptor/append", "--only", "no sync/append"];
    let mut args = vec!["lab", "run", "write-during-sync", "--dir", dir, "--out", out];
    args.extend(["--budget", "2s", "--json"]);
    args.extend(only);
    let results: Vec<ExperimentResult> = serde_json::from_str(&ok(&args)).unwrap();
    let arm = |name: &str| results[0].arms.iter().find(|arm| arm.name == name).unwrap().clone();
    let race = arm("fsync, same descriptor/append");
    let series = race.series.unwrap();
    assert_eq!(series.syncs.len() as u64, race.durable_operations);
    assert!(series.syncs.len() > 10 && series.writes.len() > 10);
    let n: Vec<usize> = race.summaries.iter().map(|summary| summary.n).collect();
    assert_eq!(n[0] + n[1], n[3], "each write is either free or in flight");
    let control = arm("no sync/append");
    assert_eq!((control.durable_operations, control.summaries[1].n), (0, 0));
    assert_eq!(race.values["syncs"].to_string(), race.durable_operations.to_string());
}

#[test]
#[cfg(target_os = "linux")]
fn ctrl_c_removes_the_scratch_files_and_ends_with_130() {
    let dir = scratch("ctrl-c");
    let mut args = run_args(&dir, &[]);
    args.extend(["--budget".to_owned(), "60s".to_owned()]);
    let child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| {
        entries(&dir).iter().any(|entry| is_scratch(entry) && !entries(entry).is_empty())
    });
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let (said, _) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(entries(&dir).is_empty(), "{:?}", entries(&dir));
}

fn is_scratch(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".plimsoll-lab-")
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::yield_now();
    }
}

/// A quick run of one experiment in `dir`, results in `dir/out`.
fn run_args(dir: &Path, more: &[&str]) -> Vec<String> {
    let (dir, out) = (dir.to_str().unwrap(), dir.join("out"));
    let mut args = vec!["lab", "run", "sync-cost", "--dir", dir, "--out", out.to_str().unwrap()];
    if !more.is_empty() {
        args.extend(["--budget", "1s", "--seed", "7"]);
    }
    args.extend(more);
    args.into_iter().map(str::to_owned).collect()
}

/// An empty directory on the disk that the project is built on.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-{name}"));
    fs::remove_dir_all(&path).ok();
    fs::create_dir_all(&path).unwrap();
    fs::canonicalize(path).unwrap()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn plimsoll<A: AsRef<std::ffi::OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args);
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stderr), text(&output.stdout))
}

fn ok(args: &[&str]) -> String {
    let output = plimsoll(args).output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    answered
}

fn fails(args: &[&str]) -> (String, i32) {
    let output = plimsoll(args).output().unwrap();
    let (said, answered) = texts(&output);
    assert!(answered.is_empty(), "an error is not an answer: {answered}");
    (said, output.status.code().unwrap())
}
