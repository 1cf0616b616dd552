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

/// News for whoever watches.
pub(crate) fn news(text: &str) {
    eprintln!("{text}");
}

/// What went wrong, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("plimsoll: {error:#}");
}

/// Whether an error means that whoever read the answer is gone.
pub(crate) fn reader_left(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
