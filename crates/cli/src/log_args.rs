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
  journalctl -f | plimsoll log append DIR            a record a line
  plimsoll log append DIR --policy always < orders   synced before each wait
  plimsoll log append DIR --interval 50ms/8MiB       syncs at least so often
  plimsoll log append DIR --policy auto --profile TIME/durability-profile.json
  plimsoll log append DIR --format file a.bin b.bin  a record a file
  plimsoll log cat A --format length | plimsoll log append B --format length
  plimsoll log append NEW --first-index 1000 < rest  a log that begins at 1000
  plimsoll log append DIR --ring /dev/shm/ring       survives kill -9 at once

With --interval, appends wait where the disk cannot keep up: at twice as much.

Exit status: 0 ok; 1 durable records are lost; 2 wrong usage or input, or it cannot run here;
130 interrupted (143 by SIGTERM). Where some of the input was appended all the same, it says up to which record
everything is durable.")]
    Append(Box<AppendArgs>),
    /// Print the payloads of records, oldest first
    #[command(after_help = "Examples:
  plimsoll log cat DIR | grep -c error
  plimsoll log cat DIR --from 1000 --count 10
  plimsoll log cat DIR --from 1000 --to 1999 --json
  plimsoll log cat DIR --format length > records     exact, whatever they hold

A record that --from or --to names and that is not there is an error, after those before it are
printed. Only the next one may be asked for, by --from without --to: nothing is printed.

Exit status: 0 ok; 1 durable records are lost (what comes before them is printed); 2 no such log or
record.")]
    Cat(CatArgs),
    /// Print the last records, and with -f those that come
    #[command(after_help = "Examples:
  plimsoll log tail DIR
  plimsoll log tail DIR -n 100 --json
  plimsoll log tail DIR -f                           beside its writer
  plimsoll log tail DIR -n 0 -f | grep --line-buffered error

With -f it ends when whoever reads its output does.

Exit status: 0 ok; 1 durable records are lost; 2 no such log; 130 interrupted (143 by SIGTERM).")]
    Tail(TailArgs),
    /// Say what is there, and what would at least survive a power cut now
    #[command(after_help = "Examples:
  plimsoll log stat DIR
  plimsoll log stat DIR --json | jq .may_be_lost

A log notes what is durable at most once in 4 KiB of records, so more of it may be. Reads little,
changes nothing, and works beside the process that writes.

Exit status: 0 ok; 1 durable records are lost; 2 no such log.")]
    Stat(LookArgs),
    /// Read everything, and say what is bad
    #[command(after_help = "Examples:
  plimsoll log verify DIR && echo good
  plimsoll log verify DIR --details                  every segment
  plimsoll log verify DIR --json | jq '.segments[] | select(.state != \"good\")'

Exit status: 0 good (an unfinished last write is news, not damage: nothing in the log says that it was
durable); 1 durable records are lost; 2 it cannot run.")]
    Verify(VerifyArgs),
    /// Remove the oldest records, or cut off the newest
    #[command(
        override_usage = "plimsoll log truncate [OPTIONS] <DIR> --before <N>
       plimsoll log truncate [OPTIONS] <DIR> --keep-bytes <SIZE>
       plimsoll log truncate [OPTIONS] <DIR> --older-than <TIME>
       plimsoll log truncate [OPTIONS] <DIR> --after <N>",
        after_help = "Examples:
  plimsoll log truncate DIR --before 1000            what is before 1000 may go
  plimsoll log truncate DIR --keep-bytes 1GiB
  plimsoll log truncate DIR --older-than 7d
  plimsoll log truncate DIR --after 2000             2001 and so on go for good
  plimsoll log truncate DIR --after 2000 --accept-loss --yes

From the old end whole segments go, and the last one stays: --before and --older-than keep a little more
than was asked for, --keep-bytes no more, where the last one is not larger by itself.
No other process may have the log open.

Exit status: 0 ok, also where there was nothing to remove; 1 durable records are lost; 2 it cannot
run."
    )]
    Truncate(TruncateArgs),
    /// Print the frames of the files: offsets, checksums, and why a bad one is bad
    #[command(after_help = "Examples:
  plimsoll log dump DIR | less
  plimsoll log dump DIR --segment 00000000000000000001.seg --payload
  plimsoll log dump DIR --from 1000 --json | jq 'select(.frame == \"bad\")'

Reads damaged files as well; that something is damaged is no failure of this command.

Exit status: 0 ok; 2 no such log, segment or record.")]
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
    /// Index of the first record; for a new log only [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1 << 63))]
    pub(crate) first_index: Option<u64>,
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
    format: OutputFormat,
    /// Print a JSON object a line: index and payload; the same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
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

/// What to verify.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) log: LogDir,
    /// List every segment, also those that are good
    #[arg(long)]
    pub(crate) details: bool,
    /// Print JSON: every segment
    #[arg(long, conflicts_with = "details")]
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
    /// Keep the newest segments whose files have at most so many bytes together; the last one stays
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

impl CatArgs {
    /// How to print records.
    pub(crate) fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.format }
    }
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

/// `250ms`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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
