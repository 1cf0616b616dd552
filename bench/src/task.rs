//! What a trial is asked for and what it answers: the JSON between the harness and its workers, which
//! bench/go speaks as well.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How far a record is when `append` returns, and what the engine does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    /// Covered by a good sync.
    Durable,
    /// Wherever it is without any sync: in memory or with the kernel, as the engine has it.
    Buffered,
    /// The same, with a sync each second in the background.
    Interval,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Closed loop: each appender appends again as soon as it may.
    Append,
    /// One appender at a fixed rate.
    Paced,
    /// Write a log, untimed; then read it all, from the disk and from memory.
    Replay,
    /// Append, open and read where the log has so many segments.
    History,
}

/// What happens beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Beside {
    Nothing,
    /// Random 4 KiB writes into a large file (article 2).
    Torture,
    /// Every sync takes 100 ms longer.
    SlowSync,
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) level: Level,
    pub(crate) record_bytes: usize,
    pub(crate) appenders: usize,
    pub(crate) beside: Beside,
    /// Segments, for [`Kind::History`].
    pub(crate) segments: u64,
}

/// One trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) arm: String,
    pub(crate) cell: Cell,
    pub(crate) dir: PathBuf,
    /// Where the answer goes: engines print what they like on stdout.
    pub(crate) answer: PathBuf,
    pub(crate) seconds: f64,
    /// Appends a second, for [`Kind::Paced`].
    pub(crate) rate: u64,
    /// At most so many bytes of records.
    pub(crate) bytes_max: u64,
}

/// What a trial found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Records appended, or read.
    pub(crate) records: u64,
    /// Time of appending.
    pub(crate) seconds: f64,
    /// Time until all of it was durable as well.
    pub(crate) settled_seconds: f64,
    /// Times of single appends; one in 16 where nothing is synced, all of them otherwise.
    pub(crate) append: Times,
    /// For [`Kind::Paced`]: from when the append was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from_due: Option<Times>,
    /// For [`Kind::Replay`]: open and read everything, page cache dropped and not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cold_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warm_seconds: Option<f64>,
    /// For [`Kind::History`]: opening, and reading the first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) open_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_read_seconds: Option<f64>,
    /// The most memory that the process ever had (`VmHWM`), a server's of its own added.
    pub(crate) peak_kib: u64,
    /// What the engine says of how it syncs, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) says: Option<String>,
}

/// Times in nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) n: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl Cell {
    /// Its name: what, records of how many bytes, how many appenders or what is beside it.
    pub(crate) fn name(&self) -> String {
        let level = match self.level {
            Level::Durable => "durable",
            Level::Buffered => "buffered",
            Level::Interval => "interval",
        };
        match (self.kind, self.beside) {
            (Kind::Append, _) => format!("{level}/{}/{}", self.record_bytes, self.appenders),
            (Kind::Paced, Beside::Nothing) => "paced/quiet".to_owned(),
            (Kind::Paced, Beside::Torture) => "paced/torture".to_owned(),
            (Kind::Paced, Beside::SlowSync) => "paced/slow-sync".to_owned(),
            (Kind::Replay, _) => "replay".to_owned(),
            (Kind::History, _) => format!("history/{}", self.segments),
        }
    }
}
