//! `plimsoll cluster move`: another node leads a shard.

use std::time::Duration;

use anyhow::Result;

use crate::commands::ask;
use crate::exit::Exit;
use crate::output;

/// How long it may take: who leads gives up before.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn run(http: &str, shard: u32, to: u64) -> Result<Exit> {
    ask::post(http, &format!("/cluster/move?shard={shard}&to={to}"), PATIENCE)?;
    output::news(&format!("shard {shard} is led by node {to}"));
    Ok(Exit::Ok)
}
