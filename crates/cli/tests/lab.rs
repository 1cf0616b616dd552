//! `plimsoll lab` as a user meets it: what it prints where, what it leaves behind, how it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use plimsoll_lab::result::ExperimentResult;
use serde_json::Value;

const EXPERIMENTS: [&str; 10] = [
    "sync-cost",
    "write-during-sync",
    "writeback-stall",
    "many-files",
    "sync-interval",
    "full-flush",
    "group-commit",
    "durable-rename",
    "cache-flush",
    "replicated-commit",
];

/// Held by tests that start brokers, that look where those write in memory, or that take all CPUs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[test]
fn list_names_every_experiment_with_its_question() {
    let listed = ok(&["lab", "list"]);
    for experiment in EXPERIMENTS {
        assert!(listed.contains(experiment), "{listed}");
    }
    let json: Value = serde_json::from_str(&ok(&["lab", "list", "--json"])).unwrap();
    assert_eq!(json[0]["name"], "sync-cost");
    let asked_for: Vec<&Value> = json
        .as_array()
        .unwrap()
        .iter()
        .filter(|experiment| experiment["runs_unasked"] == false)
        .map(|experiment| &experiment["name"])
        .collect();
    assert_eq!(asked_for, ["replicated-commit"], "the others take two minutes together");
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
        &["lab", "clean", "--help"],
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
    let _alone = alone();
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
    // A path is not broken, so only its line may be longer than that.
    let is_long = |line: &&str| line.chars().count() > 80 && !line.contains(dir.to_str().unwrap());
    assert_eq!(said.lines().find(is_long), None, "{said}");
    assert!(said.lines().any(|line| line.starts_with("Writing in ")), "{said}");
    let said = one_line(&said);
    assert!(said.contains(" at a time") && said.contains(dir.to_str().unwrap()), "{said}");
    assert!(said.contains("nothing else is touched"), "{said}");
    assert!(answered.starts_with("Disk "), "{answered}");
    assert!(answered.contains("\nsync-cost: What does one durable write cost"), "{answered}");
    assert!(answered.contains("durable 4 KiB write costs"), "who names it gets the whole answer");
    assert!(!answered.contains("every arm: p50"), "tables are for --details: {answered}");
    assert!(!answered.contains('\x1b'), "no colours where nobody sees them");
    assert_eq!(entries(&dir), [dir.join("out")], "the scratch directory is gone");
    let saved = ["durability-profile.json", "report.html", "sync-cost.json"]
        .map(|name| dir.join("out").join(name));
    assert_eq!(entries(&dir.join("out")), saved);
    let page = answered.lines().find(|line| line.starts_with("Page ")).unwrap();
    assert!(page.ends_with(saved[1].to_str().unwrap()), "{page}");
    assert!(fs::read_to_string(&saved[1]).unwrap().contains("What does one durable write cost"));
    let saved = fs::read_to_string(dir.join("out/sync-cost.json")).unwrap();
    let result = ExperimentResult::parse(&saved).unwrap();
    assert_eq!(result.seed, 7);
    let arm = &result.arms[0];
    assert_eq!((arm.name.as_str(), arm.payload_bytes), ("fsync/overwritten/4KiB", 4096));
    assert!(arm.p50_ns().unwrap() > 0 && result.environment.cpus > 0);
    assert_eq!(arm.summaries[0].n as u64, arm.durable_operations);
}

/// Processes that keep every CPU busy, until they are dropped.
#[cfg(target_os = "linux")]
struct Hogs(Vec<std::process::Child>);

#[cfg(target_os = "linux")]
impl Hogs {
    fn of_all_cpus() -> Self {
        let hog = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        Self((0..2 * cpus).map(hog).collect())
    }
}

#[cfg(target_os = "linux")]
impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            hog.kill().ok();
            hog.wait().ok();
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_machine_kept_busy_is_named_before_and_after_and_stamped_with_its_cause() {
    let _alone = alone();
    let _hogs = Hogs::of_all_cpus();
    let dir = scratch("busy");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB", "--only", "none/append/4KiB"]);
    let output = plimsoll(&args).output().unwrap();
    let (said, answered) = texts(&output);
    let first = one_line(&said);
    assert!(first.starts_with("others use ") && first.contains("; figures will not be"), "{said}");
    assert!(first.contains("; going on, as --now says"), "{said}");
    let saved = fs::read_to_string(dir.join("out/sync-cost.json")).unwrap();
    let result = ExperimentResult::parse(&saved).unwrap();
    let before = result.before.unwrap();
    assert!(before.busy_because.unwrap().starts_with("others use ") && before.waited_ms == 0);
    assert!(before.machine.others_cpu_share.unwrap() > 0.5);
    let noisy = result.warnings.iter().find(|w| w.kind == plimsoll_lab::warning::Kind::Noisy);
    let noisy = noisy.unwrap_or_else(|| panic!("not stamped: {answered}"));
    assert!(noisy.text.contains("CPU"), "{noisy}");
    let answered = one_line(&answered);
    let doubt = "What to doubt The machine was busy when the run began (others use ";
    assert!(answered.contains(doubt), "named before and after: {answered}");
}

/// Others keep it busy for a while, and then leave it in peace.
#[test]
#[cfg(target_os = "linux")]
fn a_busy_machine_is_waited_for_and_a_signal_ends_the_wait() {
    let _alone = alone();
    let dir = scratch("wait");
    let hogs = Hogs::of_all_cpus();
    let mut args = run_args(&dir, &["--only", "fsync/clean"]);
    args.retain(|arg| arg != "--now");
    let mut child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    while !first.contains("--now") {
        assert!(said.read_line(&mut first).unwrap() > 0, "{first}");
    }
    let first = one_line(&first);
    assert!(first.starts_with("others use "), "{first}");
    assert!(first.contains("figures will not be reliable; waiting 30 s, or --now"), "{first}");
    assert!(entries(&dir).is_empty(), "nothing is written while it waits");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(entries(&dir).is_empty(), "{:?}", entries(&dir));
    drop(hogs);
}

#[test]
fn details_print_the_tables_and_say_the_environment_once() {
    let dir = scratch("details");
    let args = run_args(&dir, &["--only", "fsync/overwritten/4KiB", "--details"]);
    let output = plimsoll(&args).output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(answered.starts_with("sync-cost: "), "{answered}");
    assert!(answered.contains("every arm: p50"), "{answered}");
    assert_eq!(answered.matches("seed 7").count(), 1, "{answered}");
}

#[test]
fn a_budget_that_is_too_short_to_measure_every_arm_is_said_before_it_begins() {
    let dir = scratch("budget");
    let (at, out) = (dir.to_str().unwrap(), dir.join("out"));
    let mut args = vec!["lab", "run", "cache-flush", "full-flush", "--dir", at, "--now"];
    args.extend(["--out", out.to_str().unwrap(), "--budget", "1s"]);
    let (said, _) = texts(&plimsoll(&args).output().unwrap());
    let said = one_line(&said);
    let (_, overrun) = said.split_once("This may take ").expect(&said);
    assert!(overrun.contains(" instead of 1s") && overrun.contains("--only"), "{overrun}");
    let named = "others keep the machine busy";
    assert_eq!(overrun.contains(named), said.contains("figures will not be reliable"), "{said}");
    assert!(!said.contains("This takes about"), "{said}");
}

/// Small files were announced with 1.6 MiB, and 8 were written to see how fast the disk is.
#[test]
fn what_is_announced_covers_what_asks_the_disk_for_its_speed() {
    let dir = scratch("announced");
    let (at, out) = (dir.to_str().unwrap(), dir.join("out"));
    let mut args = vec!["lab", "run", "many-files", "--only", "write only", "--dir", at, "--now"];
    args.extend(["--out", out.to_str().unwrap(), "--budget", "1s"]);
    let (said, _) = texts(&plimsoll(&args).output().unwrap());
    let said = one_line(&said);
    assert!(said.contains(", up to 8 MiB at a time,"), "{said}");
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
    let of_one = format!("{saved}/result-v1-sync-cost.json");
    for results in [of_one.as_str(), saved] {
        assert!(ok(&["lab", "report", results, "-o", page.to_str().unwrap()]).is_empty());
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>"));
    let (cost, race) = (html.find("What does one durable"), html.find("Does write(2) wait"));
    assert!(cost.unwrap() < race.unwrap());
    assert_eq!(entries(&dir), [page]);
}

/// Whatever stood there was replaced, also a device.
#[test]
fn a_report_replaces_nothing_but_a_page_of_ours() {
    let dir = scratch("report-over");
    let saved = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/testdata");
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("notes.html"), "<html>precious</html>").unwrap();
    for name in ["notes.html", "folder"] {
        let path = dir.join(name);
        let (said, status) = fails(&["lab", "report", saved, "-o", path.to_str().unwrap()]);
        assert!(status == 2 && said.contains(name) && said.contains("-o"), "{said}");
    }
    assert_eq!(fs::read(dir.join("notes.html")).unwrap(), b"<html>precious</html>");
    assert_eq!(entries(&dir), [dir.join("folder"), dir.join("notes.html")]);
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
    // A busy machine leaves it open, which is no pass either.
    let said = one_line(&texts(&output).1);
    assert!(said.contains("Fit for its use For a limit of 1 ns on p99"), "{said}");
    assert!(said.contains("it is NOT") || said.contains(", on a busy machine: stop"), "{said}");
    // A limit that cannot be decided, on a disk too slow for a p99 in a second, is no pass either.
    let dir = scratch("for-enough");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB", "--for", "1h"]);
    let output = plimsoll(&args).output().unwrap();
    let said = one_line(&texts(&output).1);
    let decided = !said.contains("too few samples");
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

/// The answer of minutes was lost to it.
#[test]
fn a_page_that_cannot_be_saved_fails_the_run_behind_its_answer() {
    let dir = scratch("no-page");
    let args = run_args(&dir, &["--only", "fsync/append/4KiB"]);
    let child = plimsoll(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let child = measuring(child, &dir);
    // No file takes the name of a directory.
    fs::create_dir(dir.join("out/report.html")).unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(answered.contains("\nsync-cost: What does one durable write cost"), "{answered}");
    assert!(!answered.contains("\nPage ") && said.contains("report.html"), "{answered}{said}");
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
    let mut args = vec!["lab", "run", "write-during-sync", "--dir", dir, "--out", out, "--now"];
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
fn ctrl_c_removes_the_scratch_files_and_ends_with_130_and_sigterm_with_143() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let dir = scratch("ctrl-c");
        let child = started(&dir);
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = child.wait_with_output().unwrap();
        let (said, _) = texts(&output);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert!(entries(&dir).is_empty(), "{:?}", entries(&dir));
    }
}

/// It ended the run, so that `nohup plimsoll lab &` did not outlive its terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_hangup_that_was_ignored_stays_ignored() {
    let dir = scratch("nohup");
    let mut args = run_args(&dir, &[]);
    args.extend(["--budget".to_owned(), "60s".to_owned()]);
    let mut sh = Command::new("sh");
    sh.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_plimsoll")]).args(&args);
    let child = sh.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let child = measuring(child, &dir);
    // Where the hangup was heard, the second signal is an order, and the status is that of the first.
    for signal in ["-HUP", "-TERM"] {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", texts(&output).0);
    assert!(entries(&dir).is_empty(), "{:?}", entries(&dir));
}

#[test]
#[cfg(target_os = "linux")]
fn clean_removes_what_a_killed_run_left_and_nothing_of_a_living_one() {
    let dir = scratch("clean");
    let at = dir.to_str().unwrap();
    fs::write(dir.join("precious"), "kept").unwrap();
    let mut killed = started(&dir);
    let cleaned = ok(&["lab", "clean", at]);
    let process = killed.id().to_string();
    assert!(cleaned.contains("left alone: ") && cleaned.contains(&process), "{cleaned}");
    assert!(cleaned.contains("no killed run left anything in "), "{cleaned}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let left = entries(&dir).into_iter().find(|entry| is_scratch(entry)).unwrap();
    let bytes: u64 = entries(&left).iter().map(|file| file.metadata().unwrap().len()).sum();
    let dry: Value =
        serde_json::from_str(&ok(&["lab", "clean", at, "--dry-run", "--json"])).unwrap();
    assert_eq!((&dry["bytes"], &dry["dry_run"]), (&bytes.into(), &true.into()), "{dry}");
    assert_eq!(dry["removed"][0]["path"], left.to_str().unwrap());
    assert!(left.exists(), "a dry run removes nothing");
    // The next run says so.
    let args = run_args(&dir, &["--only", "fsync/clean"]);
    let (said, _) = texts(&plimsoll(&args).output().unwrap());
    let removes = format!("`plimsoll lab clean {at}` removes it");
    assert!(one_line(&said).contains(&removes), "{said}");
    let cleaned = ok(&["lab", "clean", at]);
    assert!(cleaned.starts_with(&format!("removed {} (", left.display())), "{cleaned}");
    assert!(!left.exists() && dir.join("precious").exists());
    let (said, status) = fails(&["lab", "clean", "/no/such/directory"]);
    assert!(status == 2 && said.contains("/no/such/directory"), "{said}");
}

/// "No killed run left anything" was said below what it had left alone.
#[test]
fn clean_that_leaves_something_alone_does_not_say_that_nothing_was_left() {
    let dir = scratch("clean-strange");
    fs::create_dir(dir.join(".plimsoll-lab-1-1")).unwrap();
    for dry in [&["--dry-run"][..], &[]] {
        let args = [&["lab", "clean", dir.to_str().unwrap()], dry].concat();
        let output = plimsoll(&args).output().unwrap();
        let (_, answered) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{answered}");
        assert!(answered.contains("left alone: ") && !answered.contains("no killed"), "{answered}");
    }
}

/// A run that starts brokers, in `dir`.
fn replicated_args(dir: &Path, more: &[&str]) -> Vec<String> {
    let mut args = run_args(dir, &[]);
    args[2] = "replicated-commit".to_owned();
    args.extend(more.iter().map(ToString::to_string));
    args
}

/// What is in memory as a directory, of this test and of others.
fn in_memory() -> Vec<PathBuf> {
    entries(Path::new("/dev/shm")).into_iter().filter(|entry| is_scratch(entry)).collect()
}

#[test]
fn acknowledgements_of_one_broker_and_of_three_are_measured_and_nothing_is_left() {
    let _alone = alone();
    let (dir, before) = (scratch("replicated"), in_memory());
    let only = ["--only", "one-memory/1", "--only", "quorum-disks/64", "--only", "round-trip"];
    let args = replicated_args(&dir, &[&only[..], &["--budget", "1s", "--json"]].concat());
    let output = plimsoll(&args).output().unwrap();
    let (said, answered) = texts(&output);
    assert!(one_line(&said).contains("replicated-commit starts brokers of this program"), "{said}");
    let results: Vec<ExperimentResult> =
        serde_json::from_str(&answered).unwrap_or_else(|error| panic!("{error}: {said}"));
    let arms = &results[0].arms;
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["round-trip", "one-memory/1", "quorum-disks/64"]);
    for arm in arms {
        assert!(arm.valid && arm.summaries[0].n > 1, "{arm:?}");
    }
    assert!(arms[2].values["acknowledged_per_s"] > 0.0 && arms[2].promise == "on stable media");
    assert!(
        results[0].parameters.contains(&"network=loopback".to_owned()),
        "{:?}",
        results[0].parameters
    );
    assert_eq!(entries(&dir), [dir.join("out")]);
    assert_eq!(in_memory(), before);
    assert!(brokers_in(&dir).is_empty());
}

/// Brokers were left behind, as nobody had told them that they were alone.
#[test]
#[cfg(target_os = "linux")]
fn brokers_of_a_run_that_is_stopped_or_killed_end_and_what_they_had_is_removed() {
    let _alone = alone();
    let before = in_memory();
    for (signal, is_stopped) in [("-INT", true), ("-KILL", false)] {
        let dir = scratch("replicated-killed");
        let args = replicated_args(&dir, &["--only", "one-memory/1", "--budget", "60s"]);
        let mut run = plimsoll(&args).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        until("a broker is there", || !brokers_in(&dir).is_empty() && in_memory() != before);
        let sent = Command::new("kill").args([signal, &run.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(run.wait().unwrap().code(), is_stopped.then_some(130));
        until("no broker is there", || brokers_in(&dir).is_empty());
        if !is_stopped {
            assert!(entries(&dir).iter().any(|entry| is_scratch(entry)), "nobody removed it");
            assert!(ok(&["lab", "clean", dir.to_str().unwrap()]).starts_with("removed "));
            // Others may have left something there: only what is new is ours.
            plimsoll(&["lab", "clean", "/dev/shm"]).output().unwrap();
        }
        assert!(!entries(&dir).iter().any(|entry| is_scratch(entry)), "{:?}", entries(&dir));
        assert!(in_memory().iter().all(|entry| before.contains(entry)), "{:?}", in_memory());
    }
}

/// The processes that serve from a directory.
#[cfg(target_os = "linux")]
fn brokers_in(dir: &Path) -> Vec<PathBuf> {
    let serves = |process: &PathBuf| {
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains("serve") && command.contains(dir.to_str().unwrap())
    };
    entries(Path::new("/proc")).into_iter().filter(serves).collect()
}

#[cfg(not(target_os = "linux"))]
fn brokers_in(_dir: &Path) -> Vec<PathBuf> {
    Vec::new()
}

#[cfg(target_os = "linux")]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A run in `dir` that has begun to write there, and goes on for a minute.
#[cfg(target_os = "linux")]
fn started(dir: &Path) -> std::process::Child {
    let mut args = run_args(dir, &[]);
    args.extend(["--budget".to_owned(), "60s".to_owned()]);
    // Whoever runs the tests may ignore a hangup, as under nohup(1), and a child inherits that.
    let mut run = Command::new("env");
    run.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_plimsoll")]).args(&args);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    measuring(child, dir)
}

/// The run, once it writes in `dir`: then it knows that the place for its results is free. On a disk that
/// was full these tests waited for a minute and said nothing of what the run had said at once.
fn measuring(mut run: std::process::Child, dir: &Path) -> std::process::Child {
    let writes = || entries(dir).iter().any(|entry| is_scratch(entry) && entries(entry).len() > 1);
    let begun = Instant::now();
    while !writes() {
        if let Some(status) = run.try_wait().unwrap() {
            panic!("it ended ({status}): {}", texts(&run.wait_with_output().unwrap()).0);
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it never began to write");
        std::thread::yield_now();
    }
    run
}

fn is_scratch(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".plimsoll-lab-")
}

/// A quick run of one experiment in `dir`, results in `dir/out`.
fn run_args(dir: &Path, more: &[&str]) -> Vec<String> {
    let (dir, out) = (dir.to_str().unwrap(), dir.join("out"));
    let mut args = vec!["lab", "run", "sync-cost", "--dir", dir, "--out", out.to_str().unwrap()];
    args.push("--now");
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

/// A text that was broken into lines, as it was before.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
