//! [`Watch`]: a value that others wait to change, of which those who wait wake up in the order in which
//! they began to.
//!
//! Tokio's own spreads them over eight queues, drawn at random where no test can fix it. That says in
//! which order tasks have their turn, so a run of the engine could not be repeated.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use openraft::rt::watch::{self, RecvError, SendError, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync};
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// A value as it is. As long as it is held nobody changes it. Who holds it may look again: the standard library's lock would
/// have them wait for a writer, and the writer waits for them.
pub(crate) type Ref<'a, T> = RwLockReadGuard<'a, T>;

struct Shared<T> {
    value: RwLock<T>,
    /// Of the value; changes while that is locked.
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

impl<T> Shared<T> {
    fn value(&self) -> Ref<'_, T> {
        self.value.read_recursive()
    }
}

/// Changes the value.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// Waits for changes.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// Both ends of a value.
pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
            changed: Notify::new(),
        }))
    }

    /// One that has seen the value as it is.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::Relaxed);
        let seen = {
            let _value = self.0.value();
            self.0.version.load(Ordering::Acquire)
        };
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.0.value()
    }

    /// Wakes all who wait if `modify` says that it changed it.
    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut value = self.0.value.write();
            if !modify(&mut value) {
                return false;
            }
            self.0.version.fetch_add(1, Ordering::Release);
        }
        self.0.changed.notify_waiters();
        true
    }

    pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }
}

impl<T> Receiver<T> {
    /// Whether nobody changes the value any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.senders.load(Ordering::Acquire) == 0
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.shared.value()
    }

    /// From here on only what comes later is new.
    pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.value();
        self.seen = self.shared.version.load(Ordering::Acquire);
        value
    }

    /// Waits for what was not seen.
    ///
    /// # Errors
    /// There is none, and nobody is left who could change it.
    pub(crate) async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            // What changes after this wakes it up.
            let changed = self.shared.changed.notified();
            let version = self.shared.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.senders.load(Ordering::Acquire) == 0 {
                return Err(RecvError(()));
            }
            changed.await;
        }
    }

    /// Waits until it is as wanted.
    ///
    /// # Errors
    /// It is not, and nobody is left who could change it.
    pub(crate) async fn wait_for(
        &mut self,
        mut is_wanted: impl FnMut(&T) -> bool,
    ) -> Result<(), RecvError> {
        while !is_wanted(&self.borrow_and_update()) {
            self.changed().await?;
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(self.borrow().deref()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(self.borrow().deref()).finish()
    }
}

/// What the engine watches.
#[derive(Debug)]
pub(crate) struct Watch;

impl watch::Watch for Watch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        channel(init)
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<Watch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::Acquire) == 0 {
            return Err(SendError(value));
        }
        self.send_modify(|now| *now = value);
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        self.send_if_modified(modify)
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.borrow()
    }

    fn subscribe(&self) -> Receiver<T> {
        self.subscribe()
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<Watch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        self.changed().await
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        self.borrow()
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.borrow_and_update()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use openraft::testing::runtime::Suite;

    use super::*;
    use crate::cluster::runtime::Runtime;

    #[test]
    fn the_runtime_passes_the_engines_own_tests_of_one() {
        Suite::<Runtime>::test_all();
    }

    /// An engine that panicked had said last that it runs, and was believed (an attacker).
    #[test]
    fn who_looks_sees_that_nobody_changes_it_any_more() {
        let (sender, receiver) = channel(7);
        let again = sender.clone();
        drop(sender);
        assert!(!receiver.is_closed());
        drop(again);
        assert!(receiver.is_closed() && *receiver.borrow() == 7);
    }

    #[test]
    fn those_who_wait_wake_up_in_the_order_in_which_they_began_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = channel(0);
            let order = Arc::new(Mutex::new(Vec::new()));
            let wait = |number| {
                let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    receiver.changed().await.unwrap();
                    order.lock().unwrap().push(number);
                })
            };
            let waits: Vec<_> = (0..50).map(wait).collect();
            tokio::task::yield_now().await;
            sender.send_modify(|value| *value = 1);
            for wait in waits {
                wait.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
        });
    }

    /// A leader that looked at its standing while it did was stopped for good where the engine changed it in between, and
    /// with it the engine.
    #[test]
    fn who_holds_a_value_looks_again_while_another_waits_to_change_it() {
        let (sender, receiver) = channel(0);
        let held = receiver.borrow();
        let (begins, begun) = std::sync::mpsc::channel();
        let (ends, ended) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                begins.send(()).unwrap();
                sender.send_modify(|value| *value = 1);
                ends.send(()).unwrap();
            });
            begun.recv().unwrap();
            // Until it waits for what is held here.
            assert!(ended.recv_timeout(Duration::from_millis(100)).is_err());
            assert_eq!(*receiver.borrow(), 0);
            drop(held);
            ended.recv().unwrap();
        });
        assert_eq!(*receiver.borrow(), 1);
    }

    #[test]
    fn what_nobody_can_change_any_more_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (sender, mut receiver) = channel(0);
            let mut other = receiver.clone();
            let waits = tokio::spawn(async move { other.changed().await });
            tokio::task::yield_now().await;
            sender.clone().send_modify(|value| *value = 1);
            assert_eq!(waits.await.unwrap(), Ok(()));
            let mut other = receiver.clone();
            drop(other.borrow_and_update());
            let waits = tokio::spawn(async move { other.wait_for(|value| *value == 2).await });
            tokio::task::yield_now().await;
            drop(sender);
            assert_eq!(waits.await.unwrap(), Err(RecvError(())));
            assert_eq!(receiver.changed().await, Ok(()), "it was not seen");
            assert_eq!(receiver.changed().await, Err(RecvError(())));
        });
    }
}
