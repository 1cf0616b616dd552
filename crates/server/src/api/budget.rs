//! [`Budget`]: the memory that requests and their answers take, of all clients together.
//!
//! Requests have half of it, records that are read a quarter, other large answers the rest: each has a share
//! of its own, so that nothing holds what it waits for. What is over it waits or, where an answer is made
//! already, ends its connection; whoever takes no answers is closed, and gives back what it held. An answer may
//! use its request's room too: so those to what changes something, which are hardly larger, need no more.
//!
//! A request has room before it is received, by what it says of itself, and who says much may send nothing: so
//! an eighth of all is for requests that are not large only.
//!
//! Not counted: the newest records of a shard, which have a bound of their own; what requests and answers are
//! made into on their way; answers of up to 16 KiB, and a request of up to so many where its connection has no
//! other.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whoever reads gets room for so much, though others have most of it; where there is less it waits.
const LEAST_RECORDS_BYTES: usize = 1 << 20;
/// One request or answer of a connection up to so many bytes needs no room: connections, and therefore these,
/// have a bound of their own.
const SMALL_BYTES: usize = 16 << 10;
/// More than clients send at once unless they are told to.
const LARGE_BYTES: usize = 2 << 20;

/// Room for so many bytes, until it is dropped.
pub(crate) type Room = OwnedSemaphorePermit;

/// The shares.
#[derive(Debug)]
pub(crate) struct Budget {
    requests: Share,
    large_requests: Share,
    records: Share,
    answers: Share,
}

#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let share = |bytes: usize| {
            let bytes = bytes.min(Semaphore::MAX_PERMITS);
            Share { free: Arc::new(Semaphore::new(bytes)), bytes }
        };
        Self {
            requests: share(bytes / 8),
            large_requests: share(bytes / 8 * 3),
            records: share(bytes / 4),
            answers: share(bytes / 4),
        }
    }

    /// Room for a request, once there is some.
    pub(crate) async fn for_request(&self, bytes: usize) -> Room {
        let share = if bytes > LARGE_BYTES { &self.large_requests } else { &self.requests };
        share.take(bytes).await
    }

    /// Room for a request, if there is some. `is_only`: its connection has no other.
    pub(crate) fn for_request_now(&self, bytes: usize, is_only: bool) -> Option<Room> {
        match bytes {
            ..=SMALL_BYTES if is_only => self.requests.take_now(0),
            ..=LARGE_BYTES => {
                self.requests.take_now(bytes).or_else(|| self.large_requests.take_now(bytes))
            }
            _ => self.large_requests.take_now(bytes),
        }
    }

    /// Room for records of which somebody asks for so many bytes: at most a quarter of what is free, or 1 MiB
    /// where that is less. Who needs more for one batch has more, but waits for no more than half of all.
    pub(crate) async fn for_records(&self, asked: usize, needed: usize) -> Room {
        let fair = (self.records.free.available_permits() / 4).max(LEAST_RECORDS_BYTES);
        let needed = needed.min(self.records.bytes / 2);
        self.records.take(asked.min(fair).max(needed)).await
    }

    /// Room for an answer of so many bytes, of which so many have room as those of its request or its
    /// records; none where the rest is small.
    pub(crate) fn for_answer(&self, bytes: usize, has: usize) -> Result<Option<Room>, NoRoom> {
        let bytes = bytes.saturating_sub(has);
        match bytes {
            ..=SMALL_BYTES => Ok(None),
            _ => self.answers.take_now(bytes).map(Some).ok_or(NoRoom { bytes }),
        }
    }
}

impl Share {
    async fn take(&self, bytes: usize) -> Room {
        let taken = Arc::clone(&self.free).acquire_many_owned(self.permits(bytes)).await;
        taken.expect("it is never closed")
    }

    fn take_now(&self, bytes: usize) -> Option<Room> {
        Arc::clone(&self.free).try_acquire_many_owned(self.permits(bytes)).ok()
    }

    /// What is larger than all of it takes all of it.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes)).unwrap_or(u32::MAX)
    }
}

/// An answer has no room.
#[derive(Debug, thiserror::Error)]
#[error("its answer of {bytes} bytes has no room beside those that others have not taken yet")]
pub(crate) struct NoRoom {
    bytes: usize,
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn who_reads_gets_a_quarter_of_what_is_free_and_waits_where_nothing_is() {
        let budget = Budget::new(64 * MIB);
        let take = |asked, needed| budget.for_records(asked, needed).now_or_never();
        let mib = |room: &Option<Room>| room.as_ref().map(|room| room.num_permits() / MIB);
        let first = take(16 * MIB, 0);
        let second = take(16 * MIB, 0);
        assert_eq!((mib(&first), mib(&second)), (Some(4), Some(3)), "of 16, then of 12");
        assert_eq!(mib(&take(2 * MIB, 0)), Some(2), "who asks for less");
        let large = take(MIB, 8 * MIB);
        assert_eq!(mib(&large), Some(8), "a batch that is larger");
        assert_eq!(mib(&take(16 * MIB, 0)), Some(1), "the rest, and gives it back");
        assert!(take(MIB, 2 * MIB).is_none(), "there is not as much");
        drop(second);
        assert_eq!(mib(&take(16 * MIB, 0)), Some(1));
        assert!(take(0, 17 * MIB).is_none());
        drop((first, large));
        assert_eq!(mib(&take(0, 17 * MIB)), Some(8), "nobody waits for all");
    }

    #[test]
    fn large_requests_leave_room_for_others() {
        let budget = Budget::new(64 * MIB);
        let large = [(); 2].map(|()| budget.for_request_now(12 * MIB, true));
        assert!(
            large.iter().all(Option::is_some) && budget.for_request_now(3 * MIB, true).is_none()
        );
        let others = [(); 4].map(|()| budget.for_request_now(2 * MIB, true));
        assert!(others.iter().all(Option::is_some));
        assert!(budget.for_request_now(SMALL_BYTES, false).is_none(), "a second of its connection");
        assert!(budget.for_request_now(SMALL_BYTES, true).is_some());
        drop(large);
        assert!(budget.for_request_now(2 * MIB, false).is_some(), "of what large ones do not take");
    }

    #[test]
    fn a_large_answer_has_room_or_is_not_given_and_a_small_one_needs_none() {
        let budget = Budget::new(4 * MIB);
        let taken = budget.for_answer(MIB - 1, 0).unwrap();
        assert!(taken.is_some());
        assert!(budget.for_answer(MIB, 0).is_err());
        assert!(budget.for_answer(SMALL_BYTES, 0).unwrap().is_none());
        assert!(budget.for_answer(MIB + 100, MIB).unwrap().is_none(), "its records have room");
        drop(taken);
        assert!(budget.for_answer(2 * MIB, 0).unwrap().is_some());
        assert!(budget.for_request_now(MIB, false).is_some(), "requests have shares of their own");
    }
}
