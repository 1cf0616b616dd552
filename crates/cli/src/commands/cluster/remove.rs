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
    let begun = Instant::now();
    loop {
        let rolls = status::read(http, &ask::get(http, "/cluster/status")?)?;
        let votes = rolls.iter().filter(|roll| roll.voters.contains(&node));
        let votes: Vec<u32> = votes.map(|roll| roll.shard).collect();
        if votes.is_empty() {
            output::news(&format!("node {node} votes nowhere: it can be stopped"));
            return Ok(Exit::Ok);
        }
        if interrupted() {
            return Ok(Exit::Interrupted);
        }
        if begun.elapsed() > FOLLOWS {
            bail!(
                "node {node} votes in shards {votes:?} still: if it leads there, stop it, and look at `plimsoll cluster status`"
            );
        }
        thread::park_timeout(LOOK);
    }
}
