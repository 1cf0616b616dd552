//! [`Fair`]: who is next, by deficit round robin over connections, and in each over partitions.
//!
//! Each connection's turn gives it [`QUANTUM_BYTES`]; it takes while what it has been given lasts, so
//! that a connection with large batches gets as many bytes as one with small ones, and no more (Shreedhar
//! and Varghese, "Efficient Fair Queuing using Deficit Round Robin", 1995). Within a turn its partitions
//! come one after the other.
//!
//! Invariant: what one connection sends to one partition stays in order.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What a turn gives.
pub const QUANTUM_BYTES: usize = 64 << 10;

/// Things that wait, each with its size.
#[derive(Debug)]
pub struct Fair<P, T> {
    connections: HashMap<u64, Connection<P, T>>,
    /// Connections that have something, the next first.
    round: VecDeque<u64>,
    /// The first of them has had the quantum of its turn.
    has_quantum: bool,
    bytes: usize,
}

#[derive(Debug)]
struct Connection<P, T> {
    partitions: HashMap<P, VecDeque<(usize, T)>>,
    /// Partitions that have something, the next first.
    round: VecDeque<P>,
    /// What it may still take in this turn.
    deficit: usize,
}

impl<P: Eq + Hash + Copy, T> Fair<P, T> {
    /// With nothing that waits.
    #[must_use]
    pub fn new() -> Self {
        let (connections, round) = (HashMap::new(), VecDeque::new());
        Self { connections, round, has_quantum: false, bytes: 0 }
    }

    /// How many bytes wait.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets something wait.
    pub fn push(&mut self, connection: u64, partition: P, bytes: usize, thing: T) {
        let round = &mut self.round;
        let waiting = self.connections.entry(connection).or_insert_with(|| {
            round.push_back(connection);
            Connection::new()
        });
        let turns = &mut waiting.round;
        let queue = waiting.partitions.entry(partition).or_insert_with(|| {
            turns.push_back(partition);
            VecDeque::new()
        });
        queue.push_back((bytes, thing));
        self.bytes += bytes;
    }

    /// The next thing and its size, if it has room; otherwise it stays the next.
    pub fn pop_if(&mut self, has_room: impl FnOnce(usize, &T) -> bool) -> Option<(usize, T)> {
        let number = self.turn()?;
        let connection =
            self.connections.get_mut(&number).expect("who is in the round has something");
        let (bytes, thing) = connection.next();
        if !has_room(*bytes, thing) {
            return None;
        }
        let (bytes, thing) = connection.take();
        self.bytes -= bytes;
        if connection.round.is_empty() {
            // Who has nothing saves nothing.
            self.connections.remove(&number);
            self.round.pop_front();
            self.has_quantum = false;
        }
        Some((bytes, thing))
    }

    /// Whose turn it is. A turn begins with a quantum, and ends where what comes next is not paid for.
    fn turn(&mut self) -> Option<u64> {
        loop {
            let number = *self.round.front()?;
            let connection = self.connections.get_mut(&number).expect("it is in the round");
            if !std::mem::replace(&mut self.has_quantum, true) {
                connection.deficit += QUANTUM_BYTES;
            }
            if *connection.next().0 <= connection.deficit {
                return Some(number);
            }
            self.round.rotate_left(1);
            self.has_quantum = false;
        }
    }
}

impl<P: Eq + Hash + Copy, T> Connection<P, T> {
    fn new() -> Self {
        Self { partitions: HashMap::new(), round: VecDeque::new(), deficit: 0 }
    }

    fn next(&self) -> (&usize, &T) {
        let partition = self.round.front().expect("a connection that waits has a partition");
        let (bytes, thing) = self.partitions[partition].front().expect("which has something");
        (bytes, thing)
    }

    fn take(&mut self) -> (usize, T) {
        let partition = self.round.pop_front().expect("a connection that waits has a partition");
        let queue = self.partitions.get_mut(&partition).expect("which has something");
        let (bytes, thing) = queue.pop_front().expect("which has something");
        if queue.is_empty() {
            self.partitions.remove(&partition);
        } else {
            self.round.push_back(partition);
        }
        self.deficit -= bytes;
        (bytes, thing)
    }
}
