//! `plimsoll log truncate`: the oldest records go, or the newest.

use std::io::{self, IsTerminal};

use anyhow::{Result, bail};
use plimsoll_log::{Log, Retain, Ring};
use serde_json::json;

use crate::exit::Exit;
use crate::log_args::TruncateArgs;
use crate::output;

pub(super) fn run(args: &TruncateArgs) -> Result<Exit> {
    let view = args.log.view()?;
    let asks = args.after.is_some() && !args.yes;
    if asks && !io::stdin().is_terminal() {
        bail!(
            "records that are cut off are gone for good, and nobody can be asked here: say --yes"
        );
    }
    let mut options = super::options(super::segment_bytes(&view.outline()?));
    options.accept_loss = args.accept_loss;
    options.ring_bytes = args.ring_bytes.unwrap_or(options.ring_bytes);
    options.ring = args.ring.clone().map_or(Ring::Memory, Ring::File);
    let (log, _) = args.log.open(options)?;
    let (first, last) = (log.first_index(), log.last_index());
    match args.after {
        Some(after) if after.saturating_add(1) < first => {
            log.close()?;
            bail!("record {after} is gone, and nothing can end there: the log begins with {first}");
        }
        Some(after) if after < last && asks && !agreed(after + 1, last)? => {
            log.close()?;
            output::news("nothing was cut off");
            return Ok(Exit::Ok);
        }
        Some(after) => log.truncate_after(after)?,
        None => {
            before(&log, args)?;
        }
    }
    let (first_now, last_now) = (log.first_index(), log.last_index());
    log.close()?;
    let removed = if first_now > first { (first, first_now - 1) } else { (last_now + 1, last) };
    let n = (removed.1 + 1).saturating_sub(removed.0);
    if args.json {
        let some = |index| (n > 0).then_some(index);
        let answer = json!({
            "removed": n,
            "removed_first_index": some(removed.0),
            "removed_last_index": some(removed.1),
            "first_index": first_now,
            "last_index": last_now,
        });
        output::answer(&format!("{answer}\n"))?;
        return Ok(Exit::Ok);
    }
    let gone = match n {
        0 => "nothing removed".to_owned(),
        _ => format!("{} removed", super::range(removed.0, removed.1)),
    };
    let left = match last_now + 1 - first_now {
        0 => format!("no records left, the next one is {first_now}"),
        _ => format!("{} left", super::range(first_now, last_now)),
    };
    output::answer(&format!("{gone}; {left}\n"))?;
    Ok(Exit::Ok)
}

fn before(log: &Log, args: &TruncateArgs) -> Result<u64> {
    let retain = match (args.before, args.keep_bytes, args.older_than) {
        (Some(index), ..) => Retain::From(index),
        (_, Some(bytes), _) => Retain::Bytes(bytes),
        (.., Some(age)) => Retain::Age(age),
        _ => unreachable!("clap asks for one of them"),
    };
    Ok(log.truncate_before(retain)?)
}

fn agreed(first: u64, last: u64) -> io::Result<bool> {
    let range = super::range(first, last);
    output::news(&format!("{range} will be cut off, for good. Type yes to go on:"));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
