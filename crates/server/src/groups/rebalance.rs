//! What joining, syncing, leaving, heartbeats and time do to a group: Kafka's classic protocol
//! (KIP-62, KIP-345, KIP-394; its `GroupCoordinator`).
//!
//! Where this differs from Kafka it is kinder or stricter, and clients cannot tell: members are
//! stored when they have joined, too; a static member may come back to a full group; one that comes
//! back for other topics starts a rebalance; whoever waits is answered when its request comes again
//! on another connection.

use super::answer::{Answer, Joined, Refusal, Synced};
use super::group::{First, Gathering, Group, State};
use super::member::Member;
use super::request::{Beat, Join, Leaver, Sync, Ticket};
use super::roster::Seat;
use super::subscription;
use super::turn::Turn;

/// Above this a group takes no joins: what is left of the numbers lets it come to rest.
const GENERATION_MAX: i32 = i32::MAX - (1 << 20);
/// Consumers have up to four; each join compares all of all members.
const PROTOCOLS_MAX: usize = 32;
/// How soon a rebalance to which nobody came is looked at again, at the earliest.
const AGAIN_MS: u64 = 1_000;

impl Group {
    /// A member joins, or comes to a rebalance. `fresh` is its id if it needs one.
    pub(super) fn join(&mut self, join: Join, fresh: String, ticket: Ticket, turn: &mut Turn<'_>) {
        match self.admit(&join, turn) {
            Err(why) => turn.refuse(ticket, why),
            Ok(()) if !join.member.is_empty() => self.join_known(join, ticket, turn),
            Ok(()) => self.join_unknown(join, fresh, ticket, turn),
        }
        self.settle(turn);
    }

    fn join_unknown(&mut self, join: Join, fresh: String, ticket: Ticket, turn: &mut Turn<'_>) {
        assert!(!self.members.contains_key(&fresh), "a fresh id is not a member's");
        let before = join.instance.as_deref().and_then(|instance| self.of_instance(instance));
        if let Some(before) = before.map(str::to_owned) {
            return self.replace(&before, &fresh, join, ticket, turn);
        }
        if join.needs_id && join.instance.is_none() {
            let until = turn.now + u64::from(join.session_ms.unsigned_abs());
            self.pending.insert(fresh.clone(), until);
            return turn.answer(ticket, Answer::TakeId(fresh));
        }
        self.add(fresh, join, ticket, turn);
    }

    fn join_known(&mut self, mut join: Join, ticket: Ticket, turn: &mut Turn<'_>) {
        let id = std::mem::take(&mut join.member);
        if join.instance.is_none() && self.pending.remove(&id).is_some() {
            return self.add(id, join, ticket, turn);
        }
        if let Err(why) = self.check_member(&id, join.instance.as_deref()) {
            return turn.refuse(ticket, why);
        }
        let is_leader = self.is_leader(&id);
        let member = self.members.get_mut(&id).expect("it was checked");
        let changes = member.seat.protocols != join.protocols;
        let rebalances = match self.state {
            State::Preparing(_) => true,
            State::Completing => changes,
            // The leader knows that there is something new to assign.
            State::Stable => changes || is_leader,
            State::Empty => unreachable!("an empty group has no members"),
        };
        if rebalances {
            member.seat = seat(join);
            member.park_join(ticket, turn);
            return self.prepare(turn);
        }
        // It was not told: it is told again.
        member.renew(turn.now);
        let joined = self.joined(&id);
        turn.answer(ticket, Answer::Joined(joined));
    }

    /// Whether the group has room for a member, and a protocol in common with it.
    fn admit(&mut self, join: &Join, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        let settings = turn.settings;
        let known = match &join.instance {
            Some(instance) if join.member.is_empty() => self.of_instance(instance),
            _ => Some(join.member.as_str()).filter(|id| !id.is_empty()),
        };
        let known = known.unwrap_or_default().to_owned();
        let member = self.members.get(&known);
        let is_here = match self.state {
            State::Preparing(_) => member.is_some_and(|member| member.join.is_some()),
            _ => member.is_some(),
        };
        let taken = match self.state {
            State::Preparing(_) => self.waiting(),
            _ => self.members.len(),
        };
        let asks_for_id = known.is_empty() && join.needs_id && join.instance.is_none();
        let too_many = (!is_here && taken >= settings.members_max)
            || (asks_for_id && self.pending.len() >= settings.members_max);
        let own = join.member.len().max(FRESH_BYTES) + seat(join.clone()).bytes();
        if too_many || self.bytes_without(&known).saturating_add(own) > settings.group_bytes_max {
            self.pending.remove(&join.member);
            if self.members.contains_key(&join.member) {
                self.remove(&join.member, turn);
            }
            return Err(Refusal::GroupMaxSizeReached);
        }
        if self.generation >= GENERATION_MAX || join.protocols.len() > PROTOCOLS_MAX {
            return Err(Refusal::PolicyViolation);
        }
        if !self.supports(&join.protocol_type, &join.protocols) {
            return Err(Refusal::InconsistentGroupProtocol);
        }
        Ok(())
    }

    fn add(&mut self, id: String, join: Join, ticket: Ticket, turn: &mut Turn<'_>) {
        if self.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        if let State::Preparing(Gathering { first: Some(first), .. }) = &mut self.state {
            first.somebody_came = self.generation == 0;
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.members.insert(id, Member::new(seat(join), ticket, turn.now));
        self.prepare(turn);
    }

    /// A static member comes back under a new id: what was assigned to it stays, unless that must
    /// change.
    fn replace(
        &mut self,
        before: &str,
        fresh: &str,
        join: Join,
        ticket: Ticket,
        turn: &mut Turn<'_>,
    ) {
        let mut member = self.members.remove(before).expect("the instance is a member's");
        member.dismiss(Refusal::FencedInstanceId, turn);
        let assignment = std::mem::take(&mut member.seat.assignment);
        let protocol = self.protocol.as_deref().unwrap_or_default().to_owned();
        let next = Seat { assignment, ..seat(join) };
        let reads_other = reads_other_topics(&member.seat, &next, &protocol);
        member.seat = next;
        member.renew(turn.now);
        self.members.insert(fresh.to_owned(), member);
        let leader_before = self.leader.clone();
        if self.is_leader(before) {
            self.leader = Some(fresh.to_owned());
        }
        if self.state == State::Stable && !reads_other && self.choose_protocol() == protocol {
            self.store(turn);
            // If it leads, it is not told so: it need not assign.
            let leader = leader_before.expect("a stable group has a leader");
            let joined = Joined { leader, members: Vec::new(), ..self.joined(fresh) };
            return turn.answer(ticket, Answer::Joined(joined));
        }
        let member = self.members.get_mut(fresh).expect("it was just added");
        member.park_join(ticket, turn);
        self.prepare(turn);
    }

    /// A member asks what is assigned to it; from the leader, all learn.
    pub(super) fn sync(&mut self, sync: Sync, ticket: Ticket, turn: &mut Turn<'_>) {
        let Sync { generation, member: id, instance, assignments, .. } = sync;
        if let Err(why) = self.check_speaker(&id, instance.as_deref(), generation) {
            return turn.refuse(ticket, why);
        }
        let leads = self.is_leader(&id);
        let member = self.members.get_mut(&id).expect("it was checked");
        match self.state {
            State::Empty => unreachable!("an empty group has no members"),
            State::Preparing(_) => turn.refuse(ticket, Refusal::RebalanceInProgress),
            State::Completing => {
                let bytes: usize = assignments.iter().map(|(_, assigned)| assigned.len()).sum();
                if leads && bytes > turn.settings.group_bytes_max {
                    return turn.refuse(ticket, Refusal::GroupMaxSizeReached);
                }
                member.owes_sync = false;
                member.park_sync(ticket, turn);
                if leads {
                    self.assign(assignments, turn);
                }
            }
            State::Stable => {
                member.owes_sync = false;
                member.renew(turn.now);
                turn.answer(ticket, synced(member));
            }
        }
    }

    fn assign(&mut self, assignments: Vec<(String, bytes::Bytes)>, turn: &mut Turn<'_>) {
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.seat.assignment = assignment;
            }
        }
        self.state = State::Stable;
        self.store(turn);
        for member in self.members.values_mut() {
            member.answer_sync(synced(member), turn);
        }
    }

    /// A member is alive.
    pub(super) fn beat(&mut self, beat: &Beat, ticket: Ticket, turn: &mut Turn<'_>) {
        let Beat { generation, member: id, instance, .. } = beat;
        if let Err(why) = self.check_speaker(id, instance.as_deref(), *generation) {
            return turn.refuse(ticket, why);
        }
        self.members.get_mut(id).expect("it was checked").renew(turn.now);
        match self.state {
            State::Preparing(_) => turn.refuse(ticket, Refusal::RebalanceInProgress),
            _ => turn.answer(ticket, Answer::Done),
        }
    }

    /// Members go. An administrator names them by their instances.
    pub(super) fn leave(&mut self, leavers: &[Leaver], ticket: Ticket, turn: &mut Turn<'_>) {
        let left = leavers.iter().map(|leaver| self.leave_one(leaver, turn)).collect();
        turn.answer(ticket, Answer::Each(left));
        self.settle(turn);
    }

    fn leave_one(&mut self, leaver: &Leaver, turn: &mut Turn<'_>) -> Result<(), Refusal> {
        let Leaver { member: id, instance } = leaver;
        if self.pending.remove(id).is_some() {
            return Ok(());
        }
        let id = if id.is_empty() {
            let found = instance.as_deref().and_then(|instance| self.of_instance(instance));
            found.ok_or(Refusal::UnknownMemberId)?.to_owned()
        } else {
            self.check_member(id, instance.as_deref())?;
            id.clone()
        };
        self.remove(&id, turn);
        Ok(())
    }

    /// What the time does: sessions end, ids are forgotten, rebalances run out of time.
    pub(super) fn tick(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        self.pending.retain(|_, until| *until > now);
        self.remove_where(|member| member.deadline().is_some_and(|by| by <= now), turn);
        if self.sync_by <= now && matches!(self.state, State::Completing | State::Stable) {
            self.remove_where(|member| member.owes_sync, turn);
        }
        self.settle(turn);
    }

    fn remove_where(&mut self, which: impl Fn(&Member) -> bool, turn: &mut Turn<'_>) {
        let found = self.members.iter().filter(|(_, member)| which(member));
        for id in found.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.remove(&id, turn);
        }
    }

    fn remove(&mut self, id: &str, turn: &mut Turn<'_>) {
        let mut member = self.members.remove(id).expect("who is removed is a member");
        member.dismiss(Refusal::UnknownMemberId, turn);
        self.prepare(turn);
    }

    /// Begins a rebalance, unless one is about to gather its members already.
    pub(super) fn prepare(&mut self, turn: &mut Turn<'_>) {
        let rebalance_ms = self.rebalance_ms();
        let delay_ms = u64::from(turn.settings.initial_delay_ms);
        let (wait_ms, first) = match self.state {
            State::Preparing(_) => return,
            State::Empty => {
                let left_ms = rebalance_ms.saturating_sub(delay_ms);
                (delay_ms, Some(First { left_ms, somebody_came: false }))
            }
            State::Completing | State::Stable => (rebalance_ms, None),
        };
        for member in self.members.values_mut() {
            member.owes_sync = false;
            member.answer_sync(Answer::Refused(Refusal::RebalanceInProgress), turn);
        }
        self.state = State::Preparing(Gathering { until: turn.now + wait_ms, first });
    }

    /// Ends the gathering of members, if it is time to.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        let all_came = self.waiting() == self.members.len() && self.pending.is_empty();
        let State::Preparing(gathering) = &mut self.state else { return };
        let is_over = gathering.until <= turn.now;
        match &mut gathering.first {
            None if !is_over && !all_came => return,
            Some(_) if !is_over => return,
            Some(first) if first.somebody_came => {
                let more_ms = first.left_ms.min(u64::from(turn.settings.initial_delay_ms));
                first.left_ms -= more_ms;
                first.somebody_came = false;
                if more_ms > 0 {
                    gathering.until = turn.now + more_ms;
                    return;
                }
            }
            _ => {}
        }
        self.complete(turn);
    }

    /// All have come who come: the next generation begins.
    fn complete(&mut self, turn: &mut Turn<'_>) {
        // A static member may be restarting: its session tells whether it is gone.
        self.members.retain(|_, member| member.join.is_some() || member.seat.instance.is_some());
        if self.members.is_empty() {
            return self.empty(turn);
        }
        let has_come = |id: &String| self.members.get(id).is_some_and(|found| found.join.is_some());
        if !self.leader.as_ref().is_some_and(has_come) {
            let first = self.members.iter().find(|(_, member)| member.join.is_some());
            let Some((first, _)) = first else {
                let until = turn.now + self.rebalance_ms().max(AGAIN_MS);
                self.state = State::Preparing(Gathering { until, first: None });
                return;
            };
            self.leader = Some(first.clone());
        }
        self.generation += 1;
        self.protocol = Some(self.choose_protocol());
        self.state = State::Completing;
        self.sync_by = turn.now + self.rebalance_ms();
        for member in self.members.values_mut() {
            member.seat.assignment.clear();
            member.is_new = false;
            member.owes_sync = true;
            member.renew(turn.now);
        }
        self.store(turn);
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let member = self.members.get_mut(&id).expect("it is a key");
            if let Some(ticket) = member.join.take() {
                let joined = self.joined(&id);
                turn.answer(ticket, Answer::Joined(joined));
            }
        }
    }

    /// Nobody is left.
    fn empty(&mut self, turn: &mut Turn<'_>) {
        self.generation += 1;
        self.state = State::Empty;
        (self.protocol, self.leader) = (None, None);
        self.store(turn);
    }

    /// This generation, as a member is told of it.
    fn joined(&self, id: &str) -> Joined {
        let protocol = self.protocol.clone().expect("a generation has a protocol");
        let metadata = |seat: &Seat| seat.metadata(&protocol).cloned().unwrap_or_default();
        let about = self
            .members
            .iter()
            .map(|(id, member)| (id.clone(), member.seat.instance.clone(), metadata(&member.seat)));
        let members = if self.is_leader(id) { about.collect() } else { Vec::new() };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone().expect("a generation has a protocol's type"),
            protocol: protocol.clone(),
            leader: self.leader.clone().expect("a generation has a leader"),
            member: id.to_owned(),
            members,
        }
    }

    fn waiting(&self) -> usize {
        self.members.values().filter(|member| member.join.is_some()).count()
    }
}

/// What an id is counted as that is not known yet, at least.
const FRESH_BYTES: usize = 64;

fn seat(join: Join) -> Seat {
    Seat {
        instance: join.instance,
        client: join.client,
        host: join.host,
        session_ms: join.session_ms.max(0).unsigned_abs(),
        rebalance_ms: join.rebalance_ms.max(0).unsigned_abs(),
        protocols: join.protocols,
        assignment: bytes::Bytes::new(),
    }
}

fn synced(member: &Member) -> Answer {
    Answer::Synced(Synced { assignment: member.seat.assignment.clone() })
}

/// Whether a consumer that comes back reads other topics than before.
fn reads_other_topics(before: &Seat, after: &Seat, protocol: &str) -> bool {
    let topics = |seat: &Seat| {
        let metadata = seat.metadata(protocol)?;
        let topics = subscription::topics(metadata)?;
        Some(topics.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    topics(before) != topics(after)
}
