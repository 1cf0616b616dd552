//! `plimsoll broker status`: how a broker that runs is.

use std::fmt::Write;

use anyhow::{Context, Result};
use plimsoll_server::broker::Unmet;
use serde::Deserialize;

use crate::commands::ask;
use crate::exit::Exit;
use crate::output::{self, counted};

/// What `/status` answers. A newer broker may say more.
#[derive(Debug, Deserialize)]
struct Status {
    version: String,
    cluster: String,
    dir: String,
    acknowledged: String,
    connections: u64,
    topics: u64,
    partitions: u64,
    groups: u64,
    shards: Vec<Shard>,
}

#[derive(Debug, Deserialize)]
struct Shard {
    number: u32,
    holds: String,
    offline: Option<String>,
    #[serde(default)]
    unmet: Option<Unmet>,
    committed: u64,
    durable: u64,
    at_risk_bytes: u64,
    at_risk_ms: u64,
}

pub(super) fn run(http: &str, json: bool) -> Result<Exit> {
    let answer = ask::get(http, "/status")?;
    let read = serde_json::from_str(&answer);
    let status: Status = read.with_context(|| format!("what {http} answers is no status"))?;
    output::text(&if json { answer } else { said(&status) })?;
    let takes_all = |shard: &Shard| shard.offline.is_none() && shard.unmet.is_none();
    Ok(if status.shards.iter().all(takes_all) { Exit::Ok } else { Exit::CheckFailed })
}

fn said(status: &Status) -> String {
    let Status { version, cluster, dir, acknowledged, connections, .. } = status;
    let bytes: u64 = status.shards.iter().map(|shard| shard.at_risk_bytes).sum();
    let oldest = status.shards.iter().map(|shard| shard.at_risk_ms).max().unwrap_or(0);
    let is_offline = status.shards.iter().any(|shard| shard.offline.is_some());
    let mut said = match bytes {
        0 if is_offline => "what a power cut would take now is not known here: every record that this broker knows to be acknowledged \
                            is durable, and of what is offline others may have acknowledged more\n"
            .to_owned(),
        0 => {
            "a power cut would take nothing now: every acknowledged record is durable\n".to_owned()
        }
        _ => format!(
            "a power cut would take at most {bytes} bytes now, acknowledged and not durable for up to \
             {oldest} ms\n"
        ),
    };
    said += &format!(
        "{}, {}, {}, {}; an acknowledged record is {acknowledged}\n",
        counted(status.topics, "topic"),
        counted(status.partitions, "partition"),
        counted(status.groups, "group"),
        counted(*connections, "connection"),
    );
    said += &format!("plimsoll {version}, data in {dir}, cluster {cluster}\n\n");
    said += &format!(
        "{:<32} {:>12} {:>12} {:>14} {:>8}\n",
        "shard", "C", "D", "bytes at risk", "oldest"
    );
    for shard in &status.shards {
        let name = format!("{} {}", shard.number, shard.holds);
        writeln!(
            said,
            "{name:<32} {:>12} {:>12} {:>14} {:>5} ms",
            shard.committed, shard.durable, shard.at_risk_bytes, shard.at_risk_ms
        )
        .expect("memory takes what is written");
        if let Some(why) = &shard.offline {
            said += &format!("  OFFLINE: {why}\n");
        }
        if let Some(unmet) = &shard.unmet {
            said += &format!("  REFUSES: {unmet}\n");
        }
    }
    said
}
