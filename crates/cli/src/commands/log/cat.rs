//! `plimsoll log cat`: payloads, oldest first.

use std::io::Write;

use anyhow::{Result, bail};

use super::record;
use crate::exit::Exit;
use crate::log_args::CatArgs;
use crate::output;

pub(super) fn run(args: &CatArgs) -> Result<Exit> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        bail!("--to {to} comes before --from {from}");
    }
    let view = args.log.view()?;
    let first_index = view.first_index();
    let from = args.from.unwrap_or(first_index);
    let to = args.to.unwrap_or(u64::MAX);
    if from.min(to) < first_index {
        let last_index = super::last_index(&view.outline()?);
        return Err(super::missing(from.min(to), first_index, last_index));
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut reader = view.read_from(from)?;
    let mut out = output::stream();
    let mut printed = Ok(());
    while left > 0 && reader.next_index() <= to {
        match reader.next_record() {
            Ok(Some(record)) => record::write(&mut out, record, args.format())?,
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
    let next = reader.next_index();
    if left == 0 || next > to {
        return Ok(Exit::Ok);
    }
    let reports = view.outline()?;
    super::lost(&reports, next, to)?;
    let last_index = super::last_index(&reports).min(next - 1);
    // Whoever names no end may ask for the next record, which is not there yet.
    if args.to.is_some() || next > last_index.saturating_add(1) {
        return Err(super::missing(next, first_index, last_index));
    }
    Ok(Exit::Ok)
}
