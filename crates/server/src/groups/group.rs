//! [`Group`]: one group, while this coordinator leads it.
//!
//! ```text
//!           first join              all joined, or out of time           leader syncs
//!  Empty ─────────────► Preparing ──────────────────────────► Completing ────────────► Stable
//!    ▲                    │   ▲                                   │                       │
//!    └────────────────────┘   └───────────────────────────────────┴───────────────────────┘
//!        nobody is left         somebody comes, goes, changes, or does not sync in time
//! ```
//!
//! A group that is not there is what Kafka calls dead.
//!
//! Invariants: there is a protocol that all members know; in `Completing` and `Stable` there are
//! members, one of them leads, and no join is parked; a sync is parked in `Completing` only.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::Refusal;
use super::change::Change;
use super::member::Member;
use super::phase::Phase;
use super::request::Protocol;
use super::roster::{Roster, Seat};
use super::turn::Turn;

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: Arc<str>,
    pub(super) state: State,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Ids that were given and have not joined, and when they are forgotten.
    pub(super) pending: BTreeMap<String, u64>,
    /// By when all must have synced: from when all have joined.
    pub(super) sync_by: u64,
    /// When it became what is stored of it.
    pub(super) since: u64,
    /// Whether it is in the store, or will be once what is in flight is applied.
    pub(super) is_stored: bool,
    /// The last change that an answer to a member must wait for.
    pub(super) roster_change: u64,
    /// Its last change.
    pub(super) last_change: u64,
    /// When the coordinator will look at it.
    pub(super) alarm: Option<u64>,
}

/// What a group is doing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has no members.
    Empty,
    /// Members come.
    Preparing(Gathering),
    /// All have come; the leader assigns.
    Completing,
    /// All is assigned.
    Stable,
}

/// How long members are waited for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gathering {
    pub(super) until: u64,
    /// Only where the group was empty: it waits for more, whether or not all have come.
    pub(super) first: Option<First>,
}

/// The wait of a group that was empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct First {
    /// By how much it may still grow.
    pub(super) left_ms: u64,
    /// Whether somebody came since it was set.
    pub(super) somebody_came: bool,
}

impl Group {
    /// One that was not there.
    pub(super) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            state: State::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            pending: BTreeMap::new(),
            sync_by: 0,
            since: 0,
            is_stored: false,
            roster_change: 0,
            last_change: 0,
            alarm: None,
        }
    }

    /// One that was stored: it goes on where it was, its sessions begin anew.
    pub(super) fn load(id: Arc<str>, roster: &Roster, now: u64) -> Self {
        let owes_sync = !roster.is_assigned;
        let load = |seat: &Seat| Member::load(seat.clone(), owes_sync, now);
        let members = roster.members.iter().map(|(id, seat)| (id.clone(), load(seat))).collect();
        let state = match (roster.members.is_empty(), roster.is_assigned) {
            (true, _) => State::Empty,
            (false, false) => State::Completing,
            (false, true) => State::Stable,
        };
        let mut group = Self {
            state,
            generation: roster.generation,
            protocol_type: roster.protocol_type.clone(),
            protocol: roster.protocol.clone(),
            leader: roster.leader.clone(),
            members,
            since: roster.since,
            is_stored: true,
            ..Self::new(id)
        };
        group.sync_by = now + group.rebalance_ms();
        group
    }

    /// What of it is stored.
    pub(super) fn roster(&self) -> Roster {
        let seats = self.members.iter().map(|(id, member)| (id.clone(), member.seat.clone()));
        Roster {
            generation: self.generation,
            is_assigned: self.state == State::Stable,
            since: self.since,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: seats.collect(),
        }
    }

    /// Has what is stored of it agreed on.
    pub(super) fn store(&mut self, turn: &mut Turn<'_>) {
        self.since = turn.now;
        self.is_stored = true;
        let (group, roster) = (self.id.to_string(), self.roster());
        turn.changes.push(Change::Roster { group, roster });
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state {
            State::Empty => Phase::Empty,
            State::Preparing(_) => Phase::PreparingRebalance,
            State::Completing => Phase::CompletingRebalance,
            State::Stable => Phase::Stable,
        }
    }

    /// Whether nobody would miss it.
    pub(super) fn is_gone(&self) -> bool {
        self.state == State::Empty && self.pending.is_empty() && !self.is_stored
    }

    /// When time next does something to it.
    pub(super) fn deadline(&self) -> Option<u64> {
        let rebalance = match &self.state {
            State::Preparing(gathering) => Some(gathering.until),
            State::Completing | State::Stable => {
                self.members.values().any(|member| member.owes_sync).then_some(self.sync_by)
            }
            State::Empty => None,
        };
        let sessions = self.members.values().filter_map(Member::deadline);
        sessions.chain(self.pending.values().copied()).chain(rebalance).min()
    }

    /// The member that has this instance's name.
    pub(super) fn of_instance(&self, instance: &str) -> Option<&str> {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.seat.instance.as_deref() == Some(instance));
        found.map(|(id, _)| id.as_str())
    }

    /// Whether this is a member, and no other has come under its instance's name.
    pub(super) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), Refusal> {
        if let Some(instance) = instance {
            match self.of_instance(instance) {
                None => return Err(Refusal::UnknownMemberId),
                Some(current) if current != id => return Err(Refusal::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(Refusal::UnknownMemberId) }
    }

    /// Likewise, and it speaks of this generation.
    pub(super) fn check_speaker(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), Refusal> {
        self.check_member(id, instance)?;
        if generation == self.generation { Ok(()) } else { Err(Refusal::IllegalGeneration) }
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// Whether somebody who can do this may join: all members must know one of these protocols.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.members.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|offered| self.all_know(&offered.name))
    }

    /// The protocol that most members like best, of those that all know.
    pub(super) fn choose_protocol(&self) -> String {
        let mut votes = BTreeMap::<_, usize>::new();
        for member in self.members.values() {
            let mut names = member.seat.protocols.iter().map(|offered| &offered.name);
            let vote = names.find(|name| self.all_know(name));
            *votes.entry(vote.expect("all members know a protocol")).or_default() += 1;
        }
        let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
        most.expect("a group that chooses has members").0.clone()
    }

    fn all_know(&self, protocol: &str) -> bool {
        self.members.values().all(|member| member.seat.metadata(protocol).is_some())
    }

    /// The longest that a member may take to come to a rebalance.
    pub(super) fn rebalance_ms(&self) -> u64 {
        let longest = self.members.values().map(|member| member.seat.rebalance_ms).max();
        u64::from(longest.unwrap_or(0))
    }

    /// What its members take, but for this one.
    pub(super) fn bytes_without(&self, id: &str) -> usize {
        let others = self.members.iter().filter(|(other, _)| *other != id);
        others.map(|(other, member)| other.len() + member.seat.bytes()).sum()
    }
}
