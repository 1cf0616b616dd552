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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::company::Company;
use super::coordinator::Coordinator;
use super::decided::Decided;
use super::error::sentence;
use super::known::Known;
use super::layout::{CONTROL, GROUPS, RECORDS, SHARDS};
use super::operators::{self, Request};
use super::options::OnMajorityDirty;
use super::roll::{Condition, Roll, Undecidable};
use super::row::Row;
use super::topics::Topics;
use crate::cluster::{Newer, Outline};

/// How often it is looked who leads.
const LOOK: Duration = Duration::from_secs(1);
/// Within that whoever came has given what is damaged of another's log, if it has it.
const SETTLES: Duration = Duration::from_secs(5);
/// Whoever was away for so long is asked anew.
const FORGETS: Duration = Duration::from_secs(60);
/// For how long a shard must have been the same before what was declared is done.
const CALM: Duration = Duration::from_secs(10);

/// Why a shard does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRecovered {
    /// What was shown is not what is there now.
    #[error(
        "no fenced shard of records has the digest {digest} now; {now}: look again at `plimsoll cluster status`, and decide on \
         that"
    )]
    Changed {
        /// Of what was shown.
        digest: String,
        /// What is there now.
        now: String,
    },
    /// A log is damaged, and goes on behind what would be gone on with.
    #[error(
        "nothing is to be decided of shard {shard} now: the log of node {node} is damaged, and none that can be gone on with has as much: {}",
        if *is_new {
            "what of it can be gone on with is known some seconds after it was found, or it is healed: look again then"
        } else {
            "what it has lost it has applied, and the others that answer are no majority: bring back a node that has it, or restore a backup"
        }
    )]
    Damaged {
        /// Which.
        shard: u32,
        /// Whose.
        node: u64,
        /// Whether it was found just now.
        is_new: bool,
    },
    /// Too few of them do it.
    #[error(
        "of {of} voters of shard {shard} only {taken:?} do it, too few, or without the best log: {why}; look again, and decide anew; if they are of \
         different versions, start all in one first"
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
    /// Whether disks have lost what may have been durable: its partitions go on far above what may have been given of their offsets.
    pub lost_durable: bool,
    /// Nodes without a vote, or with a damaged log, whose logs are longer than that: the term and index of their last entries, which are not used.
    pub unused: BTreeMap<u64, (u64, u64)>,
    /// Whether it was only said, and not done.
    pub is_rehearsal: bool,
}

/// Who this node is, in this run of it.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) incarnation: u64,
    pub(super) verdict: String,
    /// Why shards are in doubt since an earlier run.
    pub(super) doubts: BTreeMap<u32, &'static str>,
    /// Up to where this node had shards, durably or acknowledged, as it knows from before this run: its disk may have lost some of it.
    pub(super) had: BTreeMap<u32, u64>,
    /// Shards of which the disk has lost something, as this start found.
    pub(super) lost: BTreeSet<u32>,
    /// Shards that began anew, and had not caught up since when this run began.
    pub(super) anew: BTreeSet<u32>,
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
    /// Held by whoever reads or writes what was decided: a file that is being made is nobody's to others.
    files: Arc<Mutex<()>>,
    own: Own,
    /// Shards of which nobody leads, and what the roll said of them.
    fenced: Mutex<BTreeMap<u32, String>>,
    /// Who was connected, and when last; and when somebody came last who had not been there for long.
    company_since: Mutex<(BTreeMap<u64, Instant>, Instant)>,
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
            files: Arc::default(),
            own,
            fenced: Mutex::default(),
            company_since: Mutex::new((BTreeMap::new(), Instant::now())),
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
                // Whoever looks sees that it does not answer.
                Err(why) => tracing::debug!(node, %why, "it says nothing of its shards"),
            }
        }
        // Brokers of before say nothing of that.
        if rows.iter().any(|row| row.is_damaged && !row.leads) {
            self.ask_of_damage(&mut rows).await;
            if self.is_new_company() {
                // Who has just come may have what is damaged.
                rows.iter_mut().for_each(|row| (row.damage_lasts, row.whole) = (false, None));
            }
        }
        let roll = |shard| {
            let said = rows.iter().filter(|row| row.shard == shard).cloned();
            Roll::of(shard, said).among(self.company.nodes_of(shard))
        };
        SHARDS.map(roll).into()
    }

    /// Of which shards this node's log has been damaged for seconds.
    pub(super) fn damage(&self) -> Vec<u8> {
        operators::damage(&self.rows())
    }

    /// Whether somebody has come a moment ago. Who comes and goes does not count each time.
    fn is_new_company(&self) -> bool {
        let now = Instant::now();
        let mut since = self.company_since.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, came) = &mut *since;
        seen.retain(|_, last| now.duration_since(*last) < FORGETS);
        for other in self.company.others() {
            if seen.insert(other, now).is_none() {
                *came = now;
            }
        }
        came.elapsed() < SETTLES
    }

    /// What others say of that, in their rows.
    async fn ask_of_damage(&self, rows: &mut [Row]) {
        let own = self.company.node();
        let is_one = |row: &&Row| row.is_damaged && row.node != own;
        let nodes: BTreeSet<u64> = rows.iter().filter(is_one).map(|row| row.node).collect();
        let asks = nodes.into_iter().map(|node| async move {
            let answer = operators::ask(&self.company, node, Request::Damage).await.ok()?;
            Some((node, operators::damage_in(&answer).ok()?))
        });
        for (node, damage) in join_all(asks).await.into_iter().flatten() {
            for row in rows.iter_mut().filter(|row| row.node == node && row.is_damaged) {
                if let Some(whole) = damage.get(&row.shard) {
                    (row.damage_lasts, row.whole) = (true, *whole);
                }
            }
        }
    }

    /// Whether this node had more of a shard than up to this entry, as it knows from before this run.
    fn had_more(&self, number: u32, than: u64) -> bool {
        self.own.had.get(&number).is_some_and(|had| *had > than)
    }

    /// What this node says of its shards.
    fn rows(&self) -> Vec<Row> {
        let (Some(topics), Some(groups)) = (self.topics.upgrade(), self.groups.upgrade()) else {
            return Vec::new();
        };
        // One whose engine has stopped has nothing to say: it does not answer.
        let mut outlines = Vec::new();
        if !topics.group().has_stopped() {
            let group = topics.group();
            outlines.push((CONTROL, group.outline(), false, group.is_stuck()));
        }
        if !groups.group.has_stopped() {
            let group = &groups.group;
            outlines.push((GROUPS, group.outline(), group.lack().is_some(), group.is_stuck()));
        }
        let runs = topics.shards().iter().filter(|shard| !shard.group.has_stopped());
        outlines.extend(runs.map(|shard| {
            let group = &shard.group;
            let refuses = group.is_stuck() || shard.refuses();
            (shard.number, group.outline(), group.lack().is_some(), refuses)
        }));
        let row = |(shard, outline, lacks, refuses): (u32, Outline, bool, bool)| {
            let whose = (shard, self.company.node(), self.own.incarnation);
            // What is not known any more is nothing that anybody has to know.
            let then = Known::read(&*self.root, shard).unwrap_or_default();
            let doubts = &self.own.doubts;
            let is_anew = outline.is_dirty && self.own.anew.contains(&shard);
            let had = self.own.had.get(&shard).filter(|had| **had > outline.last.1);
            let has_lost = self.own.lost.contains(&shard) || had.is_some();
            let has_lost = outline.is_dirty && has_lost;
            let said = match (doubts.get(&shard), had) {
                (Some(why), Some(had)) => format!("{why}: it had entries up to {had}"),
                (Some(why), None) => (*why).to_owned(),
                (None, _) => self.own.verdict.clone(),
            };
            let row = Row::of(whose, plimsoll_sync::boot_id(), outline, then, &said);
            Row { is_anew, lacks, has_lost, refuses, ..row }
        };
        outlines.into_iter().map(row).collect()
    }

    /// Has shards go on with what the disks have of them: together, as whoever does it closes in between. Each digest is of what
    /// whoever decides was shown of one; a rehearsal says what would be done.
    pub(crate) async fn recover(
        &self,
        digests: &[String],
        is_rehearsal: bool,
    ) -> Result<Vec<GoesOn>, NotRecovered> {
        self.decide(digests, is_rehearsal, false).await
    }

    async fn decide(
        &self,
        digests: &[String],
        is_rehearsal: bool,
        is_declared: bool,
    ) -> Result<Vec<GoesOn>, NotRecovered> {
        let rolls = fenced(digests, self.call().await)?;
        let undecidable = |roll: &Roll| {
            let Undecidable { node, is_new } = roll.undecidable?;
            Some(NotRecovered::Damaged { shard: roll.shard, node, is_new })
        };
        if let Some(why) = rolls.iter().find_map(undecidable) {
            return Err(why);
        }
        let at_ms = (self.own.clock)();
        let decisions = || rolls.iter().map(|roll| (roll, decided(roll, at_ms)));
        let goes_on = |nodes: &dyn Fn(&Roll) -> Vec<u64>| {
            let goes_on = decisions().map(|(roll, decided)| GoesOn {
                shard: roll.shard,
                generation: decided.generation,
                nodes: nodes(roll),
                guaranteed: decided.guaranteed,
                lost_durable: decided.lost_durable,
                unused: roll.unused(),
                is_rehearsal,
            });
            goes_on.collect()
        };
        if is_rehearsal {
            return Ok(goes_on(&Roll::here));
        }
        let of = |node| -> Vec<(Decided, Row)> {
            let rows = decisions().filter(|(roll, _)| roll.here().contains(&node));
            let row = |(roll, decided): (&Roll, Decided)| {
                let row = roll.rows.iter().find(|row| row.node == node)?;
                Some((decided, row.clone()))
            };
            rows.filter_map(row).collect()
        };
        // This node last: once it has done so it does nothing else.
        let own = self.company.node();
        let all: BTreeSet<u64> = rolls.iter().flat_map(Roll::here).collect();
        let others = all.iter().copied().filter(|node| *node != own);
        let asks = others.map(|node| {
            let request = Request::Recover { of: of(node), is_declared };
            async move { (node, operators::ask(&self.company, node, request).await) }
        });
        let (mut taken, mut whys) = (BTreeSet::new(), Vec::new());
        for (node, done) in join_all(asks).await {
            match done {
                Ok(_) => drop(taken.insert(node)),
                Err(why) => whys.push(why.to_string()),
            }
        }
        let by = |taken: &BTreeSet<u64>, roll: &Roll| -> Vec<u64> {
            roll.here().into_iter().filter(|node| taken.contains(node)).collect()
        };
        // One of them must be the one that may lead.
        let is_best = |roll: &Roll, node: &u64| roll.is_best(*node);
        let is_enough = |taken: &BTreeSet<u64>, roll: &&Roll| {
            let taken = by(taken, roll);
            taken.len() > roll.voters.len() / 2 && taken.iter().any(|node| is_best(roll, node))
        };
        let mut with_own = taken.clone();
        with_own.insert(own);
        let own_rows = of(own);
        if !own_rows.is_empty() && rolls.iter().all(|roll| is_enough(&with_own, &roll)) {
            match self.take(own_rows, is_declared).await {
                Ok(()) => taken = with_own,
                Err(why) => whys.push(format!("node {own}: {why}")),
            }
        }
        if let Some(roll) = rolls.iter().find(|roll| !is_enough(&taken, roll)) {
            let (shard, of, taken) = (roll.shard, roll.voters.len(), by(&taken, roll));
            return Err(NotRecovered::TooFew { shard, of, taken, why: whys.join("; ") });
        }
        Ok(goes_on(&|roll| by(&taken, roll)))
    }

    /// What another node asks for.
    pub(super) async fn answer(&self, request: Request) -> Result<Vec<u8>, String> {
        match request {
            Request::Roll => Ok(operators::rows(&self.rows())),
            Request::Recover { of, is_declared } => {
                self.take(of, is_declared).await.map(|()| Vec::new())
            }
            Request::Decided(number) => {
                let (root, files) = (Arc::clone(&self.root), Arc::clone(&self.files));
                let read = move || {
                    let _one = files.lock().unwrap_or_else(PoisonError::into_inner);
                    Decided::read(&*root, number)
                };
                let read = spawn_blocking(read).await;
                let read = read.map_err(|why| why.to_string())?.map_err(|why| why.to_string())?;
                let decided = read.or_else(|| self.as_it_goes_on(number));
                let decided = decided.ok_or_else(|| "nothing was decided of it".to_owned())?;
                Ok(decided.as_told().encode())
            }
            _ => Err("that is asked elsewhere".to_owned()),
        }
    }

    /// What a node says of a generation that it is of, and has no file of: it was restored, and others come to it.
    fn as_it_goes_on(&self, number: u32) -> Option<Decided> {
        let topics = self.topics.upgrade()?;
        let shard = topics.shards().iter().find(|shard| shard.number == number)?;
        let generation = shard.group.generation();
        let none = Decided {
            number,
            generation,
            digest: 0,
            guaranteed: 0,
            at_ms: 0,
            lifts: false,
            lost_durable: true,
            least: (0, 0),
            ended: (0, 0),
            cuts: false,
        };
        (generation > 0).then_some(none)
    }

    /// The last entry of a shard of records that this node has applied, as its log counts.
    fn has_applied(&self, number: u32) -> u64 {
        let topics = self.topics.upgrade();
        let find = |topics: Arc<Topics>| {
            let shard = topics.shards().iter().find(|shard| shard.number == number)?;
            shard.group.applied()
        };
        // The engine counts from 0.
        topics.and_then(find).map_or(0, |applied| applied + 1)
    }

    /// Writes down what was decided, if this node is as whoever decided was shown. Durable on return.
    async fn take(&self, of: Vec<(Decided, Row)>, is_declared: bool) -> Result<(), String> {
        if is_declared && self.own.policy != OnMajorityDirty::AutoFence {
            return Err("here an operator decides: --on-majority-dirty says so".to_owned());
        }
        let rows = self.rows();
        let mut taken = Vec::new();
        for (decided, shown) in of {
            let own = rows.iter().find(|row| row.shard == decided.number);
            let own = own.filter(|_| RECORDS.contains(&decided.number));
            let own = own.ok_or_else(|| "it has no such shard".to_owned())?;
            if own.told() != shown.told() {
                return Err("it is not as it was shown any more".to_owned());
            }
            if decided.generation <= own.generation {
                return Err("it is of that generation already, or a newer one".to_owned());
            }
            let connected = self.company.others();
            let is_away = |voter: &u64| *voter != self.company.node() && !connected.contains(voter);
            if is_declared
                && self.had_more(decided.number, decided.least.1)
                && shown.voters.iter().any(is_away)
            {
                return Err(
                    "it had more, which one may have that does not answer: a person decides that"
                        .to_owned(),
                );
            }
            let (ended, least) = (own.end(), decided.least);
            if is_declared && own.is_damaged && ended > least {
                return Err(
                    "its log goes on behind what is damaged: a person decides that".to_owned()
                );
            }
            if ended > least && self.has_applied(decided.number) > least.1 {
                return Err("it has applied more than is to be gone on with".to_owned());
            }
            let cuts = own.whole == Some(least) && ended > least && least != (0, 0);
            taken.push(Decided { ended, cuts, ..decided });
        }
        self.write(taken).await
    }

    /// Where not all can be written, what was is done all the same, and at once: it would lift a doubt of some later start.
    async fn write(&self, all: Vec<Decided>) -> Result<(), String> {
        let (root, files) = (Arc::clone(&self.root), Arc::clone(&self.files));
        let write = move || {
            let _one = files.lock().unwrap_or_else(PoisonError::into_inner);
            let mut written = Vec::new();
            for decided in all {
                match decided.write_if_news(&*root) {
                    Ok(()) => written.push(decided),
                    Err(why) => return (written, Some((decided.number, sentence(&why)))),
                }
            }
            (written, None)
        };
        let (written, failed) = spawn_blocking(write).await.map_err(|why| why.to_string())?;
        for Decided { number, generation, lifts, .. } in &written {
            tracing::warn!(
                shard = number,
                generation,
                lifts,
                "after a loss the shard goes on with what the disks have: it opens again"
            );
        }
        if !written.is_empty() {
            self.reopens.send_replace(true);
        }
        let Some((number, why)) = failed else { return Ok(()) };
        let done: Vec<u32> = written.iter().map(|decided| decided.number).collect();
        Err(format!(
            "of shards {done:?} it has written down what was decided, of shard {number} it cannot: {why}"
        ))
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
            self.is_new_company();
            let fenced = if self.lacks_a_leader() { self.call().await } else { Vec::new() };
            let fenced: Vec<Roll> =
                fenced.into_iter().filter(|roll| roll.condition == Condition::Fenced).collect();
            {
                let mut said = self.fenced.lock().unwrap_or_else(PoisonError::into_inner);
                *said = fenced.iter().map(|roll| (roll.shard, why_fenced(roll))).collect();
            }
            since.retain(|shard, (digest, _)| {
                fenced.iter().any(|roll| roll.shard == *shard && roll.digest == *digest)
            });
            let mut calm = Vec::new();
            // Of topics and groups nothing is decided.
            // What this node had, and nobody who answers has, may be with one that is away: then a person decides.
            let had_more = |roll: &Roll| self.had_more(roll.shard, roll.best_tail.1);
            let may_be_away =
                |roll: &Roll| roll.may_be_away() || had_more(roll) && !roll.missing.is_empty();
            let is_persons = |roll: &Roll| {
                may_be_away(roll) || roll.gives_up_damaged() || roll.undecidable.is_some()
            };
            let is_declared = |roll: &&Roll| RECORDS.contains(&roll.shard) && !is_persons(roll);
            let of_records = || fenced.iter().filter(is_declared);
            for roll in of_records() {
                let now = Instant::now();
                let (_, first) = since.entry(roll.shard).or_insert((roll.digest.clone(), now));
                let is_first = roll.here().first() == Some(&self.company.node());
                calm.extend((is_first && first.elapsed() >= CALM).then(|| roll.digest.clone()));
            }
            // One power cut fences several: they go on together.
            let is_due = self.own.policy == OnMajorityDirty::AutoFence && !calm.is_empty();
            if is_due && calm.len() == of_records().count() {
                let done = self.decide(&calm, false, true).await;
                if let Err(why) = done {
                    tracing::warn!(%why, "what is fenced does not go on, as declared");
                }
            }
        }
    }

    /// Whether nobody leads some shard, as far as this node has heard.
    fn lacks_a_leader(&self) -> bool {
        let (Some(topics), Some(groups)) = (self.topics.upgrade(), self.groups.upgrade()) else {
            return false;
        };
        let of_records = || topics.shards().iter().map(|shard| shard.group.outline());
        let mut all = [topics.group().outline(), groups.group.outline()].into_iter();
        all.any(|outline| outline.leader.is_none())
            || of_records().any(|outline| outline.leader.is_none())
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
        let mut all = Vec::new();
        for (number, Newer { node, generation }) in newer {
            let asked = operators::ask(&self.company, node, Request::Decided(number)).await;
            let read = asked.map_err(|why| why.to_string());
            let read =
                read.and_then(|bytes| Decided::decode(&bytes).map_err(|why| why.to_string()));
            match read {
                Ok(decided) if decided.number == number && decided.generation >= generation => {
                    if self.may_follow(decided).await {
                        all.push(decided.as_told());
                    }
                }
                Ok(_) => tracing::warn!(shard = number, node, "it says what was decided before"),
                Err(why) => {
                    tracing::warn!(shard = number, node, %why, "what was decided is not known yet");
                }
            }
        }
        if !all.is_empty()
            && let Err(why) = self.write(all).await
        {
            tracing::warn!(%why, "what was decided cannot be written");
        }
    }

    /// Whether this node goes on by what others decided. What it may have in a snapshot, and they gave up, goes with that: only once somebody leads
    /// who did so. Before, the decision may not count, or those who took it may have nobody to lead: then it is decided anew, with this node.
    async fn may_follow(&self, decided: Decided) -> bool {
        let topics = self.topics.upgrade();
        let group = |topics: &Arc<Topics>| {
            let shard = topics.shards().iter().find(|shard| shard.number == decided.number)?;
            Some(Arc::clone(&shard.group))
        };
        let Some(group) = topics.as_ref().and_then(group) else { return true };
        // The engine counts from 0. No snapshot is behind D.
        let applied = group.applied().map_or(0, |applied| applied + 1);
        let kept = match group.outline().durable {
            0 => applied,
            durable => applied.min(durable),
        };
        let missed_one = decided.generation > group.generation() + 1 && kept > 0;
        if decided.least == (0, 0) || kept <= decided.least.1 && !missed_one {
            return true;
        }
        let leads = |row: &Row| row.leads && !row.refuses && row.generation >= decided.generation;
        let rolls = self.call().await;
        let mut rows = rolls.iter().filter(|roll| roll.shard == decided.number);
        rows.any(|roll| roll.rows.iter().any(leads))
    }
}

/// What is decided of a fenced shard.
fn decided(roll: &Roll, at_ms: u64) -> Decided {
    Decided {
        number: roll.shard,
        generation: roll.generation + 1,
        digest: u128::from_str_radix(&roll.digest, 16).unwrap_or(0),
        guaranteed: roll.guaranteed,
        at_ms,
        lifts: true,
        lost_durable: roll.durable > roll.guaranteed
            || roll.rows.iter().any(|row| row.has_lost || row.is_damaged),
        least: roll.best_tail,
        ended: (0, 0),
        cuts: false,
    }
}

/// The fenced shards of which these were shown.
fn fenced(digests: &[String], rolls: Vec<Roll>) -> Result<Vec<Roll>, NotRecovered> {
    let is_fenced =
        |roll: &Roll| roll.condition == Condition::Fenced && RECORDS.contains(&roll.shard);
    let rolls: Vec<Roll> = rolls.into_iter().filter(is_fenced).collect();
    let shown = |digest: &String| !rolls.iter().any(|roll| roll.digest == *digest);
    if let Some(digest) = digests.iter().find(|digest| shown(digest)) {
        let now: Vec<String> =
            rolls.iter().map(|roll| format!("shard {} has {}", roll.shard, roll.digest)).collect();
        let now = if now.is_empty() { "none is fenced".to_owned() } else { now.join(", ") };
        return Err(NotRecovered::Changed { digest: digest.clone(), now });
    }
    Ok(rolls.into_iter().filter(|roll| digests.contains(&roll.digest)).collect())
}

/// Why nobody leads a fenced shard.
fn why_fenced(roll: &Roll) -> String {
    let Roll { guaranteed, missing, empty, .. } = roll;
    let is_doubtful = |row: &&Row| row.is_in_doubt && roll.voters.contains(&row.node);
    let doubts: Vec<u64> = roll.rows.iter().filter(is_doubtful).map(|row| row.node).collect();
    let away = match &missing[..] {
        [] => String::new(),
        missing => format!("; {missing:?} do not answer"),
    };
    let gone = match &empty[..] {
        [] => String::new(),
        empty => format!("; {empty:?} began it anew, and have not caught up"),
    };
    let less: Vec<u64> = roll.rows.iter().filter(|row| row.has_less).map(|row| row.node).collect();
    let waits = match &less[..] {
        [] => String::new(),
        less => format!("; {less:?} wait for one whose log is longer, as was decided before"),
    };
    let forgot = match &doubts[..] {
        [] => String::new(),
        doubts => format!("; {doubts:?} may have forgotten what they acknowledged"),
    };
    let damaged: Vec<u64> =
        roll.rows.iter().filter(|row| row.damage_lasts).map(|row| row.node).collect();
    let held = match &damaged[..] {
        [] => String::new(),
        damaged => {
            format!("; the log of {damaged:?} is damaged, and was not healed for seconds")
        }
    };
    let doubts = format!("FENCED: nobody leads it{forgot}{away}{gone}{waits}{held}");
    if !RECORDS.contains(&roll.shard) {
        return doubts
            + "; nothing can be decided of it: bring back the nodes that can be, or restore a backup";
    }
    if roll.undecidable.is_some() {
        return doubts + "; nothing is to be decided of it now: `plimsoll cluster status` says why";
    }
    format!(
        "{doubts}; all up to entry {guaranteed} is there; `plimsoll cluster status` shows it, and the one command that has all such shards go on"
    )
}
