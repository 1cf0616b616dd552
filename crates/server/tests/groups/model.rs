//! Groups against clients that do as Kafka's do, over histories drawn from a seed.
//!
//! Clients join, sync, live, commit, leave, die and come back, static ones under their instance;
//! answers are lost and requests come again; what is decided is agreed on late; the coordinator
//! dies with what is in flight and another loads the store; the group is deleted, and expires.
//! Selves of static members that were replaced go on talking.
//!
//! The promises: a generation has one set of members and one assignment, and no two of its members
//! have a partition; generations do not go back; every ticket is answered within a rebalance; who
//! was replaced is refused; a commit that was acknowledged is not undone but by a later one; and
//! when the faults end, all who live are members and every partition has one owner.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use plimsoll_server::groups::{
    Answer, Beat, Commit, Join, Joined, Phase, Refusal, Settings, Sync, Ticket,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::seeds::{is_replay, replayable, seeds};
use super::shard::{Shard, commit, join, leaver, protocol};

#[test]
fn histories_keep_the_promises() {
    let seeds = seeds(200);
    let mut total = BTreeMap::new();
    for seed in seeds.clone() {
        let seen = replayable(seed, || Run::new(seed).run());
        for (what, times) in seen {
            *total.entry(what).or_insert(0_u64) += times;
        }
    }
    println!("seeds {seeds:?}: {total:?}");
    // What tests nothing has not passed.
    if !is_replay() {
        for what in ["generation", "assigned", "commit", "replaced", "fenced", "restart", "gone"] {
            assert!(total.contains_key(what), "{what} was not seen");
        }
    }
}

const CLIENTS: usize = 4;
const PARTITIONS: i32 = 6;
const SESSION_MS: i32 = 6_000;
const REBALANCE_MS: i32 = 10_000;
const DELAY_MS: u32 = 500;

struct Run {
    random: Pcg64Mcg,
    shard: Shard,
    clients: Vec<Client>,
    /// Selves of static members that were replaced, and are told so whatever they ask.
    ghosts: Vec<Known>,
    asked: BTreeMap<Ticket, Asked>,
    /// What was told in the group's life so far.
    told: Told,
    /// The last offset that anybody committed: each is one higher.
    last_offset: i64,
    seen: BTreeMap<&'static str, u64>,
}

/// What was told since there is this group.
#[derive(Default)]
struct Told {
    generation: i32,
    /// Who is in each generation, as its leader was told.
    members: BTreeMap<i32, BTreeSet<String>>,
    /// What was assigned to each in each generation.
    assigned: BTreeMap<i32, BTreeMap<String, Bytes>>,
    /// The last offset that was acknowledged, of each partition.
    committed: BTreeMap<i32, i64>,
}

#[derive(Default)]
struct Client {
    instance: Option<String>,
    is_alive: bool,
    known: Known,
    /// What it waits for.
    waits: Option<Ticket>,
    owned: Option<Bytes>,
    joined: Option<Joined>,
    topics: usize,
    /// Its self before it was restarted.
    before: Option<Known>,
}

/// How a client calls itself.
#[derive(Debug, Clone, Default)]
struct Known {
    id: String,
    instance: Option<String>,
    generation: i32,
}

#[derive(Debug, Clone)]
struct Asked {
    at: u64,
    /// Whose request; none of a ghost's.
    client: Option<usize>,
    known: Known,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Join,
    Sync,
    Beat,
    Commit { partition: i32, offset: i64 },
    Other,
}

impl Run {
    fn new(seed: u64) -> Self {
        let settings = Settings {
            initial_delay_ms: DELAY_MS,
            offsets_retention_ms: 30_000,
            ..Settings::default()
        };
        let client = |number: usize| Client {
            instance: number.is_multiple_of(2).then(|| format!("instance-{number}")),
            is_alive: true,
            topics: 1,
            ..Client::default()
        };
        let mut shard = Shard::with(settings);
        shard.is_quick = false;
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            shard,
            clients: (0..CLIENTS).map(client).collect(),
            ghosts: Vec::new(),
            asked: BTreeMap::new(),
            told: Told::default(),
            last_offset: 0,
            seen: BTreeMap::new(),
        }
    }

    fn run(mut self) -> BTreeMap<&'static str, u64> {
        for _ in 0..400 {
            match self.random.random_range(0..100) {
                0..55 => self.act(),
                55..68 => self.agree_on_some(),
                68..82 => self.pass_time(),
                82..86 => self.ask_again(),
                86..89 => self.die_or_come_back(),
                89 => self.leave(),
                90 => self.remove(),
                91..93 => self.rejoin(),
                93..95 => self.restart_coordinator(),
                95..98 => self.haunt(),
                98 => self.expire(),
                _ => self.delete(),
            }
            self.hear();
            self.check();
        }
        self.calm_down();
        self.seen
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_insert(0) += 1;
    }

    fn pick(&mut self) -> usize {
        self.random.random_range(0..CLIENTS)
    }

    fn act(&mut self) {
        let number = self.pick();
        self.step(number);
    }

    /// A client does what comes next.
    fn step(&mut self, number: usize) {
        let client = &self.clients[number];
        if !client.is_alive || client.waits.is_some() {
            return;
        }
        let is_owner = client.owned.is_some();
        match (&client.joined, is_owner) {
            (None, _) => self.send_join(number),
            (Some(_), false) => self.send_sync(number),
            (Some(_), true) if self.random.random_bool(0.5) => self.send_beat(number),
            (Some(_), true) => self.send_commit(number),
        }
    }

    fn remember(&mut self, ticket: Ticket, number: usize, what: What) {
        let known = self.clients[number].known.clone();
        self.clients[number].waits = Some(ticket);
        let asked = Asked { at: self.shard.now, client: Some(number), known, what };
        self.asked.insert(ticket, asked);
    }

    fn send_join(&mut self, number: usize) {
        let Client { instance, known, topics, .. } = &self.clients[number];
        let topics = &["t", "u", "v"][..*topics];
        let join = Join {
            session_ms: SESSION_MS,
            rebalance_ms: REBALANCE_MS,
            protocols: vec![protocol("toy", topics), protocol("other", topics)],
            needs_id: number != 3,
            ..join(&known.id, instance.as_deref())
        };
        let ticket = self.shard.join(join);
        self.remember(ticket, number, What::Join);
    }

    fn send_sync(&mut self, number: usize) {
        let Client { joined, known, .. } = &self.clients[number];
        let joined = joined.as_ref().unwrap();
        let mut assignments: Vec<_> =
            joined.members.iter().map(|(id, ..)| (id.clone(), Vec::new())).collect();
        // A leader that assigns again does so otherwise.
        let turn = self.random.random_range(0..CLIENTS);
        for partition in 0..PARTITIONS {
            let count = assignments.len().max(1);
            let at = (usize::try_from(partition).unwrap() + turn) % count;
            if let Some((_, partitions)) = assignments.get_mut(at) {
                partitions.push(u8::try_from(partition).unwrap());
            }
        }
        let assignments = assignments.into_iter().map(|(id, own)| (id, own.into())).collect();
        let sync = sync(known, assignments);
        let ticket = self.shard.sync(sync);
        self.remember(ticket, number, What::Sync);
    }

    fn send_beat(&mut self, number: usize) {
        let ticket = self.shard.beat(&beat(&self.clients[number].known));
        self.remember(ticket, number, What::Beat);
    }

    fn send_commit(&mut self, number: usize) {
        let owned = self.clients[number].owned.clone().unwrap();
        let Some(partition) = owned.first().map(|partition| i32::from(*partition)) else {
            return self.send_beat(number);
        };
        self.last_offset += 1;
        let offset = self.last_offset;
        let ticket = self.shard.commit(commit_of(&self.clients[number].known, partition, offset));
        self.remember(ticket, number, What::Commit { partition, offset });
    }

    /// A client's answer is lost, or slow: it asks again, on another connection.
    fn ask_again(&mut self) {
        let number = self.pick();
        let Some(ticket) = self.clients[number].waits else { return };
        self.clients[number].waits = None;
        if let What::Join = self.asked[&ticket].what {
            self.clients[number].joined = None;
        }
        self.step(number);
        self.note("again");
    }

    fn die_or_come_back(&mut self) {
        let number = self.pick();
        let client = &mut self.clients[number];
        let comes_at_once = client.is_alive && self.random.random_bool(0.5);
        if client.is_alive {
            (client.waits, client.owned, client.joined) = (None, None, None);
            let known = std::mem::take(&mut client.known);
            if client.instance.is_some() && !known.id.is_empty() {
                client.before = Some(known);
            }
        }
        client.is_alive = !client.is_alive || comes_at_once;
        if self.random.random_bool(0.2) {
            client.topics = self.random.random_range(1..=3);
        }
    }

    fn leave(&mut self) {
        let number = self.pick();
        let client = &self.clients[number];
        if client.owned.is_none() || client.waits.is_some() {
            return;
        }
        let ticket = self.shard.leave(vec![leaver(&client.known.id, None)]);
        self.remember(ticket, number, What::Other);
        let client = &mut self.clients[number];
        *client =
            Client { instance: client.instance.take(), topics: client.topics, ..Client::default() };
        self.note("leave");
    }

    /// An administrator removes a static member, whatever it waits for.
    fn remove(&mut self) {
        let number = self.pick();
        let Some(instance) = self.clients[number].instance.clone() else { return };
        let ticket = self.shard.leave(vec![leaver("", Some(&instance))]);
        self.remember_admin(ticket);
        self.note("remove");
    }

    /// A member joins of its own will, now and then for other topics.
    fn rejoin(&mut self) {
        let number = self.pick();
        let client = &mut self.clients[number];
        if client.is_alive && client.waits.is_none() {
            (client.joined, client.owned) = (None, None);
            client.topics = self.random.random_range(1..=3);
            self.step(number);
        }
    }

    fn restart_coordinator(&mut self) {
        self.shard.restart();
        self.note("restart");
    }

    /// One that was replaced, and does not know, goes on.
    fn haunt(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.ghosts.len());
        let known = self.ghosts[at].clone();
        let ticket = match self.random.random_range(0..4) {
            0 => self.shard.beat(&beat(&known)),
            1 => self.shard.sync(sync(&known, Vec::new())),
            2 => self.shard.commit(commit_of(&known, 0, i64::MAX)),
            _ => self.shard.join(Join {
                session_ms: SESSION_MS,
                protocols: vec![protocol("toy", &["t"])],
                ..join(&known.id, known.instance.as_deref())
            }),
        };
        let asked = Asked { at: self.shard.now, client: None, known, what: What::Other };
        self.asked.insert(ticket, asked);
    }

    fn expire(&mut self) {
        self.shard.expire();
    }

    fn delete(&mut self) {
        let ticket = self.shard.delete("g");
        self.remember_admin(ticket);
    }

    fn remember_admin(&mut self, ticket: Ticket) {
        let (client, known) = (None, Known { id: "admin".into(), ..Known::default() });
        let asked = Asked { at: self.shard.now, client, known, what: What::Other };
        self.asked.insert(ticket, asked);
    }

    fn agree_on_some(&mut self) {
        let count = self.random.random_range(0..=self.shard.in_flight.len());
        self.agree(count);
    }

    fn agree(&mut self, count: usize) {
        for _ in 0..count {
            let was_there = self.shard.store.group("g").is_some();
            self.shard.agree(1);
            self.hear();
            if was_there && self.shard.store.group("g").is_none() {
                self.told = Told::default();
                self.note("gone");
            }
        }
    }

    /// Time passes; nothing is in flight for long.
    fn pass_time(&mut self) {
        let until = self.shard.now + self.random.random_range(0..2_500);
        while self.shard.now < until {
            self.agree(self.shard.in_flight.len());
            let next = self.shard.groups.next_deadline().unwrap_or(until);
            let next = next.clamp(self.shard.now, until);
            self.shard.pass(next - self.shard.now);
            self.agree(self.shard.in_flight.len());
            if next < until {
                self.shard.pass(1);
            }
            self.hear();
        }
    }

    /// All that was answered is heard.
    fn hear(&mut self) {
        for ticket in self.asked.keys().copied().collect::<Vec<_>>() {
            if let Some(answer) = self.shard.answer(ticket) {
                let asked = self.asked.remove(&ticket).unwrap();
                self.judge(&asked, &answer);
                let client = asked.client.filter(|at| self.clients[*at].waits == Some(ticket));
                if let Some(number) = client {
                    self.clients[number].waits = None;
                    self.tell(number, answer);
                }
            }
        }
    }

    /// Whether this may be answered.
    fn judge(&mut self, asked: &Asked, answer: &Answer) {
        let Asked { known, what, .. } = asked;
        let name = |id: &String, instance: &Option<String>| instance.clone().unwrap_or(id.clone());
        match answer {
            Answer::Refused(Refusal::FencedInstanceId) => self.note("fenced"),
            Answer::Refused(_) | Answer::TakeId(_) => return,
            _ => {
                let is_ghost = asked.client.is_none() && known.id != "admin";
                assert!(!is_ghost, "{known:?} was replaced, and is told {answer:?}");
            }
        }
        match (what, answer) {
            (What::Join, Answer::Joined(joined)) => {
                assert!(joined.generation >= self.told.generation, "a generation goes back");
                if joined.generation > self.told.generation {
                    self.note("generation");
                }
                self.told.generation = joined.generation;
                if !joined.members.is_empty() {
                    let members = joined.members.iter().map(|(id, it, _)| name(id, it)).collect();
                    let before = self.told.members.entry(joined.generation);
                    let before = before.or_insert_with(|| BTreeSet::clone(&members));
                    assert_eq!(*before, members, "generation {} has others", joined.generation);
                }
            }
            (What::Sync, Answer::Synced(synced)) => {
                let own = name(&known.id, &known.instance);
                let all = self.told.assigned.entry(known.generation).or_default();
                let before = all.entry(own).or_insert_with(|| synced.assignment.clone());
                assert_eq!(*before, synced.assignment, "assigned anew in {}", known.generation);
                let mut taken = BTreeSet::new();
                let twice = all.values().flatten().find(|partition| !taken.insert(**partition));
                assert_eq!(twice, None, "in {} two have it: {all:?}", known.generation);
                self.note("assigned");
            }
            (What::Commit { partition, offset }, Answer::Each(outcome)) => {
                assert_eq!(*outcome, [Ok(())]);
                self.told.committed.insert(*partition, *offset);
                self.note("commit");
            }
            _ => {}
        }
    }

    /// A client hears what it waited for.
    fn tell(&mut self, number: usize, answer: Answer) {
        let client = &mut self.clients[number];
        match answer {
            Answer::TakeId(id) => client.known.id = id,
            Answer::Joined(joined) => {
                let (id, instance) = (joined.member.clone(), client.instance.clone());
                client.known = Known { id, instance, generation: joined.generation };
                (client.joined, client.owned) = (Some(joined), None);
                if let Some(ghost) = client.before.take() {
                    assert_ne!(ghost.id, client.known.id);
                    self.ghosts.push(ghost);
                    self.note("replaced");
                }
            }
            Answer::Synced(synced) => client.owned = Some(synced.assignment),
            Answer::Refused(why) => {
                assert_ne!(why, Refusal::FencedInstanceId, "client {number} is the newest");
                assert_ne!(why, Refusal::InconsistentGroupProtocol);
                let is_again = why == Refusal::NotCoordinator && client.joined.is_some();
                if why == Refusal::UnknownMemberId {
                    client.known = Known::default();
                }
                if !is_again {
                    (client.joined, client.owned) = (None, None);
                }
            }
            _ => {}
        }
    }

    /// What holds at any time.
    fn check(&mut self) {
        let now = self.shard.now;
        let longest = u64::from(REBALANCE_MS.unsigned_abs() + DELAY_MS);
        for asked in self.asked.values().filter(|_| self.shard.in_flight.is_empty()) {
            assert!(now - asked.at <= longest, "{asked:?} is not answered at {now}");
        }
        for (partition, offset) in &self.told.committed {
            let found = self.shard.store.committed("g", "t", *partition);
            let found = found.map(|committed| committed.offset);
            assert!(found >= Some(*offset), "{partition} was at {offset} and is at {found:?}");
            assert!(found <= Some(self.last_offset), "who was replaced has committed");
        }
    }

    /// The faults end: all who live come together.
    fn calm_down(&mut self) {
        for client in &mut self.clients {
            client.is_alive = true;
        }
        for _ in 0..120 {
            for number in 0..CLIENTS {
                self.step(number);
                self.agree(self.shard.in_flight.len());
                self.hear();
            }
            self.pass_time();
            self.check();
        }
        let described = self.shard.groups.describe("g");
        assert_eq!((described.phase, described.members.len()), (Phase::Stable, CLIENTS));
        let owned = self.clients.iter().map(|client| client.owned.clone().unwrap_or_default());
        let mut all: Vec<_> = owned.flatten().map(i32::from).collect();
        all.sort_unstable();
        assert_eq!(all, (0..PARTITIONS).collect::<Vec<_>>());
    }
}

fn beat(known: &Known) -> Beat {
    let Known { id, instance, generation } = known.clone();
    Beat { group: "g".into(), generation, member: id, instance }
}

fn sync(known: &Known, assignments: Vec<(String, Bytes)>) -> Sync {
    let Known { id, instance, generation } = known.clone();
    Sync { group: "g".into(), generation, member: id, instance, assignments }
}

fn commit_of(known: &Known, partition: i32, offset: i64) -> Commit {
    let Known { id, instance, generation } = known.clone();
    Commit { generation, member: id, instance, ..commit("t", partition, offset) }
}
