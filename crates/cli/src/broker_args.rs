//! What can be typed after `plimsoll broker`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;

use crate::size::bytes;

/// What to do with a broker.
#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// How a broker that runs is, and what a power cut would take of it now
    #[command(after_help = "Examples:
  plimsoll broker status
  plimsoll broker status --json | jq '.shards[] | {number, at_risk_bytes}'

Exit status: 0 all its shards take the records of all topics, 1 one is offline or refuses some, 2 it does not answer.")]
    Status {
        /// Where its health, metrics and status page are
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
    /// What acknowledgements would survive in a directory, before a broker runs there
    #[command(after_help = "Examples:
  plimsoll broker doctor --dir /var/lib/plimsoll
  plimsoll broker doctor --memory /run/plimsoll    is there room for the rings?

It reads no plimsoll.toml: what stands there must be named.

Exit status: 0 a broker can run here, 1 it cannot, or would keep nothing.")]
    Doctor {
        /// Where its data is, or would be
        #[arg(long, value_name = "DIR", env = "PLIMSOLL_DIR", default_value = "plimsoll-data")]
        dir: PathBuf,
        /// The directory on tmpfs for what is acknowledged and not with the kernel yet
        #[arg(
            long,
            value_name = "DIR",
            env = "PLIMSOLL_MEMORY",
            default_value = "/dev/shm/plimsoll"
        )]
        memory: PathBuf,
        /// Print what is found as JSON
        #[arg(long)]
        json: bool,
    },
    /// Read every chapter from the disk itself, past the page cache, and say what is bad
    #[command(after_help = "Examples:
  plimsoll broker scrub /var/lib/plimsoll
  plimsoll broker scrub DIR --rate unlimited && echo good    nobody else needs the disk
  plimsoll broker scrub DIR --json | jq '.damaged[]'

The broker may be running: nothing is changed, and no lock is taken. What is bad is named with its topic,
partition and offsets; readers of it get an error from the broker, and others go on. What is freed or merged
while it is read is no alarm. A broker that runs does the same by itself: `plimsoll serve --scrub-every 7d`.

Exit status: 0 good, or there is nothing to read, which is said; 1 something is damaged or missing; 2 it
cannot run; 130 interrupted (143 by SIGTERM).")]
    Scrub(ScrubArgs),
}

/// What to scrub.
#[derive(Debug, clap::Args)]
pub(crate) struct ScrubArgs {
    /// Data directory of a broker
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Bytes to read a second at most, or 'unlimited'
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    pub(crate) rate: Rate,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Bytes a second; `None`: as fast as the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) Option<NonZeroU64>);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(None));
        }
        let rate = bytes(text).map_err(|wrong| format!("{wrong}, nor unlimited"))?;
        let rate = NonZeroU64::new(rate).ok_or("nothing would ever be read")?;
        Ok(Self(Some(rate)))
    }
}
