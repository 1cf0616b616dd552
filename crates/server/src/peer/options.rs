//! [`Options`]: who we are, and within which bounds we talk.

use std::time::Duration;

use bytes::Bytes;

use super::Peer;
use super::frame::LEAST_FRAME_BYTES;
use super::greeting::HELLO_BYTES_MAX;

/// Who we are, what we tell of ourselves, and the bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cluster: with others we do not talk.
    pub cluster: u128,
    /// Our node.
    pub node: u64,
    /// Which of its starts this is. A later one is higher.
    pub incarnation: u64,
    /// What each peer is told of us when it connects; at most 4 KiB, opaque here.
    pub hello: Bytes,
    /// The bounds.
    pub limits: Limits,
}

/// How much may wait, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest frame that we take. Each side tells the other.
    pub frame_bytes: u32,
    /// Bytes of requests that wait to be sent over one connection; as many of answers may wait, and as many
    /// of its requests may be under way with us. A single message is taken, however large.
    pub waiting_bytes: usize,
    /// Requests of ours over one connection that are not answered yet; as many of a peer's may be under
    /// way with us.
    pub under_way: usize,
    /// How long a connection may take to be made and agreed on.
    pub handshake: Duration,
    /// After so long without a frame an empty one is sent.
    pub ping: Duration,
    /// After so long without a byte from it a connection is dead.
    pub silence: Duration,
    /// A frame that is not taken for so long ends the connection.
    pub write: Duration,
    /// A connection that ended, or was not made, is made again after so long, then after twice as long,
    /// up to the second; a quarter of it is drawn at random.
    pub redial: (Duration, Duration),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: (16 << 20) + (64 << 10),
            waiting_bytes: 32 << 20,
            under_way: 1024,
            handshake: Duration::from_secs(3),
            ping: Duration::from_secs(1),
            silence: Duration::from_secs(3),
            write: Duration::from_secs(10),
            redial: (Duration::from_millis(50), Duration::from_secs(2)),
        }
    }
}

impl Options {
    /// Options of a node with default bounds, and nothing to tell.
    #[must_use]
    pub fn new(cluster: u128, node: u64, incarnation: u64) -> Self {
        Self { cluster, node, incarnation, hello: Bytes::new(), limits: Limits::default() }
    }

    /// Us.
    pub(super) const fn us(&self) -> Peer {
        Peer { node: self.node, incarnation: self.incarnation }
    }

    /// What is wrong with them.
    pub(super) fn problem(&self) -> Option<&'static str> {
        if self.hello.len() > HELLO_BYTES_MAX {
            return Some("the hello is larger than 4 KiB");
        }
        let frame_bytes = usize::try_from(self.limits.frame_bytes).ok();
        if frame_bytes.is_none_or(|bytes| bytes < LEAST_FRAME_BYTES) {
            return Some("no message fits a frame");
        }
        None
    }
}
