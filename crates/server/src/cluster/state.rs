//! [`State`]: hands the engine's committed entries to [`Apply`], and says how far that is.
//!
//! **The engine neither builds nor ships snapshots.** It would build one at its own time, of a
//! state that may be above what is durable, and purge what an installed one covers. So there is
//! none to be had here, no policy asks for one, and a request to build or install one fails. At
//! open the state is new, or comes with a snapshot that whoever has it took at or below what is
//! durable; the engine learns what is committed from the first entry of a term, and applies the log
//! from there on.

use std::io;

use futures_util::{Stream, TryStreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{
    EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot, SnapshotMeta,
};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, OptionalSend, Raft};

use super::apply::Apply;
use super::place::Place;
use super::types::{Answer, Entry, LogId, StoredMembers, Types};
use super::watch;

/// A leadership whose first entry is applied: from then on its leader knows all that was committed
/// before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// Its term: no two leaders ever have the same.
    pub term: u64,
    /// The index of its first entry.
    pub since: u64,
}

/// The engine, with what it applies entries to.
pub(crate) type Engine<S> = Raft<Types, State<S>>;

/// How far entries are applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) applied: Option<u64>,
    /// The newest leadership that is known to have begun.
    pub(crate) began: Option<Leadership>,
}

/// The engine's state machine.
#[derive(Debug)]
pub(crate) struct State<S> {
    state: S,
    applied: Option<LogId>,
    members: StoredMembers,
    /// Where it stood when it was opened, if it was not new.
    start: Option<Place>,
    progress: watch::Sender<Progress>,
}

/// Stands where the engine wants a builder of snapshots.
#[derive(Debug)]
pub(crate) struct NoSnapshots;

impl<S: Apply> State<S> {
    /// A state that stands there, or a new one.
    pub(crate) fn new(state: S, start: Option<Place>, progress: watch::Sender<Progress>) -> Self {
        let applied = start.as_ref().map(|start| start.applied);
        let members = start.as_ref().map_or_else(StoredMembers::default, |s| s.members.clone());
        progress.send_modify(|progress| progress.applied = applied.map(|last| last.index));
        Self { state, applied, members, start, progress }
    }

    /// The state, and where it stands, if it is not a new one.
    pub(crate) fn standing(&self) -> Option<(Place, &S)> {
        let place = Place { applied: self.applied?, members: self.members.clone() };
        Some((place, &self.state))
    }

    fn apply_one(&mut self, entry: &Entry) -> io::Result<S::Answer> {
        let LogId { leader_id, index } = entry.log_id;
        let payload = match &entry.payload {
            EntryPayload::Normal(payload) => Some(&payload.0),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        let answer = self.state.apply(index, leader_id.term, payload).map_err(io::Error::other)?;
        self.applied = Some(entry.log_id);
        if let Some(members) = entry.get_membership() {
            self.members = StoredMembers::new(Some(entry.log_id), members);
        }
        self.progress.send_modify(|progress| {
            progress.applied = Some(index);
            if matches!(entry.payload, EntryPayload::Blank) {
                progress.began = Some(Leadership { term: leader_id.term, since: index });
            }
        });
        Ok(answer)
    }
}

impl<S: Apply> RaftStateMachine<Types> for State<S> {
    type SnapshotData = ();
    type SnapshotBuilder = NoSnapshots;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembers)> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let answer = self.apply_one(&entry)?;
            if let Some(responder) = responder {
                responder.send(Answer(Box::new(answer)));
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<NoSnapshots> {
        // Forced, the engine unwraps it; then it fails to build.
        force.then_some(NoSnapshots)
    }

    async fn get_snapshot_builder(&mut self) -> NoSnapshots {
        NoSnapshots
    }

    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, (): ()) -> io::Result<()> {
        Err(no_snapshots())
    }

    /// Where the state began: the engine asks for that where entries are purged, so that nobody is sent
    /// what is not there. There are no bytes to be shipped, and the network ships none.
    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, ()>>> {
        let meta = |place: &Place| SnapshotMeta {
            last_log_id: Some(place.applied),
            last_membership: place.members.clone(),
        };
        let began = self.start.as_ref().map(meta);
        Ok(began.map(|meta| Snapshot { meta, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<Types> for NoSnapshots {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, ()>> {
        Err(no_snapshots())
    }
}

fn no_snapshots() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the engine neither builds nor installs snapshots")
}
