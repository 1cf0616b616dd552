//! What can be typed after `plimsoll disk`, and what it means to the library.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use plimsoll_simdisk::block::{Fault, State};

use crate::size::bytes;

/// What to do with a disk that forgets.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Say what works here, tier by tier, and why the rest does not
    #[command(after_help = "Example:
  plimsoll disk doctor --json | jq '.[] | select(.state != \"available\")'

With PLIMSOLL_REQUIRE=realfs in the environment a filesystem that is skipped is a failure (exit 1).")]
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a workload once on a disk that records every write and flush
    ///
    /// {dir} in the command is the directory on the disk; it is also in PLIMSOLL_DIR. Before the
    /// workload tells anybody that something is safe it says so here: as a line to the socket
    /// PLIMSOLL_MARK_SOCKET or to the descriptor PLIMSOLL_MARK_FD, and waits for the answer `ok`; or by
    /// `plimsoll disk mark TEXT`.
    #[command(after_help = "Examples:
  plimsoll disk record -o trace/ -- ./workload {dir}
  plimsoll disk record --fs ext4,xfs,btrfs --jobs 3 --size 1GiB -o trace/ -- ./workload {dir}
  plimsoll disk record --fs ext4 --mount-options barrier=0 -o bad/ -- ./workload {dir}
  plimsoll disk record --fault 'flush dropped sticky' -o lying/ -- ./workload {dir}
  plimsoll disk record --mark-on 'committed ([0-9]+)' --for 30s -o trace/ -- ./server {dir}
  plimsoll disk record --writeback -o trace/ -- ./never-syncs {dir}
  plimsoll disk record --setup 'initdb {dir}/data' -o trace/ -- ./server-and-clients {dir}/data
  plimsoll disk record --from /var/lib/app --size 2GiB -o trace/ -- ./server {dir}

Exit status: that of the workload, if it is not 0; 2 it cannot run here, --setup or --from failed, or a
trace is there already; 130 interrupted (143 by SIGTERM), and nothing is saved of what was still running.")]
    Record(RecordArgs),
    /// Say that something is about to be acknowledged; from inside a workload
    #[command(after_help = "Example, in a shell script that is recorded:
  sync data.db && plimsoll disk mark 17 && echo 'committed 17'")]
    Mark {
        /// One line; often a number
        text: String,
    },
    /// Cut the power of a recording at thousands of points, and have each state checked
    ///
    /// The check finds the directory in {dir} and PLIMSOLL_DIR, the last mark in PLIMSOLL_LAST_MARK (empty if
    /// there was none), and all marks, a line each, in the file PLIMSOLL_MARKS. It exits with 0: all that was
    /// acknowledged is there; 1: something is lost or wrong; 2: it opened, and reports the loss; 3: it
    /// refuses to open. That the kernel does not mount a state is counted apart.
    ///
    /// States are checked in parallel, two a processor, each in a directory that no other check sees. A
    /// check that uses something else that there is once, like a port, needs --workers 1.
    #[command(after_help = "Examples:
  plimsoll disk explore trace/ --check './verify {dir}'
  plimsoll disk explore trace/ext4.trace --check './verify {dir}' --states 20000 --seed 7
  plimsoll disk explore trace/ --check './verify {dir}' --tear 512       adversarial
  plimsoll disk explore trace/ --check './verify {dir}' --modes torn     nothing but torn writes
  plimsoll disk explore trace/ --check './verify {dir}' --lying          must find something
  plimsoll disk explore trace/ --check './verify {dir}' --junit crash.xml    for CI
  plimsoll disk explore trace/ --check './verify {dir}' --json | jq 'select(.verdict != \"ok\")'

Results are kept beside each trace (.states.jsonl, .html, .summary.json; with --lying .lying.states.jsonl and
so on). The same question goes on where it was stopped: the same trace, check (with the files that it names),
options and kernel. Results of another question are kept as .1.states.jsonl and so on.

Preferred are states that have a mark before them and a pending write, or keep a part of what was
pending. The summary says how many states could have failed, and how.

Exit status: 0 every state that could be checked passed; 1 one did not; 2 it cannot run here, or the shell
does not find the check; 3 it tested nothing: none could be checked, all are one disk, none had a mark before it or a pending write, or a
mode of --modes has no states; 130 interrupted (143 by SIGTERM). A state that the kernel does not mount fails, unless it is torn below
4 KiB or the disk lies: then it is counted apart, and neither passes nor fails. As everywhere, a reader
of the output that goes away (`| head`) ends it early with 0, which says nothing of the states; what was
found by then is kept.")]
    Explore(ExploreArgs),
    /// Mount one crash state, and say what it lost
    #[command(after_help = "Examples:
  plimsoll disk replay trace/ext4.trace point=688,mode=subset,seed=2
  plimsoll disk replay trace/ext4.trace point=688,mode=durable --check './verify {dir}'
  plimsoll disk replay trace/ext4.trace point=688,mode=durable --keep-mounted

With --keep-mounted on a terminal a shell is started in the directory; elsewhere the command to
enter is printed, and Ctrl-C ends it. Without --check nothing is checked, and with --json `verdict`
is null. Exit status: 0 it mounted and the check, if any, passed; 1 not; 2 it cannot run here; 130 (143 by SIGTERM) the
check was interrupted.")]
    Replay(ReplayArgs),
    /// Find the fewest lost writes with which a state still fails, and whose they were
    ///
    /// Where nothing had to be lost, because it had not been sent to the disk at all, it finds the fewest later
    /// writes with which the check passes: whose they are, when they came and were flushed, which
    /// files differ by them and which others name those.
    #[command(after_help = "Examples:
  plimsoll disk shrink trace/ext4.trace point=688,mode=durable --check './verify {dir}'
  plimsoll disk shrink trace/ext4.trace point=688,mode=arrived --check './verify {dir}' --json | jq .lacking

Exit status: 0 it was shrunk; 1 the state does not fail; 2 it cannot run here; 130 interrupted (143 by SIGTERM).")]
    Shrink(ShrinkArgs),
    /// Run, cut the power, recover, check, and go on with what is left, over and over
    ///
    /// One disk lives through it all. The workload is cut off at a random moment; marks of all
    /// generations are told to each check.
    #[command(after_help = "Examples:
  plimsoll disk cycle --fs xfs --for 10m --run './server {dir}' --check './verify {dir}'
  plimsoll disk cycle --cycles 500 --cut-after 5ms..100ms --run './w {dir}' --check './v {dir}'
  plimsoll disk cycle --cycles 1 --cut-on USR1 --run './server {dir}' --check './verify {dir}'

The workload must say what it acknowledges, as in `record`: if no generation says anything, nothing
is checked, and that is an error. With --cut-on USR1 the power goes when somebody sends that signal:
`kill -USR1` and the number of this process, or inside of the workload `kill -USR1 1`.

A generation that fails is saved as a trace of its end, with the state to replay. Exit status: 0 every
check passed; 1 one did not; 2 it cannot run here, or there was nothing to check; 130 interrupted (143 by SIGTERM).")]
    Cycle(CycleArgs),
    /// Run something on a disk that fails, lies or is slow
    #[command(after_help = "Examples:
  plimsoll disk run --fault 'flush EIO nth=3' -- ./server {dir}
  plimsoll disk run --fault 'write ENOSPC sticky range=100MiB..' -- ./server {dir}
  plimsoll disk run --fault 'write lost has=COMMIT' --fault 'read flip chance=1%' -- ./w {dir}
  plimsoll disk run --latency antirez-2010 -- ./server {dir}
  plimsoll disk run --latency plimsoll-results/TIME/sync-cost.json -- ./w {dir}

Faults: read|write|flush|discard, then EIO|ENOSPC|ETIMEDOUT, or what the device does: lost, misdirected
or flip (write), dropped (flush), flip or unreadable (read); then nth=N, times=N, sticky, chance=P%,
range=A..B, has=TEXT or has=0xHEX, after=MARK. Without, a fault happens once.

Latency models: hdd-7200, antirez-2010, sata-consumer, nvme-consumer, nvme-plp, cloud-volume, or a
result file of `plimsoll lab run sync-cost`.

Nothing is recorded. Exit status: that of the command; 2 it cannot run here; 130 interrupted (143 by SIGTERM).")]
    Run(RunArgs),
}

/// The disk, and what is on it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DiskArgs {
    /// How large the disk is; what is not written takes no memory
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = bytes)]
    pub(crate) size: u64,
    /// Another argument for mkfs; may be given several times. One that begins with -l takes the place of the short
    /// log that xfs gets
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) mkfs: Vec<String>,
    /// Options of the mount, with commas
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub(crate) mount_options: String,
    /// A directory that is copied to {dir} first, as it is: owners, modes, links, holes
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// A line for the shell that makes {dir} ready then, like initdb and a schema. It is synced, and part of
    /// the disk as it was at first: no power cut takes it
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,
    /// What the disk does wrong, such as 'flush EIO nth=3' (see `plimsoll disk run --help`); may be
    /// given several times
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<Fault>,
    /// Which device's latency to imitate: a model, or a result file of `plimsoll lab`
    #[arg(long, value_name = "MODEL")]
    pub(crate) latency: Option<String>,
    /// Write cache of the latency model
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "latency")]
    pub(crate) cache: Option<u64>,
    /// Seed of the faults, and of the cuts of `cycle`
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What to record.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RecordArgs {
    /// On which filesystems
    #[arg(long, value_name = "FS", value_delimiter = ',', default_value = "ext4", value_parser = FILESYSTEMS)]
    pub(crate) fs: Vec<String>,
    #[command(flatten)]
    pub(crate) disk: DiskArgs,
    /// End the workload after so long, like 30s; that is not a failure
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// Have the kernel write what the workload does not sync: data while it runs, without a flush, and all at
    /// its end. For software that never syncs: it has nothing that could be reordered else
    #[arg(long)]
    pub(crate) writeback: bool,
    /// Make a mark of each line that the workload prints and that matches: of the first group, or of all that
    /// matches. For servers that cannot be changed. The line is heard after it was printed, so what it
    /// promises is checked less strictly than what `plimsoll disk mark` does
    #[arg(long, value_name = "REGEX")]
    pub(crate) mark_on: Option<String>,
    /// Most memory that the recording may take
    #[arg(long, value_name = "BYTES", default_value = "2GiB", value_parser = bytes)]
    pub(crate) limit_bytes: u64,
    /// How many filesystems at once. Each workload has a disk of its own at the same path; what else there
    /// is once, like a port, they share
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) jobs: u8,
    /// Directory for the traces: FS.trace
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: PathBuf,
    /// Replace traces that are there. What was found of them is kept under other names
    #[arg(long)]
    pub(crate) force: bool,
    /// The workload and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// How a trace is seen: the same trace and state, seen in the same way, are the same disk.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ViewArgs {
    /// As if no flush had done anything: a check that finds nothing now finds nothing ever
    #[arg(long)]
    pub(crate) lying: bool,
    /// As if the write cache held so much, and the rest were on the medium
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) cache: Option<u64>,
    /// More options of the mount, with commas
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub(crate) mount_options: String,
}

impl fmt::Display for ViewArgs {
    /// As it is typed, with a space before each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lying {
            f.write_str(" --lying")?;
        }
        if let Some(bytes) = self.cache {
            write!(f, " --cache {bytes}")?;
        }
        if !self.mount_options.is_empty() {
            write!(f, " --mount-options {}", quoted(&self.mount_options))?;
        }
        Ok(())
    }
}

/// What checks.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CheckArgs {
    /// A line for the shell that checks what is in {dir}
    #[arg(long, value_name = "COMMAND", value_parser = line_of_a_check)]
    pub(crate) check: String,
    /// A check that takes longer is broken
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    pub(crate) check_limit: Duration,
}

/// The shell is content with an empty line, as it is with an unset variable in a script: each state would pass.
fn line_of_a_check(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("an empty line checks nothing".to_owned());
    }
    Ok(text.to_owned())
}

impl fmt::Display for CheckArgs {
    /// As it is typed, with a space before each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --check {}", quoted(&self.check))?;
        if self.check_limit != CHECK_LIMIT {
            write!(f, " --check-limit {}ms", self.check_limit.as_millis())?;
        }
        Ok(())
    }
}

/// What to explore.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ExploreArgs {
    /// A trace, or a directory of traces
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    /// How many states of each trace; fewer if there are hardly any more that differ
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) states: u64,
    /// Only states that lose what is pending in these ways [default: a third flush boundaries, a third
    /// all combinations of few pending writes, the rest arrived, subset and torn at random]
    #[arg(long, value_name = "MODE", value_delimiter = ',',
          value_parser = ["durable", "arrived", "subset", "torn"])]
    pub(crate) modes: Vec<String>,
    /// What a device writes whole, in bytes: 4096, or 512 to be adversarial
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) tear: u32,
    /// Try all combinations where at most so many writes are pending
    #[arg(long, value_name = "WRITES", default_value_t = 6)]
    pub(crate) exhaustive: u32,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many at once [default: two a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: Option<u16>,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
    /// Begin anew, though results of this command are there
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Write what was found as JUnit's XML, for CI: a test case for each state. An earlier report of that
    /// name is removed first, and if this cannot run there is none; anything else is left as it is
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Print a line of JSON for each state, those taken over first; the summary is in the file
    /// .summary.json
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to replay.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ReplayArgs {
    /// The trace
    pub(crate) trace: PathBuf,
    /// The state, as `explore` says it
    pub(crate) state: State,
    /// A line for the shell that checks what is in {dir}
    #[arg(long, value_name = "COMMAND", value_parser = line_of_a_check)]
    pub(crate) check: Option<String>,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
    /// Keep it mounted, to look at it
    #[arg(long)]
    pub(crate) keep_mounted: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "keep_mounted")]
    pub(crate) json: bool,
}

/// What to shrink.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ShrinkArgs {
    /// The trace
    pub(crate) trace: PathBuf,
    /// The state that fails, as `explore` says it
    pub(crate) state: State,
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    #[command(flatten)]
    pub(crate) view: ViewArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to cycle.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CycleArgs {
    /// On which filesystem
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = FILESYSTEMS)]
    pub(crate) fs: String,
    #[command(flatten)]
    pub(crate) disk: DiskArgs,
    /// A line for the shell that works in {dir}; PLIMSOLL_GENERATION says how often the power was cut
    #[arg(long, value_name = "COMMAND")]
    pub(crate) run: String,
    /// A line for the shell that recovers, before the check
    #[arg(long, value_name = "COMMAND")]
    pub(crate) recover: Option<String>,
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    /// Go on for so long
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = humantime::parse_duration)]
    pub(crate) time: Duration,
    /// Or so often
    #[arg(long, value_name = "N", conflicts_with = "time")]
    pub(crate) cycles: Option<u64>,
    /// Make a mark of each line of the workload that matches: of the first group, or of all that matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) mark_on: Option<String>,
    /// When to cut, after the workload began
    #[arg(long, value_name = "FROM..TO", default_value = "10ms..500ms", value_parser = span)]
    pub(crate) cut_after: (Duration, Duration),
    /// Cut when this signal comes instead (within 20 ms of it)
    #[arg(long, value_name = "SIGNAL", value_parser = ["USR1"], conflicts_with = "cut_after")]
    pub(crate) cut_on: Option<String>,
    /// Directory for the generation that fails
    #[arg(short, long, value_name = "DIR", default_value = "plimsoll-cycle")]
    pub(crate) output: PathBuf,
    /// Print a line of JSON for each generation
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RunArgs {
    /// On which filesystem
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = FILESYSTEMS)]
    pub(crate) fs: String,
    #[command(flatten)]
    pub(crate) disk: DiskArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The default.
const CHECK_LIMIT: Duration = Duration::from_secs(60);
const FILESYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// `10ms..2s`
fn span(text: &str) -> Result<(Duration, Duration), String> {
    let wrong = || "not two times like 10ms..2s".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let time = |text: &str| humantime::parse_duration(text).map_err(|_no| wrong());
    let (from, to) = (time(from)?, time(to)?);
    if from <= to { Ok((from, to)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_ends_in_order() {
        let ms = Duration::from_millis;
        assert_eq!(span("10ms..2s"), Ok((ms(10), ms(2000))));
        assert!(span("10ms").is_err() && span("2s..1s").is_err() && span("1..2").is_err());
    }

    #[test]
    fn a_view_is_printed_as_it_is_typed() {
        #[derive(clap::Parser)]
        struct Typed {
            #[command(flatten)]
            view: ViewArgs,
            #[command(flatten)]
            check: CheckArgs,
        }
        let check = |words: &[&str]| <Typed as clap::Parser>::parse_from(words).check.to_string();
        assert_eq!(check(&["x", "--check", "./v {dir}"]), " --check './v {dir}'");
        let patient = ["x", "--check", "v", "--check-limit", "2m"];
        assert_eq!(check(&patient), " --check v --check-limit 120000ms");
        let typed = |words: &[&str]| {
            <Typed as clap::Parser>::parse_from(words.iter().chain(&["--check", "v"]))
                .view
                .to_string()
        };
        assert_eq!(typed(&["x"]), "");
        let all = ["x", "--lying", "--cache", "64KiB", "--mount-options", "barrier=0,data=journal"];
        assert_eq!(typed(&all), " --lying --cache 65536 --mount-options barrier=0,data=journal");
        assert_eq!(typed(&["x", "--mount-options", "a b'c"]), " --mount-options 'a b'\\''c'");
        assert_eq!((quoted("a/b.trace"), quoted("")), ("a/b.trace".to_owned(), "''".to_owned()));
    }
}
