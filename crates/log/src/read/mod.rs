//! Records, read: from a log that is open here, or from files that somebody else may be writing. Every
//! checksum is verified.
//!
//! * [`reader`]: records in order, from a [`source`]; [`follower`]: and those that come.
//! * [`lookup`]: where in a segment a record is; [`piece`]: a part of one.
//! * [`shelf`]: the files of a log that somebody else may be writing; [`view`]: what is in them.
//!
//! Its words: a *source* is a log that is open, or the *shelf* of one that somebody else may be writing. A
//! *reader* reads records up to a *level*; a *follower* waits for more; a *lookup* finds one; a *piece* is a
//! part of one. Files may be others in the next *epoch*. A *view* reads a shelf, and its *outline* says what
//! segments there are.

pub(crate) mod follower;
pub(crate) mod lookup;
pub(crate) mod piece;
pub(crate) mod reader;
pub(crate) mod shelf;
pub(crate) mod source;
pub(crate) mod view;

use std::sync::Arc;

use plimsoll_sync::Process;

use crate::append::marks::Marks;
use crate::files::Files;

/// What readers need of a log that is open here.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) files: Arc<Files>,
    pub(crate) marks: Arc<Marks>,
    /// Whether threads may help those who read much.
    pub(crate) helps: bool,
    /// Who opened it.
    pub(crate) owner: Process,
}
