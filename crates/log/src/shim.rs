//! Locks and threads: the standard library's, or those of shuttle, which visits their interleavings
//! (`RUSTFLAGS="--cfg shuttle" cargo test -p plimsoll-log --test interleavings`).

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, TryLockError, mpsc};
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, TryLockError, mpsc};
#[cfg(not(shuttle))]
pub(crate) use std::thread;

use std::sync::PoisonError;
use std::time::Duration;

/// Under shuttle no time passes, and any time may have passed: what waits for some of it goes on once
/// others had a chance.
#[cfg(shuttle)]
pub(crate) mod thread {
    pub(crate) use shuttle::thread::{
        Builder, JoinHandle, Thread, current, park, scope, yield_now,
    };

    pub(crate) fn park_timeout(_: super::Duration) {
        yield_now();
    }
}

/// When somebody stops waiting.
#[derive(Debug)]
pub(crate) struct Deadline {
    #[cfg(not(shuttle))]
    at: std::time::Instant,
    /// It comes after so many looks.
    #[cfg(shuttle)]
    looks: std::cell::Cell<u32>,
}

impl Deadline {
    #[cfg(not(shuttle))]
    pub(crate) fn after(timeout: Duration) -> Self {
        let now = std::time::Instant::now();
        // What no clock reaches is as good as never.
        let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
        Self { at: now.checked_add(timeout).unwrap_or(now + century) }
    }

    #[cfg(shuttle)]
    pub(crate) fn after(_: Duration) -> Self {
        Self { looks: std::cell::Cell::new(3) }
    }

    /// How long that is from now.
    #[cfg(not(shuttle))]
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(std::time::Instant::now())
    }

    #[cfg(shuttle)]
    pub(crate) fn left(&self) -> Duration {
        self.looks.set(self.looks.get().saturating_sub(1));
        Duration::from_millis(self.looks.get().into())
    }
}

/// Locks. A thread that panicked with the lock held is a bug of ours that has been reported; what it
/// guards is only ever changed in whole steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change of what the lock guards; it may also wake for none.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Locks, if nobody else has.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
