//! [`Intake`]: how much a node has under way with us. It outlives connections: a node that asks, goes and
//! comes again has no more under way than one that stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::options::Limits;

/// What a node has under way, of one priority.
#[derive(Debug, Default)]
pub(super) struct Intake(Mutex<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    requests: usize,
    bytes: usize,
}

/// A request is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    intake: Arc<Intake>,
    bytes: usize,
}

impl Intake {
    /// Takes a place for a request of so many bytes, if there is one.
    pub(super) fn admit(self: &Arc<Self>, bytes: usize, limits: &Limits) -> Option<Place> {
        let mut under_way = self.lock();
        let has_room = under_way.requests < limits.under_way
            && (under_way.bytes == 0
                || under_way.bytes.saturating_add(bytes) <= limits.waiting_bytes);
        if !has_room {
            return None;
        }
        under_way.requests += 1;
        under_way.bytes += bytes;
        Some(Place { intake: Arc::clone(self), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.intake.lock();
        under_way.requests -= 1;
        under_way.bytes -= self.bytes;
    }
}
