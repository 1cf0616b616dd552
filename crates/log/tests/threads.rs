//! A log whose threads the system does not let start. The test starts itself again with little address
//! space and large stacks, so that there is room for a few threads and no more.
#![cfg(all(target_os = "linux", not(shuttle)))]
#![expect(clippy::print_stdout, reason = "a child says what it saw")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use plimsoll_log::{LOCK, Log, Options};
use plimsoll_sync::OsDir;

const DIR: &str = "PLIMSOLL_THREADS_DIR";
const STACK_BYTES: u64 = 1 << 30;

/// Names of the log's threads that this process has.
fn threads() -> Vec<String> {
    let names = fs::read_dir("/proc/self/task").unwrap().map(|task| {
        let name = fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        name.trim().to_owned()
    });
    names.filter(|name| name.starts_with("log-")).collect()
}

/// What the child does: opens a log and says which thread was refused.
fn open(dir: &Path) {
    match Log::open(dir, Options::default()) {
        Ok((log, _)) => {
            log.append(b"a record").unwrap();
            log.close().unwrap();
            println!("refused: none");
        }
        Err(error) => {
            let plimsoll_log::Error::Disk(plimsoll_sync::Error::Io { path, .. }) = &error else {
                panic!("{error:?}");
            };
            println!("refused: {}", path.display());
        }
    }
    // A thread that was joined is gone from the list soon after.
    let soon = Instant::now() + Duration::from_secs(5);
    while !threads().is_empty() {
        assert!(Instant::now() < soon, "{:?} go on in a directory that is not locked", threads());
        thread::yield_now();
    }
    OsDir::open(dir).unwrap().check_unlocked(LOCK).unwrap();
}

#[test]
fn where_a_thread_cannot_be_started_none_is_left_and_the_log_opens_later() {
    if let Some(dir) = env::var_os(DIR) {
        return open(Path::new(&dir));
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut refused = Vec::new();
    for stacks in 1..8 {
        let child = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -v {} && exec \"$0\" \"$@\"", stacks * (STACK_BYTES >> 10)))
            .arg(env::current_exe().unwrap())
            .args(["--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .env("RUST_MIN_STACK", STACK_BYTES.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
        let name = said.lines().find_map(|line| line.split("refused: ").nth(1));
        refused.push(name.expect("it says so").to_owned());
    }
    println!("{refused:?}");
    for name in ["log-flusher", "log-writer", "log-syncer", "log-preparer", "none"] {
        assert!(refused.iter().any(|refused| refused == name), "{name}: {refused:?}");
    }
}
