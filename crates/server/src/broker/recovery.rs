//! [`Recovery`]: a shard goes on though a majority may have forgotten what it acknowledged: by an operator's decision, or by the
//! policy that was declared before.
//!
//! Whoever is asked calls the roll, shows what each node says, and does nothing until it is told the digest of that. Then it has
//! every node that answers, and whose row is the same still, write down what was decided; each of these is closed in order
//! and opened again, in a newer generation of the group and not in doubt. The others hear of that generation when they meet it, ask
//! what was decided, and are opened again too; what they may have forgotten they get back as ever.
//!
//! Safe whoever does it, and how often: with the doubt lifted the group is one whose log is what its disks have, and of these
//! a majority has all up to D (docs/replication.md).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::company::Company;
use super::coordinator::Coordinator;
use super::decided::{Decided, RECORDS};
use super::known;
use super::layout::{CONTROL, DURABLE, GROUPS, SHARED};
use super::operators::{self, Request};
use super::options::OnMajorityDirty;
use super::roll::{Condition, Roll, Row};
use super::topics::Topics;
use crate::cluster::{Newer, Outline};

/// How often it is looked who leads.
const LOOK: Duration = Duration::from_secs(1);
/// For how long a shard must have been the same before what was declared is done.
const CALM: Duration = Duration::from_secs(10);

/// Why a shard does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRecovered {
    /// There is nothing of it that could be lost so, or it is not there.
    #[error("shard {0} is none of records: what it acknowledges is durable before")]
    NoShard(u32),
    /// It needs no decision.
    #[error("shard {shard} is not fenced: {why}")]
    NotFenced {
        /// Which.
        shard: u32,
        /// What it is instead.
        why: &'static str,
    },
    /// What was shown is not what is there now.
    #[error(
        "what `plimsoll cluster status` shows of shard {shard} has another digest now, {now}: look again, and \
         decide on that"
    )]
    Changed {
        /// Which.
        shard: u32,
        /// The digest of what is there now.
        now: String,
    },
    /// Too few of them do it.
    #[error(
        "of {of} voters of shard {shard} only {taken:?} do it: {why}; look again, and decide anew"
    )]
    TooFew {
        /// Which.
        shard: u32,
        /// How many vote.
        of: usize,
        /// Who does it.
        taken: Vec<u64>,
        /// Why the others do not.
        why: String,
    },
}

/// What was decided.
#[derive(Debug, Clone, Serialize)]
pub struct GoesOn {
    /// Which shard.
    pub shard: u32,
    /// The generation that it goes on in.
    pub generation: u64,
    /// The nodes that do.
    pub nodes: Vec<u64>,
    /// Entries up to this log index are all there.
    pub guaranteed: u64,
    /// Whether it was only said, and not done.
    pub is_rehearsal: bool,
}

/// Who this node is, in this run of it.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) incarnation: u64,
    pub(super) verdict: String,
    pub(super) policy: OnMajorityDirty,
    pub(super) clock: fn() -> u64,
}

/// Calls the roll, and has shards go on. It does not keep them from being closed.
#[derive(Debug)]
pub(crate) struct Recovery {
    company: Arc<Company>,
    topics: Weak<Topics>,
    groups: Weak<Coordinator>,
    root: Arc<dyn plimsoll_sync::Dir>,
    own: Own,
    /// Shards of which nobody leads, and what the roll said of them.
    fenced: Mutex<BTreeMap<u32, String>>,
    /// Something was decided: the node is to be closed, and opened again.
    reopens: watch::Sender<bool>,
}

impl Recovery {
    pub(super) fn new(
        company: &Arc<Company>,
        topics: &Arc<Topics>,
        groups: &Arc<Coordinator>,
        root: &Arc<dyn plimsoll_sync::Dir>,
        own: Own,
    ) -> Arc<Self> {
        Arc::new(Self {
            company: Arc::clone(company),
            topics: Arc::downgrade(topics),
            groups: Arc::downgrade(groups),
            root: Arc::clone(root),
            own,
            fenced: Mutex::default(),
            reopens: watch::Sender::new(false),
        })
    }

    /// Whether the node is to be closed, and opened again.
    pub(crate) fn reopens(&self) -> bool {
        *self.reopens.borrow()
    }

    /// Why nobody leads a shard, if that is known to be so because too many may have forgotten.
    pub(super) fn fenced(&self, shard: u32) -> Option<String> {
        self.fenced.lock().unwrap_or_else(PoisonError::into_inner).get(&shard).cloned()
    }

    /// What every node that answers says of every shard.
    pub(crate) async fn call(&self) -> Vec<Roll> {
        let mut rows = self.rows();
        let asks = self.company.others().into_iter().map(|node| async move {
            (node, operators::ask(&self.company, node, Request::Roll).await)
        });
        for (node, answer) in join_all(asks).await {
            let read = answer
                .map_err(|why| why.to_string())
                .and_then(|bytes| operators::rows_in(&bytes).map_err(|why| why.to_string()));
            match read {
                // Nobody speaks for another.
                Ok(read) => rows.extend(read.into_iter().filter(|row| row.node == node)),
                Err(why) => tracing::warn!(node, %why, "it says nothing of its shards"),
            }
        }
        [CONTROL, GROUPS, SHARED, DURABLE]
            .map(|shard| Roll::of(shard, rows.iter().filter(|row| row.shard == shard).cloned()))
            .into()
    }

    /// What this node says of its shards.
    fn rows(&self) -> Vec<Row> {
        let (Some(topics), Some(groups)) = (self.topics.upgrade(), self.groups.upgrade()) else {
            return Vec::new();
        };
        let mut outlines =
            vec![(CONTROL, topics.group().outline()), (GROUPS, groups.group.outline())];
        outlines.extend(topics.shards().iter().map(|shard| (shard.number, shard.group.outline())));
        let row = |(shard, outline): (u32, Outline)| {
            let whose = (shard, self.company.node(), self.own.incarnation);
            // What is not known any more is nothing that anybody has to know.
            let then = known::read(&*self.root, shard).unwrap_or_default();
            Row::of(whose, plimsoll_sync::boot_id(), outline, then, &self.own.verdict)
        };
        outlines.into_iter().map(row).collect()
    }

    /// Has a shard go on with what the disks have of it. `digest` is of what whoever decides was shown; a rehearsal says what
    /// would be done.
    pub(crate) async fn recover(
        &self,
        shard: u32,
        digest: &str,
        is_rehearsal: bool,
    ) -> Result<GoesOn, NotRecovered> {
        self.decide(shard, digest, is_rehearsal, false).await
    }

    async fn decide(
        &self,
        shard: u32,
        digest: &str,
        is_rehearsal: bool,
        is_declared: bool,
    ) -> Result<GoesOn, NotRecovered> {
        if !RECORDS.contains(&shard) {
            return Err(NotRecovered::NoShard(shard));
        }
        let roll = self.call().await.into_iter().find(|roll| roll.shard == shard);
        let roll = roll.ok_or(NotRecovered::NoShard(shard))?;
        let why = match roll.condition {
            Condition::Fenced => None,
            Condition::Led => Some("it is led"),
            Condition::Electing => Some("those that forgot nothing are a majority, and elect one"),
            Condition::Unreached => Some("fewer than a majority of its voters answer"),
        };
        if let Some(why) = why {
            return Err(NotRecovered::NotFenced { shard, why });
        }
        if roll.digest != digest {
            return Err(NotRecovered::Changed { shard, now: roll.digest });
        }
        let decided = Decided {
            number: shard,
            generation: roll.generation + 1,
            digest: u128::from_str_radix(&roll.digest, 16).unwrap_or(0),
            guaranteed: roll.guaranteed,
            at_ms: (self.own.clock)(),
            lifts: true,
        };
        let here = roll.here();
        let goes_on = |nodes| GoesOn {
            shard,
            generation: decided.generation,
            nodes,
            guaranteed: decided.guaranteed,
            is_rehearsal,
        };
        if is_rehearsal {
            return Ok(goes_on(here));
        }
        // This node last: once it has done so it does nothing else.
        let own = self.company.node();
        let others: Vec<&Row> =
            roll.rows.iter().filter(|row| here.contains(&row.node) && row.node != own).collect();
        let asks = others.iter().map(|row| async {
            let request = Request::Recover { decided, row: Box::new((*row).clone()), is_declared };
            (row.node, operators::ask(&self.company, row.node, request).await)
        });
        let (mut taken, mut whys) = (Vec::new(), Vec::new());
        for (node, done) in join_all(asks).await {
            match done {
                Ok(_) => taken.push(node),
                Err(why) => whys.push(why.to_string()),
            }
        }
        let own_row = roll.rows.iter().find(|row| row.node == own && here.contains(&own));
        if let Some(row) = own_row
            && taken.len() + 1 > roll.voters.len() / 2
        {
            match self.take(decided, row, is_declared).await {
                Ok(()) => taken.push(own),
                Err(why) => whys.push(format!("node {own}: {why}")),
            }
        }
        taken.sort_unstable();
        if taken.len() <= roll.voters.len() / 2 {
            let (of, why) = (roll.voters.len(), whys.join("; "));
            return Err(NotRecovered::TooFew { shard, of, taken, why });
        }
        Ok(goes_on(taken))
    }

    /// What another node asks for.
    pub(super) async fn answer(&self, request: Request) -> Result<Vec<u8>, String> {
        match request {
            Request::Roll => Ok(operators::rows(&self.rows())),
            Request::Recover { decided, row, is_declared } => {
                self.take(decided, &row, is_declared).await.map(|()| Vec::new())
            }
            Request::Decided(number) => {
                let root = Arc::clone(&self.root);
                let read = spawn_blocking(move || Decided::read(&*root, number)).await;
                let read = read.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
                let decided = read.or_else(|| self.as_it_goes_on(number));
                let decided = decided.ok_or_else(|| "nothing was decided of it".to_owned())?;
                Ok(Decided { lifts: false, ..decided }.encode().to_vec())
            }
            _ => Err("that is asked elsewhere".to_owned()),
        }
    }

    /// What a node says of a generation that it is of, and has no file of: it was restored, and others come to it.
    fn as_it_goes_on(&self, number: u32) -> Option<Decided> {
        let topics = self.topics.upgrade()?;
        let shard = topics.shards().iter().find(|shard| shard.number == number)?;
        let generation = shard.group.generation();
        let none = Decided { number, generation, digest: 0, guaranteed: 0, at_ms: 0, lifts: false };
        (generation > 0).then_some(none)
    }

    /// Writes down what was decided, if this node is as whoever decided was shown. Durable on return.
    async fn take(&self, decided: Decided, shown: &Row, is_declared: bool) -> Result<(), String> {
        if is_declared && self.own.policy != OnMajorityDirty::AutoFence {
            return Err("here an operator decides: --on-majority-dirty says so".to_owned());
        }
        let own = self.rows().into_iter().find(|row| row.shard == decided.number);
        let own = own.filter(|_| RECORDS.contains(&decided.number));
        let own = own.ok_or_else(|| "it has no such shard".to_owned())?;
        let same = |row: &Row| Row { said: String::new(), synced: 0, ..row.clone() };
        if same(&own) != same(shown) {
            return Err("it is not as it was shown any more".to_owned());
        }
        if decided.generation <= own.generation {
            return Err("it is of that generation already, or a newer one".to_owned());
        }
        self.write(decided).await
    }

    async fn write(&self, decided: Decided) -> Result<(), String> {
        let root = Arc::clone(&self.root);
        let write = move || match Decided::read(&*root, decided.number)? {
            // What it was told itself says more than what others were.
            Some(known) if known.generation >= decided.generation && !decided.lifts => Ok(()),
            _ => decided.write(&*root),
        };
        let written = spawn_blocking(write).await;
        written.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
        let Decided { number, generation, lifts, .. } = decided;
        tracing::warn!(
            shard = number,
            generation,
            lifts,
            "after a loss the shard goes on with what the disks have: it opens again"
        );
        self.reopens.send_replace(true);
        Ok(())
    }

    /// Looks whether shards are fenced, and whether others have gone on without this node. Until the node ends.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut since: BTreeMap<u32, (String, Instant)> = BTreeMap::new();
        loop {
            sleep(LOOK).await;
            if self.reopens() {
                return;
            }
            self.follow().await;
            let fenced = if self.lacks_a_leader() { self.call().await } else { Vec::new() };
            let fenced: Vec<Roll> =
                fenced.into_iter().filter(|roll| roll.condition == Condition::Fenced).collect();
            {
                let mut said = self.fenced.lock().unwrap_or_else(PoisonError::into_inner);
                *said = fenced.iter().map(|roll| (roll.shard, sentence(roll))).collect();
            }
            since.retain(|shard, (digest, _)| {
                fenced.iter().any(|roll| roll.shard == *shard && roll.digest == *digest)
            });
            for roll in fenced {
                let now = Instant::now();
                let (_, first) = since.entry(roll.shard).or_insert((roll.digest.clone(), now));
                let is_first = roll.here().first() == Some(&self.company.node());
                let declared = self.own.policy == OnMajorityDirty::AutoFence;
                if declared && is_first && first.elapsed() >= CALM {
                    let done = self.decide(roll.shard, &roll.digest, false, true).await;
                    if let Err(why) = done {
                        tracing::warn!(shard = roll.shard, %why, "it does not go on, as declared");
                    }
                }
            }
        }
    }

    /// Whether nobody leads some shard of records, as far as this node has heard.
    fn lacks_a_leader(&self) -> bool {
        let Some(topics) = self.topics.upgrade() else { return false };
        topics.shards().iter().any(|shard| shard.group.outline().leader.is_none())
    }

    /// Where a shard has gone on in a newer generation: asks what was decided, and goes on there too.
    async fn follow(&self) {
        let newer: Vec<(u32, Newer)> = match self.topics.upgrade() {
            Some(topics) => {
                let newer = topics.shards().iter();
                newer.filter_map(|shard| Some((shard.number, shard.group.newer()?))).collect()
            }
            None => return,
        };
        for (number, Newer { node, generation }) in newer {
            let asked = operators::ask(&self.company, node, Request::Decided(number)).await;
            let read = asked.map_err(|why| why.to_string());
            let read =
                read.and_then(|bytes| Decided::decode(&bytes).map_err(|why| why.to_string()));
            let done = match read {
                Ok(decided) if decided.number == number && decided.generation >= generation => {
                    self.write(Decided { lifts: false, ..decided }).await
                }
                Ok(_) => Err("it says what was decided before".to_owned()),
                Err(why) => Err(why),
            };
            if let Err(why) = done {
                tracing::warn!(shard = number, node, %why, "what was decided is not known yet");
            }
        }
    }
}

/// Why nobody leads a fenced shard.
fn sentence(roll: &Roll) -> String {
    let Roll { guaranteed, missing, shard, .. } = roll;
    let doubts: Vec<u64> =
        roll.rows.iter().filter(|row| row.is_in_doubt).map(|row| row.node).collect();
    let away = match &missing[..] {
        [] => String::new(),
        missing => format!("; {missing:?} do not answer"),
    };
    format!(
        "FENCED: nodes {doubts:?} may have forgotten what they acknowledged{away}; all up to entry {guaranteed} is \
         there; `plimsoll cluster status` shows it, `plimsoll cluster recover --shard {shard}` has it go on"
    )
}
