//! [`opened`]: a shard whose files cannot be used begins anew: with nothing, in doubt, and another broker gives it all of it.
//!
//! What is damaged of a log behind the snapshot and what is in chapters is cut off, and had back from the leader's log (`damaged.rs`).
//! Nobody's log gives back the snapshot itself, the manifest of chapters, what a chapter says it holds, or entries before those two. So the
//! log is set aside in `damaged-N` with the snapshot, and the replica begins with an empty one, which takes no entries: it is seeded as
//! one that was away for long (`seed/`), and in doubt until it has caught up. Its vote stays, and so do its chapters: runs of them that are whole
//! are not fetched. That is durable before anything goes, and lasts until the shard is given, over any number of starts.
//!
//! The log of topics begins with its first entry everywhere: there, and in doubt as any, it is sent all of it by its leader, and needs no seed.
//!
//! One that has more in its snapshot than others decided to go on with after a loss (`decided.rs`) begins anew too, once somebody leads who did.
//!
//! Only where others vote in the shard, by what can be read of it, or in the control shard where it says nothing (of that one: in the groups'), and where the node still
//! knows its vote. Otherwise it does not start, and nothing is set aside: there is nobody who could give it.
//!
//! What another gave says nothing of what this one had: until it has caught up with a leader it does not count where a shard goes on
//! after a loss (`damaged-N/anew`, `recovery.rs`).

use std::sync::Arc;

use plimsoll_sync::Dir;

use super::decided::Decided;
use super::error::{Failed, found, sentence};
use super::kept;
use super::layout::{self, CONTROL, GROUPS};
use super::seeded::{Stage, remove_log};
use super::snapshot::Snapshot;
use crate::cluster::{self, Identity, Place};

/// What `open` makes of a shard; it is told whether that begins anew. `forgets` is told before the log is another: what memory has
/// of it is to go.
pub(super) fn opened<T>(
    root: &Arc<dyn Dir>,
    number: u32,
    node: u64,
    forgets: impl Fn(u32) -> Result<(), Failed>,
    open: impl Fn(bool) -> Result<T, Failed>,
) -> Result<T, Failed> {
    if Stage::read(&**root, number)? != Some(Stage::Anew) {
        match open(false) {
            Err(why) if why.lacks_what_others_have() && others_have(root, number, node)? => {
                tracing::warn!(shard = number, why = %sentence(&why), "it begins anew");
                set_aside(root, number)?;
            }
            opened => return opened,
        }
    }
    forgets(number)?;
    empty(root, number, node)?;
    open(true)
}

/// Whether others vote in a shard. Of one that does not say so any more, whether they do in another, whose log is let go of less, or not
/// damaged with it: the control shard, and of that one the groups'.
pub(super) fn others_have(root: &Arc<dyn Dir>, number: u32, node: u64) -> Result<bool, Failed> {
    let log = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    // Without its vote it has nothing to begin anew with.
    if !matches!(Identity::look(&*log), Ok(Some(identity)) if identity.node == node) {
        return Ok(false);
    }
    let newest = match newest_voters(root, number, node)? {
        None => newest_voters(root, if number == CONTROL { GROUPS } else { CONTROL }, node)?,
        newest => newest,
    };
    Ok(newest.is_some_and(|(_, others)| others))
}

/// Since which entry it is so who votes in a shard, and whether that are others, by the newest that can be read.
fn newest_voters(
    root: &Arc<dyn Dir>,
    number: u32,
    node: u64,
) -> Result<Option<(u64, bool)>, Failed> {
    let log = found(root.open_dir(&layout::shard(number)))?;
    // What cannot be read says nothing.
    let by_log = log.and_then(|log| cluster::others_voted_last(&log, node).ok().flatten());
    let snapshot = Snapshot::look(&**root, number).ok().flatten();
    let by_snapshot = snapshot.map(|snapshot| snapshot.place.others_since(node));
    Ok(by_log.max(by_snapshot))
}

/// What a snapshot has is not cut off: so where it was decided, since this replica was of the group and without it, to go on with a log that ends before
/// that, or it is not known any more what was, another gives it all. What is in chapters nobody else has then: that is left to a person.
pub(super) fn check_decided(
    root: &Arc<dyn Dir>,
    number: u32,
    start: Option<&Place>,
    settled: u64,
    decided: Decided,
) -> Result<(), Failed> {
    let log = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    let Ok(Some(Identity { generation, .. })) = Identity::look(&*log) else { return Ok(()) };
    let has = start.map_or((0, 0), Place::end);
    let missed_one = decided.generation > generation + 1 && has != (0, 0);
    let (_, least) = decided.least;
    // Of a group that was restored, or by a decision of before, nothing is said of that.
    // And whoever was asked goes on with what it has.
    if decided.lifts || decided.generation <= generation || decided.least == (0, 0) {
        Ok(())
    } else if settled > least {
        Err(Failed::AheadForGood { number, settled, least })
    } else if has > decided.least || missed_one {
        Err(Failed::Ahead { number, has: has.1, least })
    } else {
        Ok(())
    }
}

/// Keeps what a shard has. From here on it begins anew: durable on return.
fn set_aside(root: &Arc<dyn Dir>, number: u32) -> Result<(), Failed> {
    kept::keep_all(&**root, number).map_err(Failed::Directory)?;
    Stage::Anew.write(&**root, number)
}

/// Each step may have been done before.
fn empty(root: &Arc<dyn Dir>, number: u32, node: u64) -> Result<(), Failed> {
    let log = root.create_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    remove_log(&*log).map_err(Failed::Directory)?;
    cluster::begin_anew(&*log, node).map_err(|why| Failed::Shard { number, why })?;
    found(root.remove(&layout::state(number))).map(drop)
}
