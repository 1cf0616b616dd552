//! [`Limits`]: how much connections may ask for, and how long they may be silent.

use std::time::Duration;

/// The bounds of connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest request, in bytes.
    pub frame_bytes: usize,
    /// Bytes that all clients take together: half are for requests that are not answered yet (three of four
    /// of them for large ones, over 2 MiB, of which many may be announced and none sent), a quarter
    /// for records and a quarter for other answers over 16 KiB that are not taken yet. Where there is no
    /// room, nobody is read from, who reads records waits, and who asked for another answer is closed.
    /// Small ones, a request and an answer of up to 16 KiB for each connection, are not counted.
    pub memory_bytes: usize,
    /// Bytes of one connection's requests that are not answered yet. Where there are more, it is not read
    /// from.
    pub unagreed_bytes: usize,
    /// Connections at once.
    pub connections: usize,
    /// After so long without a request a connection is closed; one in the middle of a request, or one
    /// that does not take its answers, after `stalled`.
    pub idle: Duration,
    /// See `idle`.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 100 << 20,
            memory_bytes: 256 << 20,
            unagreed_bytes: 16 << 20,
            connections: 20_000,
            idle: Duration::from_secs(600),
            stalled: Duration::from_secs(30),
        }
    }
}
