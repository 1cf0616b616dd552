//! [`Node`]: all shards of a directory. `opening.rs` opens it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use plimsoll_sync::{Dir, Lock, OsDir};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::ailing;
use super::company::{Company, Door};
use super::coordinator::Coordinator;
use super::data::DataShard;
use super::domains::{Domains, DomainsOverview};
use super::error::Failed;
use super::layout::{CONTROL, GROUPS, SHARED};
use super::leaders::{Drained, Leaders};
use super::leadership::Leader;
use super::members::Members;
use super::memory::ring;
use super::options::{Options, Promise};
use super::recovery::Recovery;
use super::registrar::Registrar;
use super::roll::Roll;
use super::scrubs::Scrubs;
use super::task::Task;
use super::topics::Topics;
use crate::cluster::{Lack, Needed};
use crate::peer;
use crate::run::{Ends, Run, Starts};

/// A node: alone, or one of a cluster. Dropping it is as a crash of the process, but that what was acknowledged is written if
/// that is possible; [`Node::close`] ends it in order.
#[derive(Debug)]
pub struct Node {
    /// They hold the shards: they are before these, and so end before them.
    pub(super) tasks: [Task; 5],
    pub(super) meeting: Vec<Task>,
    pub(super) company: Arc<Company>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Coordinator>,
    pub(crate) leaders: Arc<Leaders>,
    pub(crate) recovery: Arc<Recovery>,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) options: Options,
    pub(super) domains: Arc<Domains>,
    pub(super) members: Arc<Members>,
    pub(super) heard: watch::Receiver<bool>,
    pub(super) begun: Instant,
    pub(super) cluster_id: String,
    pub(super) promise: Promise,
    pub(super) run: Arc<Run>,
    pub(super) verdict: String,
    pub(super) root: Arc<dyn Dir>,
    pub(super) dir: PathBuf,
    /// What is being given of shards, in words.
    pub(super) seeding: Mutex<BTreeMap<u32, String>>,
    /// A shard in which this node votes, and has nothing of it.
    pub(super) lost: Arc<OnceLock<u32>>,
    /// Why its disk counts as failed.
    pub(super) failed: Arc<OnceLock<String>>,
    pub(super) memory: Option<OsDir>,
    pub(super) _lock: Lock,
}

impl Node {
    /// What is known of the run before this one: a sentence.
    #[must_use]
    pub fn verdict(&self) -> &str {
        &self.verdict
    }

    /// The id of the cluster, given when the directory was made.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Who is in the cluster, as clients are told.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Where the nodes stand, and what follows from that.
    pub(crate) fn domains(&self) -> DomainsOverview {
        self.domains.overview()
    }

    /// Whether it has heard, since its start, of all topics that there were then: before that it says nothing of them.
    pub(crate) fn has_heard(&self) -> bool {
        *self.heard.borrow()
    }

    /// For how long it has been open.
    pub(crate) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits until it has.
    pub(crate) fn until_heard(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut heard = self.heard.clone();
        // Who tells it ends with the node.
        async move { drop(heard.wait_for(|heard| *heard).await) }
    }

    /// Who leads the control shard.
    pub(crate) fn controller(&self) -> Leader {
        Leader::of(self.topics.group(), self.members.here(), self.topics.leads())
    }

    /// Who leads the groups' shard.
    pub(crate) fn coordinator(&self) -> Leader {
        Leader::of(&self.groups.group, self.members.here(), self.groups.leads())
    }

    /// Who leads a shard of records.
    pub(crate) fn leader_of(&self, shard: &DataShard) -> Leader {
        Leader::of(&shard.group, self.members.here(), shard.leads())
    }

    /// What an acknowledgement survives, where a topic does not ask for more.
    #[must_use]
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// The largest batch that any of its shards has room for, in bytes.
    #[must_use]
    pub fn batch_bytes_max(&self) -> u64 {
        self.topics.shards().iter().map(|shard| shard.batch_bytes_max()).min().unwrap_or(0)
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The time in ms since 1970.
    pub(crate) fn now(&self) -> u64 {
        now()
    }

    /// The runtime on which requests are best served: that of the shard which most are for, as this node is to lead it.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        let here = Some(self.company.node());
        let shared = SHARED.map(|number| self.topics.shard(number));
        let is_for_here = |shard: &&Arc<DataShard>| self.topics.preferred(shard) == here;
        shared.into_iter().find(is_for_here).unwrap_or(shared[0]).group.runtime()
    }

    /// Hands over all that it leads, and takes no more: it is about to be stopped. What is left to do is what nobody
    /// else can.
    pub async fn part(&self) -> Drained {
        self.leaders.part().await
    }

    /// The same; then all that it has is durable on a majority, and where its chapters were read is noted for the next start.
    pub(crate) async fn drain(self: &Arc<Self>) -> Drained {
        let drained = self.leaders.drain().await;
        let node = Arc::clone(self);
        let noted = move || node.topics.shards().iter().for_each(|shard| shard.shelf.remember());
        // It promises nothing.
        tokio::task::spawn_blocking(noted).await.ok();
        drained
    }

    /// What every node that answers says of every shard.
    pub async fn roll(&self) -> Vec<Roll> {
        let (rolls, levels, mut leads, drained) = tokio::join!(
            self.recovery.call(),
            self.leaders.all_levels(),
            self.leaders.all_leads(),
            self.leaders.all_that_go()
        );
        leads.insert(self.company.node(), self.leaders.leads(self.registrar.awaited()));
        // Only a founder awaits anybody.
        let awaited = leads.values().flat_map(|leads| leads.awaited.iter().copied()).collect();
        let whole = |roll: Roll| {
            let roll = roll.with_level(&levels).with_leads(&leads).with_drained(&drained);
            if roll.shard == CONTROL { roll.awaiting(&awaited) } else { roll }
        };
        rolls.into_iter().map(whole).collect()
    }

    /// Before it closes to open again: waits for others that do so, where without them and this one too few would be left; but not
    /// for long.
    pub async fn turn(&self) {
        // One that has failed leaves anyhow, and where shards go on after a loss all close.
        if self.lost().is_none() && !self.recovery.reopens() {
            self.leaders.turn().await;
        }
    }

    /// Its directory.
    pub(crate) fn root(&self) -> &Arc<dyn Dir> {
        &self.root
    }

    /// Why this node is to end: it may not be the one that it is called, as it votes and has forgotten how; or its disk has
    /// failed. It is to be closed.
    #[must_use]
    pub fn lost(&self) -> Option<Failed> {
        let node = self.members.here();
        if let Some(why) = self.failed.get() {
            return Some(self.disk_failed(why));
        }
        let lost = self.lost.get().map(|number| Failed::Lost { node, number: *number });
        let is_founded = self.topics.group().others_vote();
        let went_back = || Failed::WentBack { node, is_founded };
        lost.or_else(|| self.company.is_outdated().then(went_back))
    }

    /// Where the others have refused this directory no later start of it is begun: one that counts higher would be admitted some
    /// day. Durable on return, where that can be written.
    pub(crate) fn keep_refusal(&self) {
        if self.company.is_outdated()
            && self.topics.group().others_vote()
            && let Err(why) = Starts::refuse(&*self.root)
        {
            tracing::error!(%why, "that the others refuse this directory is not kept");
        }
    }

    fn disk_failed(&self, why: &str) -> Failed {
        Failed::Disk { dir: self.dir.display().to_string(), why: why.to_owned() }
    }

    /// Whether no more is to be written than has to be.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.topics.shards.iter().any(|shard| shard.is_full())
    }

    /// Shards that lack what their leaders have let go of: they must be seeded.
    pub(crate) fn lacks(&self) -> Vec<(u32, Lack)> {
        let groups = (GROUPS, self.groups.group.lack());
        let records = self.topics.shards.iter().map(|shard| (shard.number, shard.group.lack()));
        let all = std::iter::once(groups).chain(records);
        all.filter_map(|(number, lack)| Some((number, lack?))).collect()
    }

    /// Whether it is to be opened again: after a loss a shard goes on, or who votes in one was damaged when it was opened, and is not now.
    pub(crate) fn must_open_again(&self) -> bool {
        let mut records = self.topics.shards.iter();
        self.recovery.reopens()
            || self.topics.group().must_open_again()
            || self.groups.group.must_open_again()
            || records.any(|shard| shard.group.must_open_again())
    }

    /// How far another must have a shard that this node is given by it; `None`: not now.
    pub(crate) fn needed(&self, number: u32) -> Option<Needed> {
        if number == GROUPS {
            return self.groups.group.needed();
        }
        let shard = self.topics.shards.iter().find(|shard| shard.number == number);
        shard.and_then(|shard| shard.group.needed())
    }

    /// Says of a shard how its seeding goes.
    pub(crate) fn say_seeding(&self, number: u32, said: String) {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner).insert(number, said);
    }

    /// How the seeding of a shard goes, if it is being seeded.
    pub(super) fn seeding(&self, number: u32) -> Option<String> {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// From here on what other nodes ask at the door of this number is done there.
    pub(crate) fn open_door(&self, number: u32, door: Arc<dyn Door>) {
        self.company.open_door(number, door);
    }

    /// Nodes that are connected now.
    pub(crate) fn others(&self) -> Vec<u64> {
        self.company.others()
    }

    /// How many other nodes are connected, and what went over all connections to them; nothing where it is alone.
    pub(crate) fn peer_counters(&self) -> Option<(usize, peer::Counters)> {
        self.company.counters()
    }

    /// Asks another node at a door.
    pub(crate) fn ask(
        &self,
        node: u64,
        door: u32,
        request: Vec<u8>,
    ) -> impl Future<Output = Result<Bytes, peer::Error>> + Send + use<> {
        self.company.ask(node, door, request)
    }

    /// Ends all shards; what was acknowledged is durable on return.
    ///
    /// # Errors
    /// The first that could not be made durable. [`Failed::Disk`]: it has ended as by a crash, and says nowhere that it
    /// ended in order.
    pub fn close(self) -> Result<(), Failed> {
        if let Some(why) = ailing::why_failed(&self.topics, &self.groups) {
            return Err(self.disk_failed(&why));
        }
        let Self { topics, groups, run, tasks, meeting, scrubs, company, memory, .. } = self;
        drop((tasks, meeting, scrubs));
        let groups = alone(groups, |groups| groups.group.runtime().clone()).close();
        let mut ends = Ends::new();
        let topics = alone(topics, |topics| topics.group().runtime().clone());
        // The first has the connections to the others on its runtime, and what the rest waits for comes over these.
        for shard in topics.close()?.into_iter().rev() {
            let number = shard.number;
            let shard = alone(shard, |shard| shard.group.runtime().clone());
            ends.insert(number, shard.close()?);
        }
        // Until here the others were answered: D comes from them.
        company.part();
        groups?;
        ends.retain(|number, _| SHARED.contains(number));
        run.close(&ends, now())?;
        if let Some(memory) = memory {
            // All that they had is durable. One that stays is opened as it is.
            SHARED.into_iter().for_each(|number| drop(memory.remove(&ring(number))));
        }
        Ok(())
    }
}

/// What nobody uses any more, once whoever wakes up just now has seen that.
fn alone<T>(mut shared: Arc<T>, runtime: impl Fn(&T) -> Handle) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(one) => return one,
            Err(used) => shared = used,
        }
        runtime(&shared).block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
}

/// The time in ms since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
