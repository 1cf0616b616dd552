//! The commands and their help. A text is written in lines of the source, and is to be broken where
//! the terminal ends: so each paragraph is one line before clap breaks it, and what is said of
//! examples is on lines of its own where a terminal has no room for it beside them.

use std::env;
use std::io::ErrorKind;
use std::process;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::args::Args;
use crate::exit::Exit;
use crate::output;

/// Lines longer than this are not read well, however wide the terminal is.
const MAX_COLUMNS: usize = 100;
/// What a terminal has.
const COLUMNS: usize = 80;
/// Before what is said of the example above.
pub(crate) const REMARK: &str = "      ";

/// What was typed. Ends the process where that is help, or wrong.
pub(crate) fn parse() -> Args {
    let mut command = command();
    let typed = command.try_get_matches_from_mut(env::args_os());
    let args = typed.and_then(|mut typed| {
        Args::from_arg_matches_mut(&mut typed).map_err(|error| error.format(&mut command))
    });
    args.unwrap_or_else(|asked| match asked.print() {
        Err(error) if !asked.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            output::news(&format!("plimsoll: stdout: {error}"));
            process::exit(i32::from(Exit::CannotRun.code()))
        }
        _ => process::exit(asked.exit_code()),
    })
}

/// All commands.
pub(crate) fn command() -> Command {
    with_paragraphs(Args::command().max_term_width(MAX_COLUMNS))
}

fn with_paragraphs(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(paragraphs(&text));
    }
    command.mut_subcommands(with_paragraphs)
}

/// An example and what is said of it, if anything is.
pub(crate) fn example(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("  ")?;
    let (typed, said) = line.split_once("  ").unwrap_or((line, ""));
    Some((typed, said.trim_start()))
}

/// The text with each paragraph on a line. What is indented, and what introduces it, stays on its own.
fn paragraphs(text: &str) -> String {
    // What stands above indented lines introduces them.
    let is_prose = |line: &str, next: &str| {
        !line.is_empty() && !line.starts_with(' ') && !next.starts_with(' ')
    };
    let is_too_long = |line: &str| line.starts_with(' ') && line.chars().count() > COLUMNS;
    let below = text.lines().any(|line| is_too_long(line) && !said_of(line).is_empty());
    let mut joined = String::new();
    let mut was_prose = false;
    for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
        let is_prose = is_prose(line, next);
        if !joined.is_empty() {
            joined.push(if was_prose && is_prose { ' ' } else { '\n' });
        }
        was_prose = is_prose;
        match example(line) {
            Some((typed, said)) if below && !said.is_empty() => {
                joined += &format!("  {typed}\n{REMARK}{said}");
            }
            _ => joined += line,
        }
    }
    joined
}

fn said_of(line: &str) -> &str {
    example(line).map_or("", |(_, said)| said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_is_a_line_and_examples_stay_as_they_are() {
        let text = "Examples:\n  one  1\n  two  2\n\nA paragraph:\nof two lines.\n\nAnother.";
        let joined = "Examples:\n  one  1\n  two  2\n\nA paragraph: of two lines.\n\nAnother.";
        assert_eq!(paragraphs(text), joined);
    }

    #[test]
    fn what_is_said_of_examples_is_below_them_where_there_is_no_room_beside_them() {
        let long = "x".repeat(COLUMNS - 6);
        let text = format!("Examples:\n  one     1\n  {long}  2 3\n  three");
        let below = format!("Examples:\n  one\n      1\n  {long}\n      2 3\n  three");
        assert_eq!(paragraphs(&text), below);
    }
}
