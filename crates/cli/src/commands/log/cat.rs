//! `plimsoll log cat`: payloads, oldest first.

use std::io::Write;

use anyhow::{Result, bail};

use super::record;
use crate::exit::Exit;
use crate::log_args::CatArgs;
use crate::output;

pub(super) fn run(args: &CatArgs) -> Result<Exit> {
    let view = args.log.view()?;
    let first_index = view.first_index();
    let from = args.from.unwrap_or(first_index);
    if from < first_index {
        bail!("there is no record {from}: the log begins with {first_index}");
    }
    let to = args.to.unwrap_or(u64::MAX);
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut reader = view.read_from(from)?;
    let mut out = output::stream();
    let mut printed = Ok(());
    while left > 0 && reader.next_index() <= to {
        match reader.next_record() {
            Ok(Some(record)) => record::write(&mut out, record, args.format)?,
            Ok(None) => break,
            Err(error) => {
                printed = Err(error);
                break;
            }
        }
        left -= 1;
    }
    out.flush()?;
    printed?;
    if left == 0 || reader.next_index() > to {
        return Ok(Exit::Ok);
    }
    let reports = view.outline()?;
    super::lost(&reports, reader.next_index(), to)?;
    let last_index = super::last_index(&reports);
    if reader.next_index() == from && from > last_index.saturating_add(1) {
        bail!("there is no record {from}: the log ends with {last_index}");
    }
    Ok(Exit::Ok)
}
