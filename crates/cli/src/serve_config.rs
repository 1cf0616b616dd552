//! How a broker runs, from four places: a flag before the environment, that before a file, that before
//! the default.
//!
//! A file has a key for each flag, and more for what is seldom changed. It is TOML; a key that is not
//! known is an error with its line, never ignored.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::parser::ValueSource;
use plimsoll_log::Policy;
use plimsoll_server::broker::Options;
use plimsoll_server::groups;
use plimsoll_server::net::Limits;
use plimsoll_simdisk::block::size;
use serde::{Deserialize, Serialize};

use crate::cluster_args::{MembersArg, OnMajorityDirtyArg};
use crate::serve_args::{Every, HttpAddress, ServeArgs};

/// The file that is read where none is named.
const FILE: &str = "plimsoll.toml";
/// The least that requests and answers can share: an answer has a quarter.
const MEMORY_BYTES_MIN: usize = 8 << 20;
/// What a session may have: milliseconds are 32 bits in Kafka's protocol.
const SPAN_MS_MAX: u64 = i32::MAX as u64;

/// What holds.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) dir: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) http: HttpAddress,
    pub(crate) advertise: Option<String>,
    pub(crate) node: Option<u64>,
    pub(crate) members: Option<MembersArg>,
    pub(crate) cluster_id: Option<String>,
    pub(crate) rack: Option<String>,
    pub(crate) allow_one_domain: bool,
    pub(crate) replication_factor: u8,
    pub(crate) keep_leaders: bool,
    pub(crate) on_majority_dirty: OnMajorityDirtyArg,
    pub(crate) allow_anyone: bool,
    pub(crate) memory: PathBuf,
    pub(crate) partitions: u32,
    pub(crate) partitions_max: usize,
    pub(crate) no_auto_create: bool,
    pub(crate) profile: Option<PathBuf>,
    pub(crate) ring_bytes: u64,
    pub(crate) tail_bytes: usize,
    pub(crate) reserve_bytes: u64,
    pub(crate) chapter_bytes: u64,
    pub(crate) chapter_age: Duration,
    pub(crate) scrub_every: Every,
    pub(crate) flush: Policy,
    pub(crate) groups: groups::Settings,
    pub(crate) limits: Limits,
    lines: Vec<Line>,
}

/// What a file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    dir: Option<PathBuf>,
    listen: Option<SocketAddr>,
    http: Option<HttpAddress>,
    advertise: Option<String>,
    node: Option<u64>,
    members: Option<MembersArg>,
    cluster_id: Option<String>,
    rack: Option<String>,
    allow_one_domain: Option<bool>,
    replication_factor: Option<u8>,
    keep_leaders: Option<bool>,
    on_majority_dirty: Option<OnMajorityDirtyArg>,
    allow_anyone: Option<bool>,
    memory: Option<PathBuf>,
    partitions: Option<u32>,
    partitions_max: Option<usize>,
    no_auto_create: Option<bool>,
    profile: Option<PathBuf>,
    ring_bytes: Option<Size>,
    tail_bytes: Option<Size>,
    reserve_bytes: Option<Size>,
    chapter_bytes: Option<Size>,
    chapter_age: Option<Span>,
    scrub_every: Option<Every>,
    flush: Flush,
    groups: Groups,
    limits: OfConnections,
}

/// When records of topics that do not ask for more are synced.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Flush {
    age: Option<Span>,
    bytes: Option<Size>,
}

/// What groups of consumers may be.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Groups {
    initial_rebalance_delay: Option<Span>,
    session_min: Option<Span>,
    session_max: Option<Span>,
    members_max: Option<usize>,
    offsets_retention: Option<Span>,
}

/// How much connections of clients may ask for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct OfConnections {
    connections: Option<usize>,
    request_bytes: Option<Size>,
    memory_bytes: Option<Size>,
    unagreed_bytes: Option<Size>,
    idle: Option<Span>,
    stalled: Option<Span>,
}

/// Bytes, as `64MiB`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Size(u64);

/// A duration, as `1s` or `7d`.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
struct Span(Duration);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        crate::size::bytes(&text).map(Self).map_err(|wrong| format!("{text:?} is {wrong}"))
    }
}

impl From<Size> for String {
    fn from(bytes: Size) -> Self {
        size(bytes.0)
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let span = humantime::parse_duration(&text);
        span.map(Self).map_err(|wrong| format!("{text:?}: {wrong}; a number and a unit, like 1s"))
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        humantime::format_duration(span.0).to_string()
    }
}

impl Size {
    fn of(bytes: usize) -> Self {
        Self(bytes as u64)
    }

    fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Span {
    fn of_ms(ms: impl Into<i128>) -> Self {
        Self(Duration::from_millis(u64::try_from(ms.into()).unwrap_or(0)))
    }

    fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A setting that holds, as a file says it, and where it comes from.
#[derive(Debug)]
struct Line {
    /// With its table, as `flush.age`.
    key: &'static str,
    /// `None` if it is not set.
    value: Option<toml::Value>,
    source: Source,
}

/// Where a value comes from.
#[derive(Debug, Clone)]
enum Source {
    Default,
    File(String),
    Environment(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(name) => write!(f, "file: {name}"),
            Self::Environment(key) => {
                write!(f, "environment: PLIMSOLL_{}", key.replace('-', "_").to_uppercase())
            }
            Self::Flag(key) => write!(f, "flag: --{key}"),
        }
    }
}

/// Settings that are being settled, one by one.
struct Settling<'a> {
    args: &'a ServeArgs,
    file: String,
    lines: Vec<Line>,
}

impl Config {
    /// Reads the file, if there is one, and settles what holds.
    pub(crate) fn of(args: &ServeArgs) -> Result<Self> {
        let (name, file) = read(args.typed.config.as_deref())?;
        let typed = [Some(&args.typed.dir), Some(&args.typed.memory), args.typed.profile.as_ref()];
        for path in typed.into_iter().flatten() {
            ensure!(path.to_str().is_some(), "{} is not UTF-8: no file can say it", path.display());
        }
        let groups = &file.groups;
        for (key, span) in [
            ("initial-rebalance-delay", groups.initial_rebalance_delay),
            ("session-min", groups.session_min),
            ("session-max", groups.session_max),
        ] {
            let is_told = span.is_none_or(|span| span.ms() <= SPAN_MS_MAX);
            ensure!(is_told, "groups.{key} is more than Kafka can say: 24 days at most");
        }
        let config = Self::settle(args, name, file);
        let groups = &config.groups;
        ensure!(
            groups.session_ms_min <= groups.session_ms_max,
            "groups.session-min is longer than groups.session-max: no session could be"
        );
        ensure!(config.limits.connections > 0, "limits.connections = 0: nobody could be served");
        ensure!(
            config.limits.memory_bytes >= MEMORY_BYTES_MIN,
            "limits.memory-bytes must be at least {}: requests and answers share it",
            size(MEMORY_BYTES_MIN as u64)
        );
        let is_nothing = matches!(
            config.flush,
            Policy::Interval { max_age, max_bytes } if max_age.is_zero() || max_bytes == 0
        );
        ensure!(
            !is_nothing,
            "flush.age and flush.bytes must be more than 0; what waits for the disk are topics with \
             flush.messages=1"
        );
        ensure!(
            config.chapter_bytes > 0 && !config.chapter_age.is_zero(),
            "chapter-bytes and chapter-age must be more than 0: a chapter would end before it begins"
        );
        ensure!((1..=100_000).contains(&config.partitions), "partitions must be 1 to 100000");
        ensure!(
            matches!(config.replication_factor, 3 | 5 | 7),
            "replication-factor must be 3, 5 or 7: of an even number no more may fail than of one less"
        );
        Ok(config)
    }

    fn settle(args: &ServeArgs, name: String, file: File) -> Self {
        let typed = &args.typed;
        let options = Options::default();
        let (age, bytes) = match options.flush {
            Policy::Interval { max_age, max_bytes } => (max_age, max_bytes),
            other => unreachable!("the default is an interval, not {other:?}"),
        };
        let of = options.groups;
        let limits = Limits::default();
        let mut is = Settling { args, file: name, lines: Vec::new() };
        Self {
            dir: is.flag("dir", &typed.dir, file.dir),
            listen: is.flag("listen", &typed.listen, file.listen),
            http: is.flag("http", &typed.http, file.http),
            advertise: is.optional("advertise", &typed.advertise, file.advertise),
            node: is.optional("node", &typed.node, file.node),
            members: is.optional("members", &typed.members, file.members),
            cluster_id: is.optional("cluster-id", &typed.cluster_id, file.cluster_id),
            rack: is.optional("rack", &typed.rack, file.rack),
            allow_one_domain: is.flag(
                "allow-one-domain",
                &typed.allow_one_domain,
                file.allow_one_domain,
            ),
            replication_factor: is.flag(
                "replication-factor",
                &typed.replication_factor,
                file.replication_factor,
            ),
            keep_leaders: is.flag("keep-leaders", &typed.keep_leaders, file.keep_leaders),
            on_majority_dirty: is.flag(
                "on-majority-dirty",
                &typed.on_majority_dirty,
                file.on_majority_dirty,
            ),
            allow_anyone: is.flag("allow-anyone", &typed.allow_anyone, file.allow_anyone),
            memory: is.flag("memory", &typed.memory, file.memory),
            partitions: is.flag("partitions", &typed.partitions, file.partitions),
            partitions_max: is.key("partitions-max", options.partitions_max, file.partitions_max),
            no_auto_create: is.flag("no-auto-create", &typed.no_auto_create, file.no_auto_create),
            profile: is.optional("profile", &typed.profile, file.profile),
            ring_bytes: is.key("ring-bytes", Size(options.ring_bytes), file.ring_bytes).0,
            tail_bytes: is
                .key("tail-bytes", Size::of(options.tail_bytes), file.tail_bytes)
                .in_memory(),
            reserve_bytes: is
                .key("reserve-bytes", Size(options.reserve_bytes), file.reserve_bytes)
                .0,
            chapter_bytes: is
                .flag("chapter-bytes", &Size(typed.chapter_bytes), file.chapter_bytes)
                .0,
            chapter_age: is.flag("chapter-age", &Span(typed.chapter_age), file.chapter_age).0,
            scrub_every: is.flag("scrub-every", &typed.scrub_every, file.scrub_every),
            flush: Policy::Interval {
                max_age: is.key("flush.age", Span(age), file.flush.age).0,
                max_bytes: is.key("flush.bytes", Size(bytes), file.flush.bytes).0,
            },
            groups: is.groups(&of, &file.groups),
            limits: is.limits(limits, &file.limits),
            lines: is.lines,
        }
    }

    /// As a file that would say the same, with where each setting comes from.
    pub(crate) fn print(&self) -> String {
        let mut printed = String::new();
        let mut table = "";
        for line in &self.lines {
            let (of, key) = line.key.split_once('.').unwrap_or(("", line.key));
            if of != table {
                printed += &format!("\n[{of}]\n");
                table = of;
            }
            printed += &match &line.value {
                Some(value) => format!("{:<48} # {}\n", format!("{key} = {value}"), line.source),
                None => format!("{:<48} # not set\n", format!("# {key}")),
            };
        }
        printed
    }
}

/// The file that was named, or the one that is here, or none.
fn read(named: Option<&Path>) -> Result<(String, File)> {
    let path = named.unwrap_or(Path::new(FILE));
    let name = path.display().to_string();
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
    };
    // Without settings a broker is one of its own, which is not what who named a file wants.
    ensure!(
        named.is_none() || !text.trim().is_empty(),
        "{name} is empty: what was to write it has failed (`plimsoll cluster join > {name}`?); a broker that is to have \
         no settings needs no --config"
    );
    let file = toml::from_str(&text).with_context(|| format!("{name} cannot be used"))?;
    Ok((name, file))
}

impl Settling<'_> {
    /// A setting that has a flag, and a default there.
    fn flag<T: Clone + Serialize>(&mut self, key: &'static str, typed: &T, filed: Option<T>) -> T {
        self.optional(key, &Some(typed.clone()), filed).expect("what has a default has a value")
    }

    /// A setting that has a flag, and no default.
    fn optional<T: Clone + Serialize>(
        &mut self,
        key: &'static str,
        typed: &Option<T>,
        filed: Option<T>,
    ) -> Option<T> {
        let (value, source) = match (self.args.source(&key.replace('-', "_")), filed) {
            (Some(ValueSource::CommandLine), _) => (typed.clone(), Source::Flag(key)),
            (Some(ValueSource::EnvVariable), _) => (typed.clone(), Source::Environment(key)),
            (_, Some(filed)) => (Some(filed), Source::File(self.file.clone())),
            (_, None) => (typed.clone(), Source::Default),
        };
        self.note(key, value.as_ref(), source);
        value
    }

    /// A setting that only a file can change.
    fn key<T: Serialize>(&mut self, key: &'static str, default: T, filed: Option<T>) -> T {
        let (value, source) = match filed {
            Some(filed) => (filed, Source::File(self.file.clone())),
            None => (default, Source::Default),
        };
        self.note(key, Some(&value), source);
        value
    }

    fn note<T: Serialize>(&mut self, key: &'static str, value: Option<&T>, source: Source) {
        let value = value.map(|value| toml::Value::try_from(value).expect("a value of TOML"));
        self.lines.push(Line { key, value, source });
    }

    fn groups(&mut self, of: &groups::Settings, file: &Groups) -> groups::Settings {
        let session = |span: Span| i32::try_from(span.ms()).unwrap_or(i32::MAX);
        let delay = Span::of_ms(of.initial_delay_ms);
        let delay = self.key("groups.initial-rebalance-delay", delay, file.initial_rebalance_delay);
        let (min, max) = (Span::of_ms(of.session_ms_min), Span::of_ms(of.session_ms_max));
        let kept = Span::of_ms(of.offsets_retention_ms);
        groups::Settings {
            initial_delay_ms: u32::try_from(delay.ms()).unwrap_or(u32::MAX),
            session_ms_min: session(self.key("groups.session-min", min, file.session_min)),
            session_ms_max: session(self.key("groups.session-max", max, file.session_max)),
            members_max: self.key("groups.members-max", of.members_max, file.members_max),
            offsets_retention_ms: self
                .key("groups.offsets-retention", kept, file.offsets_retention)
                .ms(),
            ..of.clone()
        }
    }

    fn limits(&mut self, of: Limits, file: &OfConnections) -> Limits {
        let mut bytes = |key, of, file| self.key(key, Size::of(of), file).in_memory();
        let frame_bytes = bytes("limits.request-bytes", of.frame_bytes, file.request_bytes);
        let memory_bytes = bytes("limits.memory-bytes", of.memory_bytes, file.memory_bytes);
        let unagreed_bytes = bytes("limits.unagreed-bytes", of.unagreed_bytes, file.unagreed_bytes);
        Limits {
            frame_bytes,
            memory_bytes,
            unagreed_bytes,
            connections: self.key("limits.connections", of.connections, file.connections),
            idle: self.key("limits.idle", Span(of.idle), file.idle).0,
            stalled: self.key("limits.stalled", Span(of.stalled), file.stalled).0,
        }
    }
}
