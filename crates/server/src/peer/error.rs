//! [`Error`]: why a node has not answered.

/// Why there is no answer. Whoever says it says of which node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no connection to it now. Nothing was sent.
    #[error("it is not connected")]
    Unreachable {
        /// Who was asked.
        node: u64,
    },
    /// So much waits to be sent to it, or to be answered, that this was not taken. Nothing was sent.
    #[error("too much waits for it")]
    Busy {
        /// Who was asked.
        node: u64,
    },
    /// It is larger than the node takes. Nothing was sent.
    #[error("a message of {bytes} bytes, and it takes {most}")]
    TooLarge {
        /// Who was asked.
        node: u64,
        /// How large it is.
        bytes: usize,
        /// What would be taken.
        most: usize,
    },
    /// The connection ended, or an incarnation of the node did. It may have arrived or not; it is not sent
    /// again.
    #[error("the connection to it is gone")]
    Gone {
        /// Who was asked.
        node: u64,
    },
    /// The node says that it will not answer.
    #[error("it refuses: {why}")]
    Refused {
        /// Who was asked.
        node: u64,
        /// What it says.
        why: Refusal,
    },
}

/// Why a node does not answer a request that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has too much under way for us, or we do not take its answers. The request was not handled, or
    /// its answer was let go.
    #[error("it has too much under way")]
    Busy = 1,
    /// Its handler ended without an answer.
    #[error("it could not handle the request")]
    Failed = 2,
    /// Its answer is larger than we take.
    #[error("its answer is too large")]
    TooLarge = 3,
}

impl Refusal {
    pub(super) const ALL: [Self; 3] = [Self::Busy, Self::Failed, Self::TooLarge];
}
