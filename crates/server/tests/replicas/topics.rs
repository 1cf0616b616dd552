//! Clients that make topics, change and delete them, and take ids for producers, through whoever leads.

use std::sync::Arc;

use plimsoll_server::control::{Catalog, Change, Impossible, TopicSettings};
use plimsoll_server::shard::TopicId;
use rand::Rng;

use super::controlling::Ask;
use super::desk::Caller;
use super::life::Life;
use super::machines::{Agreed, Ledgers};

/// How many there are, and the names that they use.
const CLIENTS: u64 = 2;
const NAMES: [&str; 3] = ["one", "two", "three"];
/// Ids that are given away at once.
pub(crate) const PRODUCERS: u32 = 1000;
/// What a client changes of a topic.
pub(crate) const SETTING: &str = "retention.ms";

const PATIENCE_MS: u64 = 1000;
/// How often a client looks whether a topic is gone.
const LOOKS: usize = 20;

struct Client {
    caller: Caller<Ask>,
    number: u64,
    ledgers: Arc<Ledgers>,
    /// How many topics and values it has thought of.
    thought: u64,
}

impl Life {
    /// From here on there are clients who make topics.
    pub(super) fn topics_come(&mut self) {
        self.has_topics = true;
        for number in 1..=CLIENTS {
            let caller = Caller::new(
                &self.desks.topics,
                self.drawn.random(),
                &self.syncs,
                &self.world.oracle,
                "an answer of a new controller",
            );
            let ledgers = Arc::clone(&self.world.ledgers);
            let client = Client { caller, number, ledgers, thought: 0 };
            self.clients.push(tokio::spawn(client.go_on()).abort_handle());
        }
    }
}

impl Client {
    async fn go_on(mut self) {
        loop {
            self.caller.rests(50..1000).await;
            let name = NAMES[self.caller.drawn.random_range(0..NAMES.len())];
            match self.caller.drawn.random_range(0..9) {
                0..3 => self.makes(name).await,
                3..5 => self.deletes(name).await,
                5 => self.grows(name).await,
                6 => self.sets(name).await,
                _ => self.takes_block().await,
            };
        }
    }

    async fn makes(&mut self, name: &str) -> Option<()> {
        let (id, settings) = (self.new_id(), TopicSettings::default());
        let shards = vec![2; self.caller.drawn.random_range(1..4)];
        let create = Change::Create { id, name: name.to_owned(), shards, settings };
        self.changes(create).await?.ok()?;
        self.counts("a topic made")
    }

    /// It is gone on return, if it was there, and that does not take too long.
    async fn deletes(&mut self, name: &str) -> Option<()> {
        let (id, _) = self.looks().await?.find(name)?;
        self.ledgers.intents.is_to_go(id);
        match self.changes(Change::Delete { id }).await? {
            Ok(_) | Err(Impossible::Deleted(_)) => {}
            Err(_) => return None,
        }
        for _ in 0..LOOKS {
            self.caller.rests(20..200).await;
            if let Some(catalog) = self.looks().await
                && catalog.topic(id).is_none()
            {
                return self.counts("a topic deleted");
            }
        }
        None
    }

    async fn grows(&mut self, name: &str) -> Option<()> {
        let (id, _) = self.looks().await?.find(name)?;
        self.changes(Change::Grow { id, shards: vec![2] }).await?.ok()?;
        self.counts("a topic that was given partitions")
    }

    /// No value is set twice.
    async fn sets(&mut self, name: &str) -> Option<()> {
        let (id, _) = self.looks().await?.find(name)?;
        self.thought += 1;
        let value = format!("{}", self.thought * 10 + self.number);
        let mut settings = TopicSettings::default();
        settings.set(SETTING, Some(&value)).expect("it is a number");
        self.changes(Change::Alter { id, settings }).await?.ok()?;
        self.counts("a setting of a topic")
    }

    async fn takes_block(&mut self) -> Option<()> {
        self.changes(Change::Producers(PRODUCERS)).await?.ok()?;
        self.counts("a block of producer ids")
    }

    async fn changes(&mut self, change: Change) -> Option<Result<Agreed, Impossible>> {
        self.caller.ask(PATIENCE_MS, |reply| Ask::Change(change, reply)).await
    }

    async fn looks(&mut self) -> Option<Catalog> {
        self.caller.ask(PATIENCE_MS, Ask::Look).await
    }

    /// One that nobody had.
    fn new_id(&mut self) -> TopicId {
        self.thought += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.number.to_le_bytes());
        id[8..].copy_from_slice(&self.thought.to_le_bytes());
        TopicId(id)
    }

    fn counts(&self, what: &'static str) -> Option<()> {
        self.caller.oracle.count(what);
        Some(())
    }
}
