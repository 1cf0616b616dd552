//! [`Core`]: the engine, on a thread and a runtime of its own. A write is several hand-overs
//! between its tasks; on one thread they cost no wake-up, and no other group's work stands between
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use openraft::{BasicNode, Raft, RaftState};
use tokio::runtime;
use tokio::sync::oneshot;

use super::apply::Apply;
use super::error::{Error, Result};
use super::log_store::LogStore;
use super::network::Nobody;
use super::patience::patient;
use super::settings::settings;
use super::state::State;
use super::storage::Storage;
use super::types::Types;

pub(crate) type Engine<S> = Raft<Types, State<S>>;

/// A running engine. Dropping it stops the engine, and waits for its thread; not on a runtime: that may be
/// the thread's own, which waits for all that runs on it.
#[derive(Debug)]
pub(crate) struct Core {
    /// The engine ends when it is dropped.
    running: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    runtime: runtime::Handle,
}

impl Core {
    /// Starts the engine of a node on what it has stored. An empty log becomes a cluster of one,
    /// and a sole voter asks for its own vote at once: there is no one to wait for.
    pub(crate) fn start<S: Apply>(
        node: u64,
        storage: Arc<Storage>,
        state: State<S>,
    ) -> Result<(Self, Engine<S>)> {
        let (ready, started) = mpsc::channel();
        let (running, closed) = oneshot::channel();
        let run = move || run(node, &storage, state, &ready, closed);
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
        Ok((Self { running: Some(running), thread: Some(thread), runtime }, engine))
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
        if runtime::Handle::try_current().is_err() {
            self.end();
        }
    }
}

/// The thread of an engine: until the group is closed or dropped.
fn run<S: Apply>(
    node: u64,
    storage: &Arc<Storage>,
    state: State<S>,
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
    runtime.block_on(async {
        let begun = begin(node, Arc::clone(storage), state);
        match patient(|| storage.lacks_room(), begun).await {
            Ok(engine) => {
                tell(Ok((runtime::Handle::current(), engine.clone())));
                drop(closed.await);
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

async fn begin<S: Apply>(node: u64, storage: Arc<Storage>, state: State<S>) -> Result<Engine<S>> {
    let stopped = |why: &dyn std::fmt::Display| Error::Stopped { why: why.to_string() };
    let settings = Arc::new(settings().validate().expect("they are tested"));
    let store = LogStore::new(storage);
    let engine = Raft::new(node, settings, Nobody, store, state).await.map_err(|e| stopped(&e))?;
    if !engine.is_initialized().await.map_err(|e| stopped(&e))? {
        let alone = BTreeMap::from([(node, BasicNode::new(""))]);
        engine.initialize(alone).await.map_err(|e| stopped(&e))?;
    }
    let voters = |state: &RaftState<Types>| {
        state.membership_state.effective().voter_ids().collect::<Vec<_>>()
    };
    let voters = engine.with_raft_state(voters).await.map_err(|e| stopped(&e))?;
    if voters.is_empty() {
        return Err(Error::MembersLost);
    }
    // The membership that it campaigns under is durable.
    engine.runtime_config().elect(true);
    if voters == [node] {
        engine.trigger().elect(true).await.map_err(|e| stopped(&e))?;
    }
    Ok(engine)
}
