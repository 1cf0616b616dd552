//! [`Peers`]: asks nodes, and serves them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::counters::{Counters, Tally, add};
use super::error::Error;
use super::options::Options;
use super::session::Answer;
use super::shared::{Handler, Shared};
use super::{Peer, Priority, dial, listen};

/// A node that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// Who.
    pub peer: Peer,
    /// What it told of itself.
    pub hello: Bytes,
    /// When bytes of it came last.
    pub heard: Instant,
    /// Which connections there are.
    pub priorities: Vec<Priority>,
}

/// The other nodes of a cluster. Connections are made and served until it is closed or dropped.
pub struct Peers {
    shared: Arc<Shared>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    listening: Option<JoinHandle<()>>,
    dialling: BTreeMap<u64, Vec<JoinHandle<()>>>,
}

impl Peers {
    /// Serves nodes that connect to `listener`, with tasks of this runtime. Nobody is known yet: whoever
    /// connects is refused, and comes again, until [`Self::set_addresses`].
    ///
    /// # Errors
    /// The listener cannot be used, or options that cannot be (`InvalidInput`).
    pub fn start(
        listener: std::net::TcpListener,
        options: Options,
        handler: Arc<dyn Handler>,
        runtime: &Handle,
    ) -> io::Result<Self> {
        if let Some(problem) = options.problem() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        listener.set_nonblocking(true)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let shared = Arc::new(Shared {
            options,
            handler,
            tally: Tally::default(),
            roster: Mutex::default(),
            handling: Mutex::default(),
            runtime: runtime.clone(),
            is_outdated: AtomicBool::new(false),
        });
        let listening = Some(runtime.spawn(listen::listen(Arc::clone(&shared), listener)));
        let tasks = Mutex::new(Tasks { listening, ..Tasks::default() });
        Ok(Self { shared, tasks })
    }

    /// Where nodes are, as `host:port`; our own is passed over. It replaces what was known: connections to
    /// nodes that are not in it, or have moved, end, and what was asked over them fails.
    pub fn set_addresses(&self, mut addresses: BTreeMap<u64, String>) {
        let us = self.shared.options.node;
        addresses.remove(&us);
        let mut tasks = self.tasks();
        let moved = self.shared.lock().set_addresses(addresses);
        for node in moved.left {
            tasks.dialling.remove(&node).into_iter().flatten().for_each(|task| task.abort());
        }
        for (node, address) in moved.came.into_iter().filter(|(node, _)| us < *node) {
            let keep = |priority| {
                let shared = Arc::clone(&self.shared);
                self.shared.runtime.spawn(dial::keep(shared, node, address.clone(), priority))
            };
            tasks.dialling.insert(node, Priority::ALL.map(keep).into());
        }
        drop(tasks);
        drop(moved.remains);
    }

    /// Whether another node has refused this one, as it has seen a later incarnation of it: this one has forgotten that.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.shared.is_outdated.load(Ordering::Relaxed)
    }

    /// Asks a node. The request waits to be sent behind those before it once this returns, also if the future
    /// is not polled; its pieces are sent by reference. A future that is dropped waits for no answer, but the
    /// request may be sent all the same. There is no timeout but that of the connection.
    ///
    /// # Errors
    /// The future's. [`Error::Unreachable`], [`Error::Busy`], [`Error::TooLarge`]: nothing was sent.
    /// [`Error::Gone`]: it may have arrived. [`Error::Refused`]: the node says so. It is never sent twice.
    pub fn ask(
        &self,
        to: u64,
        priority: Priority,
        shard: u32,
        request: Vec<Bytes>,
    ) -> impl Future<Output = Result<Answer, Error>> + Send + use<> {
        let session = self.shared.lock().session(to, priority).cloned();
        let asked = session.ok_or(Error::Unreachable { node: to });
        let asked = asked.and_then(|session| session.ask(shard, request));
        if matches!(asked, Err(Error::Busy { .. })) {
            add(&self.shared.tally.busy, 1);
        }
        async move { asked?.answer().await }
    }

    /// Who is connected now.
    #[must_use]
    pub fn connected(&self) -> Vec<Connected> {
        let mut all: Vec<Connected> = Vec::new();
        for session in self.shared.lock().sessions() {
            let (peer, heard, priority) = (session.peer, session.heard(), session.priority);
            match all.last_mut().filter(|last| last.peer == peer) {
                Some(last) => {
                    last.heard = last.heard.max(heard);
                    last.priorities.push(priority);
                }
                None => all.push(Connected {
                    peer,
                    hello: session.hello.clone(),
                    heard,
                    priorities: vec![priority],
                }),
            }
        }
        all
    }

    /// What was counted since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.tally.read()
    }

    /// Ends all connections, and gives the address back. Requests that are being handled are let go of where
    /// they wait. Nothing of it runs on return.
    pub async fn close(self) {
        let mut ended = self.abort();
        for task in ended.drain(..) {
            // It was aborted, or has panicked, which was told where it did.
            task.await.ok();
        }
        let mut handling = std::mem::take(&mut *self.shared.handling());
        handling.shutdown().await;
    }

    /// Has all tasks end soon.
    fn abort(&self) -> Vec<JoinHandle<()>> {
        let Tasks { listening, dialling } = std::mem::take(&mut *self.tasks());
        let tasks: Vec<_> = listening.into_iter().chain(dialling.into_values().flatten()).collect();
        for task in &tasks {
            task.abort();
        }
        let remains = self.shared.lock().end();
        drop(remains);
        self.shared.handling().abort_all();
        tasks
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        drop(self.abort());
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.shared.options.us();
        f.debug_struct("Peers").field("us", &us).field("connected", &self.connected()).finish()
    }
}
