//! Members of a group: each joins, reads what is assigned to it, says how far it has come, and goes or falls silent, through
//! whoever leads.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll_server::groups::{
    Answer, Beat, Commit, Committing, Join, Joined, Leave, Leaver, Protocol, Refusal, Sync,
    TopicPartition,
};
use rand::Rng;

use super::commits::TOPIC;
use super::coordinating::{Ask, Asked};
use super::desk::Caller;
use super::life::Life;

/// How many there are, and what they read.
const MEMBERS: u64 = 3;
const PARTITIONS: u8 = 4;
const GROUP: &str = "readers";

/// How long a member may be silent, and may take to come to a rebalance.
const SESSION_MS: i32 = 2000;
/// How long a disk is waited for, and how long the other members are.
const PATIENCE_MS: u64 = 1000;
const LONG_PATIENCE_MS: u64 = 4000;

struct Member {
    caller: Caller<Ask>,
    number: u64,
    /// Its id, empty while it has none.
    id: String,
    /// How many ids it was given.
    ids: u64,
    /// How far it said that it is in each partition, whether or not it was told that this is so.
    said: BTreeMap<i32, i64>,
}

impl Life {
    /// From here on there are members.
    pub(super) fn members_come(&mut self) {
        self.has_members = true;
        for number in 1..=MEMBERS {
            let caller = Caller::new(
                &self.desks.groups,
                self.drawn.random(),
                &self.syncs,
                &self.world.oracle,
                "an answer of a group that came from a new leader",
            );
            let member =
                Member { caller, number, id: String::new(), ids: 0, said: BTreeMap::new() };
            self.clients.push(tokio::spawn(member.go_on()).abort_handle());
        }
    }
}

impl Member {
    async fn go_on(mut self) {
        loop {
            self.caller.rests(20..200).await;
            if let Some(joined) = self.joins().await
                && let Some(partitions) = self.syncs(&joined).await
            {
                self.reads(joined.generation, &partitions).await;
            }
        }
    }

    /// The generation that it is told of.
    async fn joins(&mut self) -> Option<Joined> {
        self.ids += 1;
        let fresh = format!("{}.{}", self.number, self.ids);
        let join = Join {
            group: GROUP.to_owned(),
            member: self.id.clone(),
            instance: None,
            client: "simulated".to_owned(),
            host: "here".to_owned(),
            session_ms: SESSION_MS,
            rebalance_ms: SESSION_MS,
            protocol_type: "consumer".to_owned(),
            protocols: vec![Protocol { name: "range".to_owned(), metadata: Bytes::new() }],
            needs_id: self.number > 1,
        };
        match self.asks(LONG_PATIENCE_MS, Asked::Join(join, fresh)).await? {
            Answer::Joined(joined) => {
                self.id.clone_from(&joined.member);
                self.caller.oracle.count(match joined.generation {
                    1 => "a group that was formed",
                    _ => "a group that was rebalanced",
                });
                Some(joined)
            }
            Answer::TakeId(id) => {
                self.id = id;
                None
            }
            answer => self.hears(&answer),
        }
    }

    /// What is assigned to it. If it leads, it assigns.
    async fn syncs(&mut self, joined: &Joined) -> Option<Vec<u8>> {
        let count = joined.members.len();
        let of = |at: usize| (0..PARTITIONS).filter(move |it| usize::from(*it) % count == at);
        let assigned = joined.members.iter().enumerate();
        let assignments = assigned.map(|(at, (id, ..))| (id.clone(), of(at).collect())).collect();
        let sync = Sync {
            group: GROUP.to_owned(),
            generation: joined.generation,
            member: self.id.clone(),
            instance: None,
            assignments,
        };
        match self.asks(LONG_PATIENCE_MS, Asked::Sync(sync)).await? {
            Answer::Synced(synced) => Some(synced.assignment.to_vec()),
            answer => self.hears(&answer),
        }
    }

    /// Goes on from where the group is, until it has to join again, goes, or is silent for too long.
    async fn reads(&mut self, generation: i32, partitions: &[u8]) {
        let ask = |reply| Ask::Reads(GROUP.to_owned(), reply);
        let Some(read) = self.caller.ask(PATIENCE_MS, ask).await else { return };
        self.caller.oracle.count("offsets that a member went on from");
        for (partition, offset) in read {
            let said = self.said.entry(partition).or_default();
            // What it said last may be on its way.
            *said = offset.max(*said);
        }
        for _ in 0..self.caller.drawn.random_range(1..12) {
            self.caller.rests(20..600).await;
            let asked = match self.caller.drawn.random_range(0..3) {
                0 => self.beat(generation),
                _ => self.commit(generation, partitions),
            };
            let is_commit = matches!(asked, Asked::Commit(_));
            match self.asks(PATIENCE_MS, asked).await {
                Some(Answer::Refused(why)) => {
                    let _: Option<()> = self.hears(&Answer::Refused(why));
                    return;
                }
                Some(_) if is_commit => self.caller.oracle.count("an offset committed by a group"),
                _ => {}
            }
        }
        match self.caller.drawn.random_range(0..4) {
            0 => {
                let members = vec![Leaver { member: self.id.clone(), instance: None }];
                let leave = Leave { group: GROUP.to_owned(), members };
                if self.asks(PATIENCE_MS, Asked::Leave(leave)).await.is_some() {
                    self.id.clear();
                }
            }
            1 => self.caller.rests(500..4000).await,
            _ => {}
        }
    }

    fn beat(&self, generation: i32) -> Asked {
        let (group, member) = (GROUP.to_owned(), self.id.clone());
        Asked::Beat(Beat { group, generation, member, instance: None })
    }

    /// It has come further, in each of its partitions.
    fn commit(&mut self, generation: i32, partitions: &[u8]) -> Asked {
        let mut committed = Vec::new();
        for partition in partitions.iter().copied().map(i32::from) {
            let said = self.said.entry(partition).or_default();
            *said += self.caller.drawn.random_range(1..10);
            let at = TopicPartition { topic: TOPIC.to_owned(), partition };
            let (offset, metadata) = (*said, None);
            committed.push((at, Committing { offset, epoch: -1, metadata, retention_ms: None }));
        }
        let (group, member) = (GROUP.to_owned(), self.id.clone());
        Asked::Commit(Commit { group, generation, member, instance: None, offsets: committed })
    }

    async fn asks(&mut self, patience_ms: u64, asked: Asked) -> Option<Answer> {
        self.caller.ask(patience_ms, |reply| Ask::Decides(asked, reply)).await
    }

    /// It is told no.
    fn hears<T>(&mut self, answer: &Answer) -> Option<T> {
        match answer {
            Answer::Refused(Refusal::UnknownMemberId) => self.id.clear(),
            Answer::Refused(
                Refusal::RebalanceInProgress | Refusal::IllegalGeneration | Refusal::NotCoordinator,
            ) => {}
            other => self.caller.oracle.broken(format!("member {} is told {other:?}", self.id)),
        }
        None
    }
}
