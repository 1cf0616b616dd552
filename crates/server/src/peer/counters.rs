//! [`Counters`]: what went over all connections, and what was refused.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::judge::Reason;

/// One reason is logged once in this time.
const QUIET: Duration = Duration::from_secs(60);

/// What was counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were agreed on.
    pub connections: u64,
    /// Frames that were written.
    pub frames_sent: u64,
    /// Frames that were read and are whole.
    pub frames_received: u64,
    /// Messages in them: requests, answers and refusals.
    pub messages_sent: u64,
    /// See `messages_sent`.
    pub messages_received: u64,
    /// Bytes of frames that were written.
    pub sent_bytes: u64,
    /// Bytes that were read, of frames or not.
    pub received_bytes: u64,
    /// Requests that were not taken, because too much waits.
    pub busy: u64,
    /// Requests of others that were not handled, because they have too much under way.
    pub turned_away: u64,
    refused: [u64; Reason::ALL.len()],
}

impl Counters {
    /// Connections that were refused or ended for this reason, by us or by the other side.
    #[must_use]
    pub const fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason.place()]
    }
}

/// The same while it is counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) connections: AtomicU64,
    pub(super) frames_sent: AtomicU64,
    pub(super) frames_received: AtomicU64,
    pub(super) messages_sent: AtomicU64,
    pub(super) messages_received: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) turned_away: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
    logged: Mutex<[Option<Instant>; Reason::ALL.len()]>,
}

pub(super) fn add(to: &AtomicU64, count: usize) {
    to.fetch_add(count as u64, Relaxed);
}

impl Tally {
    /// Counts what is refused, and logs it unless that was done within a minute. `who` is an address, and
    /// what is known of who is there.
    pub(super) fn refused(&self, reason: Reason, who: &dyn Display, why: &dyn Display) {
        add(&self.refused[reason.place()], 1);
        let now = Instant::now();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let logged = &mut logged[reason.place()];
        if logged.is_none_or(|logged| now.duration_since(logged) >= QUIET) {
            // One that has just started does not know yet who is in the cluster, and soon does.
            let goes_on = logged.is_some_and(|logged| now.duration_since(logged) < 2 * QUIET);
            let is_ordinary = reason == Reason::Unknown && !goes_on;
            *logged = Some(now);
            let reason = reason.label();
            if is_ordinary {
                tracing::info!(%who, %reason, %why, "a connection between brokers is refused");
            } else {
                tracing::warn!(%who, %reason, %why, "a connection between brokers is refused");
            }
        }
    }

    pub(super) fn read(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Counters {
            connections: read(&self.connections),
            frames_sent: read(&self.frames_sent),
            frames_received: read(&self.frames_received),
            messages_sent: read(&self.messages_sent),
            messages_received: read(&self.messages_received),
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
            busy: read(&self.busy),
            turned_away: read(&self.turned_away),
            refused: std::array::from_fn(|place| read(&self.refused[place])),
        }
    }
}
