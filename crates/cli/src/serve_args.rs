//! What can be typed after `plimsoll serve`.

use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use serde::{Deserialize, Serialize};

use crate::cluster_args::{MembersArg, OnMajorityDirtyArg};
use crate::log_args::duration;
use crate::size::bytes;

/// What `--memory` says where an acknowledgement is to wait for the kernel.
pub(crate) const NO_MEMORY: &str = "none";

/// What `--scrub-every` says where nothing is scrubbed.
const NEVER: &str = "never";

/// What was typed, and what of it was typed, and not the environment's or a default.
#[derive(Debug)]
pub(crate) struct ServeArgs {
    pub(crate) typed: Typed,
    matches: ArgMatches,
}

/// How the broker runs. A file of settings has a key for each, of the same name.
#[derive(Debug, Args)]
pub(crate) struct Typed {
    /// Where its data is; made if it is not there
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_DIR", default_value = "plimsoll-data")]
    pub(crate) dir: PathBuf,
    /// Where clients are served
    #[arg(long, value_name = "ADDR", env = "PLIMSOLL_LISTEN", default_value = "127.0.0.1:9092")]
    pub(crate) listen: SocketAddr,
    /// Where health, metrics and the status page are; 'none': nowhere
    #[arg(long, value_name = "ADDR", env = "PLIMSOLL_HTTP", default_value = "127.0.0.1:9093")]
    pub(crate) http: HttpAddress,
    /// What clients are told to connect to, where that is not the address that it listens on; a node of a cluster that
    /// listens on all addresses needs it
    #[arg(long, value_name = "HOST:PORT", env = "PLIMSOLL_ADVERTISE")]
    pub(crate) advertise: Option<String>,
    /// Which node of its cluster it is; without members it is alone
    #[arg(long, value_name = "N", env = "PLIMSOLL_NODE", value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64))]
    pub(crate) node: Option<u64>,
    /// The nodes of its cluster, and where they find each other: `plimsoll cluster init` prints them
    #[arg(long, value_name = "N=HOST:PORT,...", env = "PLIMSOLL_MEMBERS")]
    pub(crate) members: Option<MembersArg>,
    /// Which cluster that is
    #[arg(long, value_name = "ID", env = "PLIMSOLL_CLUSTER_ID")]
    pub(crate) cluster_id: Option<String>,
    /// The failure domain that it is in: what one failure takes together. Consumers that name it read here
    #[arg(long, value_name = "NAME", env = "PLIMSOLL_RACK")]
    pub(crate) rack: Option<String>,
    /// Acknowledge from memory though a majority of the brokers is in one rack, or none is known: one power cut may
    /// take what was acknowledged
    #[arg(long, env = "PLIMSOLL_ALLOW_ONE_DOMAIN")]
    pub(crate) allow_one_domain: bool,
    /// How many brokers vote on a record, where there are so many: the others have it too. All brokers are told the same
    #[arg(
        long,
        value_name = "N",
        env = "PLIMSOLL_REPLICATION_FACTOR",
        default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(3..=7)
    )]
    pub(crate) replication_factor: u8,
    /// Leave what it leads where it was elected, instead of spreading leaders over the nodes
    #[arg(long, env = "PLIMSOLL_KEEP_LEADERS")]
    pub(crate) keep_leaders: bool,
    /// Of a shard most of whose replicas may have forgotten what they acknowledged; all nodes are told the same
    #[arg(
        long,
        value_name = "POLICY",
        env = "PLIMSOLL_ON_MAJORITY_DIRTY",
        default_value = "refuse",
        value_enum
    )]
    pub(crate) on_majority_dirty: OnMajorityDirtyArg,
    /// Serve others than this machine, though nobody has to say who they are: whoever reaches the address
    /// may read, write and delete everything
    #[arg(long, env = "PLIMSOLL_ALLOW_ANYONE")]
    pub(crate) allow_anyone: bool,
    /// A directory on tmpfs for what is acknowledged and not with the kernel yet; 'none': an
    /// acknowledgement waits for the kernel
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_MEMORY", default_value = "/dev/shm/plimsoll")]
    pub(crate) memory: PathBuf,
    /// Partitions of a topic for which no number is given
    #[arg(
        long,
        value_name = "N",
        env = "PLIMSOLL_PARTITIONS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) partitions: u32,
    /// Refuse topics that are not there, instead of making them
    #[arg(long, env = "PLIMSOLL_NO_AUTO_CREATE")]
    pub(crate) no_auto_create: bool,
    /// Bytes of a shard's log after which a chapter ends and is written again, sorted by partition; less on a small
    /// disk: two thirds of the reserve
    #[arg(
        long,
        value_name = "SIZE",
        env = "PLIMSOLL_CHAPTER_BYTES",
        default_value = "512MiB",
        value_parser = bytes
    )]
    pub(crate) chapter_bytes: u64,
    /// How long a chapter stays open at most
    #[arg(
        long,
        value_name = "TIME",
        env = "PLIMSOLL_CHAPTER_AGE",
        default_value = "1h",
        value_parser = duration
    )]
    pub(crate) chapter_age: Duration,
    /// How long the broker rests from one scrub to the next, which reads all chapters past the page cache, slowly;
    /// 'never': it does not
    #[arg(long, value_name = "TIME", env = "PLIMSOLL_SCRUB_EVERY", default_value = "7d")]
    pub(crate) scrub_every: Every,
    /// What `plimsoll lab` found out about this disk, for topics with plimsoll.flush=auto
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_PROFILE")]
    pub(crate) profile: Option<PathBuf>,
    /// A file of settings, which the environment and flags override [default: ./plimsoll.toml if it is
    /// there]
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print the settings that hold as such a file, with where each comes from, and do no more
    #[arg(long)]
    pub(crate) print_config: bool,
    /// End in order when standard input ends: so whoever starts a broker leaves none behind, however it ends itself
    #[arg(long, hide = true)]
    pub(crate) until_stdin_ends: bool,
}

/// Where operators are answered, if they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct HttpAddress(pub(crate) Option<SocketAddr>);

impl FromStr for HttpAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        if text == "none" {
            Ok(Self(None))
        } else {
            text.parse().map(|address| Self(Some(address)))
        }
    }
}

impl TryFrom<String> for HttpAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
            .map_err(|_wrong| format!("{text:?} is neither an address with a port nor none"))
    }
}

impl From<HttpAddress> for String {
    fn from(address: HttpAddress) -> Self {
        address.0.map_or_else(|| "none".to_owned(), |address| address.to_string())
    }
}

/// A time to rest; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Every(pub(crate) Option<Duration>);

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if ["0", NEVER].contains(&text) {
            return Ok(Self(None));
        }
        let rest = duration(text).map_err(|wrong| format!("{wrong}, or {NEVER}"))?;
        Ok(Self((!rest.is_zero()).then_some(rest)))
    }
}

impl TryFrom<String> for Every {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|wrong| format!("{text:?}: {wrong}"))
    }
}

impl From<Every> for String {
    fn from(every: Every) -> Self {
        every
            .0
            .map_or_else(|| NEVER.to_owned(), |rest| humantime::format_duration(rest).to_string())
    }
}

impl ServeArgs {
    /// Where the value of an argument comes from; `None` if it has none.
    pub(crate) fn source(&self, id: &str) -> Option<ValueSource> {
        self.matches.value_source(id)
    }
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        Typed::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Typed::augment_args_for_update(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self { typed: Typed::from_arg_matches(matches)?, matches: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.matches = matches.clone();
        self.typed.update_from_arg_matches(matches)
    }
}
