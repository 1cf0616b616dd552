//! A directory, a log of numbers, and the program itself.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const SMALL: [&str; 4] = ["--segment-bytes", "64KiB", "--ring-bytes", "32KiB"];

/// A process that appends what it is told to.
pub(crate) struct Writer {
    pub(crate) child: Child,
}

impl Writer {
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = plimsoll(&[&["log", "append", path(dir)], &SMALL[..], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

/// A log of the numbers from 1, closed.
pub(crate) fn numbers(name: &str, n: u64) -> PathBuf {
    let dir = scratch(name);
    let lines: String = (1..=n).map(|number| format!("{number}\n")).collect();
    append(&dir, lines.as_bytes(), &[]);
    dir
}

pub(crate) fn append_output(dir: &Path, input: &[u8], more: &[&str]) -> Output {
    // A log that is there knows the size of its segments, and nobody that of its ring.
    let size = if segments(dir).is_empty() { &SMALL[..] } else { &SMALL[2..] };
    let mut child = plimsoll(&[&["log", "append", path(dir)], size, more].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Who refuses does not read.
    child.stdin.take().unwrap().write_all(input).ok();
    child.wait_with_output().unwrap()
}

pub(crate) fn append(dir: &Path, input: &[u8], more: &[&str]) -> String {
    let output = append_output(dir, input, more);
    let (said, answered) = texts(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    answered
}

pub(crate) fn refused(dir: &Path, input: &[u8], more: &[&str]) -> (String, i32) {
    let output = append_output(dir, input, if more == SMALL { &[] } else { more });
    let (said, answered) = texts(&output);
    assert!(answered.is_empty(), "an error is not an answer: {answered}");
    (said, output.status.code().unwrap())
}

pub(crate) fn cat(dir: &Path, more: &[&str]) -> Vec<u8> {
    let output = plimsoll(&[&["log", "cat", path(dir)], more].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).0);
    output.stdout
}

pub(crate) fn stat(dir: &Path) -> Value {
    serde_json::from_str(&ok(&["log", "stat", path(dir), "--json"])).unwrap()
}

pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        entries.filter(|path| path.extension() == Some(OsStr::new("seg"))).collect();
    segments.sort();
    segments
}

pub(crate) fn flip(file: &Path, at: usize) {
    let mut bytes = Vec::new();
    fs::File::open(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}

pub(crate) fn interrupt(child: &Child) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

pub(crate) fn wait_until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never happened");
        std::thread::yield_now();
    }
}

/// A directory that is not there yet, on the disk that the project is built on.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{name}"));
    fs::remove_dir_all(&path).ok();
    path
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn plimsoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args);
    command
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stderr), text(&output.stdout))
}

pub(crate) fn run(args: &[&str]) -> (String, String, i32) {
    let output = plimsoll(args).output().unwrap();
    let (said, answered) = texts(&output);
    (said, answered, output.status.code().unwrap())
}

pub(crate) fn ok(args: &[&str]) -> String {
    let (said, answered, status) = run(args);
    assert_eq!(status, 0, "{args:?}: {said}");
    answered
}

pub(crate) fn fails(args: &[&str]) -> (String, i32) {
    let (said, answered, status) = run(args);
    assert!(answered.is_empty(), "an error is not an answer: {answered}");
    (said, status)
}
