//! [`Network`]: the engine's messages, on their way through a [`Carrier`].
//!
//! Invariants: no answer of an incarnation reaches the engine once a newer one of that node is known here, and none of another
//! generation ever.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, unfold};
use futures_util::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use openraft::{AnyError, BasicNode, OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::carrier::{Carrier, Incarnations};
use super::generation::Generation;
use super::message::{Answer, Request};
use super::storage::Storage;
use super::types::{LogId, Types, Vote};

type Result<T> = std::result::Result<T, RPCError<Types>>;
type Appended = Result<StreamAppendResult<Types>>;

/// How long a replica may take: a sync of a slow disk is waited for, and the carrier sees a dead node sooner.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an unreachable node is left alone.
const REST: Duration = Duration::from_millis(100);
/// How often a replica is told that it lacks what is gone: it learns so late that it is to be seeded, and its leader so late that it was.
const TELL: Duration = Duration::from_millis(200);
/// Appends that are on their way to a replica at once.
const IN_FLIGHT_MAX: usize = 16;
/// How long word of what is committed waits for entries to go with: each costs as much as an append does.
const NOTICE: Duration = Duration::from_millis(2);
/// It waits where entries came within this of each other.
const BUSY: Duration = Duration::from_millis(10);
/// An append with fewer bytes waits behind nothing.
const URGENT_BYTES_MAX: usize = 64 << 10;

/// Makes a [`Link`] for each other replica.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) carrier: Arc<dyn Carrier>,
    pub(crate) incarnations: Arc<Incarnations>,
    pub(crate) generation: Arc<Generation>,
    /// Of this replica: what it has let go of is not sent.
    pub(crate) storage: Weak<Storage>,
}

/// The way to one replica.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    to: u64,
    network: Network,
}

impl Network {
    /// Asks the replica on a node.
    pub(crate) fn ask(
        &self,
        to: u64,
        request: &Request,
    ) -> impl Future<Output = std::result::Result<Answer, AnyError>> + Send + use<> {
        let pieces = self.generation.seal(request.encode());
        let urgent = pieces.iter().map(bytes::Bytes::len).sum::<usize>() < URGENT_BYTES_MAX;
        let asked = self.carrier.ask(to, urgent, pieces);
        let incarnations = Arc::clone(&self.incarnations);
        let generation = Arc::clone(&self.generation);
        async move {
            let answered = match timeout(PATIENCE, asked).await {
                Ok(answered) => answered.map_err(|why| AnyError::new(&why))?,
                Err(late) => return Err(AnyError::new(&late)),
            };
            if !incarnations.is_current(to, answered.incarnation) {
                return Err(AnyError::error("what answered has ended since"));
            }
            let Some(answer) = generation.open(to, &answered.answer) else {
                return Err(AnyError::error("what answered is of another generation"));
            };
            match Answer::decode(&answer).map_err(|why| AnyError::new(&why))? {
                Answer::Refused(why) => Err(AnyError::new(&why)),
                answer => Ok(answer),
            }
        }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, to: u64, _: &BasicNode) -> Link {
        Link { to, network: self.clone() }
    }
}

impl Link {
    fn ask(&self, request: &Request) -> impl Future<Output = Result<Answer>> + Send + use<> {
        let asked = self.network.ask(self.to, request);
        async move { asked.await.map_err(|why| Unreachable::new(&why).into()) }
    }

    fn append(
        &self,
        request: AppendEntriesRequest<Types>,
    ) -> impl Future<Output = Result<AppendEntriesResponse<Types>>> + Send + use<> {
        let asked = self.ask(&Request::Append(request));
        async move {
            match asked.await? {
                Answer::Appended(appended) => Ok(appended),
                other => Err(unexpected(&other)),
            }
        }
    }

    fn has_let_go_behind(&self, before: Option<LogId>) -> bool {
        let storage = self.network.storage.upgrade();
        storage.is_some_and(|storage| storage.has_let_go_behind(before))
    }

    async fn ask_vote(&self, request: Request) -> Result<VoteResponse<Types>> {
        match self.ask(&request).await? {
            Answer::Voted(voted) => Ok(voted),
            other => Err(unexpected(&other)),
        }
    }
}

/// The same requests, but for those that only say what is committed where another follows soon: that says it too. Entries follow
/// soon where they came soon one after the other; else whoever waits for a single change is told at once.
/// The engine does not count answers; it looks how far they reach.
fn together<S>(input: S) -> impl Stream<Item = AppendEntriesRequest<Types>> + Send
where
    S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
{
    let begun = (input.fuse(), None, false);
    unfold(begun, |(mut input, mut came, mut is_busy)| async move {
        let mut request = input.next().await?;
        let until = Instant::now() + NOTICE;
        while is_busy && request.entries.is_empty() {
            match timeout_at(until, input.next()).await {
                Ok(Some(next)) => request = next,
                // One that only asks how far the other is ends what follows.
                Ok(None) | Err(_) => break,
            }
        }
        if !request.entries.is_empty() {
            let now = Instant::now();
            is_busy = came.replace(now).is_some_and(|before| now - before < BUSY);
        }
        Some((request, (input, came, is_busy)))
    })
}

fn gone() -> RPCError<Types> {
    Unreachable::new(&AnyError::error("it lacks what is not in the log any more")).into()
}

fn unexpected(answer: &Answer) -> RPCError<Types> {
    NetworkError::new(&AnyError::error(format!("this answers no such question: {answer:?}"))).into()
}

impl RaftNetworkV2<Types> for Link {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>> {
        self.append(request).await
    }

    /// Several are on their way at once; they are answered in order. One that has nothing, as what it should have was let
    /// go of, goes as a sign of life; a second ends the stream, and the engine looks for another way.
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Appended>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let link = self.clone();
        let mut empty = 0;
        let appended = together(input).map(move |request| {
            let before = request.prev_log_id;
            let last = request.entries.last().map(|entry| entry.log_id).or(before);
            empty += usize::from(request.entries.is_empty() && link.has_let_go_behind(before));
            let appended = (empty < 2).then(|| link.append(request));
            async move {
                let Some(appended) = appended else { return (Err(gone()), last) };
                (appended.await.map(|how| how.into_stream_result(before, last)), last)
            }
        });
        // What follows one that was not taken whole is not looked at.
        let answers = appended.buffered(IN_FLIGHT_MAX).scan(false, |has_ended, (how, last)| {
            let goes_on = !*has_ended;
            *has_ended = !matches!(&how, Ok(Ok(through)) if *through == last);
            std::future::ready(goes_on.then_some(how))
        });
        let answers: BoxStream<'s, Appended> = Box::pin(answers);
        Box::pin(std::future::ready(Ok(answers)))
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>> {
        self.ask_vote(Request::Vote(request)).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>> {
        self.ask_vote(Request::PreVote(request)).await
    }

    /// Nothing is sent: whoever lacks what this replica has let go of is told, until it has it from elsewhere.
    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, ()>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> std::result::Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let Some(through) = snapshot.meta.last_log_id else { return Err(gone().into()) };
        let answer = self.ask(&Request::Gone(through)).await;
        if matches!(answer, Ok(Answer::Gone(true))) {
            return Ok(SnapshotResponse::new(vote));
        }
        tokio::select! {
            closed = cancel => Err(closed.into()),
            () = sleep(TELL) => Err(gone().into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        _: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>> {
        match self.ask(&Request::TakeOver(request)).await? {
            Answer::Taken => Ok(Ok(())),
            other => Err(unexpected(&other)),
        }
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(REST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::types::{Entry, log_id};
    use futures_util::stream::{iter, pending};
    use openraft::entry::RaftEntry;

    fn request(
        committed: u64,
        entries: impl IntoIterator<Item = u64>,
    ) -> AppendEntriesRequest<Types> {
        let blank = |index| Entry::new_blank(log_id(1, index));
        AppendEntriesRequest {
            vote: Vote::new_committed(1, 1),
            prev_log_id: None,
            entries: entries.into_iter().map(blank).collect(),
            leader_commit: Some(log_id(1, committed)),
        }
    }

    fn said(request: &AppendEntriesRequest<Types>) -> (u64, usize) {
        (request.leader_commit.unwrap().index, request.entries.len())
    }

    fn paused(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(story);
    }

    #[test]
    fn what_is_committed_goes_with_the_entries_that_follow() {
        paused(async {
            let all = [
                request(0, [1]),
                request(0, [2]),
                request(1, []),
                request(2, []),
                request(3, [4]),
                request(4, [5]),
            ];
            let begun = Instant::now();
            let sent: Vec<_> = together(iter(all)).map(|request| said(&request)).collect().await;
            assert_eq!(sent, [(0, 1), (0, 1), (3, 1), (4, 1)]);
            assert_eq!(begun.elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn what_is_committed_is_said_soon_where_no_entries_follow() {
        paused(async {
            let begun = Instant::now();
            let all = [request(0, [1]), request(0, [2]), request(1, []), request(2, [])];
            let sent = together(iter(all).chain(pending())).skip(2);
            let mut sent = Box::pin(sent);
            assert_eq!(said(&sent.next().await.unwrap()), (2, 0));
            assert_eq!(begun.elapsed(), NOTICE);
            assert!(timeout(Duration::from_secs(9), sent.next()).await.is_err());
        });
    }

    /// A topic that was made at one broker was not known at the next.
    #[test]
    fn what_is_committed_is_said_at_once_where_entries_are_rare() {
        paused(async {
            let begun = Instant::now();
            let all = iter([request(0, [1]), request(1, [])]).chain(pending());
            let mut sent = Box::pin(together(all).skip(1));
            assert_eq!(said(&sent.next().await.unwrap()), (1, 0));
            assert_eq!(begun.elapsed(), Duration::ZERO);
        });
    }

    /// Such a one asks how far the other is, and is the last of its stream.
    #[test]
    fn who_asks_how_far_another_is_waits_for_nothing() {
        paused(async {
            let begun = Instant::now();
            let all = [request(0, [1]), request(0, [2]), request(1, [])];
            let sent: Vec<_> = together(iter(all)).map(|request| said(&request)).collect().await;
            assert_eq!(sent, [(0, 1), (0, 1), (1, 0)]);
            assert_eq!(begun.elapsed(), Duration::ZERO);
        });
    }
}
