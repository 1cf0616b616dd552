//! Locks and threads: the standard library's, or those of shuttle, which visits their interleavings
//! (`RUSTFLAGS="--cfg shuttle" cargo test -p plimsoll-log --test interleavings`).

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, TryLockError};
#[cfg(shuttle)]
pub(crate) use shuttle::thread;
#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError};
#[cfg(not(shuttle))]
pub(crate) use std::thread;

use std::sync::PoisonError;

/// Locks. A thread that panicked with the lock held is a bug of ours that has been reported; what it
/// guards is only ever changed in whole steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, if nobody else has.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
