//! [`State`]: hands the engine's committed entries to [`Apply`], and says how far that is.
//!
//! **The engine neither builds nor ships snapshots.** It would build one at its own time, of a
//! state that may be above what is durable, and purge what an installed one covers. So no policy asks for
//! one, and a request to install one fails. What it is given as one says how far the log was let go of, and has no
//! bytes: so it knows who cannot be served from the log, and `network` tells those. At
//! open the state is new, or comes with a snapshot that whoever has it took at or below what is
//! durable; the engine learns what is committed from the first entry of a term, and applies the log
//! from there on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use openraft::async_runtime::WatchReceiver;
use openraft::entry::RaftEntry;
use openraft::storage::{
    EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot, SnapshotMeta,
};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, OptionalSend, Raft};
use tokio::time::sleep;

use super::apply::Apply;
use super::gone::Gone;
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

/// How long the engine may take until it is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The engine, with what it applies entries to.
pub(crate) type Engine<S> = Raft<Types, State<S>>;

/// Has the engine know what is gone from the log, whenever more is, so that it tells replicas that lack it. Nobody waits for
/// that: the engine may wait for what is to be healed, and who heals lets go. Ends with the engine.
pub(crate) async fn tell_gone<S: Apply>(engine: Engine<S>, gone: Arc<Gone>) {
    let (mut goes, metrics) = (gone.watch(), engine.metrics());
    loop {
        let gone = *goes.borrow_and_update();
        let (snapshot, purged) = {
            let known = metrics.borrow_watched();
            (known.snapshot, known.purged)
        };
        let asked = match gone {
            Some(_) if snapshot < gone => engine.trigger().snapshot().await,
            Some(gone) if purged < Some(gone) => engine.trigger().purge_log(gone.index).await,
            _ if goes.changed().await.is_ok() => continue,
            _ => return,
        };
        if asked.is_err() {
            return;
        }
        // What it is asked for while it does the same is left, or put off.
        sleep(ASK_AGAIN).await;
    }
}

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
    gone: Arc<Gone>,
    progress: watch::Sender<Progress>,
}

/// What the engine is given as a snapshot, and as who builds one.
#[derive(Debug)]
pub(crate) struct NoBytes(SnapshotMetaOf<Types>);

impl<S: Apply> State<S> {
    /// A state that stands there, or a new one.
    pub(crate) fn new(
        state: S,
        start: Option<Place>,
        gone: Arc<Gone>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        let applied = start.as_ref().map(|start| start.applied);
        let members = start.map_or_else(StoredMembers::default, |start| start.members);
        progress.send_modify(|progress| progress.applied = applied.map(|last| last.index));
        Self { state, applied, members, gone, progress }
    }

    fn gone(&self) -> Option<NoBytes> {
        let last_log_id = self.gone.last();
        last_log_id?;
        Some(NoBytes(SnapshotMeta { last_log_id, last_membership: self.members.clone() }))
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
    type SnapshotBuilder = NoBytes;

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

    async fn try_create_snapshot_builder(&mut self, _: bool) -> Option<NoBytes> {
        self.gone()
    }

    async fn get_snapshot_builder(&mut self) -> NoBytes {
        self.gone().unwrap_or_else(|| NoBytes(SnapshotMeta::default()))
    }

    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, (): ()) -> io::Result<()> {
        Err(no_snapshots())
    }

    /// The engine asks for it where it is to send what it knows to be gone. There are no bytes to be shipped, and the
    /// network ships none.
    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, ()>>> {
        Ok(self.gone().map(|gone| Snapshot { meta: gone.0, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<Types> for NoBytes {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, ()>> {
        Ok(Snapshot { meta: self.0.clone(), snapshot: () })
    }
}

fn no_snapshots() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the engine installs no snapshots")
}
