//! The socket of a session: frames in, frames out, signs of life.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, timeout, timeout_at};

use super::counters::add;
use super::ended::Ended;
use super::error::Refusal;
use super::frame::{self, Kind, Message};
use super::gone;
use super::intake::Intake;
use super::judge::Reason;
use super::session::{Reply, Session};
use super::shared::Shared;
use crate::net::write_all;

/// Bytes that are read at once, where it is not known how many come.
const READ_BYTES: usize = 16 << 10;

/// A session has its place until this is dropped; then whoever waits on it is told.
struct Installed<'a> {
    shared: &'a Shared,
    session: &'a Arc<Session>,
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        self.shared.lock().remove(self.session);
        drop(self.session.end());
    }
}

/// Gives the session its place, and serves it until it ends, which it has done on return.
pub(super) async fn run(
    shared: &Arc<Shared>,
    mut stream: TcpStream,
    session: Arc<Session>,
) -> Result<(), Ended> {
    let (remains, intake) = {
        let mut roster = shared.lock();
        let remains = roster.install(&session)?;
        let intake = roster.intake(session.peer.node, session.priority);
        (remains, intake.unwrap_or_default())
    };
    drop(remains);
    let installed = Installed { shared, session: &session };
    add(&shared.tally.connections, 1);
    if !shared.handler.connected(session.peer, session.hello.clone()) {
        drop(installed);
        gone::look(shared, session.peer);
        return Err(Reason::OldIncarnation.into());
    }
    let (from, to) = stream.split();
    let ended = tokio::select! {
        ended = read(shared, from, &session, &intake) => ended,
        ended = write(shared, to, &session) => ended,
        () = session.ended() => Ok(()),
    };
    drop(installed);
    gone::look(shared, session.peer);
    ended
}

async fn read(
    shared: &Shared,
    mut from: ReadHalf<'_>,
    session: &Arc<Session>,
    intake: &Arc<Intake>,
) -> Result<(), Ended> {
    let limits = &shared.options.limits;
    let lane = session.incoming();
    let mut received = BytesMut::new();
    let mut sequence = 1;
    loop {
        let wanted = match frame::announced(&received, limits.frame_bytes)? {
            Some(length) if length <= received.len() => {
                let frame = take_off(&mut received, length);
                let messages = frame::decode(&frame, &lane, sequence)?;
                sequence += 1;
                add(&shared.tally.frames_received, 1);
                add(&shared.tally.messages_received, messages.len());
                for message in messages {
                    take(shared, session, intake, message);
                }
                continue;
            }
            Some(length) => length - received.len(),
            None => READ_BYTES,
        };
        received.reserve(wanted);
        let read = timeout(limits.silence, from.read_buf(&mut received)).await;
        let bytes = read.map_err(|_elapsed| Ended::Silent)??;
        if bytes == 0 {
            return Ok(());
        }
        session.note_heard();
        add(&shared.tally.received_bytes, bytes);
    }
}

/// Takes a frame off what was received. A short one is copied: entries of it are kept for long, and would hold all that there
/// was room for.
fn take_off(received: &mut BytesMut, length: usize) -> Bytes {
    if length >= READ_BYTES {
        return received.split_to(length).freeze();
    }
    let frame = Bytes::copy_from_slice(&received[..length]);
    received.advance(length);
    frame
}

/// A message came.
fn take(shared: &Shared, session: &Arc<Session>, intake: &Arc<Intake>, message: Message<Bytes>) {
    let Message { kind, shard, call, body } = message;
    match kind {
        Kind::Answer => session.answered(call, Ok(body)),
        Kind::Refused(why) => session.answered(call, Err(why)),
        Kind::Request => {
            if session.has_ended() {
                return;
            }
            let Some(place) = intake.admit(body.len(), &shared.options.limits) else {
                add(&shared.tally.turned_away, 1);
                session.refuse(shard, call, Refusal::Busy);
                return;
            };
            let session = Arc::clone(session);
            let reply = Reply { session, shard, call, is_answered: false, _place: place };
            let answer = shared.handler.handle(reply.session.peer, shard, body);
            shared.spawn(async move { reply.send(answer.await) });
        }
    }
}

async fn write(shared: &Shared, mut to: WriteHalf<'_>, session: &Session) -> Result<(), Ended> {
    let limits = &shared.options.limits;
    let mut sequence = 1;
    let mut sent = Instant::now();
    loop {
        let batch = session.take();
        if batch.messages.is_empty() && timeout_at(sent + limits.ping, session.work()).await.is_ok()
        {
            continue;
        }
        let pieces = VecDeque::from(frame::encode(&session.out, sequence, &batch.messages));
        let bytes = pieces.iter().map(Bytes::len).sum();
        let written = timeout(limits.write, write_all(&mut to, pieces)).await;
        written.map_err(|_elapsed| Ended::Silent)??;
        session.written(&batch);
        (sequence, sent) = (sequence + 1, Instant::now());
        add(&shared.tally.frames_sent, 1);
        add(&shared.tally.messages_sent, batch.messages.len());
        add(&shared.tally.sent_bytes, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A follower kept each entry of 300 bytes in the 16 KiB that it was read into, and counted 300.
    #[test]
    fn a_short_frame_holds_nothing_but_itself_and_a_long_one_is_not_copied() {
        let mut received = BytesMut::with_capacity(READ_BYTES);
        received.extend_from_slice(&[b's'; 300]);
        received.extend_from_slice(&[b'n'; 10]);
        let buffer = received.as_ptr();
        let short = take_off(&mut received, 300);
        assert!(short.is_unique() && short.len() == 300);
        assert_eq!(&received[..], [b'n'; 10]);
        received.clear();
        received.reserve(READ_BYTES);
        assert_eq!(received.as_ptr(), buffer, "nobody else has it: it is filled again");
        received.resize(2 * READ_BYTES, b'l');
        let at = received.as_ptr();
        let long = take_off(&mut received, 2 * READ_BYTES);
        assert_eq!((long.as_ptr(), long.len()), (at, 2 * READ_BYTES));
    }
}
