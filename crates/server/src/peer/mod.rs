//! How two brokers of a cluster talk: requests and answers, opaque here, of all shards over few connections.
//!
//! | file | what |
//! | --- | --- |
//! | `peers.rs` | [`Peers`]: asks nodes, and serves them |
//! | `options.rs` | [`Options`], [`Limits`]: who we are, and the bounds |
//! | `greeting.rs` | what two nodes tell each other when they connect, drawn |
//! | `judge.rs` | whom we talk to, and [`Reason`]: why not; pure |
//! | `frame.rs` | messages that go together, drawn |
//! | `outbox.rs` | what waits for one connection, and who waits for answers; no I/O |
//! | `intake.rs` | how much a node has under way with us |
//! | `roster.rs` | where nodes are, which incarnation of each was seen, and its connections |
//! | `session.rs` | one connection as others see it: asked and answered over |
//! | `connection.rs` | its socket: frames in, frames out, signs of life |
//! | `handshake.rs` | a connection is agreed on, from either side |
//! | `dial.rs` | connections that we make, and make again |
//! | `listen.rs` | connections that are made to us |
//! | `gone.rs` | whether the process of a node has ended |
//! | `counters.rs` | what is counted, and said once a minute |
//! | `error.rs`, `ended.rs` | why there is no answer; why a connection ends |
//! | `shared.rs` | what all tasks have, and who is given the requests |
//!
//! A pair of nodes has one connection for each [`Priority`]; the node with the lower id dials. Requests go
//! both ways over it. All that waits goes out in one frame with one vectored write, and bodies are sent as
//! the pieces they came in.
//!
//! **Invariant:** an answer comes from the incarnation that was asked, and none is handed up once a later
//! one of that node has connected. **Invariant:** a request is sent once or not at all, and whoever asked
//! knows at once when its connection ends. **Invariant:** frames of a connection come in their order,
//! without gaps, and fit no other connection: their checksums are seeded with what both drew for it.
//! **Invariant:** what waits for a node, and what it has under way with us, is bounded, whatever it does.
//! **Invariant:** a length from the socket is held against its bound before anything is allocated for it.
//!
//! Nothing here is secret, and nobody proves who he is: a checksum keeps out mistakes, not enemies.

mod connection;
mod counters;
mod dial;
mod ended;
mod error;
mod frame;
mod gone;
mod greeting;
mod handshake;
mod intake;
mod judge;
mod listen;
mod options;
mod outbox;
mod peers;
mod roster;
mod session;
mod shared;
#[cfg(test)]
mod tests;

pub use self::counters::Counters;
pub use self::error::{Error, Refusal};
pub(crate) use self::greeting::HELLO_BYTES_MAX;
pub use self::judge::Reason;
pub use self::options::{Limits, Options};
pub use self::peers::{Connected, Peers};
pub use self::session::Answer;
pub use self::shared::Handler;

/// Who a message is from: a node, and which of its starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The node.
    pub node: u64,
    /// Which of its starts. A later one is higher.
    pub incarnation: u64,
}

/// Which connection a request goes over. Its answer comes over the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Votes, heartbeats, small appends.
    Urgent = 1,
    /// Catching up, seeding.
    Bulk = 2,
}

impl Priority {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Urgent, Self::Bulk];

    /// Its place among [`Self::ALL`].
    const fn place(self) -> usize {
        self as usize - 1
    }
}
