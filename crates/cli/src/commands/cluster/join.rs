//! `plimsoll cluster join`: one more broker may come.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cluster_args::MembersArg;
use crate::commands::ask;
use crate::exit::Exit;
use crate::output;

/// How long it may take: a majority's disks are waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the new broker is to be told. A newer broker may say more.
#[derive(Debug, Deserialize)]
struct Named {
    node: u64,
    cluster: String,
    members: BTreeMap<u64, String>,
}

pub(super) fn run(http: &str, address: &str, node: Option<u64>, json: bool) -> Result<Exit> {
    let number = node.map(|node| format!("&node={node}")).unwrap_or_default();
    let path = format!("/cluster/join?address={address}{number}");
    let answer = ask::post(http, &path, PATIENCE)?;
    if json {
        output::text(&answer)?;
        return Ok(Exit::Ok);
    }
    let read = serde_json::from_str(&answer);
    let Named { node, cluster, members } =
        read.with_context(|| format!("what {http} answers is none"))?;
    let members = String::from(MembersArg(members));
    output::text(&format!("cluster-id = {cluster:?}\nmembers = {members:?}\nnode = {node}\n"))?;
    output::news(&format!(
        "node {node} may come: start it there with `plimsoll serve --config FILE`, where FILE has these settings, in an empty directory"
    ));
    Ok(Exit::Ok)
}
