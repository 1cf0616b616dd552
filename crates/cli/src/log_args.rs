//! What can be typed after `plimsoll log`, and what it means to the library.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Subcommand, ValueEnum};
use plimsoll_log::{Ack, Policy};

use crate::size::bytes;

/// What to do with a log.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Append what stdin or files hold; makes the log if there is none
    ///
    /// Prints the indexes of the new records, all of them durable by then. Ctrl-C stops reading and
    /// keeps what was appended.
    #[command(after_help = "Examples:
  journalctl -f | plimsoll log append /var/lib/events       a record a line, a sync a second
  plimsoll log append DIR --policy always < orders.txt      a sync before each wait for more input
  plimsoll log append DIR --interval 50ms/8MiB              at most so much is at risk
  plimsoll log append DIR --policy auto --profile plimsoll-results/TIME/durability-profile.json
  plimsoll log append DIR --format file a.bin b.bin         a record a file
  plimsoll log cat OLD --format length | plimsoll log append NEW --format length
  plimsoll log append DIR --ring /dev/shm/events.ring       what is read survives kill -9 at once

Exit status: 0 ok; 1 durable records are lost; 2 wrong usage or input, or it cannot run here;
130 interrupted. After 2 and 130 it says up to which record everything is durable.")]
    Append(Box<AppendArgs>),
    /// Print the payloads of records, oldest first
    #[command(after_help = "Examples:
  plimsoll log cat DIR | grep -c error
  plimsoll log cat DIR --from 1000 --count 10
  plimsoll log cat DIR --from 1000 --to 1999 --format json
  plimsoll log cat DIR --format length > records.bin        exact, whatever the payloads hold

Exit status: 0 ok; 1 durable records are lost (what comes before them is printed); 2 no such log or
record.")]
    Cat(CatArgs),
    /// Print the last records, and with -f those that come
    #[command(after_help = "Examples:
  plimsoll log tail DIR
  plimsoll log tail DIR -n 100 --json
  plimsoll log tail DIR -f                                  while another process appends
  plimsoll log tail DIR -n 0 -f | grep --line-buffered error")]
    Tail(TailArgs),
    /// Say what is there, and what would survive a power cut now
    #[command(after_help = "Examples:
  plimsoll log stat DIR
  plimsoll log stat DIR --json | jq .may_be_lost

Reads little, changes nothing, and works beside the process that writes. Exit status: 0 ok; 1 durable
records are lost; 2 no such log.")]
    Stat(LookArgs),
    /// Read everything, and say of each segment whether it is what it should be
    #[command(after_help = "Examples:
  plimsoll log verify DIR && echo good
  plimsoll log verify DIR --json | jq '.segments[] | select(.state != \"good\")'

Exit status: 0 good (an unfinished last write is news, not damage: it was never acknowledged as
durable); 1 durable records are lost; 2 it cannot run.")]
    Verify(LookArgs),
    /// Remove the oldest records, or cut off the newest
    #[command(after_help = "Examples:
  plimsoll log truncate DIR --before 1000       what comes before record 1000 may go
  plimsoll log truncate DIR --keep-bytes 1GiB
  plimsoll log truncate DIR --older-than 7d
  plimsoll log truncate DIR --after 2000        records from 2001 on are gone for good
  plimsoll log truncate DIR --after 2000 --accept-loss --yes

From the old end whole segments go, so a little more is kept than was asked for; the last one stays.
No other process may have the log open.")]
    Truncate(TruncateArgs),
    /// Print the frames of the files: offsets, checksums, and why a bad one is bad
    #[command(after_help = "Examples:
  plimsoll log dump DIR | less
  plimsoll log dump DIR --segment 00000000000000000001.seg --payload
  plimsoll log dump DIR --from 1000 --json | jq 'select(.frame == \"bad\")'

Reads damaged files as well; that something is damaged is no failure of this command.")]
    Dump(DumpArgs),
}

/// Where the log is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct LogDir {
    /// Directory of the log
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// What to append, and how safely.
#[derive(Debug, clap::Args)]
pub(crate) struct AppendArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// What to read; stdin if none is named, or where one is `-`
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What a record is
    #[arg(long, value_enum, default_value_t = InputFormat::Lines)]
    pub(crate) format: InputFormat,
    /// When the log syncs on its own account
    #[arg(long, value_enum, default_value_t = PolicyArg::Everysec)]
    policy: PolicyArg,
    /// The durability profile of `plimsoll lab`, for --policy auto
    #[arg(long, value_name = "FILE", required_if_eq("policy", "auto"))]
    profile: Option<PathBuf>,
    /// Sync so often in the background: a time, or a time and a size, like 500ms/8MiB
    #[arg(long, value_name = "TIME[/SIZE]", value_parser = interval, conflicts_with = "policy")]
    interval: Option<Policy>,
    /// How far records must be before more is read [default: durable with --policy always, buffered
    /// otherwise]
    #[arg(long, value_enum)]
    ack: Option<AckArg>,
    /// Records of a batch: after a crash all of them are there, or none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    pub(crate) batch: u32,
    /// File on tmpfs that holds what is not yet durable: it survives a crash of this process; one for
    /// each log
    #[arg(long, value_name = "FILE")]
    pub(crate) ring: Option<PathBuf>,
    /// Bytes that may be accepted and not yet durable, a power of two up to 512MiB [default:
    /// 32MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) ring_bytes: Option<u64>,
    /// Size of new segment files [default: that of the log's newest, 64MiB for a new log]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) segment_bytes: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a record is in what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// A line, without its end
    Lines,
    /// A length of four bytes, the least first, and so many bytes
    Length,
    /// A whole file
    File,
}

/// How records are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The payload and a line end
    Lines,
    /// A length of four bytes, the least first, and the payload
    Length,
    /// A JSON object a line: index and payload
    Json,
}

/// When the log syncs on its own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArg {
    /// Only when a segment is full, and at the end
    Never,
    /// In the background: at most a second or 64 MiB are at risk
    Everysec,
    /// Before more input is waited for
    Always,
    /// In the background, as often as costs nothing by a profile of this disk
    Auto,
}

/// How far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AckArg {
    /// In memory
    Buffered,
    /// With the kernel: survives a crash of this process
    Written,
    /// On the disk: survives a power cut
    Durable,
}

/// Which records, and how to print them.
#[derive(Debug, clap::Args)]
pub(crate) struct CatArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// First record [default: the oldest]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Last record [default: the newest]
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    /// So many records at most
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// How to print them
    #[arg(long, value_enum, default_value_t = OutputFormat::Lines)]
    pub(crate) format: OutputFormat,
}

/// How many records, and whether to wait for more.
#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// So many records
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 10)]
    pub(crate) count: u64,
    /// Go on with the records that come, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print a JSON object a line: index and payload
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to look at.
#[derive(Debug, clap::Args)]
pub(crate) struct LookArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What goes.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("what").required(true).args(["before", "keep_bytes", "older_than", "after"]))]
pub(crate) struct TruncateArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// Keep this record and what comes after it
    #[arg(long, value_name = "N")]
    pub(crate) before: Option<u64>,
    /// Keep so many bytes of files
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) keep_bytes: Option<u64>,
    /// Keep what is younger, like 7d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) older_than: Option<Duration>,
    /// Cut off every record after this one, for good
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Go on although durable records are lost: the log is cut before the first of them; verify says
    /// which these are
    #[arg(long, requires = "after")]
    pub(crate) accept_loss: bool,
    /// Do not ask before records are cut off
    #[arg(long)]
    pub(crate) yes: bool,
    /// The ring's file, if the log was appended to with one
    #[arg(long, value_name = "FILE")]
    pub(crate) ring: Option<PathBuf>,
    /// Size of that ring, if it was chosen [default: 32MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "ring")]
    pub(crate) ring_bytes: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to dump.
#[derive(Debug, clap::Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// Only this file; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) segment: Vec<String>,
    /// From this record on
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Show what records hold: the first 64 bytes, escaped; all of them with --json
    #[arg(long)]
    pub(crate) payload: bool,
    /// Print a JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl AppendArgs {
    /// When the log is to sync.
    pub(crate) fn policy(&self) -> anyhow::Result<Policy> {
        if let Some(interval) = self.interval {
            return Ok(interval);
        }
        Ok(match (self.policy, &self.profile) {
            (PolicyArg::Never, _) => Policy::Never,
            (PolicyArg::Always, _) => Policy::Always,
            (PolicyArg::Auto, Some(profile)) => {
                let failed = || format!("the profile {}", profile.display());
                let text = std::fs::read_to_string(profile).map_err(anyhow::Error::from);
                let policy = text.and_then(|text| Ok(Policy::auto(&text)?));
                anyhow::Context::with_context(policy, failed)?
            }
            (PolicyArg::Everysec | PolicyArg::Auto, _) => Policy::everysec(),
        })
    }

    /// How far records must be before more is read.
    pub(crate) fn ack(&self, policy: Policy) -> Ack {
        match self.ack {
            None => policy.ack(),
            Some(AckArg::Buffered) => Ack::Buffered,
            Some(AckArg::Written) => Ack::Written,
            Some(AckArg::Durable) => Ack::Durable,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a number and a unit, like 250ms or 7d"))
}

/// `500ms`, `500ms/8MiB`.
fn interval(text: &str) -> Result<Policy, String> {
    let (time, size) = match text.split_once('/') {
        Some((time, size)) => (time, Some(size)),
        None => (text, None),
    };
    let max_age = duration(time.trim())?;
    let max_bytes = size.map_or(Ok(64 << 20), |size| bytes(size.trim()))?;
    if max_age.is_zero() || max_bytes == 0 {
        return Err("an interval of nothing; --policy always is what syncs at once".to_owned());
    }
    Ok(Policy::Interval { max_age, max_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_time_and_perhaps_a_size() {
        let max_age = Duration::from_millis(500);
        let both = Policy::Interval { max_age, max_bytes: 8 << 20 };
        assert_eq!(interval("500ms/8MiB"), Ok(both));
        let time = Policy::Interval { max_age, max_bytes: 64 << 20 };
        assert_eq!(interval("500ms"), Ok(time));
        for wrong in ["500", "0s", "1s/0", "1s/", "/8MiB"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
