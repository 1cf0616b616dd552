//! The only place that prints. stdout is the answer, stderr is everything else.

use std::env;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Whether to colour what goes to stdout (<https://no-color.org>).
pub(crate) fn colour() -> bool {
    let dumb = env::var("TERM").is_ok_and(|term| term == "dumb");
    !dumb
        && io::stdout().is_terminal()
        && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Where the answer goes. Its errors name it: a full disk alone would be taken for that of a log.
struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| of_stdout(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| of_stdout(&error))
    }
}

fn of_stdout(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("stdout: {error}"))
}

/// Part of the answer.
pub(crate) fn answer(text: &str) -> io::Result<()> {
    let mut stdout = Stdout(io::stdout().lock());
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// For answers that are long: buffered, so flush it where somebody may be waiting, and at the end.
pub(crate) fn stream() -> impl Write {
    BufWriter::with_capacity(64 << 10, Stdout(io::stdout().lock()))
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

/// How wide that is where news are read; 80 where no terminal is.
pub(crate) fn news_columns() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stderr());
    terminal.map_or(80, |(width, _)| usize::from(width.0).clamp(40, 100))
}

/// News for whoever watches. Where stderr takes none, nobody can be told that it does not.
pub(crate) fn news(text: &str) {
    writeln!(io::stderr(), "{}", plain(text)).ok();
}

/// Shows for how long something has been waited for, where somebody watches, until it is dropped.
pub(crate) fn waiting() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {elapsed}").expect("it is well formed");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    let bar = bar.with_style(style).with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// What went wrong, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    news(&format!("plimsoll: {error:#}"));
}

/// `1 segment`, `2 segments`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Whether an error means that whoever read the answer is gone.
pub(crate) fn reader_left(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether whoever reads the answer is gone, as far as a pipe knows before more is written to it.
pub(crate) fn reader_is_gone() -> bool {
    #[cfg(unix)]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let stdout = io::stdout();
        let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::ERR | PollFlags::HUP;
        poll(&mut asked, Some(&now)).is_ok() && asked[0].revents().intersects(gone)
    }
    #[cfg(not(unix))]
    false
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
