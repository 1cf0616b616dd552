//! [`Seeding`]: looks what a node lacks, and has it fetched, from whoever has it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::DOOR;
use super::fetch::fetch;
use super::lender::Lender;
use super::message::{Answer, Request};
use super::remote::{Ask, Pending, Remote};
use crate::backup::{Error, Progress, looks_damaged};
use crate::broker::{Node, sentence};
use crate::cluster::Lack;

/// How often it is looked what the node lacks.
const LOOK: Duration = Duration::from_millis(250);
/// How long it rests where nobody could give it, at first; then twice as long, up to the second.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is said how far it is.
const SAY: Duration = Duration::from_secs(5);

/// What fetches what a node lacks, while that goes on, and gives others what they lack.
#[derive(Debug)]
pub struct Seeding {
    task: JoinHandle<()>,
    ends: Arc<AtomicBool>,
    ready: watch::Receiver<bool>,
    runtime: Handle,
}

impl Seeding {
    /// Begins. It uses the node until it is [ended](Self::end).
    #[must_use]
    pub fn begin(node: &Arc<Node>) -> Self {
        let (dir, scrubs) = (Arc::clone(node.root()), Arc::downgrade(&node.scrubs));
        node.open_door(DOOR, Arc::new(Lender { dir, scrubs }));
        let (runtime, ends) = (node.runtime().clone(), Arc::<AtomicBool>::default());
        let (tells, ready) = watch::channel(false);
        let task = runtime.spawn(seed(Arc::clone(node), Arc::clone(&ends), tells));
        Self { task, ends, ready, runtime }
    }

    /// Done once something is there that the node lacked, or it was decided that a shard goes on after a loss, or who votes in one was
    /// healed: it is to be closed, and opened again, which puts that in place. Or once the node is [lost](Node::lost).
    pub fn until_ready(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ready = self.ready.clone();
        async move {
            if ready.wait_for(|is_ready| *is_ready).await.is_err() {
                // It has ended, and nothing is there.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Ends it; the node is not used on return. Whether something is there. Not to be called on a runtime.
    #[must_use]
    pub fn end(self) -> bool {
        self.ends.store(true, Ordering::Relaxed);
        // A panic there was printed there.
        drop(self.runtime.block_on(self.task));
        *self.ready.borrow()
    }
}

/// A node that is asked.
#[derive(Debug)]
struct Giver {
    node: Arc<Node>,
    from: u64,
    ends: Arc<AtomicBool>,
}

impl Ask for Giver {
    fn ask(&self, request: &Request) -> Pending {
        let (ends, runtime) = (Arc::clone(&self.ends), self.node.runtime().clone());
        if ends.load(Ordering::Relaxed) {
            return Box::new(|| Err(io::ErrorKind::Interrupted.into()));
        }
        let asked = self.node.ask(self.from, DOOR, request.encode());
        let asked = runtime.spawn(async { timeout(PATIENCE, asked).await });
        Box::new(move || {
            let answered = runtime.block_on(asked).map_err(io::Error::other)?;
            let answer = answered.map_err(io::Error::other)?.map_err(io::Error::other)?;
            Answer::decode(&answer).map_err(io::Error::other)
        })
    }
}

async fn seed(node: Arc<Node>, ends: Arc<AtomicBool>, ready: watch::Sender<bool>) {
    let mut given = BTreeSet::new();
    // When what nobody could give is asked for again, and how long after that.
    let mut rests = BTreeMap::<u32, (Instant, Duration)>::new();
    while !ends.load(Ordering::Relaxed) {
        sleep(LOOK).await;
        if node.lost().is_some() || node.must_open_again() {
            let of = Arc::clone(&node);
            spawn_blocking(move || of.keep_refusal()).await.ok();
            ready.send_replace(true);
            return;
        }
        let lacks = node.lacks();
        let again = |of: &u32| rests.get(of).map(|(at, _)| *at);
        let is_due = |of: &u32| again(of).is_none_or(|at| Instant::now() >= at);
        let left = lacks.iter().filter(|(of, _)| !given.contains(of) && is_due(of));
        // Who waits for longest goes first, and before that who was not asked for.
        let Some((number, lack)) = left.min_by_key(|(of, _)| again(of)) else {
            // What is there is put in place, though others may wait for who can give them.
            if !given.is_empty() {
                ready.send_replace(true);
                return;
            }
            continue;
        };
        if node.others().is_empty() {
            continue;
        }
        if give(&node, *number, *lack, &ends).await {
            given.insert(*number);
            continue;
        }
        let rest = rests.get(number).map_or(REST.0, |(_, rest)| REST.1.min(2 * *rest));
        rests.insert(*number, (Instant::now() + rest, rest));
    }
}

/// Asks its leader for a shard, then the others. Whether it is there.
async fn give(node: &Arc<Node>, number: u32, lack: Lack, ends: &Arc<AtomicBool>) -> bool {
    let mut others = node.others();
    others.sort_by_key(|other| *other != lack.leader);
    let mut why = "no other node is connected".to_owned();
    for from in others {
        if node.needed(number).is_none() {
            why = sentence(&Error::NotNow);
            break;
        }
        let giver = Giver { node: Arc::clone(node), from, ends: Arc::clone(ends) };
        node.say_seeding(number, format!("being seeded by node {from}"));
        tracing::info!(
            shard = number,
            from,
            "it lacks what is not to be had by entry: it is seeded"
        );
        match spawn_blocking(move || from_one(giver, number)).await {
            Ok(Ok(())) => {
                node.say_seeding(number, "given, and to be put in place".to_owned());
                return true;
            }
            Ok(Err(_)) if ends.load(Ordering::Relaxed) || node.lost().is_some() => return false,
            Ok(Err(Error::Stopped)) => {
                why = "the disk has no room for what it lacks beside what it has".to_owned();
            }
            Ok(Err(error)) => {
                if looks_damaged(&error) {
                    // It may not know. What it finds it heals, and then it gives all of it.
                    let doubt = Request::Doubt { shard: number }.encode();
                    timeout(PATIENCE, node.ask(from, DOOR, doubt)).await.ok();
                }
                why = format!("node {from}: {}", sentence(&error));
            }
            Err(_panicked) => return false,
        }
        tracing::warn!(shard = number, %why, "it could not be given");
    }
    node.say_seeding(number, format!("waits for a seed: {why}"));
    false
}

fn from_one(giver: Giver, number: u32) -> Result<(), Error> {
    let (node, from, ends) = (Arc::clone(&giver.node), giver.from, Arc::clone(&giver.ends));
    let remote: Arc<dyn plimsoll_sync::Dir> = Arc::new(Remote::of(Arc::new(giver)));
    let (mut lacking, mut copied, mut log, mut said) = (0, 0, 0, Instant::now());
    let mut tell = |progress| {
        match progress {
            Progress::Lacking(bytes) => lacking = copied + bytes,
            Progress::Runs(bytes) => copied += bytes,
            Progress::Log(bytes) => log += bytes,
        }
        if said.elapsed() >= SAY {
            said = Instant::now();
            let far = format!("{copied} of {lacking} bytes of chapters, {log} of the log");
            tracing::info!(shard = number, from, %far, "it is being seeded");
            node.say_seeding(number, format!("being seeded by node {from}: {far}"));
        }
        !ends.load(Ordering::Relaxed) && !node.is_short_of_room() && node.lost().is_none()
    };
    fetch(&remote, node.root(), number, &|| node.needed(number), &mut tell)
}
