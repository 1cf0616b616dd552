//! `plimsoll cluster drain`: a node hands over what it leads, so that it can be stopped.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_server::broker::DRAINS_WITHIN;
use serde::Deserialize;

use crate::commands::ask;
use crate::exit::Exit;
use crate::output;

/// How long it may take: as long as the broker takes, and the way there and back on a busy machine.
const PATIENCE: Duration = DRAINS_WITHIN.saturating_add(Duration::from_secs(30));

/// What the node has done. A newer broker may say more.
#[derive(Debug, Deserialize)]
struct Drained {
    handed: BTreeMap<u32, u64>,
    kept: BTreeMap<u32, String>,
    unsynced: BTreeMap<u32, String>,
    #[serde(default)]
    needed: BTreeMap<u32, String>,
    #[serde(default)]
    is_undone: bool,
}

impl Drained {
    /// Whether it may be stopped, and nobody notices.
    fn is_ready(&self) -> bool {
        let waits = [&self.kept, &self.unsynced, &self.needed];
        !self.is_undone && waits.iter().all(|shards| shards.is_empty())
    }
}

pub(super) fn run(http: &str, undo: bool, json: bool) -> Result<Exit> {
    let path = if undo { "/cluster/drain?undo=true" } else { "/cluster/drain" };
    if !undo {
        output::news(
            "it hands over, and waits until all is durable and the others go on at once without it; `plimsoll cluster status` says who lags. \
             Ctrl-C ends the waiting only: it is drained until `--undo`, or a start",
        );
    }
    let waiting = output::waiting();
    let answer = ask::post(http, path, PATIENCE)?;
    drop(waiting);
    let read = serde_json::from_str(&answer);
    let drained: Drained = read.with_context(|| format!("what {http} answers is none"))?;
    output::text(&if json { answer } else { said(&drained, undo) })?;
    Ok(if drained.is_ready() { Exit::Ok } else { Exit::CheckFailed })
}

fn said(drained: &Drained, undo: bool) -> String {
    if undo {
        return "it may lead again\n".to_owned();
    }
    let mut said = String::new();
    let mut line =
        |text: std::fmt::Arguments<'_>| writeln!(said, "{text}").expect("a string grows");
    for (shard, to) in &drained.handed {
        line(format_args!("shard {shard} is led by node {to}"));
    }
    for (shard, why) in &drained.kept {
        line(format_args!("shard {shard} is led here still: {why}"));
    }
    for (shard, why) in &drained.unsynced {
        line(format_args!("shard {shard} is not all durable on a majority: {why}"));
    }
    if drained.is_undone {
        line(format_args!("it was told to stay meanwhile"));
    }
    for (shard, why) in &drained.needed {
        line(format_args!("shard {shard} would not go on at once without this node: {why}"));
    }
    if drained.is_ready() {
        line(format_args!("it leads nothing, and all that it has is durable: stop it"));
    } else {
        line(format_args!(
            "stopped now it would be missed: drain it again once that has changed, or let it lead again with --undo"
        ));
    }
    said
}
