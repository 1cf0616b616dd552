//! The header in `include` is what cbindgen makes of the sources, and C11 and C++17 without a warning.
//!
//! `PLIMSOLL_WRITE_HEADER=1` writes it (`just c-header`).

mod compiler;

use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    // In the order of the header.
    for name in [
        "code",
        "options",
        "report",
        "handle",
        "entry/library",
        "entry/log",
        "entry/append",
        "entry/wait",
        "entry/read",
        "entry/cut",
        "entry/crew",
    ] {
        builder = builder.with_src(root().join(format!("src/{name}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    // The handles are aliases there, which it sets like this.
    String::from_utf8(header)
        .unwrap()
        .replace("_log* log", "_log *log")
        .replace("_reader* r", "_reader *r")
        .replace("_crew* crew", "_crew *crew")
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = root().join("include/plimsoll.h");
    let generated = generated();
    if std::env::var_os("PLIMSOLL_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == generated, "include/plimsoll.h is not up to date: `just c-header`");
}

#[test]
fn the_header_is_c11_and_cpp17_without_a_warning() {
    let tmp = tempfile::tempdir().unwrap();
    for (language, source) in [(compiler::C11, "header.c"), (compiler::CPP17, "header.cc")] {
        let Some(mut compiler) = compiler::find(language) else { continue };
        let source = tmp.path().join(source);
        // Twice: it is guarded. Nothing before it: it includes what it needs.
        fs::write(&source, "#include <plimsoll.h>\n#include <plimsoll.h>\n").unwrap();
        compiler::check(compiler.arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn the_readme_shows_the_examples() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = readme.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples = ["first", "crew"].map(|name| root().join(format!("examples/{name}.c")));
    assert!(shown.eq(examples.map(|path| fs::read_to_string(path).unwrap())));
}
