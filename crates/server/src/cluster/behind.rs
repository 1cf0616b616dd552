//! [`Behind`]: what a replica lacks, and its leader has let go of: whoever opened it has it seeded. And what a leader
//! keeps for replicas that are only a moment behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use openraft::{Instant, RaftMetrics, ServerState};

use super::types::{LogId, Types};

/// A replica that answered so lately is there.
const LATELY: Duration = Duration::from_secs(2);

/// What is not in the leader's log any more, nor here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Who is asked for it first: who said so, or leads.
    pub leader: u64,
    /// The last entry that is not to be had, as the engine counts.
    pub through: u64,
}

/// How far the log of another goes at least that comes in the place of this replica's: nothing is lost by that then but what
/// comes while it is given, which a leader has that is heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needed {
    /// It has this record, as the log counts.
    pub through: u64,
    /// By the rule of elections it is no shorter than one that ends with this record, in this term: the term comes first.
    pub ends: (u64, u64),
}

/// Whether a replica lacks what no leader can send it.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    lack: Mutex<Option<Lack>>,
    /// What is damaged here, and nobody gives by entry, by the entry that was noted.
    of_damage: Mutex<BTreeMap<u64, Lack>>,
    is_anew: bool,
}

impl Behind {
    /// Of one that [begins anew](super::Begin::anew), or not.
    pub(crate) fn new(is_anew: bool) -> Self {
        // Whoever has any of it may give it.
        let lack = is_anew.then_some(Lack { leader: 0, through: 0 });
        Self { lack: Mutex::new(lack), is_anew, ..Self::default() }
    }

    /// Whether it takes no entries: what it is given has them.
    pub(crate) fn takes_none(&self) -> bool {
        self.is_anew
    }

    pub(crate) fn learn(&self, lack: Lack) {
        *self.lack.lock().unwrap_or_else(PoisonError::into_inner) = Some(lack);
    }

    /// What is damaged, and was noted there, is not to be had by entry.
    pub(crate) fn learn_of_damage(&self, noted: u64, lack: Lack) {
        self.of_damage.lock().unwrap_or_else(PoisonError::into_inner).insert(noted, lack);
    }

    /// Of all that was damaged only this is so still.
    pub(crate) fn is_damaged_still(&self, noted: &BTreeSet<u64>) {
        let mut of_damage = self.of_damage.lock().unwrap_or_else(PoisonError::into_inner);
        of_damage.retain(|at, _| noted.contains(at));
    }

    /// What is lacking. Of what is damaged only while another leads: until then it may be healed all the same, or this replica be the
    /// one that is to lead.
    pub(crate) fn lack(&self, is_led: bool) -> Option<Lack> {
        let told = *self.lack.lock().unwrap_or_else(PoisonError::into_inner);
        let of_damage = self.of_damage.lock().unwrap_or_else(PoisonError::into_inner);
        told.or_else(|| of_damage.values().next().copied().filter(|_| is_led))
    }
}

/// Whether a replica leads by what its engine says, and another that answered lately lacks this entry.
pub(crate) fn is_lacking(own: u64, engine: &RaftMetrics<Types>, index: u64) -> bool {
    let (Some(matched), Some(heard)) = (&engine.replication, &engine.heartbeat) else {
        return false;
    };
    let is_here = |node: &u64| {
        let heard = heard.get(node).copied().flatten();
        heard.is_some_and(|heard| heard.elapsed() < LATELY)
    };
    let lacks = |(node, has): (&u64, &Option<LogId>)| {
        *node != own && is_here(node) && has.map(|has| has.index) < Some(index)
    };
    engine.state == ServerState::Leader && matched.iter().any(lacks)
}

#[cfg(test)]
#[path = "behind_tests.rs"]
mod tests;
