//! `plimsoll cluster init`: founds one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use plimsoll_server::broker;

use crate::cluster_args::MembersArg;
use crate::exit::Exit;
use crate::output;

pub(super) fn run(dir: &Path, members: MembersArg) -> Result<Exit> {
    check(&members.0)?;
    let id = broker::found(dir).with_context(|| format!("no cluster in {}", dir.display()))?;
    output::text(&format!("cluster-id = {id:?}\nmembers = {:?}\n", String::from(members)))?;
    output::news(&format!(
        "founded; it lives in {dir}: have it begin here with `plimsoll serve --dir {dir} --config FILE --node N`, where FILE has these settings and N is \
         the number that they give this machine; the others begin with theirs, in empty directories (`plimsoll cluster init --help` shows all of it)",
        dir = dir.display()
    ));
    Ok(Exit::Ok)
}

/// What nobody would begin with. A cluster comes to be so all the same: of one a second, or one in the place of another that is
/// away.
fn check(members: &BTreeMap<u64, String>) -> Result<()> {
    if members.len() == 2 {
        bail!("of two nodes none may be away; take one, or three");
    }
    let mut addresses = BTreeSet::new();
    if let Some(twice) = members.values().find(|address| !addresses.insert(*address)) {
        bail!("{twice} is the address of two nodes; each needs one of its own");
    }
    Ok(())
}
