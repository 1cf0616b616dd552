//! A connection is agreed on, from either side.
//!
//! ```text
//! dialler                          dialled
//!    introduction, its nonce ─────►  judged
//!      judged  ◄───── introduction, its nonce; or a verdict
//!    verdict ─────────────────────►  the connection is taken
//! ```
//!
//! Only the verdict of the dialler, whose checksum has both nonces in it, makes the dialled side take the
//! connection: an introduction that somebody recorded ends nobody's connections.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ended::Ended;
use super::frame::{Lane, VERSIONS};
use super::greeting::{self, Greeting, HEAD_BYTES, Kind, Nonce};
use super::judge::{Expected, Reason};
use super::options::Options;
use super::outbox::{Bounds, Outbox};
use super::session::Session;
use super::{Peer, Priority};
use crate::cursor::Malformed;
use crate::random;

/// What a greeting comes to, before it is known whether this incarnation may connect.
pub(super) type Admit<'a> = &'a (dyn Fn(Peer, &Bytes) -> Result<(), Reason> + Sync);

/// Agrees on a connection that we made.
pub(super) async fn dial(
    stream: &mut TcpStream,
    options: &Options,
    (node, priority): (u64, Priority),
    admit: Admit<'_>,
) -> Result<Arc<Session>, Ended> {
    let ours = random::bytes();
    let said = introduction(options, Kind::Dialler, priority, node, ours);
    stream.write_all(&said.encode(0)).await?;
    let heard = read(stream, greeting::seed(&[ours])).await?;
    if heard.kind == Kind::Verdict {
        return Err(Ended::Refusing(heard.reason));
    }
    let dialled = Some((node, priority));
    let expected = expected(options, Kind::Dialled, dialled);
    let judged = expected
        .judge(&heard)
        .and_then(|version| admit(heard.from, &heard.hello).map(|()| version));
    let seed = greeting::seed(&[ours, heard.nonce]);
    let said = verdict(options, priority, heard.from.node, judged.err());
    stream.write_all(&said.encode(seed)).await?;
    Ok(session(options, judged?, seed, heard))
}

/// Agrees on a connection that was made to us.
pub(super) async fn dialled(
    stream: &mut TcpStream,
    options: &Options,
    admit: Admit<'_>,
) -> Result<Arc<Session>, Ended> {
    let heard = read(stream, 0).await?;
    let expected = expected(options, Kind::Dialler, None);
    let judged = expected
        .judge(&heard)
        .and_then(|version| admit(heard.from, &heard.hello).map(|()| version));
    let (priority, node) = (heard.priority, heard.from.node);
    let version = match judged {
        Ok(version) => version,
        Err(reason) => {
            let said = verdict(options, priority, node, Some(reason));
            stream.write_all(&said.encode(greeting::seed(&[heard.nonce]))).await?;
            return Err(reason.into());
        }
    };
    let ours = random::bytes();
    let said = introduction(options, Kind::Dialled, priority, node, ours);
    stream.write_all(&said.encode(greeting::seed(&[heard.nonce]))).await?;
    let seed = greeting::seed(&[heard.nonce, ours]);
    let agreed = read(stream, seed).await?;
    if agreed.kind != Kind::Verdict {
        return Err(Malformed::Field("the kind of a greeting", agreed.kind as u64).into());
    }
    if agreed.reason != 0 {
        return Err(Ended::Refusing(agreed.reason));
    }
    Ok(session(options, version, seed, heard))
}

const fn expected(options: &Options, kind: Kind, dialled: Option<(u64, Priority)>) -> Expected {
    Expected { cluster: options.cluster, us: options.us(), kind, dialled }
}

fn introduction(
    options: &Options,
    kind: Kind,
    priority: Priority,
    to: u64,
    nonce: Nonce,
) -> Greeting {
    Greeting {
        kind,
        priority,
        versions: VERSIONS,
        reason: 0,
        cluster: options.cluster,
        from: options.us(),
        to,
        nonce,
        frame_bytes: options.limits.frame_bytes,
        hello: options.hello.clone(),
    }
}

fn verdict(options: &Options, priority: Priority, to: u64, reason: Option<Reason>) -> Greeting {
    let reason = reason.map_or(0, |reason| reason as u16);
    let greeting = introduction(options, Kind::Verdict, priority, to, Nonce::default());
    Greeting { reason, hello: Bytes::new(), ..greeting }
}

fn session(options: &Options, version: u16, seed: u64, heard: Greeting) -> Arc<Session> {
    let Greeting { from: peer, priority, hello, frame_bytes, .. } = heard;
    let out = Lane { version, cluster: options.cluster, from: options.us(), to: peer, seed };
    let bounds = Bounds {
        waiting_bytes: options.limits.waiting_bytes,
        under_way: options.limits.under_way,
        frame_bytes: usize::try_from(frame_bytes).unwrap_or(usize::MAX),
    };
    Arc::new(Session::new(peer, priority, hello, out, Outbox::new(bounds)))
}

/// Reads a greeting and nothing behind it.
async fn read(stream: &mut TcpStream, seed: u64) -> Result<Greeting, Ended> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let mut bytes = vec![0; greeting::announced(&head)?];
    let (place, rest) = bytes.split_at_mut(HEAD_BYTES);
    place.copy_from_slice(&head);
    stream.read_exact(rest).await?;
    Ok(Greeting::decode(&bytes, seed)?)
}
