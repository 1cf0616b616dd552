//! The only place that prints. stdout is the answer, stderr is everything else.

#![expect(clippy::print_stderr, reason = "this is where printing is done")]

use std::env;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Whether to colour what goes to stdout (<https://no-color.org>).
pub(crate) fn colour() -> bool {
    let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    !dumb
        && io::stdout().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Part of the answer.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// For answers that are long: buffered, so flush it where somebody may be waiting, and at the end.
pub(crate) fn stream() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 << 10, io::stdout().lock())
}

/// How wide the terminal is that sentences are read on.
pub(crate) fn columns() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    terminal.map_or(100, |(width, _)| usize::from(width.0).clamp(40, 100))
}

/// Part of the answer, with words that may come from anybody: see [`plain`].
pub(crate) fn text(text: &str) -> io::Result<()> {
    answer(&plain(text))
}

/// Text without characters that a terminal obeys: they are shown as JSON writes them, so that in JSON they
/// mean what they meant. Lines stay lines.
pub(crate) fn plain(text: &str) -> String {
    let obeyed = |c: char| {
        // Controls, and what turns the direction of writing.
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (c.is_control() && c != '\n')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) {
            plain += &format!("\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    plain
}

/// News for whoever watches.
pub(crate) fn news(text: &str) {
    eprintln!("{}", plain(text));
}

/// What went wrong, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("plimsoll: {}", plain(&format!("{error:#}")));
}

/// Whether an error means that whoever read the answer is gone.
pub(crate) fn reader_left(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_does_not_reach_the_terminal_as_an_order() {
        assert_eq!(
            plain("\u{1b}[2J\u{9b}31m\r\u{202e}a\nb é"),
            "\\u001b[2J\\u009b31m\\u000d\\u202ea\nb é"
        );
        let json = serde_json::json!({ "said": "\u{1b}\u{9b}\u{7f}" }).to_string();
        let read: serde_json::Value = serde_json::from_str(&plain(&json)).unwrap();
        assert_eq!(read["said"], "\u{1b}\u{9b}\u{7f}", "JSON says the same");
        assert!(!plain(&json).contains('\u{9b}'));
    }
}
