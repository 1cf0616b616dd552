//! Whom we talk to: what a greeting says is held against who we are. A pure function.

use super::frame::{LEAST_FRAME_BYTES, VERSIONS};
use super::greeting::{Greeting, Kind};
use super::{Peer, Priority};

/// Why a connection or a frame is refused.
///
/// The number is what a verdict tells (see `greeting.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is of another cluster.
    #[error("it is of another cluster")]
    ForeignCluster = 1,
    /// Another node was meant, or another one answers at the address.
    #[error("it is another node than was meant")]
    WrongNode = 2,
    /// It says that it is us.
    #[error("it is ourselves")]
    Ourselves = 3,
    /// A later incarnation of that node was seen, or another start of this one.
    #[error("a later incarnation of it was seen, or another start of this one")]
    OldIncarnation = 4,
    /// There is no version that both speak.
    #[error("there is no version that both speak: one of the two brokers is too old for the other")]
    Version = 5,
    /// The address of that node is not known: it is not of the cluster, or not yet.
    #[error("it is not known")]
    Unknown = 6,
    /// The node with the lower id dials.
    #[error("it is not its turn to dial")]
    WrongSide = 7,
    /// A frame that is longer than we take.
    #[error("a frame is too long")]
    Oversized = 8,
    /// Bytes that are no frame, or a frame of another connection.
    #[error("its bytes are damaged")]
    Damaged = 9,
    /// A frame that came before, or is not the next.
    #[error("a frame is not the next one")]
    Replayed = 10,
    /// Too many connections are being made.
    #[error("too many connections are being made")]
    TooMany = 11,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 11] = [
        Self::ForeignCluster,
        Self::WrongNode,
        Self::Ourselves,
        Self::OldIncarnation,
        Self::Version,
        Self::Unknown,
        Self::WrongSide,
        Self::Oversized,
        Self::Damaged,
        Self::Replayed,
        Self::TooMany,
    ];

    /// What it is counted under.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::ForeignCluster => "foreign-cluster",
            Self::WrongNode => "wrong-node",
            Self::Ourselves => "ourselves",
            Self::OldIncarnation => "old-incarnation",
            Self::Version => "version",
            Self::Unknown => "unknown",
            Self::WrongSide => "wrong-side",
            Self::Oversized => "oversized",
            Self::Damaged => "damaged",
            Self::Replayed => "replayed",
            Self::TooMany => "too-many",
        }
    }

    /// What a verdict says, if this version knows the reason.
    pub(super) fn of(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u16 == code)
    }

    /// Its place among [`Self::ALL`].
    pub(super) const fn place(self) -> usize {
        self as usize - 1
    }
}

/// What a greeting is held against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) cluster: u128,
    pub(super) us: Peer,
    pub(super) kind: Kind,
    /// Who was dialled, and for what; `None` if we were.
    pub(super) dialled: Option<(u64, Priority)>,
}

impl Expected {
    /// The version to speak with whoever says this.
    pub(super) fn judge(&self, said: &Greeting) -> Result<u16, Reason> {
        if said.cluster != self.cluster {
            return Err(Reason::ForeignCluster);
        }
        if said.from.node == self.us.node {
            return Err(Reason::Ourselves);
        }
        if said.to != self.us.node {
            return Err(Reason::WrongNode);
        }
        match self.dialled {
            Some((node, _)) if said.from.node != node => return Err(Reason::WrongNode),
            Some((_, priority)) if said.priority != priority => return Err(Reason::Damaged),
            None if said.from.node > self.us.node => return Err(Reason::WrongSide),
            _ => {}
        }
        let takes_any =
            usize::try_from(said.frame_bytes).is_ok_and(|most| most >= LEAST_FRAME_BYTES);
        if said.kind != self.kind || !takes_any {
            return Err(Reason::Damaged);
        }
        shared(VERSIONS, said.versions).ok_or(Reason::Version)
    }
}

/// The highest version in both ranges.
fn shared(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
    let highest = ours.1.min(theirs.1);
    (highest >= ours.0.max(theirs.0)).then_some(highest)
}
