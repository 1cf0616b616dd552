//! [`Apply`]: what a group does with what it agreed on.

use bytes::Bytes;

/// The state that entries make.
pub trait Apply: Send + Sync + 'static {
    /// What whoever proposed an entry is told.
    type Answer: Send + Sync + 'static;

    /// Applies an entry. All entries come, each once, in order, from the log's first on: also those
    /// that carry no payload of ours, as the first of each leadership. The same entries give the
    /// same state on every replica, so it reads no clock and nothing else that could differ.
    ///
    /// # Errors
    /// The entry cannot be applied and nothing behind it may be: this replica stops.
    fn apply(
        &mut self,
        index: u64,
        term: u64,
        payload: Option<&Bytes>,
    ) -> Result<Self::Answer, Stop>;
}

/// Why a replica must stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stop(pub String);
