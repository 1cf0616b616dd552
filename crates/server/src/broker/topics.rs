//! [`Topics`]: the control shard, and what it intends, done in the shards of records.
//!
//! Control intends, a shard decides. One change at a time is agreed on and durable here; then what is
//! left to do in the shards is done, and only then is whoever asked answered. A crash in between
//! leaves something to do, which the next start does.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use plimsoll_log::{Ack, Crew};
use plimsoll_sync::Dir;
use tokio::sync::Mutex;

use super::data::DataShard;
use super::error::Failed;
use super::layout::{self, CONTROL as NUMBER};
use super::opening::wait_for;
use super::options::small_log;
use crate::cluster::{self, Apply, Group, Leadership, Stop};
use crate::control::{
    Catalog, Change, FlushClass, Impossible, TopicSettings, reconcile, reconcile_topic,
};
use crate::random;
use crate::shard::{Item, Opening, TopicId};

/// Ids of producers that are agreed on at once.
const PRODUCERS: u32 = 1000;

/// What topics there are, and are to be.
#[derive(Debug)]
pub(crate) struct Topics {
    pub(super) group: Group<Intentions>,
    leadership: Leadership,
    catalog: Arc<RwLock<Catalog>>,
    pub(super) shards: Vec<Arc<DataShard>>,
    partitions_max: usize,
    /// Held while a change is agreed on and done.
    turn: Mutex<()>,
    /// Ids of producers that are agreed on and were not given away.
    producers: Mutex<std::ops::Range<i64>>,
}

/// Applies what was agreed on.
#[derive(Debug)]
pub(super) struct Intentions(Arc<RwLock<Catalog>>);

/// What applying a change says: the first of the ids of producers that it gave away, if it did.
type Applied = Result<i64, Impossible>;

/// Why a change is not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It cannot be.
    #[error(transparent)]
    Impossible(#[from] Impossible),
    /// There would be too many partitions.
    #[error("the broker has {there} partitions, and takes {max} at most")]
    Full {
        /// How many there are.
        there: usize,
        /// How many there may be.
        max: usize,
    },
    /// A shard is offline.
    #[error(transparent)]
    Failed(#[from] Failed),
}

impl Apply for Intentions {
    type Answer = Applied;

    fn apply(&mut self, _: u64, _: u64, payload: Option<&Bytes>) -> Result<Applied, Stop> {
        let Some(bytes) = payload else { return Ok(Ok(0)) };
        let change = Change::decode(bytes).map_err(|why| Stop(why.to_string()))?;
        let mut catalog = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let first = catalog.next_producer();
        Ok(catalog.apply(&change).map(|()| first))
    }
}

impl Topics {
    /// Opens the shard in its directory, and does what is left to do.
    pub(crate) fn open(
        dir: &Arc<dyn Dir>,
        crew: &Arc<Crew>,
        shards: Vec<Arc<DataShard>>,
        partitions_max: usize,
    ) -> Result<Self, Failed> {
        let failed = |why| Failed::Shard { number: NUMBER, why };
        let dir = dir.create_dir(&layout::shard(NUMBER)).map_err(Failed::Directory)?;
        let options = cluster::Options {
            node: 1,
            promise: Ack::Durable,
            must_sync: |_| true,
            start: None,
            log: small_log(),
            crew: Some(Arc::clone(crew)),
        };
        let catalog = Arc::new(RwLock::new(Catalog::default()));
        let intentions = Intentions(Arc::clone(&catalog));
        let (group, _) = Group::open(&dir, options, intentions).map_err(failed)?;
        let leading = async { group.wait_to_lead().await.map_err(failed) };
        let leadership = wait_for(group.runtime(), || group.lacks_room().map(failed), leading)?;
        let (turn, producers) = (Mutex::default(), Mutex::new(0..0));
        let topics = Self { group, leadership, catalog, shards, partitions_max, turn, producers };
        topics.check_intended()?;
        wait_for(topics.group.runtime(), || topics.lacks_room(), topics.finish())?;
        Ok(topics)
    }

    /// What is intended. Not to be held over an await.
    pub(crate) fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard of records.
    pub(crate) fn shard(&self, number: u32) -> &Arc<DataShard> {
        let shard = self.shards.iter().find(|shard| shard.number == number);
        shard.expect("topics are placed in shards that there are")
    }

    /// Makes a topic; its partitions are open and durable on return.
    pub(crate) async fn create(
        &self,
        name: &str,
        partitions: u32,
        settings: TopicSettings,
    ) -> Result<TopicId, Refused> {
        self.check_room(partitions)?;
        let id = TopicId(random::bytes());
        let shards = self.place(&settings, partitions);
        self.change(id, Change::Create { id, name: name.to_owned(), shards, settings }).await?;
        Ok(id)
    }

    /// Gives a topic so many more partitions.
    pub(crate) async fn grow(&self, id: TopicId, more: u32) -> Result<(), Refused> {
        let settings = self.catalog().topic(id).map(|topic| topic.settings.clone());
        let settings = settings.ok_or(Impossible::NoSuchTopic)?;
        self.check_room(more)?;
        let shards = self.place(&settings, more);
        self.change(id, Change::Grow { id, shards }).await
    }

    /// Has other settings hold.
    pub(crate) async fn alter(&self, id: TopicId, settings: TopicSettings) -> Result<(), Refused> {
        self.change(id, Change::Alter { id, settings }).await
    }

    /// Deletes a topic: it is gone from all shards on return, and its name is free. `forget` has offsets in it go
    /// before that, as they are kept by name. All of it is one turn: nobody makes another of its name meanwhile.
    pub(crate) async fn delete(
        &self,
        id: TopicId,
        forget: impl Future<Output = Result<(), Failed>>,
    ) -> Result<(), Refused> {
        let _turn = self.turn.lock().await;
        match self.agree(&Change::Delete { id }).await {
            // Or it is marked as deleted, and that did not come to its end.
            Ok(_) | Err(Refused::Impossible(Impossible::Deleted(_))) => {}
            Err(why) => return Err(why),
        }
        self.carry_out(id).await?;
        forget.await?;
        Ok(self.let_go(id).await?)
    }

    /// An id for an idempotent producer that nobody had.
    pub(crate) async fn producer(&self) -> Result<i64, Refused> {
        let mut producers = self.producers.lock().await;
        if producers.is_empty() {
            let first = self.agree(&Change::Producers(PRODUCERS)).await?;
            *producers = first..first + i64::from(PRODUCERS);
        }
        Ok(producers.next().expect("there are some"))
    }

    /// Has an act on one partition agreed on, if it is still there: nothing deletes it meanwhile.
    pub(crate) async fn act_on(
        &self,
        shard: &DataShard,
        opening: Opening,
        item: Item<'static>,
    ) -> Result<(), Refused> {
        let _turn = self.turn.lock().await;
        if shard.replica.lock().state.partition(opening).is_none() {
            return Err(Impossible::NoSuchTopic.into());
        }
        Ok(shard.act(vec![item]).await?)
    }

    /// Whether there is room for so many more partitions.
    fn check_room(&self, more: u32) -> Result<(), Refused> {
        let catalog = self.catalog();
        let there: usize = catalog.topics().map(|(_, topic)| topic.partitions.len()).sum();
        let max = self.partitions_max;
        let has_room = usize::try_from(more).is_ok_and(|more| there.saturating_add(more) <= max);
        if has_room { Ok(()) } else { Err(Refused::Full { there, max }) }
    }

    /// In which shards partitions come: who waits for syncs waits for others who do.
    fn place(&self, settings: &TopicSettings, partitions: u32) -> Vec<u32> {
        let number = match settings.flush_class() {
            FlushClass::Shared => layout::SHARED,
            FlushClass::Durable => layout::DURABLE,
        };
        vec![number; usize::try_from(partitions).unwrap_or(usize::MAX)]
    }

    async fn change(&self, id: TopicId, change: Change) -> Result<(), Refused> {
        let _turn = self.turn.lock().await;
        self.agree(&change).await?;
        Ok(self.carry_out(id).await?)
    }

    async fn agree(&self, change: &Change) -> Result<i64, Refused> {
        let agreed = self.group.propose(self.leadership, change.encode().into()).await;
        let agreed = agreed.map_err(|why| Failed::Shard { number: NUMBER, why })?;
        Ok(agreed.answer?)
    }

    /// What is in a shard was intended: a topic is durable here before a partition of it opens, and stays
    /// until nothing of it is left. So where it is not, this log has lost changes that were durable.
    fn check_intended(&self) -> Result<(), Failed> {
        let catalog = self.catalog();
        for shard in &self.shards {
            let state = &shard.replica.lock().state;
            let mut openings = state.partitions().map(|(opening, _)| opening);
            if let Some(opening) = openings.find(|opening| !catalog.knows(opening.partition)) {
                return Err(Failed::Forgotten { number: shard.number, opening });
            }
        }
        Ok(())
    }

    /// Does what is left to do for one topic.
    async fn carry_out(&self, id: TopicId) -> Result<(), Failed> {
        for shard in &self.shards {
            let items = {
                let catalog = self.catalog();
                let Some(topic) = catalog.topic(id) else { return Ok(()) };
                reconcile_topic(id, topic, shard.number, &shard.replica.lock().state)
            };
            shard.act(items).await?;
        }
        Ok(())
    }

    /// Does what is left to do for all topics: at a start, when nobody asks yet.
    async fn finish(&self) -> Result<(), Failed> {
        for shard in &self.shards {
            let items = reconcile(&self.catalog(), shard.number, &shard.replica.lock().state);
            shard.act(items).await?;
        }
        Ok(())
    }

    /// Frees the names of topics that were being deleted when the last run ended.
    pub(super) fn let_deleted_go(&self) -> Result<(), Failed> {
        let deleted: Vec<TopicId> = {
            let catalog = self.catalog();
            let deleted = catalog.topics().filter(|(_, topic)| topic.is_deleted);
            deleted.map(|(id, _)| id).collect()
        };
        let work = async {
            for id in deleted {
                self.let_go(id).await?;
            }
            Ok(())
        };
        wait_for(self.group.runtime(), || self.lacks_room(), work)
    }

    /// The first of its shards, or of those of records, that waits for room on the disk.
    fn lacks_room(&self) -> Option<Failed> {
        let here = self.group.lacks_room().map(|why| (NUMBER, why));
        let mut records =
            self.shards.iter().filter_map(|shard| Some((shard.number, shard.group.lacks_room()?)));
        here.or_else(|| records.next()).map(|(number, why)| Failed::Shard { number, why })
    }

    /// Frees the name of a deleted topic, once no shard has anything of it, and no group an offset in it: these
    /// are kept by name.
    async fn let_go(&self, id: TopicId) -> Result<(), Failed> {
        let epoch = {
            let catalog = self.catalog();
            let Some(topic) = catalog.topic(id).filter(|topic| topic.is_deleted) else {
                return Ok(());
            };
            // No partition of it had a higher one: it came with its base, and each turn adds one.
            let bases = topic.partitions.iter().flatten().map(|extent| extent.base_epoch);
            let turns = self.shards.iter().map(|shard| shard.replica.lock().state.turns());
            let turns = i32::try_from(turns.max().unwrap_or(0)).unwrap_or(i32::MAX);
            bases.max().unwrap_or(0).saturating_add(turns).min(i32::MAX - 1)
        };
        match self.agree(&Change::Gone { id, epoch }).await {
            Ok(_) => Ok(()),
            Err(Refused::Failed(failed)) => Err(failed),
            Err(why) => unreachable!("a deleted topic can go: {why}"),
        }
    }

    pub(crate) fn close(self) -> Result<Vec<Arc<DataShard>>, Failed> {
        let closed = self.group.close();
        closed.map_err(|why| Failed::Shard { number: NUMBER, why })?;
        Ok(self.shards)
    }
}
