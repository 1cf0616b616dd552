//! Why a state fails though nothing had to be lost for it: what was synced too late, or never.

use std::path::Path;

use serde_json::Value;

use crate::common::{mounts, output, recording, text};

/// A database that is new as LevelDB makes one: its manifest, then the file that names it, and only that is synced.
const OPENED: &str = "cd {dir} && seq 1000 > MANIFEST-000001 && echo MANIFEST-000001 > CURRENT.tmp \
                      && sync CURRENT.tmp && mv CURRENT.tmp CURRENT && sync . && \"$0\" disk mark open";
/// Opens it.
const OPENS: &str = "cd {dir} && test -z \"$PLIMSOLL_LAST_MARK\" && exit 0; named=$(cat CURRENT) || exit 3; \
                     test \"$(tail -n 1 $named)\" = 1000 || { echo \"no records in $named\"; exit 1; }";

/// Records, and returns the trace and the first state that fails though all that had arrived is there.
fn failing(dir: &Path, workload: &str, check: &str, more: &[&str]) -> (String, String) {
    let recorded = recording(dir, more, workload);
    assert!(recorded.status.success(), "{}", text(&recorded));
    let trace = dir.join("ext4.trace").to_str().unwrap().to_owned();
    let args = ["disk", "explore", &trace, "--check", check, "--modes", "arrived", "--json"];
    let explored = output(&args);
    let lines = String::from_utf8(explored.stdout.clone()).unwrap();
    let findings = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lost = findings.filter(|finding| finding["verdict"] == "lost");
    let lost = lost.min_by_key(|finding| finding["number"].as_u64());
    let lost = lost.unwrap_or_else(|| panic!("{}", text(&explored)));
    (trace, lost["state"].as_str().unwrap().to_owned())
}

/// What `shrink` says, in words and as JSON.
fn shrunk(trace: &str, state: &str, check: &str) -> (String, Value) {
    let args = ["disk", "shrink", trace, state, "--check", check];
    let said = output(&args);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    let json = output(&[&args[..], &["--json"]].concat());
    assert_eq!(json.status.code(), Some(0), "{}", text(&json));
    (text(&said), serde_json::from_slice(&json.stdout).unwrap())
}

#[test]
fn bytes_that_were_never_synced_are_named_with_the_file_that_names_them() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (trace, state) = failing(dir.path(), OPENED, OPENS, &[]);
    let (said, json) = shrunk(&trace, &state, OPENS);
    let named = "CURRENT names MANIFEST-000001, whose bytes were not synced before";
    assert!(said.contains(named) && said.contains("'open' had been said"), "{said}");
    assert!(said.contains("with that: MANIFEST-000001 has 3893 bytes, not 0"), "{said}");
    assert!(said.contains("look at it: plimsoll disk replay"), "{said}");
    assert_eq!(json["lost"], serde_json::json!([]), "nothing had to be lost: {json}");
    assert!(json["said"].as_str().unwrap().contains(named), "{json}");
    assert_eq!((&json["mark"]["text"], &json["fewest"]), (&"open".into(), &true.into()));
    let lacking = json["lacking"].as_array().unwrap();
    let of_manifest = |write: &&Value| write["of"][0]["name"] == "MANIFEST-000001";
    let write = lacking.iter().find(of_manifest).unwrap_or_else(|| panic!("{json}"));
    assert_eq!((&write["in_aftermath"], &write["flushed"]), (&true.into(), &Value::Null));
    let change = &json["changes"][0];
    assert_eq!((&change["name"], &change["bytes"]), (&"MANIFEST-000001".into(), &0.into()));
    assert_eq!(change["named_by"], serde_json::json!(["CURRENT"]), "{json}");
}

#[test]
fn bytes_that_were_synced_after_the_mark_are_said_to_be_late() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let late = format!("{OPENED} && sync MANIFEST-000001 && \"$0\" disk mark late");
    let (trace, state) = failing(dir.path(), &late, OPENS, &[]);
    let (said, json) = shrunk(&trace, &state, OPENS);
    assert!(
        said.contains("CURRENT names MANIFEST-000001, whose bytes were synced only at"),
        "{said}"
    );
    assert_eq!(json["mark"]["text"], "open", "{json}");
    let mark = json["mark"]["event"].as_u64().unwrap();
    let lacking = json["lacking"].as_array().unwrap();
    assert!(!lacking.is_empty(), "{json}");
    for write in lacking {
        assert!(write["event"].as_u64() > Some(mark), "{json}");
        assert!(write["flushed"].as_u64() > write["event"].as_u64(), "{json}");
    }
}

#[test]
fn a_name_that_was_removed_and_not_synced_is_said() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let committed = "cd {dir} && echo undo > db-journal && sync db-journal && sync . && rm db-journal \
                     && \"$0\" disk mark committed";
    let check = "test -z \"$PLIMSOLL_LAST_MARK\" || ! test -e {dir}/db-journal";
    let (trace, state) = failing(dir.path(), committed, check, &[]);
    let (said, json) = shrunk(&trace, &state, check);
    assert!(said.contains("the removal of db-journal was not synced before"), "{said}");
    assert_eq!(json["changes"][0]["bytes_with"], Value::Null, "{json}");
}

/// The program may have asked for every sync: the disk did not do it.
#[test]
fn where_the_disk_lied_nobody_is_said_to_have_synced_too_late() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (trace, state) = failing(dir.path(), OPENED, OPENS, &["--fault", "flush dropped nth=1"]);
    let (said, _) = shrunk(&trace, &state, OPENS);
    assert!(said.contains("whose fault that is is not known"), "{said}");
    assert!(!said.contains("synced"), "{said}");
}

#[test]
fn what_no_later_write_mends_is_not_explained_by_one() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let check = "exit 1";
    let (trace, state) = failing(dir.path(), OPENED, check, &[]);
    let (said, json) = shrunk(&trace, &state, check);
    assert!(
        said.contains("with what came later, too: the check, or the program, is wrong"),
        "{said}"
    );
    assert!(json["tried"].as_u64() > Some(1), "those with later writes, too: {json}");
    assert_eq!((&json["lacking"], &json["said"]), (&serde_json::json!([]), &Value::Null));
}
