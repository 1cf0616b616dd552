//! [`Topics`]: the control shard: what topics there are to be.
//!
//! Control intends, a shard decides. A change is agreed on and durable here, by whoever leads this shard; then every shard
//! of records has it done by its own leader (`intended.rs`). Whoever asked is answered once that is so, as this node
//! has heard.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use plimsoll_log::{Ack, Crew};
use plimsoll_sync::Dir;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::acked::{Acked, testimony};
use super::agreed::{Agreed, PRODUCERS, Refused};
use super::anew;
use super::company::Company;
use super::controller::{self, Request};
use super::damaged::{Lost, recover};
use super::data::DataShard;
use super::error::Failed;
use super::intended::Intended;
use super::layout::{self, CONTROL as NUMBER};
use super::leadership::{Leader, wait_to_begin, why_failed};
use super::options::small_log;
use super::placement::preferred;
use super::unmet::{Unmet, unmet};
use super::waiting::wait_for;
use crate::cluster::{self, Apply, Group, Stop};
use crate::control::{
    Catalog, Change, FlushClass, Impossible, Left, PARTITIONS_MAX, TopicSettings, reconcile,
    reconcile_topics,
};
use crate::random;
use crate::shard::TopicId;

/// How often another block of them is asked for: one that was given away and did not arrive is lost, which harms nobody.
const BLOCKS_ASKED: usize = 3;
/// How long the controller is waited for until it is looked again who that is.
const HEARS: Duration = Duration::from_secs(1);
/// After so long without a controller it is said that there is none, and then again each minute.
const TELLS_AFTER: Duration = Duration::from_secs(15);
const TELLS_EACH: Duration = Duration::from_secs(60);
/// How long the others may take to elect a controller: longer than any election that succeeds.
const ELECTS: Duration = Duration::from_secs(5);
/// How long it is let be then.
const REST: Duration = Duration::from_millis(50);

/// What topics there are, and are to be.
#[derive(Debug)]
pub(crate) struct Topics {
    control: Control,
    pub(super) shards: Vec<Arc<DataShard>>,
    partitions_max: usize,
    /// Held while a change is agreed on, with what it was checked against.
    turn: Arc<Mutex<()>>,
    /// Ids of producers that are agreed on and were not given away.
    producers: Mutex<std::ops::Range<i64>>,
    /// The way to the controller.
    company: Arc<Company>,
}

/// The control shard.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) group: Group<Intentions>,
    pub(super) intended: Arc<Intended>,
    /// What its disk had lost.
    pub(super) lost: Option<Lost>,
}

/// Applies what was agreed on.
#[derive(Debug)]
pub(crate) struct Intentions(Arc<Intended>);

/// What applying a change says.
type Applied = Result<Agreed, Impossible>;

impl Apply for Intentions {
    type Answer = Applied;

    fn apply(&mut self, _: u64, _: u64, payload: Option<&Bytes>) -> Result<Applied, Stop> {
        let Some(bytes) = payload else { return Ok(Ok(Agreed::default())) };
        let change = Change::decode(bytes).map_err(|why| Stop(why.to_string()))?;
        let first = self.0.catalog().next_producer();
        let applied = self.0.apply(&change);
        Ok(applied.map(|()| Agreed { first, version: self.0.catalog().version() }))
    }
}

impl Control {
    /// Opens the shard in its directory. Whoever is alone has it lead on return: then all that was ever intended is
    /// known, before anything is done of it.
    pub(super) fn open(
        dir: &Arc<dyn Dir>,
        crew: &Arc<Crew>,
        company: &Arc<Company>,
        acked: Option<Arc<Acked>>,
    ) -> Result<Self, Failed> {
        let failed = |why| Failed::Shard { number: NUMBER, why };
        dir.create_dir(&layout::shard(NUMBER)).map_err(Failed::Directory)?;
        let options = cluster::Options {
            node: company.node(),
            promise: Ack::Durable,
            must_sync: |_| true,
            start: None,
            log: small_log(acked.as_deref()),
            crew: Some(Arc::clone(crew)),
        };
        let intended = Arc::<Intended>::default();
        let intentions = Intentions(Arc::clone(&intended));
        let found = |is_anew| {
            let (recovered, lost) = recover(dir, NUMBER, &options, 0, None)?;
            Ok((recovered, if is_anew { Some(Lost::All) } else { lost }))
        };
        let (recovered, lost) = anew::opened(dir, NUMBER, company.node(), |_| Ok(()), found)?;
        let begin = company.begin(NUMBER, lost.is_some(), testimony(acked));
        let begin = if lost == Some(Lost::All) { begin.emptied() } else { begin };
        let group = recovered.start_as(begin, intentions).map_err(failed)?;
        company.admit(NUMBER, &group);
        if group.is_alone() {
            wait_to_begin(NUMBER, &group)?;
        }
        Ok(Self { group, intended, lost })
    }
}

impl Topics {
    /// Of the control shard, and of all shards of records, which do what it intends.
    pub(super) fn new(
        control: Control,
        shards: Vec<Arc<DataShard>>,
        partitions_max: usize,
        company: &Arc<Company>,
    ) -> Self {
        let (turn, producers) = (Arc::default(), Mutex::new(0..0));
        let company = Arc::clone(company);
        Self { control, shards, partitions_max, turn, producers, company }
    }

    /// What is intended, and who is told of it.
    pub(super) fn intended(&self) -> &Arc<Intended> {
        &self.control.intended
    }

    /// The group of the control shard: its leader is the controller.
    pub(crate) fn group(&self) -> &Group<Intentions> {
        &self.control.group
    }

    /// Whether this node is the controller.
    pub(crate) fn leads(&self) -> bool {
        self.control.group.leadership().is_some()
    }

    /// Has another node be the controller; it is on return.
    pub(super) async fn hand_over(&self, to: u64) -> cluster::Result<()> {
        let _turn = self.turn.lock().await;
        self.control.group.hand_over(to).await
    }

    /// What is intended now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.control.intended.catalog()
    }

    /// All shards of records.
    pub(crate) fn shards(&self) -> &[Arc<DataShard>] {
        &self.shards
    }

    /// Of each shard that this node leads the topics that it refuses, as fewer brokers are in sync than they ask for.
    pub(super) fn unmet(&self) -> BTreeMap<u32, Unmet> {
        let refusing = |copies| {
            let shards = self.shards.iter();
            shards.filter_map(|shard| Some((shard.number, shard.lacks_copies(copies)?))).collect()
        };
        let catalog = self.catalog();
        let live = catalog.topics().filter(|(_, topic)| !topic.is_deleted);
        unmet(live.map(|(_, topic)| topic), refusing)
    }

    /// A shard of records.
    pub(crate) fn shard(&self, number: u32) -> &Arc<DataShard> {
        let shard = self.shards.iter().find(|shard| shard.number == number);
        shard.expect("topics are placed in shards that there are")
    }

    /// The node that leads a shard of records where all is well.
    pub(crate) fn preferred(&self, shard: &DataShard) -> Option<u64> {
        preferred(shard.number, &self.group().voters(), &shard.group.voters())
    }

    /// Makes a topic; its partitions are open and durable on return.
    pub(crate) async fn create(
        &self,
        name: &str,
        partitions: u32,
        settings: TopicSettings,
    ) -> Result<TopicId, Refused> {
        let id = TopicId(random::bytes());
        let shards = self.unplaced(partitions)?;
        self.change(Change::Create { id, name: name.to_owned(), shards, settings }).await?;
        self.until_done(id).await?;
        Ok(id)
    }

    /// Gives a topic so many more partitions.
    pub(crate) async fn grow(&self, id: TopicId, more: u32) -> Result<(), Refused> {
        let shards = self.unplaced(more)?;
        self.change(Change::Grow { id, shards }).await?;
        Ok(self.until_done(id).await?)
    }

    /// Has other settings hold.
    pub(crate) async fn alter(&self, id: TopicId, settings: TopicSettings) -> Result<(), Refused> {
        self.change(Change::Alter { id, settings }).await?;
        Ok(self.until_done(id).await?)
    }

    /// Has a topic go: `deleting.rs` says how. It is gone from all shards on return, and its name is free.
    pub(crate) async fn delete(&self, id: TopicId) -> Result<(), Refused> {
        match self.change(Change::Delete { id }).await {
            // Or it is marked as deleted, and that did not come to its end.
            Ok(_) | Err(Refused::Impossible(Impossible::Deleted(_))) => {}
            Err(why) => return Err(why),
        }
        let gone = self.intended().until(|catalog| catalog.topic(id).is_none());
        tokio::select! {
            biased;
            () = gone => Ok(()),
            failed = self.until_one_fails() => Err(failed.into()),
        }
    }

    /// An id for an idempotent producer that nobody had: of those that were agreed on for this node.
    pub(crate) async fn producer(&self) -> Result<i64, Refused> {
        let mut producers = self.producers.lock().await;
        if producers.is_empty() {
            let first = self.block().await?;
            *producers = first..first + i64::from(PRODUCERS);
        }
        Ok(producers.next().expect("there are some"))
    }

    /// The first of a block of ids.
    async fn block(&self) -> Result<i64, Refused> {
        for _ in 0..BLOCKS_ASKED {
            match self.agree_anywhere(Change::Producers(PRODUCERS)).await {
                Ok(agreed) => return Ok(agreed.first),
                Err(Refused::Unknown) => {}
                Err(why) => return Err(why),
            }
        }
        Err(Refused::not_controller())
    }

    /// Waits until this node has heard of all that the controller has agreed on by now.
    pub(crate) async fn catch_up(&self) -> Result<(), Refused> {
        let begun = Instant::now();
        while !self.leads() {
            match self.look().await {
                Ok(agreed) => {
                    self.until_heard(agreed.version).await;
                    break;
                }
                Err(why) if waits(&why, begun) => sleep(REST).await,
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// What the controller, another node, has agreed on by now.
    async fn look(&self) -> Result<Agreed, Refused> {
        let answer = controller::ask(&self.company, self.controller()?, &Request::Look).await;
        answer.agreed().map_err(|why| match why {
            Refused::Unknown => Refused::not_controller(),
            why => why,
        })
    }

    /// Goes on until this node has heard, since its start, of all that was agreed on by then. Before that it may not
    /// know of a topic that was there for long.
    pub(super) async fn hear(topics: Arc<Self>) {
        let mut told_at = Instant::now() + TELLS_AFTER;
        while !matches!(timeout(HEARS, topics.catch_up()).await, Ok(Ok(()))) {
            if Instant::now() >= told_at {
                told_at = Instant::now() + TELLS_EACH;
                tracing::warn!(
                    "since this start no controller has told this node all that is agreed on, so no client is told of topics: where the other brokers run this one may have been \
                     removed, and `plimsoll cluster status --http` with the address of one of them says who is in the cluster"
                );
            }
            sleep(REST).await;
        }
        topics.intended().has_heard();
    }

    async fn until_heard(&self, version: u64) {
        self.intended().until(|catalog| catalog.version() >= version).await;
    }

    /// The other node that is the controller.
    fn controller(&self) -> Result<u64, Refused> {
        match Leader::of(&self.control.group, self.company.node(), false) {
            Leader::There(node) => Ok(node),
            Leader::Here | Leader::Unknown => Err(self.why_not().into()),
        }
    }

    /// Has the controller agree on a change: whoever that is. This node has heard of it on return.
    pub(super) async fn change(&self, change: Change) -> Result<Agreed, Refused> {
        let begun = Instant::now();
        loop {
            match self.agree_anywhere(change.clone()).await {
                Ok(agreed) => {
                    self.until_heard(agreed.version).await;
                    return Ok(agreed);
                }
                Err(why) if waits(&why, begun) => sleep(REST).await,
                Err(why) => return Err(why),
            }
        }
    }

    async fn agree_anywhere(&self, change: Change) -> Result<Agreed, Refused> {
        if self.leads() {
            return self.agree_here(change).await;
        }
        let (controller, request) = (self.controller()?, Request::Change(change));
        let answer = controller::ask(&self.company, controller, &request).await;
        // What is refused may be so for what this node has not heard of.
        self.until_heard(answer.catalog).await;
        answer.agreed()
    }

    /// As the controller, which this node is.
    pub(super) async fn agree_here(&self, change: Change) -> Result<Agreed, Refused> {
        let _turn = self.turn.lock().await;
        self.submit(change).await?.await
    }

    /// As the controller, for another node. The control shard may be closed meanwhile.
    pub(super) async fn decide(topics: &Weak<Self>, change: Change) -> Result<Agreed, Refused> {
        let there = || topics.upgrade().ok_or_else(Refused::not_controller);
        let turn = Arc::clone(&there()?.turn);
        let _turn = turn.lock().await;
        let submitted = {
            let topics = there()?;
            topics.submit(change).await?
        };
        submitted.await
    }

    /// So many partitions, which whoever decides places.
    fn unplaced(&self, partitions: u32) -> Result<Vec<u32>, Refused> {
        let count = usize::try_from(partitions).unwrap_or(usize::MAX);
        if count > PARTITIONS_MAX {
            self.check_room(partitions)?;
            return Err(Impossible::TooManyPartitions(count).into());
        }
        Ok(vec![layout::SHARED[0]; count])
    }

    /// Places what is to be, if there is room.
    fn place(&self, change: &mut Change) -> Result<(), Refused> {
        let (shards, class) = match change {
            Change::Create { shards, settings, .. } => (shards, settings.flush_class()),
            Change::Grow { id, shards } => {
                let catalog = self.catalog();
                let topic = catalog.topic(*id).ok_or(Impossible::NoSuchTopic)?;
                (shards, topic.settings.flush_class())
            }
            Change::Move { partitions, .. } => {
                let unknown = partitions.iter().find(|(_, shard)| !layout::RECORDS.contains(shard));
                let refused = |(_, shard): &(u32, u32)| Impossible::NoSuchShard(*shard).into();
                return unknown.map_or(Ok(()), |unknown| Err(refused(unknown)));
            }
            _ => return Ok(()),
        };
        self.check_room(u32::try_from(shards.len()).unwrap_or(u32::MAX))?;
        // Who waits for syncs waits for others who do.
        match class {
            FlushClass::Durable => shards.fill(layout::DURABLE),
            FlushClass::Shared => place(shards, &mut self.load()),
        }
        Ok(())
    }

    /// How many partitions take records in each shard that new ones may come into. A node that is alone has nobody to share its
    /// work with: there what comes is synced together. Where one is led by nobody just now it takes none, if another is led.
    fn load(&self) -> Vec<(u32, usize)> {
        if self.control.group.is_alone() {
            return vec![(layout::SHARED[0], 0)];
        }
        let is_led = |number: &u32| self.shard(*number).group.leader().is_some();
        let led: Vec<u32> = layout::SHARED.into_iter().filter(is_led).collect();
        let open = if led.is_empty() { layout::SHARED.to_vec() } else { led };
        let catalog = self.catalog();
        open.into_iter().map(|number| (number, catalog.load(number))).collect()
    }

    /// Whether there is room for so many more partitions.
    fn check_room(&self, more: u32) -> Result<(), Refused> {
        let catalog = self.catalog();
        let there: usize = catalog.topics().map(|(_, topic)| topic.partitions.len()).sum();
        let max = self.partitions_max;
        let has_room = usize::try_from(more).is_ok_and(|more| there.saturating_add(more) <= max);
        if has_room { Ok(()) } else { Err(Refused::Full { there, max }) }
    }

    /// Why this node may not change what is intended.
    fn why_not(&self) -> Failed {
        match why_failed(&self.control.group) {
            Some(why) => Failed::Shard { number: NUMBER, why },
            None => Failed::NotLeader { number: NUMBER },
        }
    }

    /// Submits a change, if this node leads, and there is room for it; in its turn. What waits for it to be agreed on
    /// does not hold this.
    async fn submit(
        &self,
        mut change: Change,
    ) -> Result<impl Future<Output = Result<Agreed, Refused>> + Send + use<>, Refused> {
        let refused = |why| match why {
            cluster::Error::NotLeader { .. } => Refused::not_controller(),
            cluster::Error::Unknown { .. } => Refused::Unknown,
            why => Failed::Shard { number: NUMBER, why }.into(),
        };
        let group = &self.control.group;
        let leadership = group.leadership().ok_or_else(|| self.why_not())?;
        self.place(&mut change)?;
        // Whoever does not know what is agreed on stops.
        let level = change.level();
        if level > self.catalog().level() {
            if let Some(node) = self.company.who_lacks(level) {
                return Err(Refused::Lacking { node });
            }
            let raise = Change::Feature(level).encode().into();
            let raised = group.submit(leadership, raise).await.map_err(refused)?;
            raised.await.map_err(refused)?.answer?;
        }
        let submitted = group.submit(leadership, change.encode().into()).await;
        let submitted = submitted.map_err(refused)?;
        Ok(async move { Ok(submitted.await.map_err(refused)?.answer?) })
    }

    /// What is in a shard was intended: a topic is durable here before a partition of it opens, and stays
    /// until nothing of it is left. So where it is not, this log has lost changes that were durable. Only who is alone
    /// can say: whoever follows may not have heard.
    pub(super) fn check_intended(&self) -> Result<(), Failed> {
        let catalog = self.catalog();
        for shard in &self.shards {
            let number = shard.number;
            let state = &shard.replica.lock().state;
            let mut openings = state.partitions().map(|(opening, _)| opening);
            // What is known to be gone is on its way.
            let is_told = state.intended() > 0 && state.intended() <= catalog.version();
            let unknown = openings.find(|opening| !catalog.knows(opening.partition));
            if let Some(opening) = unknown.filter(|_| !is_told) {
                return Err(Failed::Forgotten { number, opening });
            }
            if catalog.version() < state.intended() {
                return Err(Failed::Outdated { number });
            }
        }
        Ok(())
    }

    /// Waits until a topic is in all shards what it is intended to be, as this node has heard.
    pub(super) async fn until_done(&self, id: TopicId) -> Result<(), Failed> {
        let (topic, none) = ([id].into(), Left::new());
        self.until_left(|catalog, shard| {
            !reconcile_topics(&topic, catalog, shard.number, &shard.replica.lock().state, &none)
                .is_empty()
        })
        .await
    }

    /// Waits until all topics are, where nobody asks yet.
    pub(super) fn wait_until_all_done(&self) -> Result<(), Failed> {
        let none = Left::new();
        let done = self.until_left(|catalog, shard| {
            !reconcile(catalog, shard.number, &shard.replica.lock().state, &none).is_empty()
        });
        wait_for(self.control.group.runtime(), || self.lacks_room(), done)
    }

    /// Waits until nothing `is_left` to do in any shard.
    async fn until_left(
        &self,
        is_left: impl Fn(&Catalog, &DataShard) -> bool,
    ) -> Result<(), Failed> {
        for shard in &self.shards {
            let mut reshapes = shard.replica.reshapes();
            loop {
                let begun = Instant::now();
                if !is_left(&self.catalog(), shard) {
                    break;
                }
                let took = begun.elapsed();
                tokio::select! {
                    biased;
                    // The shard holds it.
                    _ = reshapes.changed() => {}
                    () = shard.until_it_fails() => {
                        return Err(Failed::Offline { number: shard.number });
                    }
                }
                // Where there is much to look at, whoever does it goes first.
                sleep(took).await;
            }
        }
        Ok(())
    }

    /// Done when a shard of records has failed.
    async fn until_one_fails(&self) -> Failed {
        let fails = self.shards.iter().map(|shard| {
            Box::pin(async move {
                shard.until_it_fails().await;
                Failed::Offline { number: shard.number }
            })
        });
        futures_util::future::select_all(fails).await.0
    }

    /// Topics that are to go.
    pub(super) fn deleted(&self) -> Vec<TopicId> {
        let catalog = self.catalog();
        let deleted = catalog.topics().filter(|(_, topic)| topic.is_deleted);
        deleted.map(|(id, _)| id).collect()
    }

    /// Whether no shard has anything of a topic, as this node has heard.
    pub(super) fn has_nothing_of(&self, id: TopicId) -> bool {
        let has =
            |shard: &Arc<DataShard>| shard.replica.lock().state.partitions_of(id).next().is_some();
        !self.shards.iter().any(has)
    }

    /// The first of its shards, or of those of records, that waits for room on the disk.
    fn lacks_room(&self) -> Option<Failed> {
        let here = self.control.group.lacks_room().map(|why| (NUMBER, why));
        let mut records =
            self.shards.iter().filter_map(|shard| Some((shard.number, shard.group.lacks_room()?)));
        here.or_else(|| records.next()).map(|(number, why)| Failed::Shard { number, why })
    }

    /// Frees the name of a deleted topic, once no shard has anything of it, and no group an offset in it: these
    /// are kept by name.
    pub(super) async fn let_go(&self, id: TopicId) -> Result<(), Failed> {
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
        match self.agree_here(Change::Gone { id, epoch }).await {
            Ok(_) => Ok(()),
            Err(Refused::Failed(failed)) => Err(failed),
            Err(Refused::Unknown) => Err(Failed::NotLeader { number: NUMBER }),
            // The controller before this one had it go.
            Err(Refused::Impossible(Impossible::NoSuchTopic)) => Ok(()),
            Err(why) => unreachable!("a deleted topic can go: {why}"),
        }
    }

    pub(crate) fn close(self) -> Result<Vec<Arc<DataShard>>, Failed> {
        let closed = self.control.group.close();
        closed.map_err(|why| Failed::Shard { number: NUMBER, why })?;
        Ok(self.shards)
    }
}

/// Whether it is tried again: nothing was done, as nobody is the controller that this node knows of, and one is about to be
/// elected. Some clients do not ask again by themselves.
fn waits(why: &Refused, begun: Instant) -> bool {
    why.is_not_controller() && begun.elapsed() < ELECTS
}

/// Each partition comes into the shard that has the fewest, of these the first.
fn place(partitions: &mut [u32], load: &mut [(u32, usize)]) {
    for partition in partitions {
        let fewest = load.iter_mut().min_by_key(|(_, count)| *count);
        let (number, count) = fewest.expect("there is a shard of records");
        *partition = *number;
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_come_where_the_fewest_are() {
        let placed = |count, load: &[(u32, usize)]| {
            let mut partitions = vec![0; count];
            place(&mut partitions, &mut load.to_vec());
            partitions
        };
        assert_eq!(placed(6, &[(2, 0), (4, 0), (6, 0)]), [2, 4, 6, 2, 4, 6]);
        assert_eq!(placed(5, &[(2, 3), (4, 1), (6, 2)]), [4, 4, 6, 2, 4]);
        assert_eq!(placed(3, &[(2, 9)]), [2, 2, 2]);
    }
}
