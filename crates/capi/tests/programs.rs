//! Real programs in C and C++ against the libraries that cargo built: `tests/c` keeps the
//! header's promises, one by one; the examples of the README run.
#![cfg(unix)]

mod compiler;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Compiles a program against the shared library.
fn shared(language: compiler::Language, name: &str, to: &Path) -> Option<()> {
    let mut compiler = compiler::find(language)?;
    if language == compiler::CPP17 {
        compiler.args(["-x", "c++"]);
    }
    let built = compiler::built();
    compiler.arg(source(name)).args(["-x", "none", "-pthread", "-o"]).arg(to);
    compiler.arg("-L").arg(&built).arg("-lplimsoll");
    compiler::check(compiler.arg(format!("-Wl,-rpath,{}", built.display())));
    Some(())
}

/// The program, with the library that it was linked with: cargo's own path comes before that, where
/// there may be an older one of another build.
fn run(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Every promise in a process and a directory of its own.
fn keeps_all_promises(program: &Path, tmp: &Path, least: usize) {
    let list = compiler::check(run(program).arg("--list"));
    assert!(list.lines().count() >= least, "{list}");
    let mut out = std::io::stdout();
    for promise in list.lines() {
        let dir = tmp.join(promise);
        std::fs::create_dir(&dir).unwrap();
        let said = compiler::check(run(program).arg(promise).arg(&dir));
        writeln!(out, "{promise} ... ok {}", said.trim()).unwrap();
    }
}

#[test]
fn c_keeps_every_promise_of_the_header() {
    keeps_every_promise_of_the_header(compiler::C11);
}

#[test]
fn cpp_keeps_every_promise_of_the_header() {
    keeps_every_promise_of_the_header(compiler::CPP17);
}

fn keeps_every_promise_of_the_header(language: compiler::Language) {
    let tmp = scratch();
    for (name, least) in [("promises", 34), ("crew", 7)] {
        let program = tmp.path().join(name);
        let Some(()) = shared(language, &format!("tests/c/{name}.c"), &program) else { return };
        keeps_all_promises(&program, tmp.path(), least);
    }
}

#[test]
fn the_example_runs_twice_on_one_log() {
    let tmp = scratch();
    let program = tmp.path().join("first");
    let Some(()) = shared(compiler::C11, "examples/first.c", &program) else { return };
    let events = || compiler::check(run(&program).arg(tmp.path().join("events")));
    let first = events();
    assert_eq!(first, "records 1 to 0\n1: one\n2: all of these\n3: or none\n4: four\n");
    let second = events();
    assert!(second.starts_with("records 1 to 4\n5: one\n"), "{second}");
}

#[test]
fn each_tenant_of_the_crew_has_its_log() {
    let tmp = scratch();
    let program = tmp.path().join("crew");
    let Some(()) = shared(compiler::C11, "examples/crew.c", &program) else { return };
    let tenants = || compiler::check(run(&program).arg(tmp.path().join("tenants")));
    assert_eq!(tenants(), "tenant 42: records up to 2 are durable\n");
    assert_eq!(tenants(), "tenant 42: records up to 4 are durable\n");
}

/// The newest static library of this build: its name has a hash, because an rlib is built beside it.
fn archive() -> PathBuf {
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libplimsoll") && name.ends_with(".a") && !name.contains("plimsoll_")
    };
    let listed = std::fs::read_dir(compiler::built()).unwrap();
    let mut found: Vec<_> = listed.map(|entry| entry.unwrap().path()).filter(ours).collect();
    found.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
    found.pop().expect("cargo builds a static library")
}

#[test]
fn the_example_runs_with_the_static_library() {
    let tmp = scratch();
    let program = tmp.path().join("first");
    let Some(mut compiler) = compiler::find(compiler::C11) else { return };
    compiler.arg(source("examples/first.c")).arg(archive());
    let libraries: &[&str] =
        if cfg!(target_vendor = "apple") { &["-liconv"] } else { &["-lpthread", "-ldl", "-lm"] };
    compiler::check(compiler.args(libraries).arg("-o").arg(&program));
    let said = compiler::check(Command::new(&program).arg(tmp.path().join("events")));
    assert!(said.ends_with("4: four\n"), "{said}");
}
