//! Saved results stay readable, and what is not one is named and never believed.
//!
//! `testdata/result-v1-*.json` are real results, cut to a few arms. They are never changed: a
//! version of the format that cannot read them any more has broken its promise.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_lab::compare::{Verdict, compare};
use plimsoll_lab::report::text::{self, Style};
use plimsoll_lab::result::{ExperimentResult, FILE_BYTES_MAX, FORMAT, LoadError, VERSION, load};

const SYNC_COST: &str = include_str!("../testdata/result-v1-sync-cost.json");
const WRITE_DURING_SYNC: &str = include_str!("../testdata/result-v1-write-during-sync.json");

#[test]
fn reads_results_of_version_1() {
    let [cost, race] = golden();
    assert_eq!((cost.experiment.as_str(), cost.version), ("sync-cost", 1));
    let names: Vec<&str> = cost.arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(names, ["fsync/clean", "fsync/append/4KiB", "msync/zero-filled/4KiB"]);
    let arm = &cost.arms[1];
    assert!(arm.valid && arm.p50_ns().is_some() && arm.attribution.is_some());
    let summary = &arm.summaries[0];
    assert!(summary.p99_ci95_ns.is_some() && !summary.histogram.is_empty());
    assert_eq!(summary.block_p50_ns.len(), arm.blocks);
    assert!(arm.per_operation.unwrap().flushes > 0.9);
    assert_eq!(cost.environment.mount.as_ref().unwrap().filesystem, "ext4");
    assert_eq!(cost.environment.devices[0].name, "vda");
    assert_eq!(race.experiment, "write-during-sync");
    let race = &race.arms[1];
    assert_eq!(race.summaries.len(), 4);
    assert!(!race.series.as_ref().unwrap().syncs.is_empty());
}

#[test]
fn reads_what_this_version_writes() {
    let dir = tempfile::tempdir().unwrap();
    let [cost, race] = golden();
    cost.save(dir.path()).unwrap();
    race.save(dir.path()).unwrap();
    assert_eq!(load(dir.path()).unwrap(), [cost, race]);
}

#[test]
fn reads_the_array_that_json_prints() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "all.json", format!("[{SYNC_COST},\n{WRITE_DURING_SYNC}]"));
    assert_eq!(load(&path).unwrap(), golden());
}

#[test]
fn a_directory_skips_other_formats_but_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    file(dir.path(), "sync-cost.json", SYNC_COST);
    file(dir.path(), "profile.json", r#"{"format": "plimsoll-something-else", "version": 3}"#);
    file(dir.path(), "notes.txt", "not asked for");
    assert_eq!(load(dir.path()).unwrap().len(), 1);
    let damaged = file(dir.path(), "zz.json", &SYNC_COST[..SYNC_COST.len() / 2]);
    let error = load(dir.path()).unwrap_err().to_string();
    assert!(error.contains(damaged.to_str().unwrap()), "{error}");
}

#[test]
fn a_file_cut_off_anywhere_is_named_and_refused() {
    for whole in [SYNC_COST, WRITE_DURING_SYNC] {
        let whole = whole.trim_end();
        for end in (0..whole.len()).step_by(100).filter(|&end| whole.is_char_boundary(end)) {
            let error = refused(&whole[..end]);
            let said = if end == 0 { "empty" } else { "cut off" };
            assert!(error.contains(said), "{end}: {error}");
        }
    }
}

/// A flipped bit in a figure cannot be known; anything else must be, and nothing may panic: not
/// reading, not what is done with what was read.
#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let good = golden();
    for (whole, good) in [SYNC_COST, WRITE_DURING_SYNC].into_iter().zip(&good) {
        let mut refused = 0;
        for place in (0..whole.len()).step_by(3) {
            let mut bytes = whole.as_bytes().to_vec();
            bytes[place] ^= 1 << (place % 8);
            let Ok(json) = String::from_utf8(bytes) else { continue };
            match ExperimentResult::parse(&json) {
                Err(_) => refused += 1,
                Ok(result) => {
                    assert!(!text::render(&result, Style::default()).is_empty());
                    compare(&[vec![good.clone()]], &[vec![result]], Some(0.1)).ok();
                }
            }
        }
        assert!(refused > whole.len() / 9, "only {refused} of {}", whole.len());
    }
}

#[test]
fn what_is_no_result_is_told_apart() {
    let newer = format!(r#"{{"format":"{FORMAT}","version":{}}}"#, VERSION + 1);
    assert!(refused(&newer).contains("version 2") && refused(&newer).contains("newer plimsoll"));
    let much_newer = format!(r#"{{"format":"{FORMAT}","version":99999999999999999999}}"#);
    assert!(refused(&much_newer).contains("newer plimsoll"));
    assert!(
        refused(r#"{"format":"fio","version":1}"#)
            .contains(r#"not a result of plimsoll lab but "fio""#)
    );
    assert!(refused(r#"{"results":[]}"#).contains("does not say its format"));
    assert!(refused("").contains("empty"));
    assert!(refused(" \n").contains("empty"));
    assert!(refused("[]").contains("no result in it"));
    for foreign in ["null", "7", "\"text\"", "{}", "hello", "\u{0}\u{0}", "[1]", "[[]]"] {
        assert!(refused(foreign).contains("not "), "{foreign}: {}", refused(foreign));
    }
    let dir = tempfile::tempdir().unwrap();
    let binary = file(dir.path(), "binary.json", [0xff, 0xfe, 0x00, 0x80]);
    assert!(load(&binary).unwrap_err().to_string().contains("utf-8"));
}

#[test]
fn numbers_too_large_are_refused() {
    let seed = format!("\"seed\": {}", golden()[0].seed);
    assert!(SYNC_COST.contains(&seed));
    for huge in ["1e999", "-1", "1.5", "99999999999999999999999999", "true", "\"7\""] {
        let error = refused(&SYNC_COST.replace(&seed, &format!("\"seed\": {huge}")));
        assert!(error.contains("damaged"), "{huge}: {error}");
    }
}

#[test]
fn deep_nesting_is_refused_without_running_out_of_stack() {
    let deep = 1_000_000;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        refused(&format!("{}1{}", open.repeat(deep), close.repeat(deep)));
        refused(&open.repeat(deep));
        let hidden = format!("{}1{}", open.repeat(deep), close.repeat(deep));
        refused(&format!(r#"{{"format":"{FORMAT}","version":1,"x":{hidden}}}"#));
    }
}

#[test]
fn what_the_program_relies_on_is_checked() {
    let [mut result, _] = golden();
    result.arms[0].summaries.clear();
    assert!(refused(&json(&result)).contains("no measure"));
    let [mut result, _] = golden();
    result.arms[1].name = result.arms[0].name.clone();
    assert!(refused(&json(&result)).contains("twice"));
    let [mut result, _] = golden();
    result.arms[0].name = "\u{1b}[2Jfsync".to_owned();
    let error = refused(&json(&result));
    assert!(error.contains("control characters") && !error.contains('\u{1b}'), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "huge.json", "{");
    fs::File::options().write(true).open(&path).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let error = load(&path).unwrap_err();
    assert!(matches!(error, LoadError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("256 MiB") && error.to_string().contains("huge.json"));
}

#[test]
fn a_missing_file_and_an_empty_directory_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(&dir.path().join("nowhere.json")).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }) && error.to_string().contains("nowhere.json"));
    let error = load(dir.path()).unwrap_err();
    assert!(matches!(error, LoadError::NoResults { .. }), "{error}");
    assert!(error.to_string().contains(dir.path().to_str().unwrap()));
}

#[test]
fn a_run_compared_with_itself_has_not_changed() {
    let comparison = compare(&[golden().into()], &[golden().into()], Some(0.0)).unwrap();
    assert!(comparison.conditions.is_empty() && comparison.failed().next().is_none());
    let compared = comparison.rows.iter().filter(|row| row.p.is_some());
    assert!(compared.clone().count() >= 3);
    assert!(compared.clone().all(|row| row.verdict == Verdict::Same));
}

fn golden() -> [ExperimentResult; 2] {
    [SYNC_COST, WRITE_DURING_SYNC].map(|json| ExperimentResult::parse(json).unwrap())
}

fn json(result: &ExperimentResult) -> String {
    serde_json::to_string(result).unwrap()
}

/// What is said of a file with this text, which must name the file.
fn refused(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "some.json", text);
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    error
}

fn file(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}
