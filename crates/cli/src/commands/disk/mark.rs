//! `plimsoll disk mark`: one line to whoever records, and its answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};

use crate::exit::Exit;

const ANSWER_BYTES_MAX: u64 = 4096;

pub(super) fn run(text: &str) -> Result<Exit> {
    let path = std::env::var_os("PLIMSOLL_MARK_SOCKET").context(
        "PLIMSOLL_MARK_SOCKET is not set: marks are said inside of `plimsoll disk record`, `run` or `cycle`",
    )?;
    if text.contains('\n') {
        bail!("a mark is one line");
    }
    let mut stream = UnixStream::connect(&path).context("nobody listens for marks any more")?;
    stream.write_all(format!("{text}\n").as_bytes()).context("the mark was not heard")?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer)?;
    match answer.trim_end() {
        "ok" => Ok(Exit::Ok),
        "" => bail!("the mark was not answered"),
        wrong => bail!("the mark was refused: {}", wrong.trim_start_matches("error: ")),
    }
}
