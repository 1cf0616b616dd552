//! [`Error`]: why a broker did not do what it was asked for.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::kafka::band::Api;
use crate::kafka::error::ErrorCode;
use crate::kafka::wire::Malformed;

/// Why a broker did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has another address, it does not run, or a network is between.
    #[error("no broker can be reached at {addr}")]
    Unreachable {
        /// Where it was looked for.
        addr: String,
        /// What the system says.
        source: io::Error,
    },
    /// The connection ended before an answer came. Whether the request took effect is not known.
    #[error("{addr} closed the connection before it answered {api:?}")]
    Closed {
        /// Who.
        addr: String,
        /// What it was asked.
        api: Api,
    },
    /// No answer came in time. Whether the request took effect is not known.
    #[error("{addr} did not answer {api:?} within {timeout:?}")]
    TimedOut {
        /// Who.
        addr: String,
        /// What it was asked.
        api: Api,
        /// How long was waited.
        timeout: Duration,
    },
    /// The connection broke. Whether the request took effect is not known.
    #[error("the connection to {addr} broke")]
    Broken {
        /// Who.
        addr: String,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody else listens there, or it wants TLS.
    #[error("{addr} does not speak Kafka's protocol: {why}")]
    NotKafka {
        /// Who.
        addr: String,
        /// How that shows.
        why: String,
    },
    /// It is much older or much newer than this client.
    #[error("{addr} {}, and this client in {}", speaks(*.api, .theirs), versions(.ours))]
    NoVersion {
        /// Who.
        addr: String,
        /// What it would be asked.
        api: Api,
        /// The versions that it speaks, if any.
        theirs: Option<RangeInclusive<i16>>,
        /// The versions that we speak.
        ours: RangeInclusive<i16>,
    },
    /// An answer that cannot be read.
    #[error("{addr} answered {api:?} with what cannot be read")]
    Malformed {
        /// Who.
        addr: String,
        /// What it was asked.
        api: Api,
        /// Where it goes wrong.
        source: Malformed,
    },
    /// An answer that leaves out what was asked for. Whether it took effect is not known.
    #[error("the broker says nothing of {what}")]
    Unanswered {
        /// What was asked for.
        what: String,
    },
    /// The broker will not.
    #[error("{what}: {}", .message.clone().unwrap_or_else(|| .code.to_string()))]
    Refused {
        /// What was asked for.
        what: String,
        /// Why not.
        code: ErrorCode,
        /// Why not, in the broker's words.
        message: Option<String>,
    },
}

impl Error {
    /// Ok if the broker says so.
    pub fn check(
        what: impl Into<String>,
        code: ErrorCode,
        message: Option<String>,
    ) -> Result<(), Self> {
        match code {
            ErrorCode::None => Ok(()),
            code => Err(Self::Refused { what: what.into(), code, message }),
        }
    }

    /// The code, if the broker answered with one.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }
}

fn speaks(api: Api, theirs: &Option<RangeInclusive<i16>>) -> String {
    match theirs {
        None => format!("does not speak {api:?}"),
        Some(theirs) => format!("speaks {api:?} in {}", versions(theirs)),
    }
}

fn versions(range: &RangeInclusive<i16>) -> String {
    format!("versions {} to {}", range.start(), range.end())
}
