//! [`Scrubs`]: an operator has every node read all its chapters and logs again, and sees what comes of it.
//!
//! Whoever is asked asks the others. Each node reads one shard after the other, at the rate that was told, and goes on whether or not somebody
//! watches; what it finds damaged is healed as ever (`mender.rs`). A scrub has a number, so that only who began it
//! ends it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;

use super::company::Company;
use super::coordinator::Coordinator;
use super::layout::{CONTROL, GROUPS};
use super::operators::{self, Request};
use super::scrubbed::{self, Scrubbed, TEXTS_MAX};
use super::scrubber::{Log, ScrubId, Scrubber};
use super::task::Task;
use super::topics::Topics;
use crate::chapter;
use crate::cluster;
use crate::random;

/// What a node says of the scrubs of its shards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeScrubs {
    /// Which.
    pub node: u64,
    /// Why it says nothing, if it does not.
    pub silent: Option<String>,
    /// Its shards.
    pub shards: Vec<Scrubbed>,
}

/// What was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Begun {
    /// Its number, in hexadecimal digits.
    pub scrub: String,
    /// What each node says. One that is being scrubbed already goes on with that.
    pub nodes: Vec<NodeScrubs>,
}

/// Has nodes scrub. It does not keep shards from being closed.
#[derive(Debug)]
pub(crate) struct Scrubs {
    company: Arc<Company>,
    topics: Weak<Topics>,
    /// Of the shards of topics and groups.
    others: [Arc<Scrubber>; 2],
    _scheduled: [Task; 2],
    /// An operator's scrub, under way or ended. Dropping it stops it.
    running: Mutex<Option<Task>>,
    /// Logs that are read again as another node met damage there, by the numbers of their shards.
    doubted: Mutex<BTreeMap<u32, Task>>,
}

/// That of the control shard.
impl Log for Topics {
    fn seal(&self) -> cluster::Result<()> {
        self.group().seal_log()
    }

    fn check(&self, from: u64) -> cluster::Result<Option<(u64, usize, u64)>> {
        self.group().check_log(from)
    }

    fn segments(&self) -> u64 {
        self.group().log_stats().segments
    }

    fn damaged(&self) -> u64 {
        self.group().healed().1
    }

    fn gone(&self) -> u64 {
        self.group().gone_damaged()
    }
}

impl Scrubs {
    pub(super) fn new(
        company: &Arc<Company>,
        topics: &Arc<Topics>,
        groups: &Arc<Coordinator>,
        every: Option<Duration>,
        clock: fn() -> u64,
    ) -> Arc<Self> {
        let of_topics = Arc::downgrade(topics) as Weak<dyn Log>;
        let of_groups = Arc::downgrade(&groups.group) as Weak<dyn Log>;
        let keeper = Some(Arc::clone(&groups.keeper));
        let others = [(CONTROL, None, of_topics), (GROUPS, keeper, of_groups)];
        let others = others.map(|(number, keeper, log)| {
            Arc::new(Scrubber::new(number, None, keeper, log, every, clock))
        });
        let scheduled =
            [0, 1].map(|at| Task::spawn(groups.group.runtime(), Arc::clone(&others[at]).keep()));
        let (company, topics) = (Arc::clone(company), Arc::downgrade(topics));
        let (running, doubted) = Default::default();
        Arc::new(Self { company, topics, others, _scheduled: scheduled, running, doubted })
    }

    /// Of all shards, in the order in which they are read.
    fn scrubbers(&self, topics: &Topics) -> Vec<Arc<Scrubber>> {
        let of_records = topics.shards().iter().map(|shard| Arc::clone(&shard.scrubber));
        self.others.iter().cloned().chain(of_records).collect()
    }

    /// Another node was given the log of a shard here, and met damage: it is read again, unless that goes on already. What is
    /// found is healed as ever.
    pub(crate) fn doubt_log(&self, number: u32) {
        let Some(topics) = self.topics.upgrade() else { return };
        let mut doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        doubted.retain(|_, task| !task.has_ended());
        let scrubbers = self.scrubbers(&topics);
        let Some(scrubber) = scrubbers.into_iter().find(|scrubber| scrubber.number == number)
        else {
            return;
        };
        doubted.entry(number).or_insert_with(|| {
            tracing::warn!(shard = number, "another node met damage in its log: it is read again");
            Task::spawn(topics.group().runtime(), scrubber.doubt_log())
        });
    }

    /// Has every node that answers read all its chapters and logs, at so many bytes a second each; as fast as it can if none are said.
    pub(crate) async fn begin(&self, rate: Option<NonZeroU64>) -> Begun {
        // 0 would be the schedule's.
        let drawn = u128::from_le_bytes(random::bytes()) >> 64;
        let scrub = u64::try_from(drawn).expect("half of it is left").max(1);
        let nodes = self.ask_all(&Request::Scrub { scrub, rate }).await;
        Begun { scrub: format!("{scrub:016x}"), nodes }
    }

    /// Ends a scrub on every node, if it is this one that is under way there.
    pub(crate) async fn stop(&self, scrub: ScrubId) -> Vec<NodeScrubs> {
        self.ask_all(&Request::StopScrub(scrub)).await
    }

    /// What every node says of its scrubs.
    pub(crate) async fn look(&self) -> Vec<NodeScrubs> {
        self.ask_all(&Request::Scrubs).await
    }

    async fn ask_all(&self, request: &Request) -> Vec<NodeScrubs> {
        let own = self.company.node();
        let asks = self.nodes().into_iter().map(|node| async move {
            let said = match node == own {
                true => self.answer(request),
                false => operators::ask(&self.company, node, request.clone())
                    .await
                    .map_err(|said| said.why),
            };
            let read =
                said.and_then(|bytes| scrubbed::decode(&bytes).map_err(|why| why.to_string()));
            match read {
                Ok(shards) => NodeScrubs { node, silent: None, shards },
                Err(why) => NodeScrubs { node, silent: Some(why), shards: Vec::new() },
            }
        });
        join_all(asks).await
    }

    /// The nodes of the cluster, be they there or not.
    fn nodes(&self) -> BTreeSet<u64> {
        let known = self.topics.upgrade().map(|topics| topics.group().membership().nodes);
        let known = known.into_iter().flat_map(|nodes| nodes.into_keys());
        known.chain(self.company.others()).chain([self.company.node()]).collect()
    }

    /// What another node asks for, or this one.
    pub(super) fn answer(&self, request: &Request) -> Result<Vec<u8>, String> {
        let topics = self.topics.upgrade().ok_or("it is being closed")?;
        match request {
            Request::Scrub { scrub, rate } => self.scrub(&topics, *scrub, *rate),
            Request::StopScrub(scrub) => {
                self.scrubbers(&topics).iter().for_each(|scrubber| scrubber.stop(*scrub));
            }
            Request::Scrubs => {}
            _ => return Err("that is asked elsewhere".to_owned()),
        }
        let said: Vec<_> =
            self.scrubbers(&topics).iter().map(|scrubber| said(&topics, scrubber)).collect();
        Ok(scrubbed::encode(&said))
    }

    /// Begins to read one shard after the other, where that is not being done for an operator.
    fn scrub(&self, topics: &Topics, scrub: ScrubId, rate: Option<NonZeroU64>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // One at a time: its task reads one shard after the other.
        let mut expecting = self.scrubbers(topics);
        if expecting.iter().any(|scrubber| scrubber.is_an_operators()) {
            return;
        }
        expecting.retain(|scrubber| scrubber.expect(scrub));
        tracing::info!(scrub = format!("{scrub:016x}"), ?rate, "an operator has all scrubbed");
        *running = Some(Task::spawn(topics.group().runtime(), async move {
            for scrubber in expecting {
                scrubber.scrub(scrub, rate).await;
            }
        }));
    }
}

/// What is to be said of a shard.
fn said(topics: &Topics, scrubber: &Scrubber) -> Scrubbed {
    let (pass, last, shard) = (scrubber.pass(), scrubber.last(), scrubber.number);
    let chapters = scrubber.chapters.as_ref();
    let wounds = chapters.map_or_else(Vec::new, |(shelf, _)| shelf.wounds());
    let why_not = |opening| chapters.and_then(|(_, mender)| mender.why_not(opening));
    let whys: Vec<_> = wounds.iter().map(|(opening, _)| why_not(*opening)).collect();
    let untried = whys.iter().filter(|why| why.is_none()).count();
    let catalog = topics.catalog();
    let told = wounds.iter().zip(&whys).take(TEXTS_MAX).map(|((opening, wound), why)| {
        let (id, number) = (opening.partition.topic, opening.partition.number);
        let topic = catalog.topics().find(|(known, _)| *known == id);
        let topic = topic.map_or("that is deleted", |(_, topic)| &*topic.name);
        let (file, what) = match wound {
            chapter::Error::Run { file, from, last, .. } => {
                (&**file, format!("offsets {from} to {last}"))
            }
            chapter::Error::File { file, why } => (&**file, why.to_string()),
            other => ("", other.to_string()),
        };
        let why = why.as_deref().unwrap_or("nobody was asked yet");
        format!("topic {topic}, partition {number}, {what} (chapters-{shard}/{file}): {why}")
    });
    let of_log = scrubber.damaged_of_log();
    let said_of_log = (of_log > 0).then(|| {
        let are = if of_log == 1 { "place in" } else { "places in" };
        format!("{of_log} {are} its log (shard-{shard}), not healed yet: what it logs says why")
    });
    let heads_left = pass.heads_left.min(pass.heads);
    let said_of_heads = (heads_left > 0)
        .then(|| format!("{heads_left} of its snapshot and its manifest: not written anew yet"));
    Scrubbed {
        shard,
        phase: pass.phase,
        scrub: pass.scrub,
        begun_ms: pass.begun_ms,
        ended_ms: pass.ended_ms,
        due_bytes: pass.due_bytes,
        read_bytes: pass.read_bytes,
        damaged: pass.damaged + pass.log_damaged + pass.heads,
        healed: match pass.begun_ms {
            0 => 0,
            _ => {
                let healed = chapters.map_or(0, |(_, mender)| mender.healed());
                let runs = healed.saturating_sub(pass.healed_before);
                let heads = pass.heads - heads_left;
                let gone = scrubber.gone_of_log().saturating_sub(pass.gone_before);
                runs + pass.log_damaged.saturating_sub(of_log + gone) + heads
            }
        },
        left: wounds.len() as u64 + of_log + heads_left,
        // The log's are tried over and over.
        untried: untried as u64 + of_log,
        whole_ms: last.map_or(0, |last| last.ended_ms),
        whole_bytes: last.map_or(0, |last| last.bytes),
        wounds: told.chain(said_of_log).chain(said_of_heads).collect(),
        unread: pass.unread,
    }
}
