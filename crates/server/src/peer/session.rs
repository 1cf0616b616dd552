//! [`Session`]: one connection as others see it, asked and answered over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use super::error::{Error, Refusal};
use super::frame::{Kind, Lane};
use super::intake::Place;
use super::outbox::{Batch, Message, NotAsked, Outbox, Remains};
use super::{Peer, Priority};

/// A connection that was agreed on.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: Peer,
    pub(super) priority: Priority,
    pub(super) hello: Bytes,
    /// Frames to it.
    pub(super) out: Lane,
    outbox: Mutex<Outbox>,
    /// Something waits to be sent.
    work: Notify,
    over: Notify,
    heard: Mutex<Instant>,
}

/// What a node answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The node, and the incarnation of it that was asked.
    pub from: Peer,
    /// A slice of the frame that it came in, as requests are (see [`super::Handler::handle`]).
    pub body: Bytes,
}

/// An ask whose answer is waited for.
#[derive(Debug)]
pub(super) struct Asked {
    session: Arc<Session>,
    call: u64,
    answer: oneshot::Receiver<Result<Bytes, Error>>,
}

/// A request of the peer that is being handled. It is answered, or refused when this is dropped.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) session: Arc<Session>,
    pub(super) shard: u32,
    pub(super) call: u64,
    pub(super) is_answered: bool,
    pub(super) _place: Place,
}

impl Session {
    pub(super) fn new(
        peer: Peer,
        priority: Priority,
        hello: Bytes,
        out: Lane,
        outbox: Outbox,
    ) -> Self {
        Self {
            peer,
            priority,
            hello,
            out,
            outbox: Mutex::new(outbox),
            work: Notify::new(),
            over: Notify::new(),
            heard: Mutex::new(Instant::now()),
        }
    }

    /// Frames from it.
    pub(super) const fn incoming(&self) -> Lane {
        Lane { from: self.out.to, to: self.out.from, ..self.out }
    }

    /// Has a request sent. It waits behind those before it when this returns.
    pub(super) fn ask(self: &Arc<Self>, shard: u32, request: Vec<Bytes>) -> Result<Asked, Error> {
        let node = self.peer.node;
        let bytes = request.iter().map(Bytes::len).sum();
        let (asker, answer) = oneshot::channel();
        let asked = {
            let mut outbox = self.lock();
            let most = outbox.most();
            if bytes > most {
                return Err(Error::TooLarge { node, bytes, most });
            }
            outbox.ask(shard, request, asker)
        };
        let call = asked.map_err(|why| match why {
            NotAsked::Ended => Error::Unreachable { node },
            NotAsked::Busy => Error::Busy { node },
        })?;
        self.work.notify_one();
        Ok(Asked { session: Arc::clone(self), call, answer })
    }

    /// Has an answer or a refusal sent. A peer that takes none ends the connection.
    fn answer(&self, message: Message) {
        let answered = self.lock().answer(message);
        match answered {
            Ok(()) => self.work.notify_one(),
            Err(_overrun) => drop(self.end()),
        }
    }

    pub(super) fn refuse(&self, shard: u32, call: u64, why: Refusal) {
        self.answer(Message { kind: Kind::Refused(why), shard, call, body: Vec::new() });
    }

    /// An answer came: whoever asked has it.
    pub(super) fn answered(&self, call: u64, answer: Result<Bytes, Refusal>) {
        let node = self.peer.node;
        let asker = self.lock().asker(call);
        if let Some(asker) = asker {
            // Nobody may wait for it any more.
            asker.send(answer.map_err(|why| Error::Refused { node, why })).ok();
        }
    }

    /// What goes out with the next frame.
    pub(super) fn take(&self) -> Batch {
        self.lock().take()
    }

    pub(super) fn written(&self, batch: &Batch) {
        self.lock().written(batch);
    }

    /// Waits until something may be there to be sent.
    pub(super) async fn work(&self) {
        self.work.notified().await;
    }

    /// Nothing goes over it any more. Whoever waits for an answer is told once what is returned is dropped.
    pub(super) fn end(&self) -> Remains {
        let remains = self.lock().end();
        self.over.notify_one();
        remains
    }

    /// Waits until somebody has ended it.
    pub(super) async fn ended(&self) {
        self.over.notified().await;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended()
    }

    /// Bytes of it came.
    pub(super) fn note_heard(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When bytes of it came last.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    pub(super) async fn answer(mut self) -> Result<Answer, Error> {
        let from = self.session.peer;
        let gone = Error::Gone { node: from.node };
        let body = (&mut self.answer).await.unwrap_or(Err(gone))?;
        Ok(Answer { from, body })
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let asker = self.session.lock().asker(self.call);
        drop(asker);
    }
}

impl Reply {
    pub(super) fn send(mut self, body: Vec<Bytes>) {
        self.is_answered = true;
        let (shard, call) = (self.shard, self.call);
        self.session.answer(Message { kind: Kind::Answer, shard, call, body });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            self.session.refuse(self.shard, self.call, Refusal::Failed);
        }
    }
}
