//! What `--help` says, on a terminal of 80 columns, and the pages of the manual.

use std::fs;
use std::process::Command;

use crate::common::{fails, ok, path, plimsoll, scratch, texts};

const COMMANDS: [&str; 7] = ["append", "cat", "tail", "stat", "verify", "truncate", "dump"];

fn help(command: &[&str], columns: &str) -> String {
    let output =
        plimsoll(&[command, &["--help"]].concat()).env("COLUMNS", columns).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_help_has_examples() {
    for command in COMMANDS {
        let help = ok(&["log", command, "--help"]);
        let example = format!("plimsoll log {command}");
        assert!(help.contains("Examples:") && help.contains(&example), "{help}");
    }
    assert!(ok(&["log", "--help"]).contains("Examples:"));
}

/// Lines were broken where the source had ended them, and once more at the end of the terminal.
#[test]
fn help_is_broken_where_a_terminal_of_80_columns_ends_and_nowhere_else() {
    for command in every_command() {
        let narrow = help(&command, "80");
        let too_long = narrow.lines().find(|line| line.chars().count() > 80);
        assert_eq!(too_long, None, "{command:?}");
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with("  ");
        let lines: Vec<_> = after(&narrow).lines().skip(1).collect();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| is_prose(line))) {
            let word = pair[1].split(' ').next().unwrap();
            let would_be = pair[0].chars().count() + 1 + word.chars().count();
            assert!(would_be > 80, "{command:?}: broken before its end: {}", pair[0]);
        }
    }
}

/// What is said of an example began under the examples, as if it were one.
#[test]
fn what_is_said_of_examples_is_not_broken() {
    let mut commands: Vec<_> = COMMANDS.iter().map(|command| vec!["log", command]).collect();
    commands.extend([["log"], ["man"], ["completions"]].map(Vec::from));
    let lines = |command: &[&str], columns: &str| -> Vec<String> {
        let help = help(command, columns);
        after(&help).lines().filter(|line| line.starts_with("  ")).map(str::to_owned).collect()
    };
    for command in commands {
        assert_eq!(lines(&command, "80"), lines(&command, "100"), "{command:?}");
    }
    for command in every_command() {
        let told: Vec<_> = lines(&command, "1000");
        let too_long =
            told.iter().find(|line| line.chars().count() > 80 && line[2..].contains("  "));
        assert_eq!(too_long, None, "{command:?}");
    }
}

/// All of them, in the words that name them.
fn every_command() -> Vec<Vec<&'static str>> {
    let pages = scratch("commands");
    ok(&["man", path(&pages)]);
    let names = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.len() > 20, "{names:?}");
    let words = |name: &String| -> Vec<&'static str> {
        let name: &'static str = name.clone().leak();
        name.trim_end_matches(".1").split('-').skip(1).collect()
    };
    names.iter().map(words).collect()
}

/// What comes after the options.
fn after(help: &str) -> &str {
    help.split_once("\nExample").map_or("", |(_, after)| after)
}

/// It was said to have been printed.
#[test]
#[cfg(target_os = "linux")]
fn help_that_cannot_be_printed_is_exit_2() {
    for asked in [&["--help"][..], &["log", "cat", "--help"], &["--version"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = plimsoll(asked).stdout(full).output().unwrap();
        let said = texts(&output).0;
        assert_eq!(output.status.code(), Some(2), "{asked:?}: {said}");
        assert!(said.starts_with("plimsoll: stdout: No space left"), "{asked:?}: {said}");
    }
    let (said, status) = fails(&["log", "no-such"]);
    assert!(status == 2 && said.contains("no-such"), "{said}");
}

/// They were broken with a hyphen, or ran into each other.
#[test]
fn pages_of_the_manual_show_commands_as_they_are_typed() {
    let dir = scratch("man");
    ok(&["man", path(&dir)]);
    let page = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let append = page("plimsoll-log-append.1");
    for line in [
        "\\fBplimsoll log append\\fR [",
        ".nh\n",
        "\n.SH EXAMPLES\n",
        ".TP\n\\fBplimsoll log append DIR \\-\\-interval 50ms/8MiB\\fR\n",
        "\n.SH \"EXIT STATUS\"\n0 ok; ",
    ] {
        assert!(append.contains(line), "{line}: {append}");
    }
    assert!(page("plimsoll-log.1").contains(".TP\n\\fBplimsoll log append\\fR\n"));
    let pages = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    for file in pages {
        let Ok(shown) = Command::new("groff")
            .args(["-man", "-Tascii", "-P-cbou", "-rLL=60n", "-ww"])
            .arg(&file)
            .output()
        else {
            println!("SKIPPED: there is no groff to look at the pages with");
            return;
        };
        let said = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success() && said.is_empty(), "{}: {said}", file.display());
        let shown = String::from_utf8(shown.stdout).unwrap();
        // A word of dashes may end a line.
        let is_broken = |line: &str| {
            line.trim_end()
                .strip_suffix('-')
                .is_some_and(|word| word.ends_with(char::is_alphanumeric))
        };
        let broken = shown.lines().find(|line| is_broken(line));
        assert_eq!(broken, None, "{}", file.display());
    }
}
