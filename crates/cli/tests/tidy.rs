//! The rules of the house, as tests: which crate may use which, and where the unsafe code is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate and what it may use of ours. Arrows point down only; see ARCHITECTURE.md.
const ALLOWED: [(&str, &[&str]); 8] = [
    // In the place of a library that only the engine uses.
    ("base2histogram", &[]),
    ("plimsoll-sync", &[]),
    ("plimsoll-log", &["plimsoll-sync"]),
    ("plimsoll-simdisk", &["plimsoll-sync"]),
    ("plimsoll-capi", &["plimsoll-log", "plimsoll-sync"]),
    ("plimsoll-server", &["plimsoll-log", "plimsoll-sync"]),
    ("plimsoll-lab", &["plimsoll-server", "plimsoll-sync"]),
    (
        "plimsoll",
        &["plimsoll-lab", "plimsoll-log", "plimsoll-server", "plimsoll-simdisk", "plimsoll-sync"],
    ),
];

/// What C calls, and what it passes.
const DOOR_TO_C: [&str; 2] = ["crates/capi/src/boundary.rs", "crates/capi/src/entry"];

/// Where it is said that disks are mounted on Linux only.
const MOUNTED: [&str; 2] = ["crates/simdisk/src/lib.rs", "crates/cli/src/commands/disk/mod.rs"];

#[test]
fn crates_depend_downwards_only() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let allowed: BTreeMap<_, _> = ALLOWED.into_iter().collect();
    assert_eq!(
        packages.len(),
        allowed.len(),
        "a new crate needs a line here and in ARCHITECTURE.md"
    );
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let may_use = allowed.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            // A crate may test itself with its own features, and any with the simulated disk.
            let for_tests = dependency["kind"] == "dev"
                && (used == name || ["plimsoll-sync", "plimsoll-simdisk"].contains(&used));
            let ours = used.starts_with("plimsoll");
            assert!(
                !ours || for_tests || may_use.contains(&used),
                "{name} must not depend on {used}: arrows point down"
            );
        }
    }
}

#[test]
fn unsafe_code_and_systems_are_behind_the_one_door() {
    for (path, text) in sources() {
        // The door to the disk, and the one to C.
        let inside = path.starts_with("crates/sync/src/os")
            || DOOR_TO_C.iter().any(|door| path.starts_with(door));
        let tests = path.components().any(|part| part.as_os_str() == "tests");
        let opens_unsafe = text.contains(concat!("expect(unsafe", "_code"));
        assert!(
            inside || !opens_unsafe,
            "{}: unsafe code belongs in sync/src/os or {DOOR_TO_C:?}",
            path.display()
        );
        // What differs between systems in methods and seams is said in two places of sync.
        let seam = path.starts_with("crates/sync/src");
        let asks_system = text.contains(concat!("cfg(target", "_os"))
            || text.contains(concat!("not(target", "_os"))
            || (text.contains(concat!("cfg", "(all(")) && text.contains(concat!("target", "_os")));
        let mounts = MOUNTED.iter().any(|file| path == Path::new(file));
        assert!(
            seam || tests || mounts || !asks_system || only_in_tests(&text),
            "{}: what a system can do belongs in sync",
            path.display()
        );
    }
}

#[test]
fn the_lab_uses_the_servers_client_and_its_words_only() {
    let mut used = 0;
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with("crates/lab")) {
        for (_, room) in
            text.match_indices("plimsoll_server::").map(|(at, of)| text[at..].split_at(of.len()))
        {
            used += 1;
            let allowed = ["client::", "kafka::"].iter().any(|allowed| room.starts_with(allowed));
            assert!(
                allowed,
                "{}: the lab knows no more of a broker than its clients",
                path.display()
            );
        }
    }
    assert!(used > 0, "the lab does not use the server any more: take the arrow away");
}

#[test]
fn every_source_file_says_what_it_is() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} has no head", path.display());
    }
}

/// Whether the first question about the system comes after the tests begin.
fn only_in_tests(text: &str) -> bool {
    let tests = text.find("mod tests").unwrap_or(usize::MAX);
    text.find(concat!("target", "_os")).is_none_or(|at| at > tests)
}

fn sources() -> Vec<(PathBuf, String)> {
    let listed =
        Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let read = |name: &str| (PathBuf::from(name), fs::read_to_string(root().join(name)).unwrap());
    let sources: Vec<_> = listed.lines().map(read).collect();
    assert!(sources.len() > 20, "git does not list the sources");
    sources
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
