//! What is read to be appended, or produced: a thread of its own reads, so that Ctrl-C need not wait for input.
//!
//! Records come in chunks: as many as were there to be read at once. Nothing that is complete waits
//! for input that is not there yet. No length is believed before it is bounded.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::interrupt::{interrupted, on_interrupt};
use crate::log_args::InputFormat;

/// How much is read at once.
const READ_BYTES: usize = 256 << 10;
/// How many chunks may wait.
const CHUNKS: usize = 4;

/// What comes to whoever appends.
pub(crate) enum Message {
    /// Records, in order.
    Records(Chunk),
    /// There is no more to come, or it cannot be read.
    End(Result<()>),
    /// Somebody pressed Ctrl-C.
    Interrupted,
}

/// Records that were there to be read at once.
#[derive(Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Chunk {
    /// The records.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }
}

/// How long a record may be.
pub(crate) struct Limit {
    /// At most so many bytes.
    pub(crate) max_bytes: usize,
    /// Who says so, and what can be done about it.
    pub(crate) advice: String,
}

/// What is being read.
pub(crate) struct Input(Receiver<Message>);

/// Begins to read. Ctrl-C has `stopping` called, and is then what comes next.
pub(crate) fn start(
    files: Vec<PathBuf>,
    format: InputFormat,
    limit: Limit,
    mut stopping: impl FnMut() + Send + 'static,
) -> Result<Input> {
    let (sender, receiver) = sync_channel(CHUNKS);
    let splitter = Splitter { sender: sender.clone(), limit, chunk: Chunk::default(), seen: 0 };
    thread::spawn(move || splitter.run(&files, format));
    on_interrupt(move || {
        stopping();
        // A full channel wakes as well.
        sender.try_send(Message::Interrupted).ok();
    })?;
    Ok(Input(receiver))
}

impl Input {
    /// Waits for what comes next. What came before Ctrl-C, and was not taken, never does.
    pub(crate) fn next(&self) -> Message {
        let message = self.0.recv().expect("it has a sender for as long as nothing ended");
        if interrupted() { Message::Interrupted } else { message }
    }
}

/// Nobody wants more.
struct Gone;

struct Splitter {
    sender: SyncSender<Message>,
    limit: Limit,
    chunk: Chunk,
    /// Records of this input.
    seen: u64,
}

impl Splitter {
    fn run(mut self, files: &[PathBuf], format: InputFormat) {
        let stdin = [PathBuf::from("-")];
        let files = if files.is_empty() { &stdin[..] } else { files };
        let read = files.iter().try_for_each(|file| self.read_input(file, format));
        if self.pass_on().is_ok() {
            // If nobody wants to know, nobody is told.
            self.sender.send(Message::End(read)).ok();
        }
    }

    fn read_input(&mut self, path: &Path, format: InputFormat) -> Result<()> {
        self.seen = 0;
        if path.as_os_str() == "-" {
            let input = BufReader::with_capacity(READ_BYTES, io::stdin());
            return self.split(input, format).context("stdin");
        }
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name)?;
        self.split(BufReader::with_capacity(READ_BYTES, file), format).with_context(name)
    }

    fn split(&mut self, input: BufReader<impl Read>, format: InputFormat) -> Result<()> {
        match format {
            InputFormat::Lines => self.lines(input),
            InputFormat::Length => self.lengths(input),
            InputFormat::File => self.whole(input),
        }
    }

    fn lines(&mut self, mut input: impl BufRead) -> Result<()> {
        let mut begun = Vec::new();
        loop {
            let held = match input.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                held => held?,
            };
            if held.is_empty() {
                break;
            }
            let mut rest = held;
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = &rest[..end];
                self.check(begun.len() + line.len())?;
                if begun.is_empty() {
                    self.chunk.push(line);
                } else {
                    begun.extend_from_slice(line);
                    self.chunk.push(&begun);
                    begun.clear();
                }
                self.seen += 1;
                rest = &rest[end + 1..];
            }
            self.check(begun.len() + rest.len())?;
            begun.extend_from_slice(rest);
            let held = held.len();
            input.consume(held);
            if self.pass_on().is_err() {
                return Ok(());
            }
        }
        if !begun.is_empty() {
            self.chunk.push(&begun);
        }
        Ok(())
    }

    fn lengths(&mut self, mut input: BufReader<impl Read>) -> Result<()> {
        let mut record = Vec::new();
        loop {
            let mut length = [0; 4];
            // The next read may have to wait.
            if input.buffer().len() < length.len() && self.pass_on().is_err() {
                return Ok(());
            }
            let held = read_full(&mut input, &mut length)?;
            match held {
                0 => return Ok(()),
                4 => {}
                held => bail!(
                    "it ends in the length of record {}: {held} of 4 bytes are there",
                    self.seen + 1
                ),
            }
            let length = u32::from_le_bytes(length) as usize;
            self.check(length)?;
            if input.buffer().len() < length && self.pass_on().is_err() {
                return Ok(());
            }
            record.resize(length, 0);
            let held = read_full(&mut input, &mut record)?;
            if held < length {
                let number = self.seen + 1;
                bail!("it ends in record {number}: {held} of {length} bytes are there");
            }
            self.chunk.push(&record);
            self.seen += 1;
        }
    }

    fn whole(&mut self, input: impl Read) -> Result<()> {
        let mut record = Vec::new();
        input.take(self.limit.max_bytes as u64 + 1).read_to_end(&mut record)?;
        self.check(record.len())?;
        self.chunk.push(&record);
        self.pass_on().ok();
        Ok(())
    }

    fn check(&self, bytes: usize) -> Result<()> {
        let Limit { max_bytes, advice } = &self.limit;
        if bytes > *max_bytes {
            bail!("record {} has {bytes} bytes or more, and {advice}", self.seen + 1);
        }
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), Gone> {
        if self.chunk.ends.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::take(&mut self.chunk);
        self.sender.send(Message::Records(chunk)).map_err(|_gone| Gone)
    }
}

/// Fills `buf`, as far as the input goes.
fn read_full(input: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut held = 0;
    while held < buf.len() {
        match input.read(&mut buf[held..]) {
            Ok(0) => break,
            Ok(read) => held += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}
