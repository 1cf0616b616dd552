//! Connections that we make, and make again when they end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Priority;
use super::connection;
use super::ended::Ended;
use super::handshake;
use super::options::Limits;
use super::session::Session;
use super::shared::Shared;
use crate::random;

/// Keeps a connection to a node, until it is aborted.
pub(super) async fn keep(shared: Arc<Shared>, node: u64, address: String, priority: Priority) {
    let mut pause = Pause::new(&shared.options.limits);
    loop {
        let who = format!("node {node} at {address}");
        let ended = match connect(&shared, node, &address, priority).await {
            Ok((stream, session)) => {
                pause = Pause::new(&shared.options.limits);
                connection::run(&shared, stream, session).await
            }
            Err(ended) => Err(ended),
        };
        shared.note_ended(ended, &who);
        sleep(pause.next(random::bytes()[0])).await;
    }
}

async fn connect(
    shared: &Shared,
    node: u64,
    address: &str,
    priority: Priority,
) -> Result<(TcpStream, Arc<Session>), Ended> {
    let connecting = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let admit = |peer, hello: &Bytes| shared.admit(peer, hello);
        let agreeing = handshake::dial(&mut stream, &shared.options, (node, priority), &admit);
        let session = agreeing.await?;
        Ok((stream, session))
    };
    let connected = timeout(shared.options.limits.handshake, connecting).await;
    connected.map_err(|_elapsed| Ended::Silent)?
}

/// How long to wait before the next attempt.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
    most: Duration,
}

impl Pause {
    pub(super) fn new(limits: &Limits) -> Self {
        let (next, most) = limits.redial;
        Self { next, most }
    }

    /// Three quarters to all of what it is now, as the dice say; it doubles.
    pub(super) fn next(&mut self, dice: u8) -> Duration {
        let now = self.next.min(self.most);
        self.next = now.saturating_mul(2);
        now.mul_f64(0.75 + f64::from(dice) / 1024.0)
    }
}
