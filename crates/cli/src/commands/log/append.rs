//! `plimsoll log append`: what is read becomes records.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::units;
use plimsoll_log::{Ack, Error, Log, Ring, View};
use serde_json::json;

use super::input::{self, Limit, Message};
use crate::exit::Exit;
use crate::interrupt::interrupted;
use crate::log_args::{AppendArgs, InputFormat};
use crate::output;

pub(super) fn run(args: &AppendArgs) -> Result<Exit> {
    let policy = args.policy()?;
    let mut options = super::options(args.segment_bytes);
    options.policy = policy;
    options.ring_bytes = args.ring_bytes.unwrap_or(options.ring_bytes);
    options.ring = args.ring.clone().map_or(Ring::Memory, Ring::File);
    options.first_index = args.first_index.unwrap_or(options.first_index);
    // Before anything is made.
    options.check()?;
    let dir = super::make_dir(&args.log.dir)?;
    if args.segment_bytes.is_none() {
        let newest = super::segment_bytes(&View::of(Arc::new(dir))?.outline()?);
        options.segment_bytes = newest.unwrap_or(options.segment_bytes);
    }
    let (log, recovery) = args.log.open(options)?;
    if let Some(first_index) = args.first_index
        && (log.first_index(), log.last_index()) != (first_index, first_index - 1)
    {
        let next_index = log.last_index() + 1;
        // It was closed, or its end would have to be looked for at the next open.
        log.close()?;
        bail!(
            "--first-index {first_index} is for a new log; that in {} goes on with record {next_index}",
            args.log.dir.display()
        );
    }
    if recovery.created {
        output::news(&format!("a new log in {}", args.log.dir.display()));
    }
    let appender = Appender {
        ack: args.ack(policy),
        batch_records: args.batch as usize,
        batch: Vec::new(),
        before: log.last_index(),
        is_in_memory: args.log.is_in_memory()?,
        payload_bytes: 0,
        bar: bar(),
        log,
    };
    appender.run(args)
}

struct Appender {
    log: Log,
    ack: Ack,
    batch_records: usize,
    /// The next one, as far as it has come.
    batch: Vec<Vec<u8>>,
    /// The last record that was there before.
    before: u64,
    /// What is synced survives no power cut.
    is_in_memory: bool,
    payload_bytes: u64,
    bar: ProgressBar,
}

impl Appender {
    fn run(mut self, args: &AppendArgs) -> Result<Exit> {
        let max_bytes = usize::try_from(self.log.max_record_bytes()).unwrap_or(usize::MAX);
        let asks = args.files.is_empty() || args.files.iter().any(|file| file.as_os_str() == "-");
        if asks && args.format == InputFormat::Lines && io::stdin().is_terminal() {
            output::news("a record a line; Ctrl-D ends");
        }
        let advice = format!(
            "this log takes {max_bytes}; a larger --ring-bytes (and --segment-bytes) takes more"
        );
        let limit = Limit { max_bytes, advice };
        let stopping = || output::news("stopping; what was appended is being made durable");
        let input = input::start(args.files.clone(), args.format, limit, stopping)?;
        let read = loop {
            match input.next() {
                Message::Records(chunk) => {
                    if let Err(error) = chunk.records().try_for_each(|record| self.append(record)) {
                        break Err(error);
                    }
                    if let Err(error) = self.settle() {
                        break Err(error);
                    }
                }
                Message::End(Err(error)) => break Err(error),
                Message::End(Ok(())) => break self.append_batch(),
                Message::Interrupted => break Ok(()),
            }
        };
        self.end(read, args.json)
    }

    fn append(&mut self, record: &[u8]) -> Result<()> {
        if self.batch_records == 1 {
            self.log.append_with(record, Ack::Buffered)?;
            self.payload_bytes += record.len() as u64;
            return Ok(());
        }
        self.batch.push(record.to_vec());
        if self.batch.len() == self.batch_records { self.append_batch() } else { Ok(()) }
    }

    fn append_batch(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.log.append_batch_with(&self.batch, Ack::Buffered) {
            Ok(_) => {}
            Err(error @ Error::TooLarge { .. }) => {
                let too_large =
                    format!("a batch of {}", output::counted(self.batch.len() as u64, "record"));
                return Err(anyhow!(error).context(too_large));
            }
            Err(error) => return Err(error.into()),
        }
        self.payload_bytes += self.batch.iter().map(|record| record.len() as u64).sum::<u64>();
        self.batch.clear();
        Ok(())
    }

    /// Before more is waited for, what came is as far as was asked for.
    fn settle(&mut self) -> Result<()> {
        let last_index = self.log.last_index();
        match self.ack {
            Ack::Buffered => {}
            level => self.log.wait(last_index, level)?.block()?,
        }
        self.bar.set_message(format!(
            "{}, {}; durable up to {}",
            output::counted(last_index - self.before, "record"),
            units::bytes(self.payload_bytes),
            self.log.durable()
        ));
        self.bar.tick();
        Ok(())
    }

    fn end(self, read: Result<()>, json: bool) -> Result<Exit> {
        self.bar.finish_and_clear();
        let (before, last, payload_bytes) =
            (self.before, self.log.last_index(), self.payload_bytes);
        let first = before + 1;
        let appended = super::range(first, last);
        let dropped = self.batch.len() as u64;
        self.log.close().context("what was appended may not all be durable")?;
        read.with_context(|| match last {
            last if last == before => "nothing was appended".to_owned(),
            _ if self.is_in_memory => format!("{appended} appended; then"),
            last => format!("{appended} appended, all durable up to {last}; then"),
        })?;
        if dropped > 0 {
            let dropped = output::counted(dropped, "record");
            output::news(&format!("{dropped} of a batch that was not complete were not appended"));
        }
        if json {
            let some = |index| (last > before).then_some(index);
            let answer = json!({
                "first_index": some(first),
                "last_index": some(last),
                "records": last - before,
                "payload_bytes": payload_bytes,
                "durable": last,
                "in_memory": self.is_in_memory,
            });
            output::answer(&format!("{answer}\n"))?;
        } else if last == before {
            output::answer("nothing appended\n")?;
        } else {
            let payload = units::bytes(payload_bytes);
            let safe = match self.is_in_memory {
                true => format!("; {}", super::IN_MEMORY),
                false => ", all durable".to_owned(),
            };
            output::answer(&format!("{appended} appended ({payload}){safe}\n"))?;
        }
        Ok(if interrupted() { Exit::Interrupted } else { Exit::Ok })
    }
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() || io::stdin().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("it is well formed");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4)).with_style(style)
}
