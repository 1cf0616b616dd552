//! What can be set for a topic, with its default and what it means here.
//!
//! Names and defaults are Kafka's, but for those that begin with `plimsoll.`. What stands here means
//! what it means in Kafka, or is refused with the reason; what does not stand here is refused too. A
//! setting is never ignored. A value that was taken once is read for ever: rules are only loosened.

use std::collections::BTreeMap;

use crate::shard;

/// Something that can be set for a topic.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value where none is set.
    pub default: &'static str,
    /// What it does, for people.
    pub meaning: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A number from the least to the largest; -1 means without end where it is allowed.
    Number { least: i64, largest: i64 },
    /// One of these words.
    Word(&'static [&'static str]),
}

/// All of them, in the order of their names.
pub const SETTINGS: [Setting; 13] = [
    Setting {
        name: "cleanup.policy",
        default: "delete",
        meaning: "delete: what is past its retention expires. compact: of each key the newest record stays, once settled",
        kind: Kind::Word(&["delete", "compact", "compact,delete", "delete,compact"]),
    },
    Setting {
        name: "compression.type",
        default: "producer",
        meaning: "batches stay as the producer compressed them",
        kind: Kind::Word(&["producer"]),
    },
    Setting {
        name: "delete.retention.ms",
        default: "86400000",
        meaning: "how long a tombstone stays once its partition was compacted",
        kind: Kind::Number { least: 0, largest: i64::MAX },
    },
    Setting {
        name: "flush.messages",
        default: "9223372036854775807",
        meaning: "1: a record is acknowledged once it is durable. Other values below the default are refused",
        kind: Kind::Number { least: 1, largest: i64::MAX },
    },
    Setting {
        name: "flush.ms",
        default: "9223372036854775807",
        meaning: "a sync of a record begins at most so many milliseconds after it was acknowledged",
        kind: Kind::Number { least: 0, largest: i64::MAX },
    },
    Setting {
        name: "max.message.bytes",
        default: "1048588",
        meaning: "the largest batch, as it comes",
        kind: Kind::Number { least: 0, largest: BATCH_BYTES_MAX },
    },
    Setting {
        name: "message.timestamp.type",
        default: "CreateTime",
        meaning: "whose time records carry: the producer's, or that of the append",
        kind: Kind::Word(&["CreateTime", "LogAppendTime"]),
    },
    Setting {
        name: "min.insync.replicas",
        default: "1",
        meaning: "a record is acknowledged and seen once so many brokers have it, and a majority has",
        kind: Kind::Number { least: 1, largest: i32::MAX as i64 },
    },
    Setting {
        name: "plimsoll.flush",
        default: "shared",
        meaning: "shared: synced in the background. auto: at the knee that the lab measured on this disk",
        kind: Kind::Word(&["shared", "auto"]),
    },
    Setting {
        name: "plimsoll.read.committed",
        default: "acknowledged",
        meaning: "durable: consumers with isolation.level=read_committed see only what a power cut leaves",
        kind: Kind::Word(&["acknowledged", "durable"]),
    },
    Setting {
        name: "retention.bytes",
        default: "-1",
        meaning: "the oldest records of a partition go while the rest has at least so many bytes; -1: none do",
        kind: Kind::Number { least: -1, largest: i64::MAX },
    },
    Setting {
        name: "retention.ms",
        default: "604800000",
        meaning: "how long records are kept; -1: for ever",
        kind: Kind::Number { least: -1, largest: i64::MAX },
    },
    Setting {
        name: "segment.bytes",
        default: "1073741824",
        meaning: "taken, and nothing follows from it: a partition has no segments here",
        kind: Kind::Number { least: 14, largest: i32::MAX as i64 },
    },
];

/// A batch is never larger.
const BATCH_BYTES_MAX: i64 = 64 << 20;

/// Which shards take a topic's partitions: those who wait for syncs wait for each other only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushClass {
    /// Acknowledged before it is durable.
    Shared,
    /// Acknowledged once it is durable.
    Durable,
}

/// What was set for a topic; the rest is default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicSettings {
    set: BTreeMap<&'static str, String>,
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSetting {
    /// There is none of this name.
    #[error("there is no setting {0:?}")]
    Unknown(String),
    /// It cannot have this value.
    #[error("{name} is {allowed}, not {value:?}")]
    Value {
        /// Which.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// It could have this value in Kafka, and not here.
    #[error("{name}={value} is refused: {reason}")]
    Refused {
        /// Which.
        name: &'static str,
        /// What was asked for.
        value: String,
        /// Why.
        reason: &'static str,
    },
}

impl Setting {
    /// The one of this name.
    pub fn find(name: &str) -> Result<&'static Self, InvalidSetting> {
        let found = SETTINGS.iter().find(|setting| setting.name == name);
        found.ok_or_else(|| InvalidSetting::Unknown(name.to_owned()))
    }

    fn check(&self, value: &str) -> Result<(), InvalidSetting> {
        let name = self.name;
        let is_allowed = match self.kind {
            Kind::Number { least, largest } => {
                value.parse().is_ok_and(|number: i64| (least..=largest).contains(&number))
            }
            Kind::Word(words) => words.contains(&value),
        };
        if !is_allowed {
            let (value, allowed) = (value.to_owned(), self.allowed());
            return Err(InvalidSetting::Value { name, value, allowed });
        }
        match refusal(name, value, self.default) {
            Some(reason) => Err(InvalidSetting::Refused { name, value: value.to_owned(), reason }),
            None => Ok(()),
        }
    }

    fn allowed(&self) -> String {
        match self.kind {
            Kind::Number { least, largest } => format!("a number from {least} to {largest}"),
            Kind::Word(words) => format!("one of {}", words.join(" ")),
        }
    }
}

/// Why a value that Kafka allows is refused here.
fn refusal(name: &str, value: &str, default: &str) -> Option<&'static str> {
    match name {
        _ if value == default => None,
        "flush.messages" if value != "1" => {
            Some("a sync is shared by all partitions: use 1, or flush.ms")
        }
        _ => None,
    }
}

impl TopicSettings {
    /// Sets one, or takes it back.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), InvalidSetting> {
        let setting = Setting::find(name)?;
        match value {
            None => {
                self.set.remove(setting.name);
            }
            Some(value) => {
                setting.check(value)?;
                self.set.insert(setting.name, value.to_owned());
            }
        }
        Ok(())
    }

    /// The value that holds, and whether it was set.
    #[must_use]
    pub fn value(&self, setting: &'static Setting) -> (&str, bool) {
        match self.set.get(setting.name) {
            Some(value) => (value, true),
            None => (setting.default, false),
        }
    }

    /// Those that were set.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, &str)> {
        self.set.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Which shards take its partitions.
    #[must_use]
    pub fn flush_class(&self) -> FlushClass {
        match self.word("flush.messages") {
            "1" => FlushClass::Durable,
            _ => FlushClass::Shared,
        }
    }

    /// After how long a sync of a record begins at the latest; `None`: when the shard syncs anyhow.
    #[must_use]
    pub fn flush_ms(&self) -> Option<u64> {
        let ms = self.number("flush.ms");
        u64::try_from(ms).ok().filter(|_| ms != i64::MAX)
    }

    /// How many voters must have a record, where a majority are fewer.
    #[must_use]
    pub fn copies(&self) -> usize {
        usize::try_from(self.number("min.insync.replicas")).unwrap_or(1)
    }

    /// The largest batch, in bytes.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        u64::try_from(self.number("max.message.bytes")).unwrap_or(0)
    }

    /// Whether a record is durable as soon as syncs cost little on this disk, as the lab measured it.
    #[must_use]
    pub fn flushes_at_the_knee(&self) -> bool {
        self.word("plimsoll.flush") == "auto"
    }

    /// Whether `read_committed` shows only what is durable.
    #[must_use]
    pub fn committed_is_durable(&self) -> bool {
        self.word("plimsoll.read.committed") == "durable"
    }

    /// What a shard has to know of them.
    #[must_use]
    pub fn of_partition(&self) -> shard::Settings {
        let keeps_all = self.is_only_compacted();
        let bound = |name| u64::try_from(self.number(name)).ok();
        shard::Settings {
            retention_ms: bound("retention.ms").filter(|_| !keeps_all),
            retention_bytes: bound("retention.bytes").filter(|_| !keeps_all),
            batch_bytes_max: u32::try_from(self.number("max.message.bytes")).unwrap_or(u32::MAX),
            append_timestamps: self.word("message.timestamp.type") == "LogAppendTime",
            compaction: self
                .word("cleanup.policy")
                .contains("compact")
                .then(|| u64::try_from(self.number("delete.retention.ms")).unwrap_or(u64::MAX)),
        }
    }

    /// Whether nothing goes but older records of a key.
    #[must_use]
    pub fn is_only_compacted(&self) -> bool {
        self.word("cleanup.policy") == "compact"
    }

    fn word(&self, name: &str) -> &str {
        self.value(Setting::find(name).expect("it stands in the table")).0
    }

    fn number(&self, name: &str) -> i64 {
        self.word(name).parse().expect("numbers were checked when they were set")
    }
}
