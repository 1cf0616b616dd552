//! [`Generation`]: after which loss a group goes on.
//!
//! Where a majority may have forgotten nobody of it votes, and the group stands still, until somebody decides that it
//! goes on with what the disks have. Each such decision begins a *generation*. Replicas of different generations do not
//! hear each other: what one of an older generation says was said before the loss. One that meets a newer generation must be opened
//! again in it: then it knows of nothing as committed but what its snapshot has, and so lets go of what it had applied and the
//! new leader does not have.
//!
//! ```text
//!  byte offset  bytes  in front of each message of a group
//!            0      8  generation of whoever sends it, little-endian
//! ```

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

const BYTES: usize = 8;

/// Of a replica: its own, and the newest that it has met.
#[derive(Debug)]
pub(crate) struct Generation {
    own: u64,
    newer: Mutex<Option<Newer>>,
}

/// A generation that a replica has met, and is not of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newer {
    /// Whose replica is of it.
    pub node: u64,
    /// Which.
    pub generation: u64,
}

impl Generation {
    pub(crate) fn new(own: u64) -> Self {
        Self { own, newer: Mutex::default() }
    }

    pub(crate) fn own(&self) -> u64 {
        self.own
    }

    pub(crate) fn newer(&self) -> Option<Newer> {
        *self.newer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message of this replica.
    pub(crate) fn seal(&self, mut message: Vec<Bytes>) -> Vec<Bytes> {
        message.insert(0, Bytes::copy_from_slice(&self.own.to_le_bytes()));
        message
    }

    /// What another replica says, if it is of the same generation. That it is of a newer one is remembered.
    pub(crate) fn open(&self, node: u64, sealed: &Bytes) -> Option<Bytes> {
        let head = sealed.first_chunk::<BYTES>()?;
        let generation = u64::from_le_bytes(*head);
        if generation > self.own {
            let mut newer = self.newer.lock().unwrap_or_else(PoisonError::into_inner);
            if newer.is_none_or(|newer| newer.generation < generation) {
                *newer = Some(Newer { node, generation });
            }
        }
        (generation == self.own).then(|| sealed.slice(BYTES..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_generation_is_not_read_and_a_newer_one_is_remembered() {
        let (own, older, newer) = (Generation::new(2), Generation::new(1), Generation::new(4));
        let sealed =
            |of: &Generation| Bytes::from(of.seal(vec![Bytes::from_static(b"hi")]).concat());
        assert_eq!(own.open(7, &sealed(&own)), Some(Bytes::from_static(b"hi")));
        assert_eq!(own.open(8, &sealed(&older)), None);
        assert_eq!(*own.newer.lock().unwrap(), None);
        assert_eq!(own.open(9, &sealed(&newer)), None);
        assert_eq!(own.open(8, &sealed(&Generation::new(3))), None);
        assert_eq!(*own.newer.lock().unwrap(), Some(Newer { node: 9, generation: 4 }));
        assert_eq!(own.open(9, &Bytes::from_static(b"short")), None);
    }
}
