//! `plimsoll cluster remove`: a broker goes, for good.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::status;
use crate::commands::ask;
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output;

/// How long the control shard may take to agree.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the other shards may take to follow it.
const FOLLOWS: Duration = Duration::from_secs(60);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn run(http: &str, node: u64) -> Result<Exit> {
    on_interrupt(|| {})?;
    ask::post(http, &format!("/cluster/remove?node={node}"), PATIENCE)?;
    output::news(&format!("node {node} goes; waiting until it votes nowhere"));
    let (begun, waiting) = (Instant::now(), output::waiting());
    loop {
        let is_late = begun.elapsed() > FOLLOWS;
        let looked = ask::get(http, "/cluster/status").and_then(|said| status::read(http, &said));
        match looked {
            Ok(rolls) => {
                let votes = rolls.iter().filter(|roll| roll.voters.contains(&node));
                let votes: Vec<u32> = votes.map(|roll| roll.shard).collect();
                if votes.is_empty() {
                    drop(waiting);
                    output::news(&format!("node {node} votes nowhere: it can be stopped"));
                    if rolls.iter().any(|roll| roll.voters.len() == 2) {
                        output::news(
                            "two vote now, and where one of them is away nothing is acknowledged: have another come (`plimsoll \
                             cluster join`), or one more go",
                        );
                    }
                    return Ok(Exit::Ok);
                }
                if is_late {
                    bail!(
                        "node {node} votes in shards {votes:?} still, where others may be getting the log first: \
                         `plimsoll cluster remove` again waits on; if it leads there, stop it"
                    );
                }
            }
            Err(why) if is_late => return Err(why),
            // A broker that opens a shard again is away for a moment.
            Err(_) => {}
        }
        if interrupted() {
            return Ok(Exit::Interrupted);
        }
        thread::park_timeout(LOOK);
    }
}
