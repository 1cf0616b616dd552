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

/// The order in which locks are taken that are held while something waits. One that comes earlier is
/// taken first; debug builds check that. All others are small: nobody holds one while anything waits, nor
/// takes another lock meanwhile but that of a list of waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Segments are taken away.
    Retention,
    /// The writer's role.
    Role,
    /// A file is made ready.
    Preparing,
    /// The sync turn.
    Sync,
    /// Records are accepted.
    Tail,
    /// A cut is noted.
    Cutting,
}

/// A lock with a place in the order.
#[derive(Debug)]
pub(crate) struct Ranked<T> {
    rank: Rank,
    inner: Mutex<T>,
}

/// A lock with a place in the order, held.
#[derive(Debug)]
pub(crate) struct RankedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> Ranked<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> RankedGuard<'_, T> {
        let _held = held::Held::enter(self.rank, true);
        RankedGuard { guard: lock(&self.inner), _held }
    }

    /// Takes the lock if nobody else has it: nobody waits, so no order is to be kept.
    pub(crate) fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        let guard = try_lock(&self.inner)?;
        Some(RankedGuard { guard, _held: held::Held::enter(self.rank, false) })
    }
}

impl<T> std::ops::Deref for RankedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> std::ops::DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Which locks a thread holds.
#[cfg(all(debug_assertions, not(shuttle)))]
mod held {
    use std::cell::RefCell;

    use super::Rank;

    thread_local! {
        static RANKS: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug)]
    pub(super) struct Held(Rank);

    impl Held {
        pub(super) fn enter(rank: Rank, waits: bool) -> Self {
            RANKS.with_borrow_mut(|ranks| {
                let last = ranks.iter().max();
                assert!(
                    !waits || last.is_none_or(|last| *last < rank),
                    "{rank:?} is locked behind {last:?}"
                );
                ranks.push(rank);
            });
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            RANKS.with_borrow_mut(|ranks| {
                let at = ranks.iter().rposition(|rank| *rank == self.0);
                ranks.remove(at.expect("it was entered"));
            });
        }
    }
}

#[cfg(not(all(debug_assertions, not(shuttle))))]
mod held {
    use super::Rank;

    #[derive(Debug)]
    pub(super) struct Held;

    impl Held {
        #[inline]
        pub(super) fn enter(_: Rank, _: bool) -> Self {
            Self
        }
    }
}

#[cfg(all(test, not(shuttle), debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order() {
        let (role, sync) = (Ranked::new(Rank::Role, ()), Ranked::new(Rank::Sync, ()));
        let first = role.lock();
        drop(sync.lock());
        drop(first);
        let _second = sync.lock();
        assert!(role.try_lock().is_some(), "whoever does not wait may take any");
    }

    #[test]
    #[should_panic(expected = "Role is locked behind")]
    fn a_lock_out_of_order_is_noticed() {
        let (role, sync) = (Ranked::new(Rank::Role, ()), Ranked::new(Rank::Sync, ()));
        let _sync = sync.lock();
        let _role = role.lock();
    }
}
