//! The C and C++ compilers of this machine, and the libraries that cargo just built.
#![allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "each test uses a part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A language: its name, the variable and the program that compile it, its flag.
pub type Language = (&'static str, &'static str, &'static str, &'static str);

pub const C11: Language = ("C", "CC", "cc", "-std=c11");
pub const CPP17: Language = ("C++", "CXX", "c++", "-std=c++17");

/// A compiler that takes no warning, or nothing, loudly, where there is none. With `c` in
/// PLIMSOLL_REQUIRE that is a failure.
pub fn find((name, variable, program, standard): Language) -> Option<Command> {
    let program = std::env::var(variable).unwrap_or_else(|_| program.to_owned());
    if !matches!(Command::new(&program).arg("--version").output(), Ok(found) if found.status.success())
    {
        let required = std::env::var("PLIMSOLL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "c"), "no {name} compiler: {program}");
        let mut out = std::io::stdout();
        writeln!(out, "SKIPPED: no {name} compiler here ({program})").unwrap();
        return None;
    }
    let mut compiler = Command::new(program);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    compiler
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"])
        .arg("-I")
        .arg(include);
    Some(compiler)
}

/// Runs it; what it says goes into the failure.
pub fn check(command: &mut Command) -> String {
    let done = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out
}

/// Where cargo put the libraries that belong to this test.
pub fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}
