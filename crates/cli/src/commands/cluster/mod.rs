//! `plimsoll cluster`: what an operator does with several brokers.

mod drain;
mod init;
mod join;
mod move_leader;
mod recover;
mod remove;
mod scrub;
mod status;

use anyhow::Result;

use crate::cluster_args::ClusterCommand;
use crate::exit::Exit;

pub(crate) fn run(command: ClusterCommand) -> Result<Exit> {
    match command {
        ClusterCommand::Init { dir, members } => init::run(&dir, members),
        ClusterCommand::Join { address, node, http, json } => {
            join::run(&http, &address, node, json)
        }
        ClusterCommand::Remove { node, http } => remove::run(&http, node),
        ClusterCommand::Drain { http, undo, json } => drain::run(&http, undo, json),
        ClusterCommand::Status { http, json } => status::run(&http, json),
        ClusterCommand::Recover { digests, dry_run, http, json } => {
            recover::run(&http, &digests, dry_run, json)
        }
        ClusterCommand::Scrub { rate, report, http, json } => {
            let rate = (!report).then_some(rate);
            scrub::run(&http, rate, json)
        }
        ClusterCommand::Move { shard, to, http } => move_leader::run(&http, shard, to),
    }
}
