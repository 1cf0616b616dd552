//! What can be typed after `plimsoll cluster`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Subcommand, ValueEnum};
use plimsoll_server::broker::OnMajorityDirty;
use serde::{Deserialize, Serialize};

use crate::broker_args::Rate;

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Found a cluster in a new directory: once, on one of its nodes
    #[command(after_help = "Examples:
  plimsoll cluster init --dir /var/lib/plimsoll --members 1=a:9094,2=b:9094,3=c:9094 > cluster.toml
  plimsoll serve --config cluster.toml --node 1 --dir /var/lib/plimsoll --listen 0.0.0.0:9092 --advertise a:9092 \
    --http 0.0.0.0:9093 --allow-anyone                      on this machine, a
  plimsoll serve --config cluster.toml --node 2 ...         on b, the same with its own name; nothing to found there
  plimsoll cluster status                                   which of them are awaited: any that runs says it

It prints the settings that all nodes share. The others need no more than these: each is taken in once all
are there. A directory that was lost is never founded again: `plimsoll cluster join` has another come in its place.

Exit status: 0 founded, 2 it could not be, or something is in the directory.")]
    Init {
        /// Where this node's data is to be
        #[arg(long, value_name = "DIR", env = "PLIMSOLL_DIR", default_value = "plimsoll-data")]
        dir: PathBuf,
        /// All nodes: a number for each, and where the others find it
        #[arg(long, value_name = "N=HOST:PORT,...")]
        members: MembersArg,
    },
    /// Have one more broker come: prints the settings that it is to be started with
    #[command(after_help = "Examples:
  plimsoll cluster join --address d:9094 > node.toml                  asked of the broker of this machine
  plimsoll serve --config node.toml --dir /var/lib/plimsoll --listen 0.0.0.0:9092 --advertise d:9092 \
    --http 0.0.0.0:9093 --allow-anyone                                on the new machine, d
  plimsoll cluster join --address d:9094 && plimsoll cluster remove --node 3     d in place of what was lost

The new broker gets a number that none had, as far as the others know. Once it is there and has the log of a shard, it votes in that; in the control shard first.
The brokers that there are need no other settings: where the new one is stands in the control shard.

Exit status: 0 it may come, 2 it may not, or the broker does not answer.")]
    Join {
        /// Where the other brokers are to find it
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
        /// Its number; above all that nodes had
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64))]
        node: Option<u64>,
        /// Where health, metrics and status page of any broker are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
        /// Print what it answers as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a broker go, for good: it must never be started again
    #[command(after_help = "Examples:
  plimsoll cluster remove --node 3                                        it was lost
  plimsoll cluster drain --http c:9093 && plimsoll cluster remove --node 3     it is to be switched off

It is refused while the node may lead: have it drain first, or stop it; and while another of those that stay does not answer. Once it
votes in no shard any more, which is waited for, it can be stopped and its disk be used for something else. Nobody hears it from there on.

Exit status: 0 it votes nowhere, 2 it does, or the broker does not answer.")]
    Remove {
        /// Which
        #[arg(long, value_name = "N")]
        node: u64,
        /// Where health, metrics and status page of any broker that stays are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
    },
    /// Have a node hand over all that it leads, so that it can be stopped and nobody waits
    #[command(after_help = "Examples:
  plimsoll cluster drain                                 the broker of this machine
  plimsoll cluster drain --http b:9093 && ssh b systemctl restart plimsoll
  plimsoll cluster drain --undo                          it stays after all

Once all that it has is durable on a majority, the others have what was committed a moment ago and so go on at once without it,
and what its readers read last is noted for the next start, it says so. It leads nothing until it is started again. A broker that
is asked to stop hands over by itself; this waits for more, up to 30 s: for a node that has just been started, say, until that
has caught up.

Exit status: 0 it can be stopped, 1 it leads something still, not all is durable, or others lag, 2 it does not answer.")]
    Drain {
        /// Where its health, metrics and status page are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
        /// Have it lead again
        #[arg(long)]
        undo: bool,
        /// Print what it answers as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show who leads what, what each node says of itself, and after a loss what is left
    #[command(after_help = "Examples:
  plimsoll cluster status                          as the broker of this machine sees it
  plimsoll cluster status --http b:9093 --json | jq '.[] | {shard, condition, leader}'

A shard is led; or electing; or unreached, where fewer than a majority of its voters answer; or FENCED: a majority answers,
and too few of them know that they forgot nothing of what they acknowledged. A fenced shard takes and gives nothing. It goes on by itself
where a leader that survived, or enough nodes that forgot nothing, come back. Otherwise `plimsoll cluster recover` is told what
was shown here, by its digest.

How many more voters may fail before writes stop is of those that are heard, are not in doubt, and have what was committed a moment ago.

Exit status: 0 every shard is led and takes the records of all topics, 1 some do not, 2 the broker does not answer.")]
    Status {
        /// Where health, metrics and status page of any broker are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
        /// Print all that it answers as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have fenced shards go on with what the disks have: what is above that is lost
    #[command(after_help = "Examples:
  plimsoll cluster status                                               what is guaranteed, left, and in doubt
  plimsoll cluster recover --digest 5f0c... --digest a3b1... --dry-run  what would be done
  plimsoll cluster recover --digest 5f0c... --digest a3b1...

First bring back every node that can be: one that forgot nothing has what the others lost. All that was durable on a majority stays;
of what was acknowledged beyond, what the longest log has. The rest is gone, which the shard's log says from there on: offsets go
on behind those that were given away, and consumers that had read further are told so as Kafka's brokers tell of a truncation.
Nodes that do not answer now join when they come back. Shards that one power cut fenced are best told together: the brokers open
again for it, all their shards are away for some seconds, and then each of the others has another digest.

Exit status: 0 the shards are led, 2 they are not, or what was shown has changed.")]
    Recover {
        /// The digest of what `plimsoll cluster status` showed of a shard; once for each
        #[arg(long = "digest", value_name = "HEX", required = true)]
        digests: Vec<String>,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Where health, metrics and status page of any broker are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
        /// Print what was decided as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have every broker read all its chapters and logs from the disk itself, and heal what is damaged
    #[command(after_help = "Examples:
  plimsoll cluster scrub                                    and watch until it has ended
  plimsoll cluster scrub --rate 100MiB --json | jq .state   \"good\", \"damaged\" or \"unfinished\"
  plimsoll cluster scrub --report                           begin nothing: what was found last, and when that was

Each broker reads one shard after the other, past the page cache, while it serves. What is damaged is read from another
broker and put in its place; a run of a chapter that cannot be healed is named with its topic, partition and offsets, and why. Each broker does the same by
itself every week (plimsoll serve --scrub-every 7d). Ctrl-C stops the scrub that it began; one that somebody else began is watched, and goes on. Logs are
read too, of topics and groups as well: all that they have when their turn comes. The weekly one leaves out what is being written of records.

Exit status: 0 all was read, and all is good; 1 something was damaged, healed or not, or not all could be read;
2 the broker does not answer; 130 interrupted (143 by SIGTERM).")]
    Scrub {
        /// Bytes that each broker reads a second at most, or 'unlimited'
        #[arg(long, value_name = "SIZE", default_value = "16MiB", conflicts_with = "report")]
        rate: Rate,
        /// Say what was found last, and begin nothing
        #[arg(long)]
        report: bool,
        /// Where health, metrics and status page of any broker are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
        /// Print what was found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a node lead a shard
    #[command(after_help = "Examples:
  plimsoll cluster move --shard 2 --to 3
  curl -s localhost:9093/status | jq '.shards[] | {number, leader}'    who leads what

Producers and consumers are told where to go on, and wait for some milliseconds. Unless brokers run with --keep-leaders, the node
that is preferred by the shard's number leads again soon.

Exit status: 0 it leads, 2 it does not, or the broker does not answer.")]
    Move {
        /// Which shard
        #[arg(long, value_name = "S")]
        shard: u32,
        /// The node that is to lead it
        #[arg(long, value_name = "N")]
        to: u64,
        /// Where health, metrics and status page of any broker are
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "PLIMSOLL_HTTP",
            default_value = "127.0.0.1:9093"
        )]
        http: String,
    },
}

/// What is done where a majority may have forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnMajorityDirtyArg {
    /// An operator decides
    Refuse,
    /// After ten seconds it goes on with what the disks have
    AutoFence,
}

impl From<OnMajorityDirtyArg> for OnMajorityDirty {
    fn from(typed: OnMajorityDirtyArg) -> Self {
        match typed {
            OnMajorityDirtyArg::Refuse => Self::Refuse,
            OnMajorityDirtyArg::AutoFence => Self::AutoFence,
        }
    }
}

/// Nodes and where they are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct MembersArg(pub(crate) BTreeMap<u64, String>);

impl FromStr for MembersArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut members = BTreeMap::new();
        for member in text.split(',') {
            let parts = member.split_once('=');
            let (node, address) =
                parts.ok_or_else(|| format!("{member:?} is not NUMBER=HOST:PORT"))?;
            let number: Option<u64> = node.trim().parse().ok();
            // Kafka's clients know nodes by 31 bits.
            let fits = number.filter(|number| (1..=i32::MAX as u64).contains(number));
            let node = fits.ok_or_else(|| format!("{node:?} is no number from 1 to 2147483647"))?;
            let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() {
                return Err(format!("{address:?} is not HOST:PORT"));
            }
            if members.insert(node, address.trim().to_owned()).is_some() {
                return Err(format!("node {node} is named twice"));
            }
        }
        Ok(Self(members))
    }
}

impl TryFrom<String> for MembersArg {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<MembersArg> for String {
    fn from(members: MembersArg) -> Self {
        let each = members.0.iter().map(|(node, address)| format!("{node}={address}"));
        each.collect::<Vec<_>>().join(",")
    }
}
