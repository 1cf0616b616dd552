//! [`Core`]: the engine, on a thread and a runtime of its own. A write is several hand-overs
//! between its tasks; on one thread they cost no wake-up, and no other group's work stands between
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use openraft::{AsyncRuntime, BasicNode, Config, Raft, RaftMetrics, RaftState};
use rand_core::Rng;
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::abdication;
use super::apply::Apply;
use super::behind::Behind;
use super::campaign::wait_to_campaign;
use super::durability::{self, Durability};
use super::error::{Error, Result};
use super::gone::Gone;
use super::heal::{Healing, heal};
use super::heard::Heard;
use super::log_store::LogStore;
use super::network::Network;
use super::patience::patient;
use super::reentry::re_enter;
use super::runtime::Runtime;
use super::standing::Standing;
use super::state::{Engine, State, tell_gone};
use super::storage::Storage;
use super::types::Types;

/// How seldom the steps of a log without threads are taken.
const DRIVEN_EVERY_MS: u64 = 8;
/// Once in so many times they are taken more seldom, as with a disk that is slow now and then.
const SLOW_ONE_IN: u64 = 50;
const SLOW_MS: u64 = 200;

/// A running engine. Dropping it stops the engine, and waits for its thread; not on a runtime: that may be
/// the thread's own, which waits for all that runs on it.
#[derive(Debug)]
pub(crate) struct Core {
    /// The engine ends when it is dropped.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    runtime: runtime::Handle,
    /// What runs beside the engine on a runtime that is not its own.
    beside: Vec<AbortHandle>,
}

/// Terms come one behind the other where nobody leads yet.
const TERMS_KEPT_AFTER: Duration = Duration::from_secs(1);
/// Where the disk did not take them.
const TERMS_KEPT_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What an engine begins with.
pub(crate) struct Setting<S> {
    pub(crate) settings: Config,
    pub(crate) number: u32,
    pub(crate) node: u64,
    pub(crate) storage: Arc<Storage>,
    pub(crate) state: State<S>,
    pub(crate) network: Network,
    pub(crate) founds: bool,
    pub(crate) standing: Arc<Standing>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) gone: Arc<Gone>,
    pub(crate) behind: Arc<Behind>,
    pub(crate) heard: Arc<Heard>,
}

impl Core {
    /// Starts the engine of a node on what it has stored, on a thread of its own. A sole voter asks for its
    /// own vote at once: there is no one to wait for.
    pub(crate) fn start<S: Apply>(setting: Setting<S>) -> Result<(Self, Engine<S>)> {
        let (ready, started) = mpsc::channel();
        let (running, closed) = oneshot::channel();
        let run = move || run(setting, &ready, closed);
        let thread = thread::Builder::new()
            .name("plimsoll-raft".to_owned())
            .spawn(run)
            .map_err(|error| Error::Thread(Arc::new(error)))?;
        let ended = || Error::Stopped { why: "it ended before it began".to_owned() };
        let begun = started.recv().unwrap_or_else(|_| Err(ended()));
        let (runtime, engine) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                // A panic there was printed there.
                drop(thread.join());
                return Err(error);
            }
        };
        let beside = Vec::new();
        Ok((Self { running: Some(running), thread: Some(thread), runtime, beside }, engine))
    }

    /// Starts it on the runtime that this is called on.
    pub(crate) async fn start_here<S: Apply>(setting: Setting<S>) -> Result<(Self, Engine<S>)> {
        let (engine, beside) = begin(setting).await?;
        let runtime = runtime::Handle::current();
        Ok((Self { running: None, thread: None, runtime, beside }, engine))
    }

    /// Stops the engine, and waits until all of its tasks have ended. Must not be called on its runtime.
    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            drop(thread.join());
        }
    }

    /// Where the engine runs. What else runs there ends with it.
    pub(crate) fn runtime(&self) -> &runtime::Handle {
        &self.runtime
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        drop(self.running.take());
        self.beside.iter().for_each(AbortHandle::abort);
        if runtime::Handle::try_current().is_err() {
            self.end();
        }
    }
}

/// The thread of an engine: until the group is closed or dropped.
fn run<S: Apply>(
    setting: Setting<S>,
    ready: &mpsc::Sender<Result<(runtime::Handle, Engine<S>)>>,
    closed: oneshot::Receiver<()>,
) {
    // Who started it waits for the word.
    let tell = |begun| drop(ready.send(begun));
    let mut builder = runtime::Builder::new_current_thread();
    // Threads of its own read what is settled, and write chapters: who produces goes first.
    builder.enable_all().on_thread_start(plimsoll_sync::step_back);
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return tell(Err(Error::Thread(Arc::new(error)))),
    };
    let storage = Arc::clone(&setting.storage);
    runtime.block_on(async {
        match patient(|| storage.lacks_room(), begin(setting)).await {
            Ok((engine, _)) => {
                tell(Ok((runtime::Handle::current(), engine.clone())));
                drop(closed.await);
                // What waits for another replica is given up.
                storage.wounds.end();
                // What waits for room on a disk that has none is given up.
                let ended = async { engine.shutdown().await.map_err(drop) };
                patient(|| storage.lacks_room().map(drop), ended).await.ok();
            }
            Err(error) => tell(Err(error)),
        }
    });
    // The end of the runtime ends every task of the engine, and with them their hold on the
    // storage.
}

async fn begin<S: Apply>(setting: Setting<S>) -> Result<(Engine<S>, Vec<AbortHandle>)> {
    let Setting { settings, number, node, storage, state, network, founds, .. } = setting;
    let (standing, durability) = (setting.standing, setting.durability);
    let (gone, behind, heard) = (setting.gone, setting.behind, setting.heard);
    let stopped = |why: &dyn std::fmt::Display| Error::Stopped { why: why.to_string() };
    let mut beside = Vec::new();
    if storage.is_inline {
        beside.push(tokio::spawn(drive(Arc::downgrade(&storage))).abort_handle());
    }
    let settings = Arc::new(settings.validate().expect("they are tested"));
    let store = LogStore::new(Arc::clone(&storage));
    let engine = Raft::new(node, settings, network.clone(), store, state).await;
    let engine = engine.map_err(|e| stopped(&e))?;
    let is_new = !engine.is_initialized().await.map_err(|e| stopped(&e))?;
    if is_new && founds {
        let alone = BTreeMap::from([(node, BasicNode::new(""))]);
        engine.initialize(alone).await.map_err(|e| stopped(&e))?;
    }
    let voters = |state: &RaftState<Types>| {
        state.membership_state.effective().voter_ids().collect::<Vec<_>>()
    };
    let voters = engine.with_raft_state(voters).await.map_err(|e| stopped(&e))?;
    if voters.is_empty() && founds {
        return Err(Error::MembersLost);
    }
    // Whoever opens a group asks at once who votes.
    let mut told = engine.metrics();
    let is_told = |told: &RaftMetrics<Types>| {
        told.membership_config.membership().voter_ids().next().is_some()
    };
    while !voters.is_empty() && !is_told(&told.borrow_and_update()) {
        told.changed().await.map_err(|e| stopped(&e))?;
    }
    {
        // Before it acknowledges anything.
        let now = told.borrow_and_update();
        let members = now.membership_config.membership();
        storage.onlookers.see(members.get_joint_config(), members.nodes().count());
        storage.disk.is_shared(members.voter_ids().any(|voter| voter != node));
    }
    let disk = Arc::clone(&storage.disk);
    let watching = abdication::watch(node, engine.clone(), disk, network.clone(), heard);
    beside.push(tokio::spawn(watching).abort_handle());
    let is_alone = voters == [node];
    if is_alone {
        standing.is_clean_from_here();
    }
    let healing = Healing {
        shard: number,
        node,
        engine: engine.clone(),
        storage: Arc::downgrade(&storage),
        network: network.clone(),
        standing: Arc::clone(&standing),
        gone: Arc::clone(&gone),
        behind,
    };
    beside.push(tokio::spawn(heal(healing)).abort_handle());
    beside.push(tokio::spawn(tell_gone(engine.clone(), gone)).abort_handle());
    beside.push(
        tokio::spawn(keep_terms(Arc::downgrade(&storage), storage.terms.changed())).abort_handle(),
    );
    if standing.is_dirty() {
        let (engine, storage) = (engine.clone(), Arc::downgrade(&storage));
        let entering = re_enter(node, engine, storage, network.clone(), standing);
        beside.push(tokio::spawn(entering).abort_handle());
    } else if !is_alone && !standing.may_lead(storage.tail().last()) {
        let waiting = wait_to_campaign(engine.clone(), Arc::downgrade(&storage), standing);
        beside.push(tokio::spawn(waiting).abort_handle());
    } else {
        // The membership that it campaigns under is durable. Who has lost some of its log campaigns once that is healed.
        engine.runtime_config().elect(storage.is_whole());
    }
    let finding =
        durability::find(node, engine.clone(), Arc::downgrade(&storage), network, durability);
    beside.push(tokio::spawn(finding).abort_handle());
    if is_alone {
        engine.trigger().elect(true).await.map_err(|e| stopped(&e))?;
    }
    Ok((engine, beside))
}

/// Keeps in which terms the log's entries are, a while after each change: no vote waits for that disk then.
async fn keep_terms(storage: Weak<Storage>, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        tokio::time::sleep(TERMS_KEPT_AFTER).await;
        let Some(now) = storage.upgrade() else { return };
        let is_kept = match now.is_inline {
            true => now.keep_terms(),
            false => match tokio::task::spawn_blocking(move || now.keep_terms()).await {
                Ok(is_kept) => is_kept,
                Err(_ended) => return,
            },
        };
        if !is_kept {
            // There may be room then.
            changed.notify_one();
            tokio::time::sleep(TERMS_KEPT_AGAIN_AFTER).await;
        }
    }
}

/// Takes the steps of a log that has no threads.
async fn drive(storage: Weak<Storage>) {
    while let Some(storage) = storage.upgrade() {
        // A log that has stopped says so to whoever waits for it.
        while storage.log.drive().unwrap_or(false) {}
        drop(storage);
        let mut drawn = Runtime::thread_rng();
        let most =
            if drawn.next_u64().is_multiple_of(SLOW_ONE_IN) { SLOW_MS } else { DRIVEN_EVERY_MS };
        tokio::time::sleep(Duration::from_millis(1 + drawn.next_u64() % most)).await;
    }
}
