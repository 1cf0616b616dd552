//! [`Options`]: what a group is opened with.

use std::sync::Arc;

use plimsoll_log::{Ack, Crew};

use super::place::Place;

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
