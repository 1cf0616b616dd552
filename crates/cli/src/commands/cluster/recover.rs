//! `plimsoll cluster recover`: fenced shards go on with what the disks have.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::status;
use crate::commands::ask;
use crate::exit::Exit;
use crate::output;

/// How long it may take until all have written down what was decided.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long until the shard is led: its nodes are closed in order, and opened again.
const LED_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(250);

/// What was decided. A newer broker may say more.
#[derive(Debug, Deserialize)]
struct GoesOn {
    shard: u32,
    generation: u64,
    nodes: Vec<u64>,
    guaranteed: u64,
    #[serde(default)]
    lost_durable: bool,
    #[serde(default)]
    unused: BTreeMap<u64, (u64, u64)>,
}

pub(super) fn run(http: &str, digests: &[String], dry_run: bool, json: bool) -> Result<Exit> {
    let is_one =
        |digest: &str| digest.len() == 32 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
    if let Some(digest) = digests.iter().find(|digest| !is_one(digest)) {
        bail!(
            "{digest:?} is no digest: 32 hexadecimal digits, which plimsoll cluster status shows"
        );
    }
    let path =
        format!("/cluster/recover?digest={}&dry_run={dry_run}", digests.join(",").to_lowercase());
    let answer = ask::post(http, &path, PATIENCE)?;
    let read: Result<Vec<GoesOn>, _> = serde_json::from_str(&answer);
    let decided = read.with_context(|| format!("what {http} answers is no decision"))?;
    if json {
        output::text(&answer)?;
    }
    let would = if dry_run { "would go on" } else { "goes on" };
    for GoesOn { shard, generation, nodes, guaranteed, lost_durable, unused } in &decided {
        let nodes: Vec<String> = nodes.iter().map(u64::to_string).collect();
        output::news(&format!(
            "shard {shard} {would} in generation {generation}, with the logs of nodes {}; all up to entry {guaranteed} is there",
            nodes.join(", ")
        ));
        if *lost_durable {
            output::news(
                "  disks have lost something of it, and may have with it how far offsets were given: its partitions go on 68719476736 (2^36) \
                 offsets higher",
            );
        }
        for (node, (term, last)) in unused {
            output::news(&format!(
                "  not used: what node {node}, which has no vote or is damaged, has behind that, up to entry {last} of term {term}"
            ));
        }
    }
    if dry_run {
        return Ok(Exit::Ok);
    }
    for GoesOn { shard, .. } in decided {
        let leader = wait_until_led(http, shard)?;
        output::news(&format!("shard {shard} is led by node {leader}"));
    }
    Ok(Exit::Ok)
}

/// The broker that is asked opens again meanwhile: it does not answer for a moment.
#[expect(clippy::disallowed_methods, reason = "nobody tells when a broker leads: one must ask")]
fn wait_until_led(http: &str, shard: u32) -> Result<u64> {
    let began = Instant::now();
    loop {
        sleep(LOOK);
        let rolls = ask::get(http, "/cluster/status").and_then(|said| status::read(http, &said));
        let roll = rolls.map(|rolls| rolls.into_iter().find(|roll| roll.shard == shard));
        match roll {
            Ok(Some(status::Roll { leader: Some(leader), .. })) => return Ok(leader),
            _ if began.elapsed() < LED_WITHIN => {}
            Ok(_) => bail!(
                "shard {shard} is not led after {} s: plimsoll cluster status says why",
                LED_WITHIN.as_secs()
            ),
            Err(why) => {
                return Err(why.context("it was decided, and who leads now is not known: ask another broker (plimsoll cluster status)"));
            }
        }
    }
}
