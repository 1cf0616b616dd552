//! What can be typed, and what it means to the libraries.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use plimsoll_lab::experiment::{Experiment, Profile};
use plimsoll_lab::experiments;
use plimsoll_lab::session::{Options, PATIENCE};
use plimsoll_lab::usage::Usage;

use crate::backup_args::{BackupArgs, RestoreArgs};
use crate::broker_args::BrokerCommand;
use crate::chapter_args::ChapterCommand;
use crate::client_args::{ConsumeArgs, GroupCommand, ProduceArgs, TopicCommand};
use crate::cluster_args::ClusterCommand;
use crate::disk_args::DiskCommand;
use crate::log_args::LogCommand;
use crate::serve_args::ServeArgs;

/// Shows how much unsynced data a system may safely carry.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:
  plimsoll lab                     measure the disk of the current directory, in two minutes
  plimsoll lab list                what can be measured
  plimsoll lab explain sync-cost   how, and how to read it
  plimsoll lab compare OLD NEW     what changed between two runs
  plimsoll log append DIR          a record a line of stdin, safely and fast
  plimsoll log verify DIR          is everything still there?
  plimsoll disk doctor             can power cuts be tried here?
  plimsoll serve                   a broker for Kafka's clients
  plimsoll topic list              what a broker has, Plimsoll's or Kafka's
  plimsoll broker status           what would a power cut take of it now?
  plimsoll chapter verify DIR      is all that it has settled still there?
  plimsoll backup DIR DEST         of a broker that runs; `plimsoll restore` brings it back

Exit status: 0 ok, 1 a check failed, 2 wrong usage or cannot run here, 3 disk explore tested nothing,
129, 130 or 143 interrupted (hangup, Ctrl-C, SIGTERM)."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure what durability costs on this disk, and whether it is kept
    Lab(Box<LabArgs>),
    /// Append to a commit log, read it, check it
    #[command(
        arg_required_else_help = true,
        after_help = "Examples:
  journalctl -f | plimsoll log append DIR   a record a line, a sync a second
  plimsoll log tail -f DIR                  while it is being written
  plimsoll log stat DIR                     what would survive a power cut now?
  plimsoll log verify DIR                   is everything there? exit 1 if not"
    )]
    Log {
        /// What to do with it
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Cut the power under a database, thousands of times, and see what is left
    #[command(
        arg_required_else_help = true,
        after_help = "Examples:
  plimsoll disk doctor                                                     what works here?
  plimsoll disk record --fs ext4,xfs,btrfs -o trace/ -- ./workload {dir}   run it once
  plimsoll disk explore trace/ --check './verify {dir}'                    cut the power 2000 times
  plimsoll disk replay trace/ext4.trace STATE --keep-mounted               look at the corpse
  plimsoll disk shrink trace/ext4.trace STATE --check './verify {dir}'     why did it die?
  plimsoll disk run --fault 'flush EIO nth=3' -- ./server {dir}            under faults

All but doctor and mark need Linux and root."
    )]
    Disk {
        /// What to do with it
        #[command(subcommand)]
        command: Box<DiskCommand>,
    },
    /// Serve Kafka's clients: a broker on this log
    #[command(after_help = "Examples:
  plimsoll serve                                   data in ./plimsoll-data, port 9092 of this machine
  plimsoll serve --dir /var/lib/plimsoll --listen 127.0.0.1:19092
  plimsoll serve --listen 0.0.0.0:9092 --advertise broker.example:9092 --allow-anyone
  plimsoll serve --print-config > plimsoll.toml    every setting, to be changed there
  PLIMSOLL_LOG=warn plimsoll serve                 on stderr not what it does, only what it meets

Ctrl-C and SIGTERM: no new work, all that was acknowledged is made durable, and it ends.

Exit status: 0 stopped, all is durable; 1 its disk has failed, and other brokers lead what it led: start it
again, or replace the disk; 2 it cannot run here, or what was acknowledged may not all be durable.")]
    Serve(Box<ServeArgs>),
    /// Make, change and look at the topics of a broker, Plimsoll's or Kafka's
    #[command(
        arg_required_else_help = true,
        after_help = "Examples:
  plimsoll topic create orders --partitions 12
  plimsoll topic describe orders               where it begins and ends, what it promises
  plimsoll topic list --broker db1:9092"
    )]
    Topic {
        /// What to do with them
        #[command(subcommand)]
        command: TopicCommand,
    },
    /// Look at the consumer groups of a broker, and set where they go on
    #[command(
        arg_required_else_help = true,
        after_help = "Examples:
  plimsoll group list
  plimsoll group describe shoppers             who is in it, and how far behind
  plimsoll group reset shoppers --topic orders --to-earliest --dry-run"
    )]
    Group {
        /// What to do with them
        #[command(subcommand)]
        command: GroupCommand,
    },
    /// Send lines to a topic, a record a line
    Produce(Box<ProduceArgs>),
    /// Print the records of a topic
    Consume(ConsumeArgs),
    /// Ask a broker how it is, or a directory what a broker would keep there
    #[command(arg_required_else_help = true)]
    Broker {
        /// What to ask
        #[command(subcommand)]
        command: BrokerCommand,
    },
    /// Make several brokers one cluster, which goes on while a majority of them does
    #[command(arg_required_else_help = true)]
    Cluster {
        /// What to do
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Look at what a broker has settled: the records that its logs have let go of
    #[command(
        arg_required_else_help = true,
        after_help = "Examples:
  plimsoll chapter list DIR                                which files, and how much of them lives?
  plimsoll chapter verify DIR                              is everything there? exit 1 if not
  plimsoll chapter cat DIR --topic orders --partition 0    without a broker

They change nothing, take no lock, and work beside the broker that runs there."
    )]
    Chapter {
        /// What to do with it
        #[command(subcommand)]
        command: ChapterCommand,
    },
    /// Take a backup of a broker's data, while it runs: again into the same place, and only what is new is copied
    #[command(after_help = "Examples:
  plimsoll backup /var/lib/plimsoll /mnt/backup        the first copies all, the next what is new
  plimsoll backup DIR DEST --json | jq '.shards[].copied_bytes'
  plimsoll chapter verify DEST                         is all that it has settled still there?
  plimsoll restore DEST /var/lib/plimsoll-2            and back

SOURCE is only read, and no lock is taken. DEST has all that was durable in it when the command began: topics, settings,
offsets of groups, records. Records that are deleted there go here too. Each run of a chapter is verified as it is
copied. If it is stopped or killed, DEST has the backup that was; the next goes on.

Exit status: 0 ok; 1 something in SOURCE or DEST is damaged; 2 it cannot run; 130 interrupted (143 by SIGTERM).")]
    Backup(BackupArgs),
    /// Make a broker's data directory of a backup
    #[command(after_help = "Examples:
  plimsoll restore /mnt/backup /var/lib/plimsoll
  plimsoll serve --dir /var/lib/plimsoll               it goes on as after a power cut

All that is copied is verified; if something is damaged, nothing is restored. What was written after the backup is
gone, and the broker says so to consumers.

Exit status: 0 ok; 1 the backup is damaged; 2 it cannot run; 130 interrupted (143 by SIGTERM).")]
    Restore(RestoreArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  echo 'source <(plimsoll completions bash)' >> ~/.bashrc
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages, one for each command
    #[command(after_help = "Examples:
  plimsoll man ~/.local/share/man/man1
  plimsoll man /tmp/pages && man /tmp/pages/plimsoll-lab-run.1")]
    Man {
        /// Directory for them; it is made if it is not there
        dir: PathBuf,
    },
}

/// Without a subcommand: all experiments, quick profile, current directory.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  plimsoll lab                                        all experiments, quick, in this directory
  plimsoll lab --dir /var/lib/db                      the disk of your database
  plimsoll lab --for etcd                             is it fast enough? exit 1 if not
  plimsoll lab run sync-cost --profile full           narrow intervals and long tails
  plimsoll lab run sync-cost --only fdatasync/append  one arm
  plimsoll lab --details                              with all tables
  plimsoll lab --json > result.json                   for programs
  plimsoll lab report plimsoll-results/TIME           the page of a run, made again

One screen is printed, and a page is written beside the results. If others keep the machine busy, that is
said first and waited for, at most 30 s."
)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LabCommand>,
    #[command(flatten)]
    pub(crate) measure: Measure,
}

/// What to do in the lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run some experiments, or all but those that start brokers
    #[command(after_help = "Examples:
  plimsoll lab run sync-cost --dir /mnt/disk --budget 60s
  plimsoll lab run write-during-sync --profile article  the whole answer of one experiment
  plimsoll lab run replicated-commit                    a quorum's memory against a disk's sync
  plimsoll lab run sync-cost --only o_dsync --only fdatasync --seed 7 --details")]
    Run {
        /// Experiments, by name; if none is named, all but replicated-commit, which starts brokers
        #[arg(value_name = "EXPERIMENT", value_parser = experiment_names())]
        experiments: Vec<&'static dyn Experiment>,
        #[command(flatten)]
        measure: Measure,
    },
    /// Compare runs before and after: what is slower, what is faster, where no difference was seen
    ///
    /// OLD and NEW are result files, directories of them, or directories of such directories: then
    /// each is a run. Several runs a side say how far a median moves from run to run, so that smaller
    /// changes show; with one, only what about doubles or halves is called. Experiments and arms are
    /// paired by name.
    #[command(after_help = "Examples:
  plimsoll lab compare before/ after/
  plimsoll lab compare before/sync-cost.json after/sync-cost.json
  plimsoll lab --out before/1; plimsoll lab --out before/2; plimsoll lab --out before/3
  plimsoll lab compare before/ after/                   three runs a side, if after/ has them too
  plimsoll lab compare before/ after/ --fail-over 10%   exit 1 if anything is that much slower
  plimsoll lab compare before/ after/ --json | jq '.rows[] | select(.verdict == \"slower\")'

Exit status: 0 ok, 1 slower by more than --fail-over, 2 the results cannot be read or compared.")]
    Compare {
        /// Results of the run, or runs, before
        old: PathBuf,
        /// Results of the run, or runs, after
        new: PathBuf,
        /// Exit with 1 if a median is slower by more than this, like 10%, and by more than runs of
        /// one disk differ; what was measured on a busy machine is reported as undecided
        #[arg(long, value_name = "PERCENT", value_parser = percentage)]
        fail_over: Option<f64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a page of saved results: one file that needs no network
    #[command(after_help = "Examples:
  plimsoll lab report plimsoll-results/2026-11-21T04-30-00Z
  plimsoll lab report sync-cost.json write-during-sync.json -o page.html")]
    Report {
        /// Files of results, or directories of them
        #[arg(value_name = "RESULT", required = true)]
        results: Vec<PathBuf>,
        /// The page; what is there is replaced if it is a page of plimsoll, and else left alone
        #[arg(short, long, value_name = "FILE", default_value = "report.html")]
        output: PathBuf,
    },
    /// Remove the scratch files of runs that were killed, and nothing else
    ///
    /// A directory is removed if its name is one of the lab's, the lab's lock file is in it, no process
    /// holds the lock, and it holds nothing but files and what brokers had. What is left alone is named,
    /// with the reason.
    #[command(after_help = "Examples:
  plimsoll lab clean                         what killed runs left in this directory
  plimsoll lab clean /var/lib/db --dry-run   what would be removed there?
  plimsoll lab clean --json | jq .bytes

Exit status: 0 nothing is left but what runs are using, 1 something is, 2 the directory cannot be read;
in a dry run, the same of what would be left.")]
    Clean {
        /// The directory that was measured
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// Remove nothing: say what would be
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the experiments and their questions
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say how an experiment measures, how to read it, and how it can mislead
    Explain {
        /// The experiment
        #[arg(value_name = "EXPERIMENT", value_parser = experiment_names())]
        experiment: &'static dyn Experiment,
    },
}

/// Where and how to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Measure {
    /// Directory to measure: files are written in a new directory below it, and removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Directory for the result files [default: plimsoll-results/TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How thoroughly
    #[arg(long, value_enum, default_value_t = ProfileArg::Quick)]
    profile: ProfileArg,
    /// Time for all experiments together, like 60s or 5m; if every arm cannot be measured once in it,
    /// that is said before the run begins [default: what the profile says]
    #[arg(long, value_name = "TIME", value_parser = budget)]
    budget: Option<Duration>,
    /// Seed of the order of the arms and of the bytes written [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// Only arms named so, or with a part that begins so; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// What the disk is for: etcd, postgres, or a limit of your own on p99, like 5ms; exit 1 if it is
    /// too slow, or if too little was measured to say
    #[arg(long = "for", value_name = "USE", value_parser = Usage::parse)]
    usage: Option<Usage>,
    /// Do not wait until others leave the machine in peace: if they keep it busy, what is measured is
    /// stamped so
    #[arg(long)]
    now: bool,
    /// Print every table, and every arm with all its figures
    #[arg(long)]
    details: bool,
    /// Print the results as JSON: an array, one object per experiment
    #[arg(long)]
    json: bool,
}

/// How thoroughly.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileArg {
    /// A first answer: under two minutes for everything
    Quick,
    /// Narrow intervals and long tails: a quarter of an hour
    Full,
    /// The sizes and rates of the articles that asked
    Article,
}

impl Measure {
    /// The directory to measure.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the answer is for programs.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// What the disk is for.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// How long to wait at most until others leave the machine in peace.
    pub(crate) fn patience(&self) -> Duration {
        if self.now { Duration::ZERO } else { PATIENCE }
    }

    /// Whether to print everything.
    pub(crate) fn details(&self) -> bool {
        self.details
    }

    /// What the lab is asked to do.
    pub(crate) fn options(&self, named: &[&'static dyn Experiment]) -> Options {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let experiments = if named.is_empty() { experiments::unasked() } else { named.to_vec() };
        Options {
            directory: self.dir.clone(),
            out: self.out.clone().unwrap_or_else(default_out),
            experiments,
            profile: match self.profile {
                ProfileArg::Quick => Profile::Quick,
                ProfileArg::Full => Profile::Full,
                ProfileArg::Article => Profile::Article,
            },
            budget: self.budget,
            seed: self.seed.unwrap_or(since_1970.as_secs()),
            only: self.only.clone(),
            program: std::env::current_exe().ok(),
        }
    }
}

/// `plimsoll-results/2026-11-21T04-30-00Z`: sorts by time, and no character that a shell minds.
fn default_out() -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    PathBuf::from("plimsoll-results").join(now.replace(':', "-"))
}

fn experiment_names() -> impl TypedValueParser<Value = &'static dyn Experiment> {
    let names = experiments::ALL.iter().map(|experiment| experiment.name());
    PossibleValuesParser::new(names)
        .map(|name| experiments::by_name(&name).expect("clap took it from the list"))
}

/// Longer runs wear the disk and tell no more.
const BUDGET_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

fn budget(text: &str) -> Result<Duration, String> {
    let budget = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; a number and a unit, like 60s or 5m"))?;
    if budget < Duration::from_secs(1) {
        return Err("less than a second measures nothing; try 60s".to_owned());
    }
    if budget > BUDGET_MAX {
        return Err("more than a week is more than a disk can stand; try 10m".to_owned());
    }
    Ok(budget)
}

/// `10%` as a share.
fn percentage(text: &str) -> Result<f64, String> {
    let Some(number) = text.strip_suffix('%') else {
        return Err("a percentage needs its unit, like 10%".to_owned());
    };
    match number.trim().parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err("not a percentage of zero or more, like 10%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_budget_needs_a_unit() {
        assert_eq!(budget("90s"), Ok(Duration::from_secs(90)));
        assert!(budget("90").unwrap_err().contains("60s"));
        assert!(budget("10ms").is_err() && budget("18446744073709551615s").is_err());
    }

    #[test]
    fn a_percentage_needs_its_unit_and_is_not_negative() {
        assert_eq!(percentage("10%"), Ok(0.1));
        assert_eq!(percentage("2.5 %"), Ok(0.025));
        assert!(percentage("10").unwrap_err().contains("10%"));
        for wrong in ["-5%", "%", "NaN%", "inf%", "ten%", "10%%"] {
            assert!(percentage(wrong).is_err(), "{wrong}");
        }
    }
}
