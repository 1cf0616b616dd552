//! [`Options`]: what a group is opened with.

use std::fmt::Debug;
use std::sync::Arc;

use plimsoll_log::{Ack, Crew};

use super::carrier::{Carrier, Nobody};
use super::place::Place;
use super::standing::Basis;

/// What a group is opened with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The id of this node. It was never another's, and is the same at every open of this
    /// directory.
    pub node: u64,
    /// How far an entry is when this replica counts as having it: what that survives is said at
    /// each.
    pub promise: Ack,
    /// Whether a payload must be durable before this replica counts as having it, whatever the
    /// promise: what opens, closes or fences. So must every membership. What comes behind such an
    /// entry waits with it.
    pub must_sync: fn(&[u8]) -> bool,
    /// Where the state stands that the group is opened with: a snapshot of [`Group::snapshot`]. None: a
    /// new state, to which the whole log is applied.
    ///
    /// [`Group::snapshot`]: super::Group::snapshot
    pub start: Option<Place>,
    /// Options of its log.
    pub log: plimsoll_log::Options,
    /// Whose threads and memory the log shares; it has its own unless set.
    pub crew: Option<Arc<Crew>>,
}

/// How a replica begins, once its log was looked at.
#[derive(Debug, Clone)]
pub struct Begin {
    /// What it is called in logs.
    pub number: u32,
    /// How it reaches the others.
    pub carrier: Arc<dyn Carrier>,
    /// Whether an empty log becomes a cluster of one. Otherwise it waits until a leader adds it.
    pub founds: bool,
    /// Whether it may have forgotten what it acknowledged: then it does not vote before a leader has told it
    /// how far it must come, and it has come there. One that is the only voter has nobody to ask, and votes;
    /// whoever opened it says what may be lost.
    pub is_dirty: bool,
    /// Whether a replica that has nothing may have lost it: then it takes no part before
    /// [`until_it_takes_part`](super::Group::until_it_takes_part) says that it may.
    pub may_be_lost: bool,
    /// Whether it [begins anew](Self::anew).
    pub is_anew: bool,
    /// On what the group goes on after a loss.
    pub basis: Basis,
    /// Is told what this replica acknowledges, where that is before it is durable.
    pub testimony: Option<Arc<dyn Testimony>>,
}

impl Begin {
    /// A replica that knows of nobody else, and found an empty log's cluster.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            number: 0,
            carrier: Arc::new(Nobody),
            founds: true,
            is_dirty: false,
            may_be_lost: false,
            is_anew: false,
            basis: Basis::default(),
            testimony: None,
        }
    }

    /// A replica that had a log, and can use none of it: a leader that has all of its own sends it all, and until then it is in doubt.
    #[must_use]
    pub fn emptied(self) -> Self {
        Self { founds: false, is_dirty: true, ..self }
    }

    /// One that takes no entries, [lacks](super::Group::lack) all of it, and is in doubt.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { is_anew: true, ..self.emptied() }
    }
}

/// Keeps in memory that outlives the process how far this replica has acknowledged entries, by the engine's
/// index.
pub trait Testimony: Debug + Send + Sync + 'static {
    /// All up to this entry is about to be acknowledged. If this fails it is not.
    ///
    /// # Errors
    /// Why it cannot be kept; the replica stops.
    fn acknowledges(&self, index: u64) -> Result<(), String>;

    /// All from this entry on was cut off, durably: another leader's entries take its place. From here on it
    /// counts as never acknowledged.
    ///
    /// # Errors
    /// As [`Testimony::acknowledges`].
    fn cuts(&self, from: u64) -> Result<(), String>;
}
