//! [`Wrong`]: why a request asks for nothing that there is.

/// Nothing can be asked so.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// There is nothing of this name.
    Path(String),
    /// What is asked for is not understood.
    Query(String),
}
