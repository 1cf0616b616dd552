//! Connections that are made to us.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::connection;
use super::ended::Ended;
use super::handshake;
use super::judge::Reason;
use super::session::Session;
use super::shared::Shared;

/// Connections that are being agreed on at once.
pub(super) const HANDSHAKES_MAX: usize = 64;

/// Takes connections, until it is aborted.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    let mut connections = JoinSet::new();
    loop {
        let (stream, address) = tokio::select! {
            taken = listener.accept() => match taken {
                Ok(taken) => taken,
                Err(error) => {
                    // Of descriptors or memory there are none, or a connection went before it was taken.
                    tracing::debug!(%error, "no connection of a broker can be taken");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            shared.note_ended(Err(Reason::TooMany.into()), &address);
            continue;
        };
        connections.spawn(serve(Arc::clone(&shared), stream, address, permit));
    }
}

async fn serve(
    shared: Arc<Shared>,
    mut stream: TcpStream,
    address: SocketAddr,
    permit: OwnedSemaphorePermit,
) {
    let agreed = agree(&shared, &mut stream).await;
    drop(permit);
    let ended = match agreed {
        Ok(session) => connection::run(&shared, stream, session).await,
        Err(ended) => Err(ended),
    };
    shared.note_ended(ended, &address);
}

async fn agree(shared: &Shared, stream: &mut TcpStream) -> Result<Arc<Session>, Ended> {
    stream.set_nodelay(true)?;
    let admit = |peer, hello: &Bytes| shared.admit(peer, hello);
    let agreeing = handshake::dialled(stream, &shared.options, &admit);
    let agreed = timeout(shared.options.limits.handshake, agreeing).await;
    agreed.map_err(|_elapsed| Ended::Silent)?
}
