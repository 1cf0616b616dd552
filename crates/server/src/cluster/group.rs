//! [`Group`]: one consensus group, as a shard sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::{Instant, ServerState};
use plimsoll_log::Ack;

use super::apply::Apply;
use super::behind::Behind;
use super::core::Core;
use super::durability::{Durability, Unwell};
use super::error::{Error, Result};
use super::gone::Gone;
use super::handing::Handing;
use super::heard::Heard;
use super::level::Named;
use super::network::Network;
use super::newcomer::Newcomer;
use super::place::Place;
use super::receiver::Receiver;
use super::record::{HEAD_BYTES, from_log, to_log};
use super::settings::ELECTION_MS;
use super::standing::Standing;
use super::state::{Engine, Leadership, Progress};
use super::storage::Storage;
use super::types::Payload;
use super::watch;

/// A leader that no quorum has answered for so long leads no more: the others may have elected another.
const CUT_OFF: Duration = Duration::from_millis(ELECTION_MS);
/// Within which another replica is answered: a sync of a slow disk may be in it.
const ANSWERED: Duration = Duration::from_secs(60);

/// An entry that is committed and applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed<A> {
    /// Its index.
    pub index: u64,
    /// What applying it returned.
    pub answer: A,
}

/// One consensus group: a replica's log, its engine, and the state that the entries make.
///
/// All indexes are the engine's, which counts from 0. The first entry is the membership, and each
/// leadership begins with one without a payload.
///
/// Its futures need no runtime; they may be awaited on any. Dropping it is as a crash of the
/// process, but that what was buffered is written if that is possible; [`Group::close`] says how it
/// went.
pub struct Group<S: Apply> {
    pub(super) node: u64,
    pub(super) engine: Engine<S>,
    pub(super) storage: Arc<Storage>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) standing: Arc<Standing>,
    pub(super) durability: Arc<Durability>,
    pub(super) network: Network,
    pub(super) handing: Handing,
    pub(super) gone: Arc<Gone>,
    pub(super) behind: Arc<Behind>,
    pub(super) newcomer: Arc<Newcomer>,
    pub(super) heard: Arc<Heard>,
    pub(super) named: Arc<Named>,
    /// Ends before the storage is closed.
    pub(super) core: Core,
}

impl<S: Apply> Group<S> {
    /// The leadership of this replica, if it leads and the first entry of its term is applied:
    /// before that it does not know all that was committed. None while it is cut off, or hands over.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        let term = self.leads_in()?;
        self.progress.borrow().began.filter(|began| began.term == term)
    }

    /// The node whose replica leads, as far as it is known here: this one, or another that was heard lately.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        let (leader, leads) = {
            let roles = self.engine.metrics();
            let role = roles.borrow_watched();
            (role.current_leader, role.state == ServerState::Leader)
        };
        if self.storage.disk.has_failed() {
            // Of a node that has failed only those speak who lead.
            return self.heard.latest();
        }
        leader.filter(|leader| match *leader == self.node {
            // Of a term before its start it is named too.
            true => leads,
            false => self.heard.is_lately(*leader),
        })
    }

    /// The node of this replica.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }

    /// The nodes whose replicas vote, ascending.
    #[must_use]
    pub fn voters(&self) -> Vec<u64> {
        let metrics = self.engine.metrics();
        let members = &metrics.borrow_watched().membership_config;
        let voters: BTreeSet<_> = members.membership().voter_ids().collect();
        voters.into_iter().collect()
    }

    /// Whether any other replica votes, as far as this one knows: before, nobody has anything to forget.
    #[must_use]
    pub fn others_vote(&self) -> bool {
        self.voters().iter().any(|voter| *voter != self.node)
    }

    /// Whether this replica is the only one that votes.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let metrics = self.engine.metrics();
        let members = &metrics.borrow_watched().membership_config;
        let sets = members.membership().get_joint_config();
        matches!(&sets[..], [set] if set.len() == 1 && set.contains(&self.node))
    }

    /// Answers what other replicas ask.
    #[must_use]
    pub fn receiver(&self) -> Receiver<S> {
        Receiver {
            node: self.node,
            engine: self.engine.clone(),
            storage: Arc::downgrade(&self.storage),
            standing: Arc::clone(&self.standing),
            durability: Arc::clone(&self.durability),
            incarnations: Arc::clone(&self.network.incarnations),
            generation: Arc::clone(&self.network.generation),
            behind: Arc::clone(&self.behind),
            newcomer: Arc::clone(&self.newcomer),
            heard: Arc::clone(&self.heard),
            named: Arc::clone(&self.named),
            disk: Arc::clone(&self.storage.disk),
        }
    }

    /// Whether this replica may have forgotten what it acknowledged, and does not vote yet.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.standing.is_dirty()
    }

    /// Waits until this replica votes.
    pub async fn wait_clean(&self) {
        self.until_clean().await;
    }

    /// The same, and does not hold the group: whether it does, and has not ended.
    pub fn until_clean(&self) -> impl Future<Output = bool> + Send + use<S> {
        let mut standing = self.standing.watch();
        async move { standing.wait_for(|is_dirty| !is_dirty).await.is_ok() }
    }

    /// From here on its disk has no room for records while this says so: it takes none, and does not count meanwhile.
    pub fn refuses_while(&self, is_full: Arc<AtomicBool>) {
        self.storage.disk.is_full_while(is_full);
    }

    /// Which voters are not well, and what is wrong with each, as far as this replica knows while it leads.
    #[must_use]
    pub fn unwell(&self) -> BTreeMap<u64, Unwell> {
        self.durability.unwell()
    }

    /// Whether this replica leads, and too few voters have room for records: what it took would be agreed on by nobody.
    #[must_use]
    pub fn lacks_room_elsewhere(&self) -> bool {
        self.durability.lacks_room()
    }

    /// Whether this replica leads, and what it appended seconds ago is not agreed on: too few of its voters take that.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.durability.is_stuck()
    }

    /// Whether what is committed is durable before anybody is told, as the leader's quorum is so thin, or [exposed](Group::expose).
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        self.leads_in()
            .is_some_and(|term| self.waits_for_quorum() && self.durability.is_guarded(term))
    }

    /// Whether that is so because fewer voters are well than should be.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        self.leads_in().is_some_and(|term| self.waits_for_quorum() && self.durability.is_thin(term))
    }

    /// Whether it is guarded, where it leads, as one failure may take a majority of the voters.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.waits_for_quorum() && self.durability.is_exposed()
    }

    /// From here on one failure may take a majority of the voters, or may not: where it may, nothing is acknowledged from their
    /// memory.
    pub fn expose(&self, is_exposed: bool) {
        self.durability.expose(is_exposed);
    }

    /// Whether D is something else than what is committed, or durable here.
    pub(super) fn waits_for_quorum(&self) -> bool {
        self.storage.promise != Ack::Durable && !self.is_alone()
    }

    /// Waits until this replica leads, and the first entry of its term is applied.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn wait_to_lead(&self) -> Result<Leadership> {
        let mut roles = self.engine.metrics();
        let mut progress = self.progress.clone();
        loop {
            // What changes after this is waited for.
            let began = progress.borrow_and_update().began;
            drop(roles.borrow_and_update());
            match (self.leads_in(), began) {
                (Some(term), Some(began)) if began.term == term => return Ok(began),
                // Of a term in which it leads an entry follows; of a lost one, another's.
                (Some(_), _) => progress.changed().await.map_err(|_ended| self.why_stopped())?,
                (None, _) => roles.changed().await.map_err(|_ended| self.why_stopped())?,
            }
        }
    }

    /// Proposes a payload, and returns once it is committed and applied here. It is committed in
    /// this leadership or not at all: another leader, this replica in a later term included, never
    /// takes it.
    ///
    /// Committed is: a quorum has it, as far as the promise says. [`Group::wait_durable`] waits for
    /// more. Dropping the future does not take the proposal back.
    ///
    /// # Errors
    /// [`Error::NotLeader`], [`Error::TooLarge`]: nothing was proposed. [`Error::Unknown`],
    /// [`Error::Stopped`]: it may be committed.
    pub async fn propose(
        &self,
        leadership: Leadership,
        payload: Bytes,
    ) -> Result<Committed<S::Answer>> {
        self.submit(leadership, payload).await?.await
    }

    /// As [`Group::propose`], in two steps: on return the payload has its place behind all that were
    /// submitted before it; the future that is returned waits for it.
    ///
    /// # Errors
    /// As [`Group::propose`].
    pub async fn submit(
        &self,
        leadership: Leadership,
        payload: Bytes,
    ) -> Result<impl Future<Output = Result<Committed<S::Answer>>> + Send + use<S>> {
        let max_bytes = self.max_payload_bytes();
        if payload.len() as u64 > max_bytes {
            return Err(Error::TooLarge { bytes: payload.len(), max_bytes });
        }
        let term = leadership.term;
        let (responder, answered) = ProgressResponder::complete_only();
        let write = self.engine.write(Payload(payload)).with_leader(term).responder(responder);
        write.await.map_err(|why| Error::Stopped { why: why.to_string() })?;
        let (engine, durability) = (self.engine.clone(), Arc::clone(&self.durability));
        let has_others = self.waits_for_quorum();
        Ok(async move {
            let answered = answered.await.map_err(|_ended| why_stopped(&engine))?;
            let written = answered.map_err(|error| match error {
                ClientWriteError::ForwardToLeader(_) => Error::NotLeader { term },
                ClientWriteError::LogEntryDiscarded(_) => Error::Unknown { term },
                error => Error::Stopped { why: error.to_string() },
            })?;
            let answer = written.data.0.downcast().expect("it comes from this group's state");
            if has_others && durability.is_guarded(term) {
                durability.wait(written.log_id.index, true).await;
            }
            Ok(Committed { index: written.log_id.index, answer: *answer })
        })
    }

    /// The largest payload that can be proposed, in bytes.
    #[must_use]
    pub fn max_payload_bytes(&self) -> u64 {
        self.storage.log.max_record_bytes().saturating_sub(HEAD_BYTES as u64)
    }

    /// C: the last entry that is known here to be committed.
    #[must_use]
    pub fn committed(&self) -> Option<u64> {
        let told = self.engine.data_metrics().borrow_watched().local_committed;
        // What is applied is committed, though the engine may not have said so yet.
        told.map(|last| last.index).max(self.applied())
    }

    /// The last entry that is applied.
    #[must_use]
    pub fn applied(&self) -> Option<u64> {
        self.progress.borrow().applied
    }

    /// D: the last entry that is committed and known here to be durable on a quorum. Alone, that is this
    /// replica's disk.
    #[must_use]
    pub fn durable(&self) -> Option<u64> {
        if self.storage.promise == Ack::Durable {
            // What counts as being here is durable here.
            return self.committed();
        }
        if self.is_alone() {
            // Known from here on, also to who is not alone any more: D never goes back.
            self.durability.learn(from_log(self.storage.log.durable()).min(self.committed()));
        }
        self.durability.known().min(self.committed())
    }

    /// The last record of this replica's log that is durable here, as the log counts.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.storage.log.durable()
    }

    /// Waits until an entry of this replica's log is durable, here and on a quorum, and asks for that. One
    /// sync serves everybody who waits. The future does not hold the group.
    ///
    /// # Errors
    /// [`Error::Log`]: `OutOfRange` if there is no such entry, `Truncated` if it was cut off, or
    /// the log has stopped. [`Error::Stopped`].
    pub fn wait_durable(&self, index: u64) -> impl Future<Output = Result<()>> + Send + use<S> {
        let wait = self.storage.log.wait(to_log(index), Ack::Durable);
        let quorum = self.wait_quorum(index, true);
        async move {
            wait?.await?;
            quorum.await
        }
    }

    fn wait_quorum(
        &self,
        index: u64,
        asks: bool,
    ) -> impl Future<Output = Result<()>> + Send + use<S> {
        let quorum = self.waits_for_quorum().then(|| self.durability.wait(index, asks));
        async move {
            let is_there = match quorum {
                Some(quorum) => quorum.await,
                None => true,
            };
            if is_there { Ok(()) } else { Err(Error::Stopped { why: "it was closed".to_owned() }) }
        }
    }

    /// As [`Group::wait_durable`], but asks for nothing: it comes when the log's policy, or somebody
    /// else, has it so.
    ///
    /// # Errors
    /// As [`Group::wait_durable`].
    pub fn watch_durable(&self, index: u64) -> impl Future<Output = Result<()>> + Send + use<S> {
        let wait = self.storage.log.watch(to_log(index), Ack::Durable);
        let quorum = self.wait_quorum(index, false);
        async move {
            wait?.await?;
            quorum.await
        }
    }

    /// What `take` makes of the state, and where that stands: both of one moment. `None` of a state to
    /// which nothing was applied. It may be used to open the group once the entry there is durable.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn snapshot<T: Send + 'static>(
        &self,
        take: impl FnOnce(&S) -> T + Send + 'static,
    ) -> Result<Option<(Place, T)>> {
        let taken = self.engine.with_state_machine(move |state| {
            let taken = state.standing().map(|(place, state)| (place, take(state)));
            Box::pin(std::future::ready(taken))
        });
        taken.await.map_err(|why| Error::Stopped { why: why.to_string() })
    }

    /// All up to this entry is in a snapshot that is durable, and nobody reads it any more: what a disk loses of that in
    /// the log is let go of, not fetched.
    pub fn cover(&self, through: u64) {
        self.gone.cover(through);
    }

    /// Takes everything up to an entry out of the log: it is in a snapshot that is durable, and nobody
    /// reads it any more. Room is freed in whole segments. Waits for the disk. The engine is told of it, so that it tells replicas that
    /// lack it.
    ///
    /// # Errors
    /// [`Error::Log`], [`Error::Disk`]: how much is gone is found at the next open.
    ///
    /// # Panics
    /// If it is not applied yet.
    pub fn purge(&self, index: u64) -> Result<()> {
        assert!(self.applied() >= Some(index), "only what is applied is taken out of a log");
        self.gone.purge(&self.storage, index)
    }

    /// The runtime that the engine runs on, in a thread of its own. What is spawned there is near to
    /// it: no thread has to wake another. It must not wait for a disk, and ends with the group.
    #[must_use]
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.core.runtime()
    }

    /// Bytes that the log accepted and that are not durable, at most, and the age of the oldest.
    #[must_use]
    pub fn at_risk(&self) -> (u64, Duration) {
        self.storage.log.at_risk()
    }

    /// What the log of the group has measured.
    #[must_use]
    pub fn log_stats(&self) -> plimsoll_log::Stats {
        self.storage.log.stats()
    }

    /// Why what it has accepted waits: the disk has no room for it.
    #[must_use]
    pub fn lacks_room(&self) -> Option<Error> {
        self.storage.lacks_room()
    }

    /// Why its disk counts as failed: it acknowledges nothing any more. Never of a replica that votes alone.
    #[must_use]
    pub fn why_disk_failed(&self) -> Option<String> {
        self.storage.disk.why()
    }

    /// Done once its disk has failed: why. The future does not hold the group, and never ends once that has.
    pub fn until_disk_fails(&self) -> impl Future<Output = String> + Send + use<S> {
        let mut failed = self.storage.disk.watch();
        async move {
            match failed.wait_for(Option::is_some).await {
                Ok(()) => failed.borrow().clone().unwrap_or_default(),
                Err(_ended) => std::future::pending().await,
            }
        }
    }

    /// Its disk has failed, as who else uses it has found.
    pub fn fail_disk(&self, why: &str) {
        self.storage.disk.fails(|| why.to_owned());
    }

    /// Why it takes no entries now; `None` if it leads, and its log is as it should be.
    #[must_use]
    pub fn why_offline(&self) -> Option<Error> {
        if let Some(why) = self.storage.disk.why() {
            return Some(Error::DiskFailed { why });
        }
        if let Err(why) = self.storage.log.health() {
            return Some(why.into());
        }
        if self.has_stopped() {
            return Some(self.why_stopped());
        }
        self.leadership().is_none().then(|| self.not_leader())
    }

    /// Whether its engine has stopped, or panicked: what it said last holds no more.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let metrics = self.engine.metrics();
        metrics.is_closed() || metrics.borrow_watched().running_state.is_err()
    }

    /// That it does not lead, in the term that it knows of.
    pub(crate) fn not_leader(&self) -> Error {
        Error::NotLeader { term: self.engine.metrics().borrow_watched().current_term }
    }

    /// Stops the engine, makes the log durable, and ends. How many entries there are by then, of which the first may be let go of.
    ///
    /// # Errors
    /// [`Error::Log`] as of closing a log: what was not durable may be lost.
    pub fn close(self) -> Result<u64> {
        let Self { engine, storage, progress, core, .. } = self;
        drop((engine, progress));
        core.stop();
        let storage = alone(storage);
        // Until here it acknowledged entries to whoever leads, of which it did not hear yet that they are committed.
        let count = storage.tail().last().map_or(0, |last| last.index + 1);
        storage.keep_terms();
        storage.log.close()?;
        Ok(count)
    }

    /// The term in which this replica leads.
    pub(super) fn leads_in(&self) -> Option<u64> {
        let term = {
            // The engine's other reports go on saying that it leads after it has stopped.
            let roles = self.engine.metrics();
            let role = roles.borrow_watched();
            (role.state == ServerState::Leader).then_some(role.vote.leader_id.term)?
        };
        let may_lead = !self.storage.disk.has_failed() && !self.handing.is_in(term);
        (may_lead && !self.is_cut_off()).then_some(term)
    }

    /// Whether it leads by what it knows, and no quorum has answered it for so long that another may lead by now.
    pub(super) fn is_cut_off(&self) -> bool {
        let heard = {
            // What is borrowed twice may wait for who waits for the first to be given back.
            let roles = self.engine.metrics();
            let role = roles.borrow_watched();
            // Who has heard nobody yet has not begun to lead.
            role.last_quorum_acked.filter(|_| role.state == ServerState::Leader)
        };
        heard.is_some_and(|heard| heard.elapsed() > CUT_OFF) && !self.is_alone()
    }

    pub(super) fn why_stopped(&self) -> Error {
        why_stopped(&self.engine)
    }
}

/// What nobody uses any more, once the last answer to another replica is made: its engine has ended, and it may still be told what
/// is durable.
fn alone(mut storage: Arc<Storage>) -> Storage {
    let begun = std::time::Instant::now();
    loop {
        match Arc::try_unwrap(storage) {
            Ok(one) => return one,
            Err(_) if begun.elapsed() > ANSWERED => panic!("another replica is answered still"),
            Err(used) => storage = used,
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub(super) fn why_stopped<S: Apply>(engine: &Engine<S>) -> Error {
    let metrics = engine.metrics();
    let why = match &metrics.borrow_watched().running_state {
        Ok(()) => "it was closed, or has panicked: what was printed before says which".to_owned(),
        Err(why) => why.to_string(),
    };
    Error::Stopped { why }
}

impl<S: Apply> fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("storage", &self.storage)
            .field("progress", &*self.progress.borrow())
            .finish_non_exhaustive()
    }
}
