//! What can be typed after `plimsoll broker`.

use std::path::PathBuf;

use clap::Subcommand;

/// What to do with a broker.
#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// How a broker that runs is, and what a power cut would take of it now
    #[command(after_help = "Examples:
  plimsoll broker status
  plimsoll broker status --json | jq '.shards[] | {number, at_risk_bytes}'

Exit status: 0 all its shards take records, 1 one is offline, 2 it does not answer.")]
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
}
