//! [`Net`]: the network between replicas. It sees each message, and draws what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plimsoll_log::Ack;
use plimsoll_server::cluster::{Answered, Carrier, Group, Receiver, Unreached};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::glance::{self, Answered as Said, Asked, Seen};
use super::oracle::{Oracle, hash};
use super::trace::Trace;
use super::world::{Applied, Memory, Remembers, lock};

/// How long it takes until it is known that a message was lost.
const LOST: Duration = Duration::from_millis(100);

/// The network: who is up, and what is drawn for each message.
pub(crate) struct Net {
    wires: Mutex<Wires>,
    pub(crate) trace: Trace,
    pub(crate) oracle: Arc<Oracle>,
    promise: Ack,
}

struct Wires {
    up: BTreeMap<u64, Up>,
    /// The newest of each node.
    incarnations: BTreeMap<u64, u64>,
    /// Who does not hear whom.
    cut: BTreeSet<(u64, u64)>,
    /// What comes from or to this node stays on its way until then.
    held: BTreeMap<u64, Instant>,
    arrives: BTreeMap<(u64, u64), Instant>,
    drawn: Pcg64Mcg,
    weather: Weather,
    messages: u64,
}

/// What becomes of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// How long one takes at most.
    pub(crate) delay_ms: u64,
    /// How many of a thousand are lost.
    pub(crate) lost: u32,
    /// How many of a thousand come seconds late, behind others, and to whoever is there by then.
    pub(crate) late: u32,
}

impl Weather {
    pub(crate) const FAIR: Self = Self { delay_ms: 3, lost: 0, late: 0 };
}

/// A replica that is up.
#[derive(Clone)]
pub(crate) struct Up {
    pub(crate) incarnation: u64,
    pub(crate) receiver: Receiver<Remembers>,
    pub(crate) applied: Applied,
    pub(crate) group: Weak<Group<Remembers>>,
    pub(crate) memory: Arc<Memory>,
    /// So many entries it had when it started.
    pub(crate) found: u64,
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Net")
    }
}

impl Net {
    pub(crate) fn new(seed: u64, promise: Ack, trace: Trace, oracle: Arc<Oracle>) -> Self {
        let wires = Wires {
            up: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            cut: BTreeSet::new(),
            held: BTreeMap::new(),
            arrives: BTreeMap::new(),
            drawn: Pcg64Mcg::seed_from_u64(seed ^ 0x6e65_7400),
            weather: Weather::FAIR,
            messages: 0,
        };
        Self { wires: Mutex::new(wires), trace, oracle, promise }
    }

    /// When a message that is sent now arrives; `None`: never. Those of one way keep their order, but for what is late.
    fn send(&self, from: u64, to: u64) -> Option<Instant> {
        let mut wires = lock(&self.wires);
        let Weather { delay_ms, lost, late } = wires.weather;
        wires.messages += 1;
        let now = Instant::now();
        if wires.drawn.random_ratio(lost, 1000) || wires.cut.contains(&(from, to)) {
            return None;
        }
        let delay = Duration::from_millis(wires.drawn.random_range(0..=delay_ms));
        if wires.drawn.random_ratio(late, 1000) {
            self.oracle.count("a message that comes late");
            return Some(now + delay + Duration::from_millis(wires.drawn.random_range(0..=8000)));
        }
        let held = [from, to].map(|node| wires.held.get(&node).copied());
        let after = wires.arrives.get(&(from, to)).copied();
        let at =
            after.into_iter().chain(held.into_iter().flatten()).fold(now + delay, Instant::max);
        wires.arrives.insert((from, to), at);
        Some(at)
    }

    fn at(&self, node: u64) -> Option<Up> {
        lock(&self.wires).up.get(&node).cloned()
    }

    fn is_up(&self, node: u64, incarnation: u64) -> bool {
        lock(&self.wires).up.get(&node).is_some_and(|up| up.incarnation == incarnation)
    }

    /// # Panics
    /// If another of its processes is up, or its incarnation is not above all before.
    pub(crate) fn comes_up(&self, node: u64, up: Up) {
        let mut wires = lock(&self.wires);
        let before = wires.incarnations.insert(node, up.incarnation);
        assert!(before < Some(up.incarnation), "node {node} begins in {before:?} again");
        assert!(wires.up.insert(node, up).is_none(), "node {node} is up twice");
    }

    pub(crate) fn goes_down(&self, node: u64) {
        lock(&self.wires).up.remove(&node);
    }

    /// One that is up sees that the process of a node is gone, or believes so.
    pub(crate) fn sees_gone(&self, sees: u64, node: u64) {
        if let Some(up) = self.at(sees) {
            self.trace.tell(format_args!("{sees}.{} sees that {node} is gone", up.incarnation));
            tokio::spawn(up.receiver.gone(node));
        }
    }

    /// Nothing comes from the one to the other any more, or comes again.
    pub(crate) fn cut(&self, from: u64, to: u64, is_cut: bool) {
        let mut wires = lock(&self.wires);
        if is_cut {
            wires.cut.insert((from, to))
        } else {
            wires.cut.remove(&(from, to))
        };
    }

    /// Nobody hears this node, nor does it hear anybody; or all do again.
    pub(crate) fn isolate(&self, node: u64, others: impl IntoIterator<Item = u64>, is_cut: bool) {
        for other in others {
            self.cut(node, other, is_cut);
            self.cut(other, node, is_cut);
        }
    }

    /// All hear all.
    pub(crate) fn heal(&self) {
        lock(&self.wires).cut.clear();
    }

    /// What comes from and to this node stays on its way for so long.
    pub(crate) fn hold(&self, node: u64, time: Duration) {
        lock(&self.wires).held.insert(node, Instant::now() + time);
    }

    pub(crate) fn becomes(&self, weather: Weather) {
        lock(&self.wires).weather = weather;
    }

    /// Holds what is sent against the rule.
    fn sees_request(&self, from: u64, asked: &Asked) {
        match asked {
            Asked::Append { term, leader, entries, .. } => {
                if *leader != from {
                    self.oracle.broken(format!("node {from} sends what node {leader} leads"));
                }
                self.oracle.leads(from, *term);
                entries.iter().for_each(|entry| self.oracle.sends(from, entry));
                if let Some(last) = entries.last() {
                    self.oracle.has(*term, last.index);
                }
            }
            Asked::Vote { term, is_pre } if !self.may_vote(from) => {
                let what = if *is_pre { "would campaign" } else { "campaigns" };
                self.oracle
                    .broken(format!("node {from} {what} in term {term}, and may have forgotten"));
            }
            Asked::Vote { .. } | Asked::ReEnter { .. } | Asked::Other => {}
        }
    }

    /// Holds what is answered against the rule, and against what leaders had sent when it was asked.
    fn sees_answer(
        &self,
        from: u64,
        (to, own): (u64, u64),
        sent: &BTreeMap<u64, u64>,
        (asked, answered): (&Asked, &Said),
    ) {
        match (asked, answered) {
            (Asked::Vote { term, .. }, Said::Voted { is_granted: true })
                if !self.may_vote(from) =>
            {
                self.oracle.broken(format!(
                    "node {from} votes for node {to} in term {term}, and may have forgotten"
                ));
            }
            (Asked::ReEnter { own_term }, Said::ReEnter { term, last }) => {
                self.oracle.leads(from, *term);
                self.oracle.names_last(from, (*term, *last), sent.get(term).copied());
                self.oracle.names(to, own, (*own_term, *term, *last));
            }
            (Asked::Append { term, before, entries, .. }, Said::Appended { through }) => {
                let sent = entries.last().map(|last| (last.term, last.index)).or(*before);
                if let Some(last) = through.or(sent) {
                    let must = |entry: &&Seen| entry.index <= last.1 && entry.must_be_durable();
                    let must_be_durable = entries.iter().rev().find(must).map(|entry| entry.index);
                    self.acknowledges(from, *term, last, must_be_durable);
                }
            }
            _ => {}
        }
    }

    /// An acknowledgement is true at the moment at which it leaves: the very entry is in the log, as far as was promised,
    /// memory that outlives the process knows of it, and what must be durable first is.
    fn acknowledges(
        &self,
        node: u64,
        of: u64,
        (term, index): (u64, u64),
        must_be_durable: Option<u64>,
    ) {
        let Some(Up { group, memory, found, .. }) = self.at(node) else { return };
        let Some(group) = group.upgrade() else { return };
        // It may have gone on with another leader meanwhile, who does not hear this one's answers. And the engine takes a
        // vote that is durable for the word that all before it is as far as promised, which it need not be: what is of an
        // older term counts for nothing before an entry of the leader's own is there.
        if group.voted_in() > of || term != of {
            return;
        }
        let said =
            format!("node {node} acknowledges entry {index} of term {term} to the leader of {of}");
        let promise = self.promise;
        match group.holds(term, index) {
            // Nobody is asked for what cannot be read.
            Err(_) => return,
            Ok(None) => return self.oracle.broken(format!("{said}, and does not have it")),
            Ok(Some(how_far)) if !reaches(how_far, promise) => {
                return self.oracle.broken(format!("{said}, and it is {how_far:?} there"));
            }
            Ok(Some(_)) => {}
        }
        // What a start found is with the kernel.
        if promise != Ack::Durable && index >= found && memory.last() < Some(index) {
            return self.oracle.broken(format!("{said}, and its memory has {:?}", memory.last()));
        }
        // The log counts from 1.
        if let Some(index) = must_be_durable.filter(|index| group.synced() <= *index) {
            return self.oracle.broken(format!("{said}, and {index} is not durable there"));
        }
        self.oracle.count("an acknowledgement between replicas that was true");
    }

    fn may_vote(&self, node: u64) -> bool {
        self.at(node).is_none_or(|up| {
            let applied = (lock(&up.applied).len() as u64).checked_sub(1);
            self.oracle.may_vote(node, up.incarnation, applied)
        })
    }
}

/// Whether what is so far is as far as was promised.
fn reaches(how_far: Ack, promise: Ack) -> bool {
    match promise {
        Ack::Buffered => true,
        Ack::Written => how_far != Ack::Buffered,
        Ack::Durable => how_far == Ack::Durable,
    }
}

/// One node's way into the network.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) from: u64,
    pub(crate) incarnation: u64,
    pub(crate) net: Arc<Net>,
}

impl Carrier for Wire {
    fn ask(
        &self,
        to: u64,
        _: bool,
        request: Vec<Bytes>,
    ) -> BoxFuture<'static, Result<Answered, Unreached>> {
        let (from, own, net) = (self.from, self.incarnation, Arc::clone(&self.net));
        let (answers, answer) = oneshot::channel();
        // What a node that has ended still says nobody hears.
        if net.is_up(from, own) {
            let request = Bytes::from(request.concat());
            let asked = glance::request(&request);
            net.sees_request(from, &asked);
            let sent = net.send(from, to);
            net.trace.tell(format_args!(
                "{from}.{own} asks {to}: kind {}, {:x}{}",
                glance::message(&request)[1],
                hash(&request),
                if sent.is_some() { "" } else { ", lost" }
            ));
            if let Some(arrives) = sent {
                // It is on its way whatever becomes of who sent it.
                tokio::spawn(async move {
                    let way = Way { net, from, own, to };
                    sleep_until(arrives).await;
                    if let Some(answered) = way.deliver(request, asked).await {
                        // It may have been given up.
                        drop(answers.send(answered));
                    }
                });
            }
        }
        Box::pin(async move {
            match answer.await {
                Ok(answered) => Ok(answered),
                Err(_) => {
                    sleep(LOST).await;
                    Err(Unreached { to, why: "it was lost".to_owned() })
                }
            }
        })
    }
}

struct Way {
    net: Arc<Net>,
    from: u64,
    own: u64,
    to: u64,
}

impl Way {
    async fn deliver(self, request: Bytes, asked: Asked) -> Option<Answered> {
        let Self { net, from, own, to } = self;
        let Up { incarnation, receiver, .. } = net.at(to)?;
        net.trace.tell(format_args!("{to}.{incarnation} hears {from}.{own}: {:x}", hash(&request)));
        let sent = net.oracle.sent();
        let answer = receiver.answer(from, own, &request).await;
        let answer = Bytes::from(answer.concat());
        if !net.is_up(to, incarnation) {
            return None;
        }
        let answered = glance::answer(&answer);
        net.sees_answer(to, (from, own), &sent, (&asked, &answered));
        let back = net.send(to, from);
        net.trace.tell(format_args!(
            "{to}.{incarnation} answers {from}.{own}: kind {}, {:x}{}",
            glance::message(&answer)[1],
            hash(&answer),
            if back.is_some() { "" } else { ", lost" }
        ));
        sleep_until(back?).await;
        net.trace
            .tell(format_args!("{from} is answered by {to}.{incarnation}: {:x}", hash(&answer)));
        net.is_up(from, own).then_some(Answered { incarnation, answer })
    }
}
