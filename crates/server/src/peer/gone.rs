//! Whether the process of a node has ended, once all connections to it have.
//!
//! Nothing takes a connection at its address then, and the system there says so at once. A node that lost its
//! power, or is cut off, says nothing: that is no evidence, and others find it out by its silence.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Peer;
use super::shared::Shared;

/// How long the system of the node may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// A process that ends may close its connections before it closes what takes new ones.
const TRIES: u32 = 5;
const REST: Duration = Duration::from_millis(20);

/// Looks whether the process is there that a connection of ours ended with, and tells the handler if it is not.
pub(super) fn look(shared: &Arc<Shared>, peer: Peer) {
    if shared.lock().is_connected(peer.node) {
        return;
    }
    let looked = Arc::clone(shared);
    shared.spawn(async move {
        for _ in 0..TRIES {
            let Some(address) = looked.lock().address_of_absent(peer.node) else { return };
            match timeout(PATIENCE, TcpStream::connect(address)).await {
                Ok(Err(why)) if why.kind() == ErrorKind::ConnectionRefused => {
                    return looked.handler.gone(peer).await;
                }
                _answered_or_silent => sleep(REST).await,
            }
        }
    });
}
