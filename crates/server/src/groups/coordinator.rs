//! [`Groups`]: the coordinator of all groups of a shard, as long as it leads.
//!
//! Time is in ms since 1970 and must not go back from call to call.
//!
//! Invariants: an alarm of a group may be early, never late; changes are numbered in the order in
//! which they are returned, and must be applied in that order; what waits for a change is said when
//! that change, or a later one, is agreed on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::answer::{Answer, Refusal, Step};
use super::change::Change;
use super::group::{Group, State};
use super::overview::{Described, Listed};
use super::request::{Beat, Commit, Join, Leave, Sync, Ticket, TopicPartition};
use super::settings::Settings;
use super::store::Store;
use super::turn::Turn;

/// The coordinator of the groups of a shard.
#[derive(Debug)]
pub struct Groups {
    settings: Settings,
    groups: BTreeMap<Arc<str>, Group>,
    alarms: BTreeSet<(u64, Arc<str>)>,
    /// What may be said once a change is agreed on.
    held: BTreeMap<u64, Vec<(Ticket, Answer)>>,
    /// The number of the last change that was returned.
    decided: u64,
    /// The number of the last change that is agreed on.
    agreed: u64,
}

impl Groups {
    /// The coordinator of a shard whose leader has applied all that was agreed on before it. Each
    /// group goes on where it was stored; members have a whole session to be heard.
    #[must_use]
    pub fn load(settings: Settings, store: &Store, now: u64) -> Self {
        let (groups, alarms, held) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut all = Self { settings, groups, alarms, held, decided: 0, agreed: 0 };
        for (id, stored) in store.groups() {
            let id: Arc<str> = id.into();
            all.groups.insert(id.clone(), Group::load(id.clone(), stored.roster(), now));
            let members_max = all.settings.members_max;
            let step = all.turn(&id, now, |group, turn| {
                // The bound was higher before: those that come last will have to go.
                if group.members.len() > members_max {
                    group.prepare(turn);
                }
            });
            assert_eq!(step, Step::default(), "a group that was just loaded has nothing to say");
        }
        all
    }

    /// A member joins, or comes to a rebalance. `fresh` is the id that it gets if it has none; no
    /// member ever had it.
    pub fn join(&mut self, join: Join, fresh: String, ticket: Ticket, now: u64) -> Step {
        let (min, max) = (self.settings.session_ms_min, self.settings.session_ms_max);
        if join.group.is_empty() {
            return refuse(ticket, Refusal::InvalidGroupId);
        }
        if !(min..=max).contains(&join.session_ms) {
            return refuse(ticket, Refusal::InvalidSessionTimeout);
        }
        let id = join.group.clone();
        if !join.member.is_empty() && !self.groups.contains_key(id.as_str()) {
            return refuse(ticket, Refusal::UnknownMemberId);
        }
        if let Err(why) = self.create(&id) {
            return refuse(ticket, why);
        }
        self.turn(&id, now, |group, turn| group.join(join, fresh, ticket, turn))
    }

    /// A member asks what is assigned to it; the leader says what is.
    pub fn sync(&mut self, sync: Sync, ticket: Ticket, now: u64) -> Step {
        if let Err(why) = self.find(&sync.group) {
            return refuse(ticket, why);
        }
        let id = sync.group.clone();
        self.turn(&id, now, |group, turn| group.sync(sync, ticket, turn))
    }

    /// A member is alive.
    pub fn beat(&mut self, beat: &Beat, ticket: Ticket, now: u64) -> Step {
        if let Err(why) = self.find(&beat.group) {
            return refuse(ticket, why);
        }
        self.turn(&beat.group, now, |group, turn| group.beat(beat, ticket, turn))
    }

    /// Members go.
    pub fn leave(&mut self, leave: &Leave, ticket: Ticket, now: u64) -> Step {
        let Leave { group, members } = leave;
        match self.find(group) {
            Err(Refusal::UnknownMemberId) => {
                let answer = Answer::Each(vec![Err(Refusal::UnknownMemberId); members.len()]);
                Step { answers: vec![(ticket, answer)], ..Step::default() }
            }
            Err(why) => refuse(ticket, why),
            Ok(()) => self.turn(group, now, |group, turn| group.leave(members, ticket, turn)),
        }
    }

    /// Somebody says how far a group is. The store is the shard's.
    pub fn commit(&mut self, commit: Commit, store: &Store, ticket: Ticket, now: u64) -> Step {
        let id = commit.group.clone();
        if commit.generation >= 0 && !self.groups.contains_key(id.as_str()) {
            return refuse(ticket, Refusal::IllegalGeneration);
        }
        if let Err(why) = self.create(&id) {
            return refuse(ticket, why);
        }
        self.turn(&id, now, |group, turn| group.commit(commit, store.group(&id), ticket, turn))
    }

    /// How far a group was in these partitions is forgotten (`OffsetDelete`).
    pub fn forget(
        &mut self,
        group: &str,
        partitions: Vec<TopicPartition>,
        ticket: Ticket,
        now: u64,
    ) -> Step {
        match self.find(group) {
            Err(Refusal::UnknownMemberId) => refuse(ticket, Refusal::GroupIdNotFound),
            Err(why) => refuse(ticket, why),
            Ok(()) => self.turn(group, now, |group, turn| group.forget(partitions, ticket, turn)),
        }
    }

    /// A group goes, if it has no members (`DeleteGroups`).
    pub fn delete(&mut self, group: &str, ticket: Ticket, now: u64) -> Step {
        if !self.groups.contains_key(group) {
            return refuse(ticket, Refusal::GroupIdNotFound);
        }
        self.turn(group, now, |group, turn| group.delete(ticket, turn))
    }

    /// There is no such topic any more: offsets in it go, so that another of its name begins anew.
    pub fn topic_is_gone(&mut self, topic: String, ticket: Ticket) -> Step {
        self.decided += 1;
        self.held.entry(self.decided).or_default().push((ticket, Answer::Done));
        let changes = vec![(self.decided, Change::NoTopic { topic })];
        Step { changes, answers: Vec::new() }
    }

    /// A group, as it is here and now.
    #[must_use]
    pub fn describe(&self, group: &str) -> Described {
        self.groups.get(group).map_or_else(Described::dead, Group::describe)
    }

    /// All groups, by their names.
    pub fn list(&self) -> impl Iterator<Item = Listed> {
        self.groups.values().map(Group::list)
    }

    /// When [`Groups::tick`] is next due; it may turn out to be early.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// What the time does: sessions end, rebalances run out of time.
    pub fn tick(&mut self, now: u64) -> Step {
        let mut step = Step::default();
        while let Some((_, id)) = self.alarms.first().filter(|(at, _)| *at <= now).cloned() {
            step.add(self.turn(&id, now, Group::tick));
        }
        step
    }

    /// Lets go offsets, and groups, that were kept long enough. To be called every few minutes.
    pub fn expire(&mut self, store: &Store, now: u64) -> Step {
        // Of a group that has something in flight the store does not know all: the next time.
        let at_rest = |group: &&Group| {
            group.state == State::Empty && group.is_stored && group.last_change <= self.agreed
        };
        let ids: Vec<_> =
            self.groups.values().filter(at_rest).map(|group| &group.id).cloned().collect();
        let mut step = Step::default();
        for id in ids {
            step.add(self.turn(&id, now, |group, turn| group.expire(store, turn)));
        }
        step
    }

    /// All changes up to this one are agreed on, durable and applied: what waited for them.
    pub fn agreed(&mut self, number: u64) -> Vec<(Ticket, Answer)> {
        assert!(number <= self.decided, "change {number} was not decided here");
        self.agreed = self.agreed.max(number);
        let later = self.held.split_off(&(self.agreed + 1));
        std::mem::replace(&mut self.held, later).into_values().flatten().collect()
    }

    /// Another leads: whoever waits is told to look for it.
    #[must_use]
    pub fn resign(self) -> Vec<(Ticket, Answer)> {
        let held = self.held.into_values().flatten().map(|(ticket, _)| ticket);
        let members = self.groups.into_values().flat_map(|group| group.members.into_values());
        let parked = members.flat_map(|member| member.join.into_iter().chain(member.sync));
        let refused = Answer::Refused(Refusal::NotCoordinator);
        held.chain(parked).map(|ticket| (ticket, refused.clone())).collect()
    }

    fn find(&self, group: &str) -> Result<(), Refusal> {
        if group.is_empty() {
            return Err(Refusal::InvalidGroupId);
        }
        let is_here = self.groups.contains_key(group);
        if is_here { Ok(()) } else { Err(Refusal::UnknownMemberId) }
    }

    /// Has the group there, if there may be another.
    fn create(&mut self, group: &str) -> Result<(), Refusal> {
        if self.groups.contains_key(group) {
            return Ok(());
        }
        if self.groups.len() >= self.settings.groups_max {
            return Err(Refusal::PolicyViolation);
        }
        let id: Arc<str> = group.into();
        self.groups.insert(id.clone(), Group::new(id));
        Ok(())
    }

    /// Lets a call act on a group that is there, and takes what came of it.
    fn turn(&mut self, id: &str, now: u64, act: impl FnOnce(&mut Group, &mut Turn<'_>)) -> Step {
        let settings = &self.settings;
        let mut turn = Turn { settings, now, changes: Vec::new(), answers: Vec::new() };
        let group = self.groups.get_mut(id).expect("the group was found");
        act(group, &mut turn);
        let Turn { changes, answers, .. } = turn;

        let mut step = Step::default();
        for change in changes {
            self.decided += 1;
            group.last_change = self.decided;
            if matches!(change, Change::Roster { .. }) {
                group.roster_change = self.decided;
            }
            step.changes.push((self.decided, change));
        }
        let waits_for = step.changes.last().map_or(group.roster_change, |(number, _)| *number);
        if waits_for <= self.agreed {
            step.answers = answers;
        } else if !answers.is_empty() {
            self.held.entry(waits_for).or_default().extend(answers);
        }
        self.set_alarm(id, now);
        step
    }

    /// Sets the alarm of a group, if it is to be earlier or has rung; lets the group go if nobody
    /// would miss it.
    fn set_alarm(&mut self, id: &str, now: u64) {
        let group = self.groups.get_mut(id).expect("the group was found");
        let is_gone = group.is_gone();
        let next = group.deadline().filter(|_| !is_gone);
        let rang = group.alarm.is_some_and(|at| at <= now);
        let is_early = next.is_some_and(|next| group.alarm.is_none_or(|at| next < at));
        if rang || is_early || is_gone {
            if let Some(at) = group.alarm.take() {
                self.alarms.remove(&(at, group.id.clone()));
            }
            self.alarms.extend(next.map(|next| (next, group.id.clone())));
            group.alarm = next;
        }
        if is_gone {
            self.groups.remove(id);
        }
    }
}

impl Step {
    /// Adds what came of a later call.
    fn add(&mut self, later: Self) {
        self.changes.extend(later.changes);
        self.answers.extend(later.answers);
    }
}

fn refuse(ticket: Ticket, why: Refusal) -> Step {
    Step { changes: Vec::new(), answers: vec![(ticket, Answer::Refused(why))] }
}
