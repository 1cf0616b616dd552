//! [`lead_whenever`]: how a replica of a shard comes to lead, and stops.
//!
//! ```text
//!            the group leads, its first entry is applied, and it is prepared
//!   Follows ───────────────────────────────────────────────► Leads ──► Failed
//!           ◄───────────────────────────────────────────────   an engine or a disk is at its end
//!            the engine says so, or refuses what is proposed
//! ```
//!
//! A shard opens, applies, settles and keeps its state whoever leads. What only a leader may do is done by a
//! [`Lead`]er, which is given one leadership after another. It keeps nothing from one to the next: what was on its
//! way when a leadership ended may be agreed on or not, and the state says which once the next one begins.
//!
//! Who asks while another leads is told so at once, and so is, when a leadership ends, everybody who waits. Who asks while
//! this replica is about to lead, or hands over, waits for that: it is told where to ask, or answered.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::error::Failed;
use super::waiting::wait_for;
use crate::cluster::{self, Apply, Group, Leadership};
use crate::run;

/// How often a leader looks whether it still leads, at least.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// How often it is looked whether somebody leads, while that is about to change.
const SOON: Duration = Duration::from_millis(20);
/// How long a leader that is to hand over waits for what it has taken.
const DRAIN: Duration = Duration::from_secs(1);

/// What a replica of a shard is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Another leads, or nobody.
    #[default]
    Follows,
    /// It leads.
    Leads(Leadership),
    /// Its engine or its disk has failed: it does nothing any more.
    Failed,
}

/// What this node knows of who leads a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leader {
    /// This node.
    Here,
    /// Another.
    There(u64),
    /// Nobody, as far as it has heard.
    Unknown,
}

impl Leader {
    /// By what the engine has heard, of a group in which this node leads or does not.
    pub(super) fn of<S: Apply>(group: &Group<S>, here: u64, leads: bool) -> Self {
        match group.leader() {
            _ if leads => Self::Here,
            Some(there) if there != here => Self::There(there),
            // It will, in a moment, or has failed.
            _ => Self::Unknown,
        }
    }

    /// Its id.
    pub(crate) fn id(self, here: u64) -> Option<u64> {
        match self {
            Self::Here => Some(here),
            Self::There(there) => Some(there),
            Self::Unknown => None,
        }
    }
}

/// What leads a shard, whenever this replica does.
pub(super) trait Lead: Send + 'static {
    /// What a leader is asked.
    type Ask: Send + 'static;

    /// Tells who asked that this replica does not lead.
    fn refuse(&self, ask: Self::Ask);

    /// Does what must be agreed on before anybody reads here: until it returns, nobody is told that this replica leads.
    fn prepare(
        &mut self,
        _leadership: Leadership,
    ) -> impl Future<Output = Result<(), Ended>> + Send {
        ready(Ok(()))
    }

    /// Leads until nobody can ask any more, or for as long as it can. Whoever waits is answered on return.
    fn lead(
        &mut self,
        leadership: Leadership,
        asks: &mut Asks<Self::Ask>,
    ) -> impl Future<Output = Result<(), Ended>> + Send;

    /// From here on this replica does not lead, as all can see.
    fn follows(&self) {}
}

/// What a leader is asked, and whether another is to lead.
pub(super) struct Asks<A> {
    asks: mpsc::UnboundedReceiver<A>,
    /// One that came before this replica led.
    held: Option<A>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    /// What is done of them, and by when the leader is to be ready for it.
    wish: Option<(Wish, Instant)>,
}

/// What comes to a leader.
pub(super) enum Next<A> {
    /// Somebody asks.
    Ask(A),
    /// Another is to lead.
    Wish,
    /// Nobody can ask any more.
    Over,
}

/// That another node lead.
#[derive(Debug)]
pub(super) struct Wish {
    to: u64,
    reply: oneshot::Sender<cluster::Result<()>>,
}

/// Where that is wished.
pub(super) type Wishes = mpsc::UnboundedSender<Wish>;

/// Has another node lead, if this one does. It does on return.
pub(super) async fn hand_over(wishes: &Wishes, to: u64) -> cluster::Result<()> {
    let (reply, answer) = oneshot::channel();
    let ended = || cluster::Error::Stopped { why: "it was closed".to_owned() };
    wishes.send(Wish { to, reply }).map_err(|_closed| ended())?;
    answer.await.unwrap_or_else(|_closed| Err(ended()))
}

impl<A> Asks<A> {
    pub(super) fn new(
        asks: mpsc::UnboundedReceiver<A>,
        wishes: mpsc::UnboundedReceiver<Wish>,
    ) -> Self {
        Self { asks, held: None, wishes, wish: None }
    }

    /// What comes next. Once another is to lead nothing is taken any more.
    pub(super) async fn next(&mut self) -> Next<A> {
        let takes = self.wish.is_none();
        if let Some(held) = self.held.take_if(|_| takes) {
            return Next::Ask(held);
        }
        tokio::select! {
            biased;
            Some(wish) = self.wishes.recv() => {
                if takes {
                    self.wish = Some((wish, Instant::now() + DRAIN));
                } else {
                    let why = "another was asked to do so".to_owned();
                    wish.reply.send(Err(cluster::Error::NotTaken { to: wish.to, why })).ok();
                }
                Next::Wish
            }
            ask = self.asks.recv(), if takes => ask.map_or(Next::Over, Next::Ask),
            else => std::future::pending().await,
        }
    }

    /// The next, if there is one.
    pub(super) fn try_next(&mut self) -> Option<A> {
        self.held.take().or_else(|| self.asks.try_recv().ok())
    }

    /// Whether another is to lead.
    pub(super) fn is_wished(&self) -> bool {
        self.wish.is_some()
    }

    /// Whether it is time for that: the leader has nothing left to do, or takes too long for it.
    pub(super) fn is_due(&self, is_idle: bool) -> bool {
        self.wish.as_ref().is_some_and(|(_, by)| is_idle || Instant::now() >= *by)
    }
}

/// Why a leadership ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// Another is to lead, and nothing stands in the way.
    #[error("another is to lead")]
    Wished,
    #[error(transparent)]
    Group(#[from] cluster::Error),
    #[error(transparent)]
    Run(#[from] run::Error),
}

impl Ended {
    /// Whether another leads now, or will: nothing has failed.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Wished => true,
            Self::Group(why) => is_lost(why),
            Self::Run(_) => false,
        }
    }
}

/// Has a leader lead whenever the group does, until nobody can ask any more or the shard has failed.
pub(super) async fn lead_whenever<S: Apply, L: Lead>(
    number: u32,
    group: Arc<Group<S>>,
    mut leader: L,
    mut asks: Asks<L::Ask>,
    standing: watch::Sender<Standing>,
) {
    let why = loop {
        let leadership = match until_it_leads(&group, &leader, &mut asks, &standing).await {
            Ok(Some(leadership)) => leadership,
            Ok(None) => return,
            Err(why) => break Ended::from(why),
        };
        tracing::debug!(shard = number, term = leadership.term, "it leads");
        let ended = match leader.prepare(leadership).await {
            Ok(()) => {
                standing.send_replace(Standing::Leads(leadership));
                leader.lead(leadership, &mut asks).await
            }
            Err(why) => Err(why),
        };
        match ended {
            Ok(()) => return,
            Err(Ended::Wished) => {
                let Some((Wish { to, reply }, _)) = asks.wish.take() else { continue };
                let handed = group.hand_over(to).await;
                if handed.is_ok() {
                    tracing::info!(shard = number, to, "it has handed over");
                    standing.send_replace(Standing::Follows);
                    leader.follows();
                }
                // Otherwise it goes on, or finds soon that it does not. Who does not wait any more misses nothing.
                reply.send(handed).ok();
            }
            Err(why) if why.is_lost() => {
                tracing::info!(shard = number, %why, "it follows");
                standing.send_replace(Standing::Follows);
                leader.follows();
            }
            Err(why) => break why,
        }
    };
    tracing::error!(shard = number, %why, "the shard is offline");
    standing.send_replace(Standing::Failed);
}

/// Tells who asks that another leads, until this replica does; `None` once nobody can ask any more.
async fn until_it_leads<S: Apply, L: Lead>(
    group: &Group<S>,
    leader: &L,
    asks: &mut Asks<L::Ask>,
    standing: &watch::Sender<Standing>,
) -> cluster::Result<Option<Leadership>> {
    let mut began = std::pin::pin!(begin(group));
    loop {
        if let Some((Wish { reply, .. }, _)) = asks.wish.take() {
            reply.send(Err(group.not_leader())).ok();
        }
        let is_soon = group.is_between();
        // It was to hand over, and the other did not come in time: it may have lost its lead all the same.
        let may_go_on = matches!(*standing.borrow(), Standing::Leads(_));
        if may_go_on && !is_soon && group.leadership().is_none() {
            standing.send_replace(Standing::Follows);
            leader.follows();
        }
        if let Some(ask) = asks.held.take_if(|_| !is_soon) {
            leader.refuse(ask);
        }
        let takes = asks.held.is_none();
        tokio::select! {
            biased;
            began = &mut began => return began.map(Some),
            next = asks.next(), if takes => match next {
                Next::Ask(ask) => asks.held = Some(ask),
                Next::Wish => {}
                Next::Over => return Ok(None),
            },
            () = sleep(SOON), if is_soon || may_go_on => {}
        }
    }
}

/// Waits until this replica leads and may begin: it knows all that was agreed on before. Who is alone has all of that
/// durable first: nobody else has what a power cut would take.
async fn begin<S: Apply>(group: &Group<S>) -> cluster::Result<Leadership> {
    loop {
        let leadership = group.wait_to_lead().await?;
        // It may have led in this term before: what it submitted then may be on its way.
        group.settle(leadership).await?;
        if let Some(applied) = group.applied().filter(|_| group.is_alone()) {
            group.wait_durable(applied).await?;
        }
        if group.leadership() == Some(leadership) {
            return Ok(leadership);
        }
    }
}

/// As a leadership [begins](begin), of a shard that is being opened. Not to be called on a runtime.
pub(super) fn wait_to_begin<S: Apply>(number: u32, group: &Group<S>) -> Result<Leadership, Failed> {
    let failed = |why| Failed::Shard { number, why };
    let leading = async { begin(group).await.map_err(failed) };
    wait_for(group.runtime(), || group.lacks_room().map(failed), leading)
}

/// As [`wait_to_begin`], until its leader says so too.
pub(super) fn wait_until_it_leads<S: Apply>(
    number: u32,
    group: &Group<S>,
    mut standing: watch::Receiver<Standing>,
) -> Result<(), Failed> {
    let failed = |why| Failed::Shard { number, why };
    let leads = async {
        match standing.wait_for(|now| *now != Standing::Follows).await.as_deref() {
            Ok(Standing::Leads(_)) => Ok(()),
            _failed => Err(why_failed(group).map_or(Failed::Offline { number }, failed)),
        }
    };
    wait_for(group.runtime(), || group.lacks_room().map(failed), leads)
}

/// Whether clients are answered of the state: the replica leads, or it has failed, and there is no other.
pub(super) fn is_read_here<S: Apply>(standing: Standing, group: &Group<S>) -> bool {
    match standing {
        Standing::Leads(_) => true,
        Standing::Follows => false,
        Standing::Failed => group.is_alone(),
    }
}

/// Whether the replica still leads in this leadership.
///
/// # Errors
/// Why it does not.
pub(super) fn check<S: Apply>(group: &Group<S>, leadership: Leadership) -> cluster::Result<()> {
    if group.leadership() == Some(leadership) {
        return Ok(());
    }
    let lost = || cluster::Error::NotLeader { term: leadership.term };
    Err(why_failed(group).unwrap_or_else(lost))
}

/// Why the replica does nothing any more, if it does not: to follow is no failure.
pub(super) fn why_failed<S: Apply>(group: &Group<S>) -> Option<cluster::Error> {
    group.why_offline().filter(|why| !is_lost(why))
}

fn is_lost(why: &cluster::Error) -> bool {
    matches!(why, cluster::Error::NotLeader { .. } | cluster::Error::Unknown { .. })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use plimsoll_log::Ack;
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Dir;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::super::leader::{Appended, Ask, Bounds, ChapterSize, Leads};
    use super::super::replica::{Applier, Replica};
    use super::super::room::Room;
    use super::*;
    use crate::cluster::Options;
    use crate::shard::{Answer, Item, Opening, PartitionId, State, TopicId};

    /// Of the shard.
    const NUMBER: u32 = 2;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct One {
        group: Arc<Group<Applier>>,
        leads: Leads,
        replica: Arc<Replica>,
    }

    fn one() -> One {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let options = Options {
            node: 1,
            promise: Ack::Durable,
            must_sync: |_| true,
            start: None,
            log: plimsoll_log::Options::default(),
            crew: None,
        };
        let replica = Arc::new(Replica::new(State::default(), 1 << 20, 0));
        let (group, _) = Group::open(&dir, options, Applier(Arc::clone(&replica))).unwrap();
        let group = Arc::new(group);
        let leads = Leads {
            number: NUMBER,
            group: Arc::clone(&group),
            replica: Arc::clone(&replica),
            neighbours: Arc::default(),
            intended: Arc::default(),
            run: None,
            room: Arc::new(Room::new(&dir, 0)),
            bounds: Bounds {
                chapter: ChapterSize { bytes: 1 << 30, age: PATIENCE },
                unsynced: None,
            },
            decided: None,
            clock: || 1_000,
        };
        One { group, leads, replica }
    }

    fn opening() -> Opening {
        Opening { partition: PartitionId { topic: TopicId([7; 16]), number: 0 }, number: 1 }
    }

    fn act(asks: &mpsc::UnboundedSender<Ask>) -> oneshot::Receiver<Result<(), Failed>> {
        let (reply, done) = oneshot::channel();
        asks.send(Ask::Act { items: vec![Item::Advance], reply }).unwrap();
        done
    }

    fn append(asks: &mpsc::UnboundedSender<Ask>) -> oneshot::Receiver<Appended> {
        let (reply, appended) = oneshot::channel();
        let (opening, batch) = (opening(), Bytes::new());
        asks.send(Ask::Append { connection: 1, opening, batch, reply }).unwrap();
        appended
    }

    /// Whoever waited for a leader that leads no more was told nothing, and waited for its timeout.
    #[test]
    fn who_waits_when_a_leadership_ends_is_told_so() {
        let One { group, mut leads, replica } = one();
        let lead = wait_to_begin(NUMBER, &group).unwrap();
        // The engine leads in another term by now.
        let lost = Leadership { term: lead.term + 1, ..lead };
        let (asks, asked) = mpsc::unbounded_channel();
        let mut asked = Asks::new(asked, mpsc::unbounded_channel().1);
        let (appended, done) = (append(&asks), act(&asks));
        let reader = Arc::new(tokio::sync::Notify::new());
        replica.watch(opening(), &reader);
        let (ended, appended, done) = group.runtime().block_on(async {
            let ended = timeout(PATIENCE, leads.lead(lost, &mut asked)).await.unwrap();
            leads.follows();
            reader.notified().await;
            (ended, appended.await.unwrap(), done.await.unwrap())
        });
        assert!(ended.is_err_and(|why| why.is_lost()));
        // What was refused before it was proposed has its own answer.
        assert!(matches!(appended.answer, Answer::Refused(_) | Answer::NotLeader), "{appended:?}");
        assert!(matches!(done, Err(Failed::NotLeader { number: NUMBER })), "{done:?}");
    }

    /// Leads until it is asked for something, and then says that it leads no more.
    struct Fickle {
        /// How often it may.
        left: usize,
        began: mpsc::UnboundedSender<u64>,
        /// Says that it prepares, and waits for the answer.
        prepares: Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>,
    }

    impl Lead for Fickle {
        type Ask = oneshot::Sender<bool>;

        fn refuse(&self, ask: Self::Ask) {
            ask.send(false).ok();
        }

        async fn prepare(&mut self, _leadership: Leadership) -> Result<(), Ended> {
            if let Some((prepares, may_go_on)) = self.prepares.take() {
                prepares.send(()).unwrap();
                may_go_on.await.unwrap();
            }
            Ok(())
        }

        async fn lead(
            &mut self,
            leadership: Leadership,
            asks: &mut Asks<Self::Ask>,
        ) -> Result<(), Ended> {
            self.began.send(leadership.term).ok();
            let Next::Ask(ask) = asks.next().await else { return Ok(()) };
            ask.send(true).ok();
            self.left -= 1;
            let term = leadership.term;
            Err(match self.left {
                0 => cluster::Error::Stopped { why: "its disk".to_owned() },
                _ => cluster::Error::Unknown { term },
            }
            .into())
        }
    }

    /// Consumers read from a leader whose fence after a loss was not agreed on yet: they were told that their offsets are
    /// out of range, and began again.
    #[test]
    fn a_replica_says_that_it_leads_once_what_must_be_agreed_on_first_is() {
        let One { group, .. } = one();
        let (began, _begun) = mpsc::unbounded_channel();
        let (_asks, asks) = mpsc::unbounded_channel();
        let (stands, mut standing) = watch::channel(Standing::default());
        let ((prepares, preparing), (go_on, may_go_on)) = (oneshot::channel(), oneshot::channel());
        let fickle = Fickle { left: 1, began, prepares: Some((prepares, may_go_on)) };
        let asks = Asks::new(asks, mpsc::unbounded_channel().1);
        let runtime = group.runtime().clone();
        runtime.spawn(lead_whenever(NUMBER, Arc::clone(&group), fickle, asks, stands));
        runtime.block_on(async {
            preparing.await.unwrap();
            assert_eq!(*standing.borrow_and_update(), Standing::Follows, "it is not prepared");
            go_on.send(()).unwrap();
            standing.wait_for(|now| matches!(now, Standing::Leads(_))).await.unwrap();
        });
    }

    #[test]
    fn a_leadership_that_ends_is_no_failure_and_the_next_begins() {
        let One { group, .. } = one();
        let (began, mut begun) = mpsc::unbounded_channel();
        let (asks, asked) = mpsc::unbounded_channel();
        let (stands, mut standing) = watch::channel(Standing::default());
        let fickle = Fickle { left: 3, began, prepares: None };
        let asked = Asks::new(asked, mpsc::unbounded_channel().1);
        let task =
            group.runtime().spawn(lead_whenever(NUMBER, Arc::clone(&group), fickle, asked, stands));
        let ask = || {
            let (reply, answer) = oneshot::channel();
            asks.send(reply).unwrap();
            answer
        };
        group.runtime().block_on(async {
            for _ in 0..3 {
                assert!(begun.recv().await.is_some());
                standing.wait_for(|now| matches!(now, Standing::Leads(_))).await.unwrap();
                assert_eq!(ask().await, Ok(true));
            }
            task.await.unwrap();
        });
        assert_eq!(*standing.borrow(), Standing::Failed, "that one was a failure");
        assert!(asks.is_closed());
    }
}
