//! `plimsoll cluster init`: founds one.

use std::path::Path;

use anyhow::{Context, Result};
use plimsoll_server::broker;

use crate::cluster_args::MembersArg;
use crate::exit::Exit;
use crate::output;

pub(super) fn run(dir: &Path, members: MembersArg) -> Result<Exit> {
    let id = broker::found(dir).with_context(|| format!("no cluster in {}", dir.display()))?;
    output::text(&format!("cluster-id = {id:?}\nmembers = {:?}\n", String::from(members)))?;
    output::news(&format!("founded; it lives in {}", dir.display()));
    Ok(Exit::Ok)
}
