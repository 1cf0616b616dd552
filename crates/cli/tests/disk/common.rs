//! Workloads and checks, the program itself, and whether disks can be mounted here.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
/// Ten lines, each synced and then said.
pub(crate) const HONEST: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do echo line >> {dir}/log && sync {dir}/log \
                      && \"$0\" disk mark $i; done";
/// The same, and nobody syncs.
pub(crate) const CARELESS: &str =
    "for i in 1 2 3 4 5 6 7 8 9 10; do echo line >> {dir}/log && \"$0\" disk mark $i; done";
pub(crate) const CHECK: &str = "n=$(cat {dir}/log 2>/dev/null | grep -c '^line$'); \
                     test \"$n\" -ge \"${PLIMSOLL_LAST_MARK:-0}\" || { echo \"$n lines\"; exit 1; }";

pub(crate) fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command.args(args).env_remove("PLIMSOLL_REQUIRE");
    command
}

pub(crate) fn output(args: &[&str]) -> Output {
    plimsoll(args).output().unwrap()
}

pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Whether disks can be mounted here; a loud skip if not.
pub(crate) fn mounts() -> bool {
    let tiers: Value =
        serde_json::from_slice(&output(&["disk", "doctor", "--json"]).stdout).unwrap();
    let ext4 = tiers.as_array().unwrap().iter().find(|tier| tier["tier"] == "ext4").unwrap();
    let works = ext4["state"] == "available";
    if !works {
        let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|tier| tier == "realfs"), "{ext4}");
        eprintln!("SKIPPED ext4: {ext4}");
    }
    works
}

/// Records in `/bin/sh`.
pub(crate) fn recording(out: &Path, more: &[&str], workload: &str) -> Output {
    output(&record_args(out, more, workload))
}

pub(crate) fn record_args<'a>(out: &'a Path, more: &[&'a str], workload: &'a str) -> Vec<&'a str> {
    let mut args = vec!["disk", "record", "-o", out.to_str().unwrap()];
    args.extend(more);
    args.extend(["--", "/bin/sh", "-c", workload, PLIMSOLL]);
    args
}

/// Records what must go well, and say ten marks.
pub(crate) fn record(dir: &Path, workload: &str, more: &[&str]) {
    let recorded = recording(dir, more, workload);
    assert!(recorded.status.success(), "{}", text(&recorded));
    assert!(text(&recorded).contains("10 marks"), "{}", text(&recorded));
}

pub(crate) fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
