//! [`Shared`]: what all tasks of a node's connections have, and [`Handler`], which is given the requests.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::Peer;
use super::counters::Tally;
use super::ended::Ended;
use super::judge::Reason;
use super::options::Options;
use super::roster::Roster;

/// What is done with requests of other nodes.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request. This is called in the order in which the requests of a connection were asked, on the
    /// task that reads it, so it must not wait; the future is run beside others, and to its end also when the
    /// connection is gone meanwhile. The request is a slice of the frame it came in, of which there may be a
    /// MiB: whoever keeps a small one for long copies it. The answer is sent by reference.
    ///
    /// `from` may be an earlier incarnation if a later one connects just now: what must not take requests of
    /// one that is gone looks.
    fn handle(&self, from: Peer, shard: u32, request: Bytes) -> BoxFuture<'static, Vec<Bytes>>;

    /// Whether a node that tells this of itself may connect: beyond what was seen since these connections began, which is looked
    /// at before. Must not wait.
    fn admits(&self, _peer: Peer, _hello: &Bytes) -> bool {
        true
    }

    /// A node has connected, and told this of itself: once for each of its connections. Nothing that it asks
    /// over that connection was handled before. Whether it may stay: of two that were admitted at once one may be an earlier state of the
    /// other. Must not wait.
    fn connected(&self, _peer: Peer, _hello: Bytes) -> bool {
        true
    }

    /// All connections to a node have ended, and its system says that nothing takes one there any more: the process
    /// has ended, or had to let go of its address. It may come back at any time.
    fn gone(&self, _peer: Peer) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What all tasks have.
pub(super) struct Shared {
    pub(super) options: Options,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) tally: Tally,
    pub(super) roster: Mutex<Roster>,
    /// Requests that are being handled, and looks for nodes that are gone. They may outlive their connections.
    pub(super) handling: Mutex<JoinSet<()>>,
    pub(super) runtime: Handle,
    /// Another has seen a later incarnation of this node.
    pub(super) is_outdated: AtomicBool,
}

impl Shared {
    /// Whether a peer that tells this of itself may connect.
    pub(super) fn admit(&self, peer: Peer, hello: &Bytes) -> Result<(), Reason> {
        self.lock().admit(peer)?;
        self.handler.admits(peer, hello).then_some(()).ok_or(Reason::OldIncarnation)
    }

    /// Who is known. What is dropped under this lock must wake nobody.
    pub(super) fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what handles a request.
    pub(super) fn spawn(&self, handle: impl Future<Output = ()> + Send + 'static) {
        let mut handling = self.handling();
        while handling.try_join_next().is_some() {}
        handling.spawn_on(handle, &self.runtime);
    }

    /// A connection ended, or none was made.
    pub(super) fn note_ended(&self, ended: Result<(), Ended>, who: &dyn Display) {
        let Err(why) = ended else { return };
        if matches!(why, Ended::Refusing(code) if Reason::of(code) == Some(Reason::OldIncarnation))
        {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        match why.reason() {
            Some(reason) => self.tally.refused(reason, who, &why),
            None => tracing::debug!(%who, %why, "a connection between brokers is gone"),
        }
    }

    pub(super) fn handling(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
