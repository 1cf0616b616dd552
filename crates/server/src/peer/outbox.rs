//! [`Outbox`]: what waits to be sent over one connection, and which asks wait for answers. No I/O.
//!
//! Answers go first: whoever asked holds something for them. Where they fill a frame and requests wait, the
//! next frame begins with requests, so that neither starves the other.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::error::{Error, Refusal};
use super::frame::{self, Kind};

/// Messages are put into one frame up to so many bytes of bodies: no more memory is held by somebody who
/// keeps one of them, and an urgent one does not wait behind more.
pub(super) const TOGETHER_BYTES: usize = 1 << 20;
/// Pieces of the messages of one frame: with head and checksum what one writev(2) takes.
const PIECES_MAX: usize = 1022;
/// What a message costs besides its bytes.
const MESSAGE_COST: usize = 128;
/// What a piece costs besides its bytes.
const PIECE_COST: usize = 32;
/// Room for refusals where there is no more for answers.
const REFUSALS_BYTES: usize = 1 << 20;

pub(super) type Message = frame::Message<Vec<Bytes>>;
/// Who waits for an answer.
pub(super) type Asker = oneshot::Sender<Result<Bytes, Error>>;

/// The peer asks, and takes no answers, not even refusals.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// The bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Of requests that wait, and of answers.
    pub(super) waiting_bytes: usize,
    /// Asks that wait for answers.
    pub(super) under_way: usize,
    /// The largest frame that the peer takes.
    pub(super) frame_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Outbox {
    bounds: Bounds,
    answers: Queue,
    requests: Queue,
    /// Requests begin the next frame.
    is_turn_of_requests: bool,
    asked: HashMap<u64, Asker>,
    next_call: u64,
    has_ended: bool,
}

/// Messages in their order, and what they and those that are being written cost.
#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Message>,
    cost: usize,
}

/// What was taken to be written, and what it costs until it is.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) messages: Vec<Message>,
    answers_cost: usize,
    requests_cost: usize,
}

/// What ended with an outbox. Whoever waits is told when it is dropped: not under a lock.
#[derive(Debug, Default)]
pub(super) struct Remains {
    _asked: HashMap<u64, Asker>,
    _waiting: [VecDeque<Message>; 2],
}

/// Why nothing was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAsked {
    Ended,
    Busy,
}

impl Outbox {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            answers: Queue::default(),
            requests: Queue::default(),
            is_turn_of_requests: false,
            asked: HashMap::new(),
            next_call: 1,
            has_ended: false,
        }
    }

    /// The largest body that the peer takes.
    pub(super) fn most(&self) -> usize {
        self.bounds.frame_bytes.saturating_sub(frame::EMPTY_BYTES + frame::MESSAGE_BYTES)
    }

    /// Adds a request; its call.
    pub(super) fn ask(
        &mut self,
        shard: u32,
        body: Vec<Bytes>,
        asker: Asker,
    ) -> Result<u64, NotAsked> {
        if self.has_ended {
            return Err(NotAsked::Ended);
        }
        let call = self.next_call;
        let message = Message { kind: Kind::Request, shard, call, body };
        let has_room = self.requests.has_room(&message, self.bounds.waiting_bytes);
        if !has_room || self.asked.len() >= self.bounds.under_way {
            return Err(NotAsked::Busy);
        }
        self.next_call += 1;
        self.asked.insert(call, asker);
        self.requests.push(message);
        Ok(call)
    }

    /// Who waits for this answer, and does so no more. The request may still be sent.
    pub(super) fn asker(&mut self, call: u64) -> Option<Asker> {
        self.asked.remove(&call)
    }

    /// Adds an answer, or a refusal where it is too large or there is no room for it.
    pub(super) fn answer(&mut self, mut message: Message) -> Result<(), Overrun> {
        if self.has_ended {
            return Ok(());
        }
        let waiting_bytes = self.bounds.waiting_bytes;
        let body_bytes: usize = message.body.iter().map(Bytes::len).sum();
        let refusal = if body_bytes > self.most() {
            Some(Refusal::TooLarge)
        } else if self.answers.has_room(&message, waiting_bytes) {
            None
        } else {
            Some(Refusal::Busy)
        };
        if let Some(refusal) = refusal {
            message.kind = Kind::Refused(refusal);
            message.body = Vec::new();
            let most = waiting_bytes.saturating_add(REFUSALS_BYTES);
            if !self.answers.has_room(&message, most) {
                return Err(Overrun);
            }
        }
        self.answers.push(message);
        Ok(())
    }

    /// Takes what goes out with the next frame; nothing if nothing waits.
    pub(super) fn take(&mut self) -> Batch {
        let mut batch = Batch::default();
        let room = self.bounds.frame_bytes.saturating_sub(frame::EMPTY_BYTES);
        let mut frame =
            Room { frame_bytes: room, together_bytes: TOGETHER_BYTES, pieces: PIECES_MAX };
        let requests_first = std::mem::take(&mut self.is_turn_of_requests);
        if requests_first {
            batch.requests_cost = self.requests.take(&mut frame, &mut batch.messages);
        }
        batch.answers_cost = self.answers.take(&mut frame, &mut batch.messages);
        if !requests_first {
            batch.requests_cost = self.requests.take(&mut frame, &mut batch.messages);
            self.is_turn_of_requests =
                batch.requests_cost == 0 && !self.requests.messages.is_empty();
        }
        batch
    }

    /// What was taken is written: it does not wait any more.
    pub(super) fn written(&mut self, batch: &Batch) {
        self.answers.cost -= batch.answers_cost;
        self.requests.cost -= batch.requests_cost;
    }

    /// Takes nothing more.
    pub(super) fn end(&mut self) -> Remains {
        self.has_ended = true;
        let waiting = [&mut self.answers, &mut self.requests];
        Remains {
            _asked: std::mem::take(&mut self.asked),
            _waiting: waiting.map(|queue| std::mem::take(&mut queue.messages)),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// What still fits a frame.
struct Room {
    frame_bytes: usize,
    together_bytes: usize,
    pieces: usize,
}

impl Room {
    /// Takes room for a message; the first has it in any case, as no larger one is taken in.
    fn take(&mut self, message: &Message, is_first: bool) -> bool {
        let body_bytes: usize = message.body.iter().map(Bytes::len).sum();
        let bytes = frame::MESSAGE_BYTES + body_bytes;
        let fits = bytes <= self.together_bytes && message.body.len() <= self.pieces;
        if bytes > self.frame_bytes || (!fits && !is_first) {
            return false;
        }
        self.frame_bytes -= bytes;
        self.together_bytes = self.together_bytes.saturating_sub(bytes);
        self.pieces = self.pieces.saturating_sub(message.body.len());
        true
    }
}

impl Queue {
    /// Whether a message may wait; one alone always may.
    fn has_room(&self, message: &Message, most: usize) -> bool {
        self.cost == 0 || self.cost.saturating_add(cost(message)) <= most
    }

    fn push(&mut self, message: Message) {
        self.cost += cost(&message);
        self.messages.push_back(message);
    }

    /// Moves what fits; what it costs.
    fn take(&mut self, room: &mut Room, to: &mut Vec<Message>) -> usize {
        let mut taken = 0;
        while let Some(message) = self.messages.front()
            && room.take(message, to.is_empty())
        {
            taken += cost(message);
            to.extend(self.messages.pop_front());
        }
        taken
    }
}

fn cost(message: &Message) -> usize {
    let pieces = message.body.iter().map(|piece| PIECE_COST + piece.len());
    MESSAGE_COST + pieces.sum::<usize>()
}
