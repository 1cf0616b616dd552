//! `plimsoll lab compare` and `plimsoll man` as a user meets them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_lab::result::ExperimentResult;
use plimsoll_lab::warning::{Kind, Warning};
use serde_json::Value;

const GOLDEN: [&str; 2] = [
    include_str!("../../lab/testdata/result-v1-sync-cost.json"),
    include_str!("../../lab/testdata/result-v1-write-during-sync.json"),
];
const SLOWED: &str = "fsync/append/4KiB";

#[test]
fn two_directories_are_paired_by_experiment_and_what_changed_is_said_first() {
    let dir = scratch("directories");
    let (old, new) = (run(&dir, "old", |_| {}), run(&dir, "new", slower));
    let (status, answered, said) = plimsoll(&["lab", "compare", &old, &new]);
    assert_eq!((status, said.as_str()), (0, ""), "{answered}");
    let first = answered.split_inclusive('.').next().unwrap().replace("\n ", "");
    assert!(first.starts_with("1 of ") && first.contains("is slower: fsync/append/4KiB (+200 %)"));
    for part in ["sync-cost: old → new", "write-during-sync: old → new", " ~ ", "Benjamini"] {
        assert!(answered.contains(part), "{part} is not in {answered}");
    }
    assert!(!answered.contains('\x1b'), "no colours where nobody sees them");
}

#[test]
fn a_slowdown_beyond_the_limit_is_exit_1_and_within_it_0() {
    let dir = scratch("fail-over");
    let (old, new) = (run(&dir, "old", |_| {}), run(&dir, "new", slower));
    let status = |old: &str, new: &str, limit: &str| {
        plimsoll(&["lab", "compare", old, new, "--fail-over", limit]).0
    };
    assert_eq!(status(&old, &new, "10%"), 1);
    assert_eq!(status(&old, &new, "250%"), 0);
    assert_eq!(status(&new, &old, "10%"), 0, "faster is no failure");
    assert_eq!(status(&old, &old, "0%"), 0, "the same is no failure");
}

/// A directory of runs is several; with them smaller changes show, and how many they are is said.
#[test]
fn a_directory_of_directories_is_several_runs() {
    let dir = scratch("runs");
    let side = |name: &str, percent: u64| {
        for (number, mood) in [(1, 100), (2, 102), (3, 99)] {
            run(&dir.join(name), &number.to_string(), |result| {
                let factor = if result.experiment == "sync-cost" { percent * mood } else { 10_000 };
                for arm in result.arms.iter_mut().filter(|arm| arm.name == SLOWED) {
                    let summary = &mut arm.summaries[0];
                    summary.p50_ns = summary.p50_ns.map(|ns| ns * factor / 10_000);
                    for ns in &mut summary.block_p50_ns {
                        *ns = *ns * factor / 10_000;
                    }
                }
            });
        }
        dir.join(name).to_str().unwrap().to_owned()
    };
    let (old, new) = (side("old", 100), side("new", 160));
    let (status, answered, said) = plimsoll(&["lab", "compare", &old, &new, "--fail-over", "10%"]);
    assert_eq!((status, said.as_str()), (1, ""), "{answered}");
    assert!(answered.contains("3 runs of OLD, 3 runs of NEW"), "{answered}");
    let first_run = |side: &str| format!("{side}/1");
    let one =
        plimsoll(&["lab", "compare", &first_run(&old), &first_run(&new), "--fail-over", "10%"]);
    assert_eq!(one.0, 0, "one run a side cannot tell 60 % from a mood: {}", one.1);
}

#[test]
fn a_slowdown_on_a_busy_machine_is_undecided_and_exit_0() {
    let dir = scratch("busy");
    let busy = |result: &mut ExperimentResult| {
        slower(result);
        for arm in &mut result.arms {
            arm.warnings.push(Warning::new(Kind::Noisy, "somebody else was here"));
        }
    };
    let (old, new) = (run(&dir, "old", |_| {}), run(&dir, "new", busy));
    let (status, answered, _) = plimsoll(&["lab", "compare", &old, &new, "--fail-over", "10%"]);
    assert_eq!(status, 0, "{answered}");
    assert!(answered.contains("Undecided") && answered.contains(SLOWED), "{answered}");
}

#[test]
fn single_files_compare_and_json_is_for_programs() {
    let dir = scratch("json");
    let (old, new) = (run(&dir, "old", |_| {}), run(&dir, "new", slower));
    let file = |run: &str| format!("{run}/sync-cost.json");
    let args = ["lab", "compare", &file(&old), &file(&new), "--json", "--fail-over", "10%"];
    let (status, answered, _) = plimsoll(&args);
    assert_eq!(status, 1, "{answered}");
    let json: Value = serde_json::from_str(&answered).unwrap();
    assert_eq!((&json["format"], &json["version"]), (&"plimsoll-lab-comparison".into(), &2.into()));
    let rows = json["rows"].as_array().unwrap();
    let verdict = |arm: &str| &rows.iter().find(|row| row["arm"] == arm).unwrap()["verdict"];
    assert_eq!((verdict(SLOWED), verdict("fsync/clean")), (&"slower".into(), &"same".into()));
    assert!(rows.iter().all(|row| row["experiment"] == "sync-cost"));
}

#[test]
fn a_limit_without_its_unit_is_exit_2_with_the_right_one() {
    for wrong in ["10", "-10%", "ten%"] {
        let limit = format!("--fail-over={wrong}");
        let (status, answered, said) = plimsoll(&["lab", "compare", "old", "new", &limit]);
        assert_eq!((status, answered.as_str()), (2, ""));
        assert!(said.contains("10%") && said.contains("--fail-over"), "{said}");
    }
}

#[test]
fn what_cannot_be_read_or_compared_is_named_with_exit_2() {
    let dir = scratch("unreadable");
    let old = run(&dir, "old", |_| {});
    let refused = |new: &str| {
        let (status, answered, said) = plimsoll(&["lab", "compare", &old, new]);
        assert_eq!((status, answered.as_str()), (2, ""), "{said}");
        said
    };
    assert!(refused("/no/such/result.json").contains("/no/such/result.json"));
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cut = write("cut.json", &GOLDEN[0][..3000]);
    assert!(refused(&cut).contains("cut.json") && refused(&cut).contains("cut off"));
    let foreign = write("foreign.json", r#"{"format": "fio", "version": 3}"#);
    assert!(refused(&foreign).contains("fio"));
    let newer = write("newer.json", r#"{"format": "plimsoll-lab-result", "version": 2}"#);
    assert!(refused(&newer).contains("version 2"));
    let empty = scratch("unreadable/empty");
    assert!(refused(empty.to_str().unwrap()).contains("no results in"));
    let (status, _, said) = plimsoll(&[
        "lab",
        "compare",
        &format!("{old}/sync-cost.json"),
        &format!("{old}/write-during-sync.json"),
    ]);
    assert_eq!(status, 2);
    assert!(said.contains("nothing to compare"), "{said}");
}

#[test]
fn every_command_has_a_man_page() {
    let dir = scratch("man").join("man1");
    let (status, _, said) = plimsoll(&["man", dir.to_str().unwrap()]);
    assert_eq!(status, 0, "{said}");
    let mut pages: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    for page in [
        "plimsoll.1",
        "plimsoll-completions.1",
        "plimsoll-lab.1",
        "plimsoll-lab-compare.1",
        "plimsoll-lab-explain.1",
        "plimsoll-lab-list.1",
        "plimsoll-lab-run.1",
        "plimsoll-man.1",
    ] {
        assert!(pages.iter().any(|made| made == page), "{page} is not among {pages:?}");
    }
    assert!(pages.iter().all(|page| !page.contains("help")), "{pages:?}");
    let page = fs::read_to_string(dir.join("plimsoll-lab-compare.1")).unwrap();
    for part in [".TH plimsoll-lab-compare 1", "fail\\-over", ".SH EXAMPLES", ".SH \"EXIT STATUS\""]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn man_pages_that_cannot_be_written_are_exit_2() {
    let file = scratch("man-file").join("file");
    fs::write(&file, "").unwrap();
    let (status, _, said) = plimsoll(&["man", file.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(said.contains(file.to_str().unwrap()), "{said}");
}

#[test]
fn the_new_commands_have_examples_in_their_help() {
    for command in [&["lab", "compare", "--help"][..], &["man", "--help"]] {
        let (status, help, _) = plimsoll(command);
        assert_eq!(status, 0);
        assert!(help.contains("Examples:") && help.contains("  plimsoll "), "{help}");
    }
}

/// The arm takes three times as long, in every block.
fn slower(result: &mut ExperimentResult) {
    for arm in result.arms.iter_mut().filter(|arm| arm.name == SLOWED) {
        let summary = &mut arm.summaries[0];
        summary.p50_ns = summary.p50_ns.map(|ns| ns * 3);
        for ns in &mut summary.block_p50_ns {
            *ns *= 3;
        }
    }
}

/// A directory of results of a machine left in peace, changed so.
fn run(dir: &Path, name: &str, change: impl Fn(&mut ExperimentResult)) -> String {
    let path = dir.join(name);
    fs::create_dir_all(&path).unwrap();
    for json in GOLDEN {
        let mut result = ExperimentResult::parse(json).unwrap();
        for arm in &mut result.arms {
            arm.warnings.clear();
        }
        change(&mut result);
        result.save(&path).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{name}"));
    fs::remove_dir_all(&path).ok();
    fs::create_dir_all(&path).unwrap();
    path
}

/// Exit status, stdout, stderr.
fn plimsoll(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
