//! [`Problem`]: why what was asked for is not done, as a client is told.

use super::session::code_of;
use crate::broker::Refused;
use crate::control::InvalidSetting;
use crate::kafka::error::ErrorCode;

/// A code, which a client acts on, and words for people where there are some.
#[derive(Debug, Default)]
pub(super) struct Problem {
    pub(super) code: ErrorCode,
    pub(super) message: Option<String>,
}

impl Problem {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    pub(super) fn no_topic() -> Self {
        Self::new(ErrorCode::UnknownTopicOrPartition, "there is no such topic")
    }
}

impl From<ErrorCode> for Problem {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl From<Refused> for Problem {
    fn from(why: Refused) -> Self {
        Self::new(code_of(&why), why.to_string())
    }
}

impl From<InvalidSetting> for Problem {
    fn from(why: InvalidSetting) -> Self {
        Self::new(ErrorCode::InvalidConfig, why.to_string())
    }
}
