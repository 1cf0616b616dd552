//! A shard of one: what its coordinator decides is agreed on when it is told so. And requests, as
//! clients would send them.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll_server::groups::{
    Answer, Beat, Change, Commit, Committing, Groups, Join, Joined, Leave, Leaver, Phase, Protocol,
    Refusal, Settings, Step, Store, Sync, Synced, Ticket, TopicPartition,
};

/// A leader, its store, and the time.
pub(crate) struct Shard {
    pub(crate) settings: Settings,
    pub(crate) groups: Groups,
    pub(crate) store: Store,
    pub(crate) now: u64,
    /// Decided, and not agreed on.
    pub(crate) in_flight: Vec<(u64, Change)>,
    /// Whether all is agreed on at once.
    pub(crate) is_quick: bool,
    /// What was answered, and when.
    answers: BTreeMap<Ticket, (u64, Answer)>,
    tickets: Ticket,
    ids: u64,
}

impl Shard {
    pub(crate) fn new() -> Self {
        Self::with(Settings { initial_delay_ms: 10, ..Settings::default() })
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let (store, now) = (Store::default(), 1_000_000);
        Self {
            groups: Groups::load(settings.clone(), &store, now),
            settings,
            store,
            now,
            in_flight: Vec::new(),
            is_quick: true,
            answers: BTreeMap::new(),
            tickets: 0,
            ids: 0,
        }
    }

    pub(crate) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        format!("member-{:04}", self.ids)
    }

    /// One of the ids that were made last.
    pub(crate) fn recent_id(&self, back: u64) -> String {
        format!("member-{:04}", self.ids.saturating_sub(back))
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        self.tickets
    }

    pub(crate) fn take(&mut self, step: Step) {
        self.note(step.answers);
        self.in_flight.extend(step.changes);
        if self.is_quick {
            self.agree(usize::MAX);
        }
    }

    /// Agrees on so many of what is in flight.
    pub(crate) fn agree(&mut self, count: usize) {
        for (number, change) in self.in_flight.drain(..count.min(self.in_flight.len())) {
            // What is applied is what was in the log.
            let change = Change::decode(&change.encode()).unwrap();
            self.store.apply(&change).unwrap();
            for (ticket, answer) in self.groups.agreed(number) {
                let before = self.answers.insert(ticket, (self.now, answer));
                assert_eq!(before, None, "ticket {ticket} is answered twice");
            }
        }
    }

    pub(crate) fn note(&mut self, answers: Vec<(Ticket, Answer)>) {
        for (ticket, answer) in answers {
            assert!(ticket <= self.tickets, "ticket {ticket} was not given");
            let before = self.answers.insert(ticket, (self.now, answer));
            assert_eq!(before, None, "ticket {ticket} is answered twice");
        }
    }

    /// Takes what was answered to a ticket.
    pub(crate) fn answer(&mut self, ticket: Ticket) -> Option<Answer> {
        self.answers.remove(&ticket).map(|(_, answer)| answer)
    }

    pub(crate) fn join(&mut self, join: Join) -> Ticket {
        let (ticket, fresh) = (self.ticket(), self.fresh_id());
        let step = self.groups.join(join, fresh, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn sync(&mut self, sync: Sync) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.sync(sync, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn beat(&mut self, beat: &Beat) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.beat(beat, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn leave(&mut self, leavers: Vec<Leaver>) -> Ticket {
        let ticket = self.ticket();
        let step =
            self.groups.leave(&Leave { group: "g".into(), members: leavers }, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn commit(&mut self, commit: Commit) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.commit(commit, &self.store, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn forget(&mut self, partitions: &[TopicPartition]) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.forget("g", partitions.to_vec(), ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn topic_is_gone(&mut self, topic: &str) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.topic_is_gone(topic.to_owned(), ticket);
        self.take(step);
        ticket
    }

    pub(crate) fn delete(&mut self, group: &str) -> Ticket {
        let ticket = self.ticket();
        let step = self.groups.delete(group, ticket, self.now);
        self.take(step);
        ticket
    }

    pub(crate) fn expire(&mut self) {
        let step = self.groups.expire(&self.store, self.now);
        self.take(step);
    }

    /// Lets the time pass, and all that is due in it happen when it is due.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(at) = self.groups.next_deadline().filter(|at| *at <= until) {
            assert!(at >= self.now, "an alarm is late");
            self.now = at;
            let step = self.groups.tick(at);
            self.take(step);
        }
        self.now = until;
    }

    /// The coordinator dies, and what was not agreed on; another loads the store.
    pub(crate) fn restart(&mut self) {
        self.in_flight.clear();
        self.store = Store::decode(&self.store.encode()).unwrap();
        let next = Groups::load(self.settings.clone(), &self.store, self.now);
        let resigned = std::mem::replace(&mut self.groups, next).resign();
        assert!(resigned.iter().all(|(_, it)| *it == Answer::Refused(Refusal::NotCoordinator)));
        self.note(resigned);
    }

    pub(crate) fn joined(&mut self, ticket: Ticket) -> Joined {
        match self.answer(ticket) {
            Some(Answer::Joined(joined)) => joined,
            other => panic!("{other:?} is not a generation"),
        }
    }

    pub(crate) fn synced(&mut self, ticket: Ticket) -> Bytes {
        match self.answer(ticket) {
            Some(Answer::Synced(Synced { assignment })) => assignment,
            other => panic!("{other:?} is not an assignment"),
        }
    }

    pub(crate) fn refused(&mut self, ticket: Ticket) -> Refusal {
        match self.answer(ticket) {
            Some(Answer::Refused(why)) => why,
            other => panic!("{other:?} is not refused"),
        }
    }

    /// A group that was empty has these members, and is stable: what each was told, the leader
    /// first.
    pub(crate) fn stable(&mut self, instances: &[Option<&str>]) -> Vec<Joined> {
        let joins = instances.iter().map(|instance| join(&self.id(*instance), *instance)).collect();
        let joined = self.gather(joins);
        self.assign(&joined);
        joined
    }

    /// The id of a member that is to join; static ones need none.
    pub(crate) fn id(&mut self, instance: Option<&str>) -> String {
        if instance.is_some() {
            return String::new();
        }
        let ticket = self.join(Join { needs_id: true, ..join("", None) });
        match self.answer(ticket) {
            Some(Answer::TakeId(id)) => id,
            other => panic!("{other:?} is no id"),
        }
    }

    /// All of these come to a rebalance: what each is told, the leader first.
    pub(crate) fn gather(&mut self, joins: Vec<Join>) -> Vec<Joined> {
        let tickets: Vec<_> = joins.into_iter().map(|join| self.join(join)).collect();
        self.pass(20);
        let mut joined: Vec<_> = tickets.into_iter().map(|ticket| self.joined(ticket)).collect();
        joined.sort_by_key(|joined| joined.member != joined.leader);
        joined
    }

    /// Each syncs, and is assigned its id.
    pub(crate) fn assign(&mut self, joined: &[Joined]) {
        for one in joined {
            let ticket = self.sync(sync(one));
            assert_eq!(self.synced(ticket), one.member.as_bytes());
        }
    }

    /// The instance of a member, or nothing.
    pub(crate) fn instance_of(&self, joined: &Joined) -> String {
        let members = self.groups.describe("g").members;
        let found = members.into_iter().find(|member| member.member == joined.member);
        found.and_then(|member| member.instance).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.groups.describe("g").phase
    }
}

pub(crate) fn join(member: &str, instance: Option<&str>) -> Join {
    Join {
        group: "g".into(),
        member: member.into(),
        instance: instance.map(str::to_owned),
        client: "client".into(),
        host: "/127.0.0.1".into(),
        session_ms: 10_000,
        rebalance_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range", &["t"])],
        needs_id: false,
    }
}

/// A protocol with a consumer's subscription.
pub(crate) fn protocol(name: &str, topics: &[&str]) -> Protocol {
    let mut metadata = vec![0, 1, 0, 0, 0, u8::try_from(topics.len()).unwrap()];
    for topic in topics {
        metadata.extend([0, u8::try_from(topic.len()).unwrap()]);
        metadata.extend(topic.as_bytes());
    }
    Protocol { name: name.into(), metadata: metadata.into() }
}

/// The sync of a member that was told this; the leader assigns to each its own id.
pub(crate) fn sync(joined: &Joined) -> Sync {
    let ids = joined.members.iter().map(|(id, ..)| (id.clone(), Bytes::from(id.clone())));
    Sync {
        group: "g".into(),
        generation: joined.generation,
        member: joined.member.clone(),
        instance: None,
        assignments: ids.collect(),
    }
}

pub(crate) fn beat(joined: &Joined) -> Beat {
    let (generation, member) = (joined.generation, joined.member.clone());
    Beat { group: "g".into(), generation, member, instance: None }
}

pub(crate) fn leaver(member: &str, instance: Option<&str>) -> Leaver {
    Leaver { member: member.into(), instance: instance.map(str::to_owned) }
}

pub(crate) fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition }
}

/// A commit of one offset by one that is no member.
pub(crate) fn commit(topic: &str, partition: i32, offset: i64) -> Commit {
    let committing = Committing { offset, epoch: 3, metadata: None, retention_ms: None };
    Commit {
        group: "g".into(),
        generation: -1,
        member: String::new(),
        instance: None,
        offsets: vec![(at(topic, partition), committing)],
    }
}

/// The same by a member.
pub(crate) fn commit_as(joined: &Joined, topic: &str, partition: i32, offset: i64) -> Commit {
    let (generation, member) = (joined.generation, joined.member.clone());
    Commit { generation, member, ..commit(topic, partition, offset) }
}
