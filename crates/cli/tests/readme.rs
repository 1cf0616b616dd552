//! The README and the pages about commands: what they show is typed here, and what they link to is
//! there. That the README's Rust compiles is a documentation test of `plimsoll-log`.
//!
//! What a log answers is compared word for word. The lab takes minutes and differs on each disk, and
//! the disk that forgets needs root: of their commands it is tested that they are understood.
#![cfg(unix)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pages that show commands.
const PAGES: [&str; 9] = [
    "README.md",
    "docs/backup.md",
    "docs/broker.md",
    "docs/chapters-cli.md",
    "docs/comparing.md",
    "docs/lab.md",
    "docs/log.md",
    "docs/log-cli.md",
    "docs/simdisk.md",
];

#[test]
fn what_the_readme_shows_of_the_log_is_what_it_answers() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    fs::remove_dir_all(&scratch).ok();
    fs::create_dir_all(&scratch).unwrap();
    let mut compared = 0;
    for (command, shown) in transcripts(&page("README.md")) {
        if !command.contains("plimsoll log ") {
            continue;
        }
        // On a terminal, news and answers come together.
        let output = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .env("PATH", path_with_plimsoll())
            .current_dir(&scratch)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), shown, "$ {command}");
        compared += 1;
    }
    assert!(compared >= 2, "the README shows nothing of the log");
}

/// Four lists named four sets of them.
#[test]
fn every_list_of_exit_statuses_names_all_of_them() {
    let sources = ["src/main.rs", "src/args.rs"].map(|file| format!("crates/cli/{file}"));
    for list in sources.iter().map(String::as_str).chain(["README.md", "docs/lab.md"]) {
        let text = page(list);
        let begins = text.find("Exit status: 0 ok").unwrap_or_else(|| panic!("{list} has none"));
        let said: String = text[begins..].chars().take(300).collect();
        let numbers: Vec<&str> = said.split(|c: char| !c.is_ascii_digit()).collect();
        for status in ["0", "1", "2", "3", "129", "130", "143"] {
            assert!(numbers.contains(&status), "{status} is not in {list}: {said}");
        }
    }
}

#[test]
fn every_command_that_is_shown_is_understood() {
    for page_name in PAGES {
        let commands = commands(&page(page_name));
        for command in &commands {
            understands(page_name, command);
        }
        println!("{page_name}: {} commands, understood and not run", commands.len());
        assert!(!commands.is_empty(), "{page_name} shows none");
    }
    for part in
        ["plimsoll lab", "plimsoll log ", "plimsoll disk ", "plimsoll serve", "plimsoll topic "]
    {
        assert!(commands(&page("README.md")).iter().any(|command| command.starts_with(part)));
    }
}

#[test]
fn the_dependency_line_of_the_readme_names_the_log() {
    let page = page("README.md");
    let (_, rest) = page.split_once("\nplimsoll-log = { path = \"../plimsoll/").unwrap();
    let manifest = root().join(rest.split('"').next().unwrap()).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("name = \"plimsoll-log\""), "{manifest}");
}

#[test]
fn every_link_of_a_page_leads_to_a_file() {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let of_root = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    let mut links = 0;
    for page in docs.chain(of_root).filter(|path| path.extension().is_some_and(|is| is == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !file.is_empty() && !file.contains("://") {
                let there = page.parent().unwrap().join(file);
                assert!(there.exists(), "{} links to {link}", page.display());
                links += 1;
            }
        }
    }
    assert!(links > 20, "the links are not found");
}

/// Asks for the help of a command as it is typed: what stands before is read, and refused if it is wrong.
fn understands(page: &str, command: &str) {
    let words = Command::new("sh")
        .args(["-c", &format!("printf '%s\\0' {command}")])
        .output()
        .unwrap()
        .stdout;
    let words = String::from_utf8(words).unwrap();
    let mut words: Vec<_> = words.split_terminator('\0').skip(1).collect();
    let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    words.truncate(end);
    words.push("--help");
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}: {command}: {said}");
}

/// The commands of `plimsoll` in the blocks of a page, without what they are piped to.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (block, lines) in blocks(page) {
        for line in lines {
            let typed = match block {
                "text" => line.strip_prefix("$ "),
                "sh" => Some(line),
                _ => None,
            };
            let parts = typed.unwrap_or_default().split(" | ").flat_map(|part| part.split("; "));
            commands.extend(parts.filter(|part| part.starts_with("plimsoll ")).map(str::to_owned));
        }
    }
    commands
}

/// Each command of the transcripts of a page, and what it answers.
fn transcripts(page: &str) -> Vec<(String, String)> {
    let mut transcripts: Vec<(String, String)> = Vec::new();
    for (_, lines) in blocks(page).into_iter().filter(|(block, _)| *block == "text") {
        for line in lines {
            match (line.strip_prefix("$ "), transcripts.last_mut()) {
                (Some(command), _) => transcripts.push((command.to_owned(), String::new())),
                (None, Some((_, answered))) => *answered += &format!("{line}\n"),
                (None, None) => {}
            }
        }
    }
    transcripts
}

/// What kind of block, and its lines.
fn blocks(page: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            blocks.push((kind, lines.by_ref().take_while(|line| line.trim() != "```").collect()));
        }
    }
    blocks
}

fn path_with_plimsoll() -> String {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_plimsoll"));
    let path = env::var("PATH").unwrap_or_default();
    format!("{}:{path}", binary.parent().unwrap().display())
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
