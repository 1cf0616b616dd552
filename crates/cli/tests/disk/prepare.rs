//! What is on a disk before it is recorded: made there, or copied from a directory that exists.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};

use crate::common::{CARELESS, CHECK, mounts, output, plimsoll, recording, text};

#[test]
fn what_setup_makes_survives_every_cut_though_nobody_synced_it() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Nothing of it is synced, and it leaves somebody behind who would go on writing.
    let setup = "for i in 1 2 3; do echo line >> {dir}/schema; done; echo loud; \
                 setsid sh -c 'while true; do echo late >> {dir}/late; done' & sleep 0.2";
    let still =
        "a=$(stat -c %s {dir}/late); sleep 0.2; test $a = $(stat -c %s {dir}/late) || exit 9";
    let recorded = recording(dir.path(), &["--setup", setup], &format!("{still}; {CARELESS}"));
    assert_eq!(recorded.status.code(), Some(0), "{}", text(&recorded));
    let path = dir.path().to_str().unwrap();
    let args = ["disk", "explore", path, "--states", "40", "--check"];
    let check = "test \"$(grep -c '^line$' {dir}/schema)\" = 3";
    let explored = output(&[&args[..], &[check]].concat());
    assert!(text(&explored).contains(" ok, 0 lost"), "{}", text(&explored));
    // What the workload did is not part of it.
    let explored = output(&[&args[..], &[CHECK]].concat());
    assert_eq!(explored.status.code(), Some(1), "{}", text(&explored));
}

#[test]
fn a_setup_that_fails_says_what_it_said_and_leaves_nothing() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("trace");
    for (setup, said) in [
        ("echo no such role; exit 7", "exit status 7: no such role"),
        ("exit 3", "exit status 3: it said nothing"),
        ("no-such-initdb {dir}", "not found"),
        ("kill -SEGV $$", "signal 11"),
    ] {
        let failed = recording(&out, &["--setup", setup], "touch {dir}/begun");
        assert_eq!(failed.status.code(), Some(2), "{}", text(&failed));
        let shown = text(&failed);
        assert!(shown.contains("--setup") && shown.contains(said), "{shown}");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }
    // The others know it, too.
    let run = output(&[
        "disk",
        "run",
        "--setup",
        "echo x > {dir}/f",
        "--",
        "/bin/sh",
        "-c",
        "cat {dir}/f",
    ]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
}

#[test]
fn a_directory_is_copied_as_it_is() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/plain"), "hello").unwrap();
    fs::set_permissions(from.join("sub/plain"), fs::Permissions::from_mode(0o640)).unwrap();
    chown(from.join("sub/plain"), Some(1234), Some(4321)).unwrap();
    fs::hard_link(from.join("sub/plain"), from.join("second")).unwrap();
    symlink("sub/plain", from.join("link")).unwrap();
    symlink("nowhere", from.join("dangling")).unwrap();
    // Larger than the disk, and nearly all of it a hole.
    let sparse = fs::File::create(from.join("sparse")).unwrap();
    sparse.write_all_at(b"end", (1 << 30) - 3).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&from, Some(1234), None).unwrap();
    let there = "cd {dir} && stat -c '%a %u %g %h' sub/plain && stat -c '%a %u' . && readlink link dangling && \
                 test sub/plain -ef second && stat -c '%s' sparse && tail -c 3 sparse && \
                 test $(stat -c '%b' sparse) -lt 100";
    for more in [&[][..], &["--setup", "test $(cat {dir}/second) = hello"]] {
        let args = ["disk", "run", "--from", from.to_str().unwrap()];
        let run = output(&[&args[..], more, &["--", "/bin/sh", "-c", there]].concat());
        assert_eq!(run.status.code(), Some(0), "{}", text(&run));
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(
            said,
            "640 1234 4321 2\n700 1234\nsub/plain\nnowhere\n1073741824\nend",
            "{}",
            text(&run)
        );
    }
    assert_eq!(fs::metadata(&from).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_directory_that_cannot_be_copied_whole_is_an_error() {
    if !mounts() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (from, out) = (dir.path().join("from"), dir.path().join("trace"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), vec![7; 12 << 20]).unwrap();
    let refused = |more: &[&str], said: &str| {
        let failed = recording(&out, more, "true");
        assert_eq!(failed.status.code(), Some(2), "{}", text(&failed));
        assert!(text(&failed).contains(said), "{said}: {}", text(&failed));
        assert!(!out.join("ext4.trace").exists());
    };
    let path = from.to_str().unwrap();
    refused(&["--from", path, "--size", "16MiB"], "--size makes a larger disk");
    refused(&["--from", &format!("{path}/large")], "not a directory");
    refused(&["--from", &format!("{path}/none")], "none");
    // Somebody works there, as long as it is copied and whoever runs first.
    let tools = dir.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(from.join("log"), "x\n").unwrap();
    let cp = format!("#!/bin/sh\n/bin/cp \"$@\" && echo x >> {path}/log\n");
    fs::write(tools.join("cp"), cp).unwrap();
    fs::set_permissions(tools.join("cp"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut search = tools.into_os_string();
    search.push(":");
    search.push(std::env::var_os("PATH").unwrap());
    let args = ["disk", "run", "--from", path, "--", "true"];
    let failed = plimsoll(&args).env("PATH", search).output().unwrap();
    assert_eq!(failed.status.code(), Some(2), "{}", text(&failed));
    assert!(text(&failed).contains("log changed while it was copied"), "{}", text(&failed));
    assert!(plimsoll(&args).status().unwrap().success());
}
