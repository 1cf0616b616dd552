//! What CI reads of a search.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{CARELESS, CHECK, HONEST, mounts, output, plimsoll, record, text};

/// Reads XML of elements, attributes and text: how often each element is there, or why it is not well formed.
fn elements(xml: &str) -> Result<BTreeMap<String, usize>, String> {
    let mut open: Vec<String> = Vec::new();
    let mut found = BTreeMap::new();
    let body =
        xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").ok_or("no declaration")?;
    for (number, piece) in body.split('<').enumerate() {
        let (tag, text) =
            if number == 0 { ("", piece) } else { piece.split_once('>').ok_or(piece)? };
        let is_text = |text: &str| {
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
            let bare =
                entities.iter().fold(text.to_owned(), |text, entity| text.replace(entity, ""));
            !bare.contains(['&', '>']) && !bare.contains(|c: char| c.is_control() && c != '\n')
        };
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> within {open:?}"));
            }
        } else if !tag.is_empty() {
            let name = tag.split_whitespace().next().unwrap_or_default().to_owned();
            if tag.matches('"').count() % 2 != 0 || !is_text(tag) {
                return Err(format!("attributes: {tag}"));
            }
            *found.entry(name.clone()).or_default() += 1;
            open.push(name);
        }
        if !is_text(text) || (open.is_empty() && !text.trim().is_empty()) {
            return Err(format!("text: {text}"));
        }
    }
    if open.is_empty() { Ok(found) } else { Err(format!("never closed: {open:?}")) }
}

#[test]
fn a_report_for_ci_has_a_case_for_each_state_and_is_well_formed() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (traces, file) = (dir.path().join("traces"), dir.path().join("crash.xml"));
    record(&traces, HONEST, &["--fs", "ext4"]);
    record(&traces, CARELESS, &["--fs", "btrfs"]);
    let check = format!("({CHECK}) || {{ printf '<&\"\\033[2J\\001>\\nmore'; exit 1; }}");
    let junit = file.to_str().unwrap();
    let args = ["disk", "explore", traces.to_str().unwrap(), "--states", "30", "--junit", junit];
    let explored = output(&[&args[..], &["--check", &check]].concat());
    assert_eq!(explored.status.code(), Some(1), "{}", text(&explored));
    let said = text(&explored);
    assert!(said.contains("2 traces: 1 FAILED (btrfs), 1 passed (ext4)"), "{said}");
    let xml = fs::read_to_string(&file).unwrap();
    let found = elements(&xml).unwrap_or_else(|wrong| panic!("{wrong}: {xml}"));
    let lines = |name: &str| fs::read_to_string(traces.join(name)).unwrap().lines().count() - 1;
    let (good, all) = (lines("ext4.states.jsonl"), lines("btrfs.states.jsonl"));
    let lost = fs::read_to_string(traces.join("btrfs.states.jsonl")).unwrap();
    let lost = lost.matches("\"verdict\":\"lost\"").count();
    assert!(lost > 0);
    assert_eq!((found["testsuite"], found["testcase"]), (2, good + all), "{xml}");
    assert_eq!(found["failure"], lost, "once each: {xml}");
    assert!(xml.contains(&format!("failures=\"{lost}\"")) && xml.contains("type=\"lost\""));
    assert!(xml.contains("name=\"point=") && xml.contains("\\u001b[2J"), "{xml}");
    // What is in it is always of this run.
    let broken = output(&[&args[..], &["--check", "./no-such-check"]].concat());
    assert_eq!(broken.status.code(), Some(2), "{}", text(&broken));
    assert!(!file.exists(), "an earlier pass must not be taken for one of this run");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nor half of one be left");
    let untested =
        output(&[&args[..], &["--check", "true", "--modes", "torn", "--tear", "65536"]].concat());
    let xml = fs::read_to_string(&file).unwrap_or_else(|_none| panic!("{}", text(&untested)));
    assert!(elements(&xml).is_ok(), "{xml}");
    assert!(xml.contains("name=\"all of ") && xml.contains("type=\"untested\""), "{xml}");
}

#[test]
fn a_report_for_ci_takes_the_place_of_nothing_but_an_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (trace, link, pipe) = (path("ext4.trace"), path("link"), path("pipe"));
    fs::write(&trace, "an hour of recording").unwrap();
    fs::write(path("mine"), "").unwrap();
    std::os::unix::fs::symlink(path("mine"), &link).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let explored = |junit: &Path| {
        let args = ["disk", "explore", trace.to_str().unwrap(), "--check", "true", "--junit"];
        let explored = plimsoll(&args).arg(junit).output().unwrap();
        assert_eq!(explored.status.code(), Some(2), "{}", text(&explored));
        text(&explored)
    };
    for (name, why) in [
        (trace.clone(), "is no report of"),
        (link.clone(), "is not a file"),
        (pipe.clone(), "is not a file"),
        (dir.path().to_owned(), "is not a file"),
        (path("none/crash.xml"), "there is no directory"),
        (path("").join(OsStr::from_bytes(b"\xff.xml")), "is not the name of a file"),
    ] {
        let said = explored(&name);
        assert!(said.contains("--junit") && said.contains(why), "{name:?}: {said}");
    }
    assert_eq!(fs::read_to_string(&trace).unwrap(), "an hour of recording");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
    // As mktemp makes one.
    explored(&path("mine"));
    assert!(!path("mine").exists());
}

#[test]
fn what_is_not_well_formed_is_seen() {
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    assert_eq!(elements(&format!("{head}\n<a b=\"1\"><c>x</c></a>\n")).unwrap().len(), 2);
    for wrong in ["<a>", "<a></b>", "<a b=\"1></a>", "<a>&</a>", "<a>></a>", "<a>\u{1}</a>", "</a>"]
    {
        assert!(elements(&format!("{head}{wrong}")).is_err(), "{wrong}");
    }
}
