//! One connection: frames in, answers out, in their order.
//!
//! Produce requests are taken as they come, so that what waits goes with one entry. Any other request
//! waits until those before it are answered, and nothing behind it is read until it is: so a
//! connection sees the effects of its requests in their order.
//!
//! A node of several that was just started does not know yet what topics there are. Until it does it answers
//! ApiVersions only; whoever waits for too long is told nothing, and asks another node.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::counters::Counters;
use super::held::Held;
use super::limits::Limits;
use super::silence::Silence;
use crate::api::{self, NoRoom, Room, Session, Told};
use crate::kafka::band::{Request, Response};
use crate::kafka::error::ErrorCode;
use crate::kafka::frame::{Header, Refused, announced, take};
use crate::kafka::message::ApiVersionsResponse;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Pieces that one writev(2) takes.
const PIECES_MAX: usize = 1024;

/// How often it is looked whether a client is there that waits for an answer.
const LOOK: Duration = Duration::from_secs(1);

/// How long a request waits for a node that has not heard yet what there is: less than clients wait for an answer.
const HEARS: Duration = Duration::from_secs(5);

/// Serves a connection until the client goes, says what cannot be understood, or the node closes.
pub(super) async fn serve(
    stream: TcpStream,
    session: Session,
    limits: Limits,
    counters: Arc<Counters>,
) {
    let _counted = counters.connected();
    let peer = Arc::clone(&session.peer);
    // Answers are small, and each is waited for.
    stream.set_nodelay(true).ok();
    let connection = Connection {
        stream,
        session,
        limits,
        counters,
        received: BytesMut::new(),
        room: None,
        held: Held::default(),
        parked: None,
        asked: FuturesOrdered::new(),
        is_alone: false,
        unanswered_bytes: 0,
        has_ended: false,
    };
    match connection.run().await {
        Ok(()) => {}
        Err(Ended::Refused(why)) => {
            tracing::debug!(%peer, %why, "a connection is closed");
        }
        Err(Ended::Io(error)) => tracing::trace!(%peer, %error, "a connection is gone"),
    }
}

/// Why a connection ends.
enum Ended {
    Io(io::Error),
    Refused(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An answer in pieces, and the room that it and its request have until it is written.
struct Answered {
    pieces: Vec<Bytes>,
    /// Of the request.
    bytes: usize,
    _rooms: [Option<Room>; 3],
}

/// A request that is read.
struct Asked {
    header: Header,
    request: Request,
    bytes: usize,
    held_ms: i32,
    room: Room,
}

struct Connection {
    stream: TcpStream,
    session: Session,
    limits: Limits,
    counters: Arc<Counters>,
    received: BytesMut,
    /// Room for the frame that is being received, once there is some.
    room: Option<Room>,
    /// For how long a bound on memory holds the next request.
    held: Held,
    /// A request that waits until those before it are answered, or until the node has heard what there is.
    parked: Option<Asked>,
    /// Requests that are not answered yet, in their order.
    asked: FuturesOrdered<BoxFuture<'static, Result<Answered, NoRoom>>>,
    /// Nothing behind the last of them is looked at before it is answered.
    is_alone: bool,
    /// Bytes of requests that are not answered yet.
    unanswered_bytes: usize,
    /// The client sends nothing any more.
    has_ended: bool,
}

impl Connection {
    async fn run(mut self) -> Result<(), Ended> {
        let mut stop = self.session.stop.clone();
        // It waits once, not anew for each request.
        let mut stopped =
            pin!(async move { stop.wait_for(|is_stopping| *is_stopping).await.is_ok() });
        let (mut is_told, mut gone_since) = (false, None);
        let mut silence = Silence::begin(self.limits.idle.min(self.limits.stalled));
        loop {
            self.take_requests()?;
            let is_quiet = self.asked.is_empty();
            if is_quiet && (self.has_ended || self.is_stopping()) {
                return Ok(());
            }
            if is_quiet && self.received.is_empty() {
                // Who is silent takes no room.
                self.received = BytesMut::new();
            }
            let may_take = self.may_take() && !self.has_ended && !self.is_stopping();
            let wanted = self.wanted()?.filter(|_| may_take);
            let may_read = may_take && wanted.is_none();
            self.held.note(wanted.is_some() || self.is_held_by_its_own(), Instant::now);
            // Otherwise it would have been asked.
            let is_unheard = is_quiet && self.parked.is_some();
            let is_silent = self.received.is_empty() && is_quiet;
            let patience = if is_silent { self.limits.idle } else { self.limits.stalled };
            silence.ends();
            tokio::select! {
                biased;
                Some(answered) = self.asked.next(), if !is_quiet => self.write(answered).await?,
                room = self.session.budget.for_request(wanted.unwrap_or(0)), if wanted.is_some() => {
                    self.room = Some(room);
                }
                read = read_if(may_read, &mut self.stream, &mut self.received), if may_read || !is_quiet => {
                    match read? {
                        Some(bytes) => {
                            self.counters.received(bytes);
                            self.has_ended = bytes == 0;
                        }
                        None if gone_since.get_or_insert_with(Instant::now).elapsed() < self.limits.stalled => {}
                        None => return Err(Ended::Refused("it has gone".to_owned())),
                    }
                }
                // Whoever waits for answers may be silent meanwhile.
                () = silence.lasts(patience), if may_read => if is_quiet {
                    return Ok(());
                },
                heard = timeout(HEARS.saturating_sub(self.session.node.age()), self.session.node.until_heard()), if is_unheard => {
                    let late = |_elapsed| "the node has not heard yet what topics there are".to_owned();
                    heard.map_err(late).map_err(Ended::Refused)?;
                }
                _ = &mut stopped, if !is_told => is_told = true,
            }
        }
    }

    /// Whether the node is about to close.
    fn is_stopping(&self) -> bool {
        *self.session.stop.borrow()
    }

    /// Whether another request may be taken.
    fn may_take(&self) -> bool {
        self.has_turn() && self.unanswered_bytes < self.limits.unagreed_bytes
    }

    /// Whether another request would be taken now, were there room for it.
    fn has_turn(&self) -> bool {
        self.parked.is_none() && !self.is_alone
    }

    /// Whether a request, of which there are bytes, must wait for answers to those before it, only because
    /// they are so large.
    fn is_held_by_its_own(&self) -> bool {
        !self.received.is_empty() && self.has_turn() && !self.may_take()
    }

    /// For how many bytes there must be room first, if there is none yet.
    fn wanted(&self) -> Result<Option<usize>, Ended> {
        if self.room.is_some() {
            return Ok(None);
        }
        announced(&self.received, self.limits.frame_bytes).map_err(refused)
    }

    /// Takes the requests that are there.
    fn take_requests(&mut self) -> Result<(), Ended> {
        let has_heard = self.session.node.has_heard();
        if self.asked.is_empty() {
            self.is_alone = false;
            if let Some(parked) = self.parked.take_if(|_| has_heard) {
                self.ask(parked);
            }
        }
        while self.may_take() {
            let Some(room) = self.take_room()? else { return Ok(()) };
            let frame = take(&mut self.received, self.limits.frame_bytes).map_err(refused)?;
            let Some(frame) = frame else {
                self.room = Some(room);
                return Ok(());
            };
            let (bytes, held_ms) = (frame.len(), self.held.take_ms(Instant::now));
            let (header, request) = match Request::decode(frame) {
                Ok(read) => read,
                Err(Refused::Negotiate { correlation_id, .. }) => {
                    self.negotiate(correlation_id, room);
                    continue;
                }
                Err(why) => return Err(refused(why)),
            };
            let asked = Asked { header, request, bytes, held_ms, room };
            let may_follow = matches!(asked.request, Request::Produce(_));
            let is_known = has_heard || matches!(asked.request, Request::ApiVersions(_));
            match is_known && (self.asked.is_empty() || may_follow) {
                true => self.ask(asked),
                false => self.parked = Some(asked),
            }
        }
        Ok(())
    }

    /// Room for the next frame, if there is one and room is there at once.
    fn take_room(&mut self) -> Result<Option<Room>, Ended> {
        if let Some(room) = self.room.take() {
            return Ok(Some(room));
        }
        let Some(bytes) = self.wanted()? else { return Ok(None) };
        Ok(self.session.budget.for_request_now(bytes, self.asked.is_empty()))
    }

    fn ask(&mut self, asked: Asked) {
        let Asked { header, request, bytes, held_ms, room: of_request } = asked;
        self.is_alone = !matches!(request, Request::Produce(_));
        self.unanswered_bytes += bytes;
        let Header { version, correlation_id, .. } = header;
        let (api, began, counters) = (request.api(), Instant::now(), Arc::clone(&self.counters));
        let answer = api::answer(&self.session, header, request);
        let budget = Arc::clone(&self.session.budget);
        self.asked.push_back(Box::pin(async move {
            let (response, of_records) = match answer.await {
                Some(Told { response, room }) => (Some(response), room),
                None => (None, None),
            };
            let encode = |mut response: Response| {
                response.held_for(held_ms);
                response.encode_noting_errors(version, correlation_id)
            };
            let (pieces, errors) = response.map(encode).unwrap_or_default();
            counters.answered(api, began.elapsed(), &errors);
            let sent_bytes = pieces.iter().map(Bytes::len).sum();
            let has = of_request.num_permits() + of_records.as_ref().map_or(0, Room::num_permits);
            let of_answer = budget.for_answer(sent_bytes, has)?;
            Ok(Answered { pieces, bytes, _rooms: [Some(of_request), of_records, of_answer] })
        }));
    }

    /// Tells a client that speaks a newer ApiVersions, in the layout that all understand, what there is.
    fn negotiate(&mut self, correlation_id: i32, room: Room) {
        self.is_alone = true;
        let table = ApiVersionsResponse::of_the_band(ErrorCode::UnsupportedVersion);
        let pieces = Response::from(table).encode(0, correlation_id);
        let answered = Answered { pieces, bytes: 0, _rooms: [Some(room), None, None] };
        self.asked.push_back(Box::pin(std::future::ready(Ok(answered))));
    }

    /// Writes an answer, and those behind it that are ready, in as few calls as possible.
    async fn write(&mut self, first: Result<Answered, NoRoom>) -> Result<(), Ended> {
        let (mut answers, mut next) = (Vec::new(), Some(first));
        let mut ended = Ok(());
        while let Some(answered) = next {
            match answered {
                Ok(answered) => answers.push(answered),
                Err(no_room) => {
                    ended = Err(refused(no_room));
                    break;
                }
            }
            next = self.asked.next().now_or_never().flatten();
        }
        let mut pieces: VecDeque<Bytes> = VecDeque::new();
        for answered in &mut answers {
            self.unanswered_bytes -= answered.bytes;
            pieces.extend(answered.pieces.drain(..));
        }
        self.counters.sent(pieces.iter().map(Bytes::len).sum());
        let written = timeout(self.limits.stalled, write_all(&mut self.stream, pieces)).await;
        written.map_err(|_elapsed| Ended::Refused("it takes no answers".to_owned()))??;
        ended
    }
}

fn refused(why: impl Error) -> Ended {
    Ended::Refused(why.to_string())
}

thread_local! {
    /// Where what comes first is read to: what is kept of it takes no more room than it has bytes.
    static DESK: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Reads, if it may. Otherwise `None` now and then, once the client sends nothing any more.
async fn read_if(
    may_read: bool,
    stream: &mut TcpStream,
    received: &mut BytesMut,
) -> io::Result<Option<usize>> {
    if may_read {
        return Ok(Some(read(stream, received).await?));
    }
    loop {
        // Also where there are bytes that are not read yet.
        let is_gone = stream.ready(Interest::READABLE).await?.is_read_closed();
        sleep(LOOK).await;
        if is_gone {
            return Ok(None);
        }
    }
}

/// Waits for bytes; takes no room before there are some.
async fn read(stream: &mut TcpStream, received: &mut BytesMut) -> io::Result<usize> {
    if received.is_empty() {
        return poll_fn(|context| read_first(Pin::new(stream), context, received)).await;
    }
    received.reserve(READ_BYTES);
    stream.read_buf(received).await
}

/// Reads where nothing is received yet.
fn read_first(
    stream: Pin<&mut TcpStream>,
    context: &mut Context<'_>,
    received: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    DESK.with_borrow_mut(|desk| {
        let mut read = ReadBuf::new(desk);
        ready!(stream.poll_read(context, &mut read))?;
        *received = BytesMut::from(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}

/// Writes pieces that follow each other.
pub(crate) async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut pieces: VecDeque<Bytes>,
) -> io::Result<()> {
    while !pieces.is_empty() {
        let slices: Vec<IoSlice<'_>> =
            pieces.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let mut written = stream.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(piece) = pieces.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                break;
            }
            written -= piece.len();
            pieces.pop_front();
        }
    }
    Ok(())
}
