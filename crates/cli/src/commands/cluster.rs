//! `plimsoll cluster`: what an operator does with several brokers.

use anyhow::{Context, Result};
use plimsoll_server::broker;

use crate::cluster_args::{ClusterCommand, MembersArg};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(command: ClusterCommand) -> Result<Exit> {
    match command {
        ClusterCommand::Init { dir, members } => init(&dir, members),
    }
}

fn init(dir: &std::path::Path, members: MembersArg) -> Result<Exit> {
    let id = broker::found(dir).with_context(|| format!("no cluster in {}", dir.display()))?;
    output::text(&format!("cluster-id = {id:?}\nmembers = {:?}\n", String::from(members)))?;
    output::news(&format!("founded; it lives in {}", dir.display()));
    Ok(Exit::Ok)
}
