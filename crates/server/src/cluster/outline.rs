//! [`Outline`]: what a replica says of itself to whoever has to decide what becomes of the group.

use openraft::async_runtime::WatchReceiver;
use plimsoll_log::Ack;

use super::apply::Apply;
use super::behind::{Lack, Needed, is_lacking};
use super::error::Result;
use super::generation::Newer;
use super::group::Group;
use super::record::to_log;
use super::types::log_id;

/// A replica, as it is now. Indexes are the log's, which counts from 1; 0 is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// After which loss its group goes on.
    pub generation: u64,
    /// Its vote: the term, for whom, and whether a quorum granted it. Durable.
    pub vote: (u64, u64, bool),
    /// Term and index of the last entry of its log.
    pub last: (u64, u64),
    /// The last entry that is durable here.
    pub synced: u64,
    /// C, as far as it knows.
    pub committed: u64,
    /// D, as far as it knows.
    pub durable: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// Whether it may have forgotten what it acknowledged, and does not vote.
    pub is_dirty: bool,
    /// Whether its log ends before that which it was decided to go on with after a loss: it does not campaign.
    pub has_less: bool,
    /// Whether its log is damaged, and not healed yet, or its disk has failed: it does not campaign either.
    pub is_damaged: bool,
    /// Whether it has been damaged for seconds: nobody gives what it lacks.
    pub damage_lasts: bool,
    /// Of such a log, term and index of the entry before the first that is damaged; zeros for none. `None` where more is applied: what there is
    /// cannot be gone on with alone.
    pub whole: Option<(u64, u64)>,
    /// The nodes whose replicas vote, ascending.
    pub voters: Vec<u64>,
}

impl<S: Apply> Group<S> {
    /// What it says of itself.
    #[must_use]
    pub fn outline(&self) -> Outline {
        // D first: it is never beyond the C that is read after it.
        let durable = self.durable().map_or(0, to_log);
        let committed = self.committed().map_or(0, to_log);
        let last = self.storage.tail().last();
        debug_assert!(durable <= committed, "S5: D {durable} is beyond C {committed}");
        debug_assert!(
            committed <= last.map_or(0, |last| to_log(last.index)),
            "S5: C {committed} is beyond the log, which ends with {last:?}"
        );
        let vote = self.engine.metrics().borrow_watched().vote;
        let is_cut_off = self.is_cut_off();
        Outline {
            generation: self.generation(),
            vote: (vote.leader_id.term, vote.leader_id.voted_for, vote.committed),
            last: last.map_or((0, 0), |last| (last.leader_id.term, to_log(last.index))),
            synced: self.synced(),
            committed,
            durable,
            leader: self.leader().filter(|_| !is_cut_off),
            is_dirty: self.is_dirty(),
            has_less: !self.standing.may_lead(last),
            is_damaged: !self.storage.is_whole(),
            damage_lasts: self.storage.wounds.first_lasts(),
            whole: self.whole(),
            voters: self.voters(),
        }
    }

    /// Up to where what can be read of a damaged log can be gone on with, once it is known how far that is.
    fn whole(&self) -> Option<(u64, u64)> {
        let storage = &self.storage;
        storage.wounds.first_lasts().then(|| storage.whole(self.applied())).flatten()
    }

    /// Whether what is committed may be acknowledged though it is not durable: this replica leads, and is not guarded.
    #[must_use]
    pub fn acknowledges_at_once(&self) -> bool {
        let leads_in = self.leads_in();
        leads_in.is_some_and(|term| !self.waits_for_quorum() || !self.durability.is_guarded(term))
    }

    /// Which generation this replica is of.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.network.generation.own()
    }

    /// A newer generation that it has met: it must be opened again, [in that](super::Recovered::rise).
    #[must_use]
    pub fn newer(&self) -> Option<Newer> {
        self.network.generation.newer()
    }

    /// What this replica lacks and its leader has let go of, if that has said so, or what of it is damaged, and nobody gives by
    /// entry: it must be seeded.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        self.behind.lack(self.is_led())
    }

    /// Whether another leads, and is heard.
    fn is_led(&self) -> bool {
        self.leader().is_some_and(|leader| leader != self.node)
    }

    /// How far a log must go that is to come in the place of this one's, by now. `None`: that is not needed any more, or not now:
    /// this replica leads; or nobody does, whom the others may need its vote for, and it would be in doubt.
    #[must_use]
    pub fn needed(&self) -> Option<Needed> {
        let lack = self.lack()?;
        if !self.is_led() && !self.behind.takes_none() {
            return None;
        }
        let last = self.storage.tail().last();
        // The engine counts from 0.
        Some(Needed {
            through: lack.through + 1,
            ends: last.map_or((0, 0), |last| (last.leader_id.term, last.index + 1)),
        })
    }

    /// Whether this replica leads, and another that answered lately lacks this entry.
    #[must_use]
    pub fn is_lacking(&self, index: u64) -> bool {
        is_lacking(self.node, &self.engine.metrics().borrow_watched(), index)
    }

    /// The term of the last vote that this replica gave, durably; 0 is none.
    #[must_use]
    pub fn voted_in(&self) -> u64 {
        self.storage.identity.known().vote.map_or(0, |vote| vote.leader_id.term)
    }

    /// How far this replica's log has the entry of a term, by the engine's index: `None` if another is there, or none.
    /// What was let go of is durable.
    ///
    /// # Errors
    /// [`Error::Log`](super::Error::Log): it cannot be read.
    pub fn holds(&self, term: u64, index: u64) -> Result<Option<Ack>> {
        let log = &self.storage.log;
        let is_there = self.storage.has(log_id(term, index))?;
        let how_far = match to_log(index) {
            at if at <= log.durable() => Ack::Durable,
            at if at <= log.written() => Ack::Written,
            _ => Ack::Buffered,
        };
        Ok(is_there.then_some(how_far))
    }
}
