//! Why a number may mislead, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason to distrust a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What kind of reason, for programs.
    pub kind: Kind,
    /// The cause with its figures, and the cure, for people.
    pub text: String,
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Kind {
    /// The flush count contradicts what the method promises. The arm is invalid.
    PromiseContradicted,
    /// The kernel sends no flushes to this device.
    NoFlushSent,
    /// Flushes cannot be counted here.
    FlushesNotCounted,
    /// The device did not write what the operations needed. The arm is invalid.
    BytesMissing,
    /// The machine was busy.
    Noisy,
    /// Somebody else wrote to the device.
    OthersWrote,
    /// Far more bytes were written than asked for.
    WriteAmplification,
    /// Brokers waited for disks where memory was to be measured. What they did meanwhile is left out.
    Guarded,
    /// There are too few samples for the figure that is wanted.
    FewSamples,
    /// Something about the directory or its filesystem deserves a thought.
    Place,
}

impl Kind {
    /// Whether an arm with such a warning must not be used.
    #[must_use]
    pub const fn invalidates(self) -> bool {
        matches!(self, Self::PromiseContradicted | Self::BytesMissing)
    }
}

/// What to add to a figure that was measured on a busy machine; nothing to another.
#[must_use]
pub(crate) const fn busy_stamp(is_noisy: bool) -> &'static str {
    if is_noisy { ", on a busy machine" } else { "" }
}

/// The same in a line of figures, where there is no room for words.
#[must_use]
pub(crate) const fn busy_mark(is_noisy: bool) -> &'static str {
    if is_noisy { " ?" } else { "" }
}

/// Said in place of a best where every arm was busy.
pub(crate) const BEST_UNKNOWN: &str = "not known here: the machine was busy";

impl Warning {
    /// A warning of this kind, with this text.
    #[must_use]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
