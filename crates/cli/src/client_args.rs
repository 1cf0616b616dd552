//! What can be typed after `plimsoll topic`, `group`, `produce` and `consume`, and what it means to
//! the client.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{
    NonEmptyStringValueParser, PossibleValuesParser, RangedI64ValueParser, TypedValueParser,
};
use clap::{ArgGroup, Subcommand, ValueEnum};
use plimsoll_server::kafka::compression::Compression;

/// Which broker, and for whom the answer is.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Asked {
    /// A broker of the cluster, or several, of which the first that can be reached is asked
    #[arg(
        long,
        value_name = "ADDR[,ADDR...]",
        env = "PLIMSOLL_BROKER",
        hide_env_values = true,
        default_value = "127.0.0.1:9092"
    )]
    pub(crate) broker: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with topics.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Make a topic
    #[command(after_help = "Examples:
  plimsoll topic create orders --partitions 12
  plimsoll topic create payments --config flush.messages=1    durable, then acknowledged
  plimsoll topic create logs --config retention.ms=86400000 --if-not-exists

Exit status: 0 ok, also where it was there and --if-not-exists says that this is fine; 2 refused, or
no broker.")]
    Create(CreateArgs),
    /// List the topics
    #[command(after_help = "Examples:
  plimsoll topic list
  plimsoll topic list --broker db1:9092 --json | jq -r '.[].topic'

Exit status: 0 ok; 2 no broker.")]
    List(Asked),
    /// Say where a topic's partitions begin and end, what is set, and what it promises
    #[command(after_help = "Examples:
  plimsoll topic describe orders
  plimsoll topic describe orders --json | jq .partitions

Exit status: 0 ok; 2 no such topic, or no broker.")]
    Describe(NamedTopic),
    /// Change settings of a topic, or give it more partitions
    #[command(
        override_usage = "plimsoll topic alter [OPTIONS] <NAME> --config <NAME=VALUE>
       plimsoll topic alter [OPTIONS] <NAME> --delete-config <NAME>
       plimsoll topic alter [OPTIONS] <NAME> --partitions <N>",
        after_help = "Examples:
  plimsoll topic alter orders --config retention.ms=3600000
  plimsoll topic alter orders --delete-config retention.ms    back to the default
  plimsoll topic alter orders --partitions 24                 keys may move

Exit status: 0 ok; 2 refused, or no broker. If settings were changed before partitions were refused, it
says so."
    )]
    Alter(AlterArgs),
    /// Have partitions go on under other brokers, while they are written and read
    #[command(after_help = "Examples:
  plimsoll topic move orders --to 2                            all of it
  plimsoll topic move orders --partition 0 --partition 3 --to 2
  plimsoll topic move orders --to 1 --to 2 --to 3              in turn: spread over three

What was written before stays where it is, and is read through the new leader. Producers and consumers are told
that the leader has changed, and go on by themselves. A topic with flush.messages=1 does not move.

Exit status: 0 they are led there; 2 refused, not done in time, or no broker; 130 interrupted (143 by SIGTERM): what was
agreed on is done all the same.")]
    Move(MoveArgs),
    /// Delete a topic and its records, for good
    #[command(after_help = "Examples:
  plimsoll topic delete orders

Exit status: 0 ok; 2 no such topic, or no broker.")]
    Delete(NamedTopic),
}

/// Which topic.
#[derive(Debug, clap::Args)]
pub(crate) struct NamedTopic {
    /// The topic
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// What to make.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) topic: NamedTopic,
    /// How many partitions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = partitions())]
    pub(crate) partitions: i32,
    /// A setting; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) config: Vec<(String, String)>,
    /// Be content if there is such a topic, whatever its settings are
    #[arg(long)]
    pub(crate) if_not_exists: bool,
}

/// What to change.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct AlterArgs {
    #[command(flatten)]
    pub(crate) topic: NamedTopic,
    /// A setting; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair, group = "change")]
    pub(crate) config: Vec<(String, String)>,
    /// A setting that is to have its default again; may be given several times
    #[arg(long, value_name = "NAME", group = "change")]
    pub(crate) delete_config: Vec<String>,
    /// How many partitions it is to have, with those that it has
    #[arg(long, value_name = "N", value_parser = partitions(), group = "change")]
    pub(crate) partitions: Option<i32>,
}

/// What to move, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) topic: NamedTopic,
    /// The broker that is to lead; of several each leads some, in turn
    #[arg(long, value_name = "NODE", required = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) to: Vec<i32>,
    /// Only this partition; may be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Vec<i32>,
}

/// What to do with consumer groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List the groups
    #[command(after_help = "Examples:
  plimsoll group list
  plimsoll group list --json | jq -r '.[].group'

Exit status: 0 ok; 2 no broker.")]
    List(Asked),
    /// Say who is in a group, what each reads, and how far the group is behind
    #[command(after_help = "Examples:
  plimsoll group describe shoppers
  plimsoll group describe shoppers --json | jq '[.partitions[].lag] | add'

Lag counts offsets from the committed one to the end.

Exit status: 0 ok; 2 no such group, or no broker.")]
    Describe(NamedGroup),
    /// Set where a group goes on in a topic; nobody may be in it
    #[command(
        override_usage = "plimsoll group reset [OPTIONS] <GROUP> --topic <TOPIC> --to-earliest
       plimsoll group reset [OPTIONS] <GROUP> --topic <TOPIC> --to-latest
       plimsoll group reset [OPTIONS] <GROUP> --topic <TOPIC> --to-offset <N>
       plimsoll group reset [OPTIONS] <GROUP> --topic <TOPIC> --to-time <TIME>",
        after_help = "Examples:
  plimsoll group reset shoppers --topic orders --to-earliest --dry-run
  plimsoll group reset shoppers --topic orders --to-time 2026-11-21T04:30:00Z
  plimsoll group reset shoppers --topic orders --to-offset 1000

Exit status: 0 ok; 2 refused, or no broker."
    )]
    Reset(ResetArgs),
    /// Delete a group and its offsets; nobody may be in it
    #[command(after_help = "Examples:
  plimsoll group delete shoppers

Exit status: 0 ok; 2 refused, or no broker.")]
    Delete(NamedGroup),
}

/// Which group.
#[derive(Debug, clap::Args)]
pub(crate) struct NamedGroup {
    /// The group
    #[arg(value_name = "GROUP")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// Where a group is to go on.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("to").required(true))]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    pub(crate) group: NamedGroup,
    /// In which topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: String,
    /// With the first record that is there
    #[arg(long, group = "to")]
    to_earliest: bool,
    /// With the next record that comes
    #[arg(long, group = "to")]
    to_latest: bool,
    /// With this one, in each partition
    #[arg(long, value_name = "N", group = "to", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// With the first record of that time or later, like 2026-11-21T04:30:00Z
    #[arg(long, value_name = "TIME", group = "to", value_parser = unix_ms)]
    to_time: Option<i64>,
    /// Change nothing: say what would be
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl ResetArgs {
    /// Where it is to go on.
    pub(crate) fn start(&self) -> Start {
        match (self.to_offset, self.to_time) {
            (Some(offset), _) => Start::Offset(offset),
            (_, Some(unix_ms)) => Start::Time(unix_ms),
            _ if self.to_latest => Start::Latest,
            _ => Start::Earliest,
        }
    }
}

/// What to produce, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  journalctl -f | plimsoll produce logs
  plimsoll produce orders --key-separator : < orders    lines like 4711:two apples
  plimsoll produce orders --file orders --compression zstd --json
  plimsoll produce orders --header source=import --partition 0 < orders

Records with one key go to one partition, the same one that Java's clients choose; of those without a
key each batch goes to the next partition. What is complete is sent before more input is waited for. A
batch that is sent again is appended once, but not with --acks 0. How many records were
acknowledged is said on stderr.

Exit status: 0 all were acknowledged (with --acks 0: sent); 2 not all, or wrong usage or input; 130
interrupted (143 by SIGTERM).")]
pub(crate) struct ProduceArgs {
    /// The topic
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: String,
    /// The partition of all records [default: by key, or in turn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Option<i32>,
    /// What stands between key and value; a line without it is an error
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key_separator: Option<String>,
    /// A header for each record; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) header: Vec<(String, String)>,
    /// Who must have a record before it is acknowledged
    #[arg(long, value_enum, default_value_t = AcksArg::All)]
    pub(crate) acks: AcksArg,
    /// How batches are compressed
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = compressions())]
    pub(crate) compression: Compression,
    /// What to read; stdin if none is named
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// Who must have a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AcksArg {
    /// All brokers that must, as the topic promises
    All,
    /// Nobody: no answer comes, and what is lost is not known
    #[value(name = "0")]
    Zero,
}

/// What to consume.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll consume orders                                all that is there now
  plimsoll consume orders --follow --from latest         what comes
  plimsoll consume orders --from 2026-11-21T04:30:00Z --max 10
  plimsoll consume orders --partition 0 --from 1000 --json | jq -r .value
  plimsoll consume orders --group shoppers --follow      a share of what comes, and on from there

Records of a partition come in their order; partitions come as their brokers answer. Without --follow
it ends where the topic ended when it began. With --group it reads the partitions that the group gives
it, from where they are committed; where others join or leave, and when it ends in order, it commits what
was printed. Nothing else is committed: after an error, or where nobody reads what is printed, the group
goes on with records that may have been printed.

Exit status: 0 ok; 2 no such topic, partition or offset, or no broker; 130 interrupted (143 by
SIGTERM).")]
pub(crate) struct ConsumeArgs {
    /// The topic
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Only this partition
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Option<i32>,
    /// As a member of this consumer group; --from says where to begin what it has not committed
    #[arg(long, value_name = "NAME", conflicts_with = "partition")]
    pub(crate) group: Option<String>,
    /// Where to begin: earliest, latest, an offset, or a time like 2026-11-21T04:30:00Z
    #[arg(long, value_name = "WHERE", default_value = "earliest", value_parser = start)]
    pub(crate) from: Start,
    /// So many records at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
    /// Go on with the records that come, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Which records are shown
    #[arg(long, value_enum, default_value_t = IsolationArg::ReadUncommitted)]
    pub(crate) isolation: IsolationArg,
    #[command(flatten)]
    pub(crate) asked: Asked,
}

/// Which records are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum IsolationArg {
    /// All that are acknowledged
    ReadUncommitted,
    /// Those before the last stable offset
    ReadCommitted,
}

impl IsolationArg {
    /// As requests say it.
    pub(crate) fn level(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// Where to begin in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the first record that is there.
    Earliest,
    /// With the next record that comes.
    Latest,
    /// With this one.
    Offset(i64),
    /// With the first of this time or later, in milliseconds since 1970.
    Time(i64),
}

fn start(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => return Ok(Start::Earliest),
        "latest" => return Ok(Start::Latest),
        _ => {}
    }
    if let Ok(offset) = text.parse::<u64>() {
        return i64::try_from(offset).map(Start::Offset).map_err(|error| error.to_string());
    }
    let wrong = |_| "earliest, latest, an offset, or a time like 2026-11-21T04:30:00Z".to_owned();
    unix_ms(text).map(Start::Time).map_err(wrong)
}

/// Milliseconds since 1970.
fn unix_ms(text: &str) -> Result<i64, String> {
    let time: SystemTime = humantime::parse_rfc3339_weak(text)
        .map_err(|error| format!("{error}; a time in UTC, like 2026-11-21T04:30:00Z"))?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    i64::try_from(since.as_millis()).map_err(|error| error.to_string())
}

/// `name=value`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a name and a value, like retention.ms=3600000".to_owned()),
    }
}

fn compressions() -> impl TypedValueParser<Value = Compression> {
    let names = Compression::ALL.map(Compression::name);
    PossibleValuesParser::new(names).map(|name| {
        let named = Compression::ALL.into_iter().find(|compression| compression.name() == name);
        named.expect("clap took it from the list")
    })
}

fn partitions() -> RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(1..)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    fn typed(line: &str) -> Result<Command, String> {
        let words = line.split(' ');
        Args::try_parse_from(words).map(|args| args.command).map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_to_begin_is_a_word_an_offset_or_a_time() {
        assert_eq!(start("earliest"), Ok(Start::Earliest));
        assert_eq!(start("latest"), Ok(Start::Latest));
        assert_eq!(start("17"), Ok(Start::Offset(17)));
        assert_eq!(start("1970-01-01T00:00:01.5Z"), Ok(Start::Time(1500)));
        assert_eq!(start("1970-01-01 00:00:02"), Ok(Start::Time(2000)));
        for wrong in ["", "-1", "soon", "99999999999999999999", "1970-01-01"] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pair_has_a_name_and_may_have_an_empty_value() {
        let owned = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(pair("a=b"), owned("a", "b"));
        assert_eq!(pair("a=b=c"), owned("a", "b=c"));
        assert_eq!(pair("a="), owned("a", ""));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }

    #[test]
    fn a_group_is_reset_to_one_place() {
        let reset = |to: &str| match typed(&format!("plimsoll group reset g --topic t{to}")) {
            Ok(Command::Group { command: GroupCommand::Reset(args) }) => Ok(args.start()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(reset(" --to-earliest"), Ok(Start::Earliest));
        assert_eq!(reset(" --to-latest"), Ok(Start::Latest));
        assert_eq!(reset(" --to-offset 5"), Ok(Start::Offset(5)));
        assert_eq!(reset(" --to-time 1970-01-01T00:00:01Z"), Ok(Start::Time(1000)));
        assert!(reset("").is_err() && reset(" --to-latest --to-offset 5").is_err());
        assert!(reset(" --to-offset -5").is_err());
    }

    #[test]
    fn a_topic_is_altered_in_something() {
        assert!(typed("plimsoll topic alter t").is_err());
        assert!(typed("plimsoll topic alter t --config a").is_err());
        assert!(typed("plimsoll topic alter t --partitions 0").is_err());
        let all = "plimsoll topic alter t --config a=b --delete-config c --partitions 3";
        let Ok(Command::Topic { command: TopicCommand::Alter(args) }) = typed(all) else {
            panic!("it is understood");
        };
        assert_eq!(args.config, [("a".to_owned(), "b".to_owned())]);
        assert_eq!((args.delete_config, args.partitions), (vec!["c".to_owned()], Some(3)));
    }

    #[test]
    fn what_is_produced_and_consumed_is_understood() {
        let line = "plimsoll produce t --key-separator : --header a=b --acks 0 --compression lz4";
        let Ok(Command::Produce(args)) = typed(line) else { panic!("it is understood") };
        assert_eq!((args.acks, args.compression), (AcksArg::Zero, Compression::Lz4));
        assert_eq!(args.asked.broker, "127.0.0.1:9092");
        assert!(typed("plimsoll produce t --acks 1").is_err());
        let line = "plimsoll consume t --from 7 --isolation read_committed --broker b:1 -f";
        let Ok(Command::Consume(args)) = typed(line) else { panic!("it is understood") };
        assert_eq!((args.from, args.isolation.level()), (Start::Offset(7), 1));
        assert_eq!((args.asked.broker.as_str(), args.follow), ("b:1", true));
    }
}
