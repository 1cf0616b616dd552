//! `plimsoll log tail`: the last records, and those that come.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::Result;
use plimsoll_log::{Error, Reader, View};

use super::record;
use crate::exit::Exit;
use crate::interrupt::on_interrupt;
use crate::log_args::{OutputFormat, TailArgs};
use crate::output;

/// How often is looked for what has come.
const POLL: Duration = Duration::from_millis(50);

pub(super) fn run(args: &TailArgs) -> Result<Exit> {
    let format = if args.json { OutputFormat::Json } else { OutputFormat::Lines };
    let view = args.log.view()?;
    let reports = view.outline()?;
    let last_index = super::last_index(&reports);
    let from = last_index.saturating_add(1).saturating_sub(args.count).max(view.first_index());
    let mut out = output::stream();
    let mut reader = view.read_from(from)?;
    while reader.next_index() <= last_index {
        let Some(record) = reader.next_record()? else { break };
        record::write(&mut out, record, format)?;
    }
    out.flush()?;
    super::lost(&reports, from, u64::MAX)?;
    if !args.follow {
        return Ok(Exit::Ok);
    }
    let (sender, interrupted) = sync_channel(1);
    on_interrupt(move || {
        // One is enough.
        sender.try_send(()).ok();
    })?;
    let mut generation = view.generation();
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                record::write(&mut out, record, format)?;
                continue;
            }
            Ok(None) => {}
            Err(Error::OutOfRange { index, .. }) if index < view.first_index() => {
                let first_index = view.first_index();
                let gone = super::range(index, first_index - 1);
                output::news(&format!("{gone} went before they were read"));
                reader = view.read_from(first_index)?;
                continue;
            }
            Err(error) => {
                out.flush()?;
                return Err(error.into());
            }
        }
        if view.generation() != generation {
            generation = view.generation();
            reader = after_cut(&view, reader, generation)?;
            continue;
        }
        out.flush()?;
        if interrupted.recv_timeout(POLL) != Err(RecvTimeoutError::Timeout) {
            return Ok(Exit::Interrupted);
        }
        if output::reader_is_gone() {
            return Ok(Exit::Ok);
        }
    }
}

/// Records were cut off, and their indexes go to others.
fn after_cut(view: &View, reader: Reader, generation: u64) -> Result<Reader> {
    let reports = view.outline()?;
    let since = reports.iter().find(|report| report.generation == generation);
    match since {
        Some(since) if since.first_index < reader.next_index() => {
            let last_index = since.first_index - 1;
            output::news(&format!("records after {last_index} were cut off"));
            Ok(view.read_from(since.first_index)?)
        }
        _ => Ok(reader),
    }
}
