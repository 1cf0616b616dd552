//! Waiting until a record is written or durable.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll_log::{Ack, Error, Event, Log, Observer, Options, Policy, Wait};
use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};

use crate::common::{driven, scratch, small};
use crate::wrapped::Gate;

#[test]
fn a_wait_with_a_timeout_asks_for_the_sync_and_does_not_do_the_work() {
    let dir = scratch();
    let (log, _) =
        Log::open(dir.path(), Options { policy: Policy::Never, ..Options::default() }).unwrap();
    let index = log.append(b"nobody would sync this").unwrap();
    log.wait(index, Ack::Durable).unwrap().block_for(Duration::from_secs(60)).unwrap();
    assert!(log.durable() >= index);
    let missing = log.wait(index + 1, Ack::Written).unwrap_err();
    assert!(matches!(missing, Error::OutOfRange { .. }), "what nobody appended does not come");

    // Nobody drives this one: as if its disk hung.
    let options = Options { threads: false, policy: Policy::Never, ..small() };
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
    let index = log.append(b"late").unwrap();
    for level in [Ack::Written, Ack::Durable] {
        let wait = log.wait(index, level).unwrap();
        let late = wait.block_for(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(late, Error::TimedOut { .. }), "{late:?}");
    }
    while log.drive().unwrap() {}
    assert_eq!(log.durable(), index, "it was asked for, and still may come");
    log.wait(index, Ack::Durable).unwrap().block_for(Duration::ZERO).unwrap();
}

/// A wait in slices waited for the next record of that index.
#[test]
fn a_wait_that_is_taken_up_again_knows_its_record() {
    let tmp = tempfile::tempdir().unwrap();
    let options = Options { policy: Policy::Never, ..small() };
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    log.append_batch(&["stays", "goes"]).unwrap();
    let [stays, goes] = [1, 2].map(|index| log.wait(index, Ack::Durable).unwrap());
    assert!(matches!(log.wait(3, Ack::Durable), Err(Error::OutOfRange { index: 3, .. })));
    log.truncate_after(1).unwrap();
    assert_eq!(log.append_with(b"another", Ack::Durable).unwrap(), 2);
    stays.block_for(Duration::from_secs(60)).unwrap();
    let told = goes.block_for(Duration::from_secs(60));
    assert!(matches!(told, Err(Error::Truncated { index: 2 })), "{told:?}");
    log.wait(2, Ack::Durable).unwrap().block().unwrap();
}

/// A task that waits is woken, and nothing need be asked for beside it.
#[test]
fn a_task_awaits_its_record_and_is_told_of_a_cut() {
    struct Unparks(std::thread::Thread);
    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut wait = |waiting: Wait| {
        let mut waiting = pin!(waiting);
        loop {
            match waiting.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    };
    for policy in [Policy::Never, Policy::Always] {
        let tmp = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(tmp.path(), Options { policy, ..small() }).unwrap();
        log.append_with(b"stays", Ack::Buffered).unwrap();
        wait(log.wait(1, Ack::Durable).unwrap()).unwrap();
        assert_eq!(log.durable(), 1);
        log.append_with(b"goes", Ack::Buffered).unwrap();
        let goes = log.wait(2, Ack::Durable).unwrap();
        log.truncate_after(1).unwrap();
        assert_eq!(log.append_with(b"another", Ack::Durable).unwrap(), 2);
        let told = wait(goes);
        assert!(matches!(told, Err(Error::Truncated { index: 2 })), "{told:?}");
        wait(log.wait(2, Ack::Written).unwrap()).unwrap();
    }
}

/// Counts how often it is woken. As many hold it as are waiting in some list.
#[derive(Default)]
struct Counts(AtomicU64);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Each look of a task looked through all that waited, under the writer's lock; and a future that was
/// dropped stayed in the list for as long as the log was open.
#[test]
fn a_future_that_is_polled_again_waits_once_and_one_that_is_dropped_not_at_all() {
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), driven()).unwrap();
    for level in [Ack::Written, Ack::Durable] {
        let index = log.append_with(b"late", Ack::Buffered).unwrap();
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&counts));
        let ours = Arc::strong_count(&counts);
        let mut context = Context::from_waker(&waker);
        let mut waits: Vec<_> =
            (0..100).map(|_| Box::pin(log.wait(index, level).unwrap())).collect();
        for _ in 0..10 {
            waits.iter_mut().for_each(|wait| {
                assert!(wait.as_mut().poll(&mut context).is_pending());
            });
            assert_eq!(Arc::strong_count(&counts), ours + 100, "each is there once");
        }
        waits.truncate(1);
        assert_eq!(Arc::strong_count(&counts), ours + 1, "what was dropped is gone");
        // Another task takes it over: the first is not woken.
        let others = Arc::new(Counts::default());
        let waker = Waker::from(Arc::clone(&others));
        let mut context = Context::from_waker(&waker);
        assert!(waits[0].as_mut().poll(&mut context).is_pending());
        assert_eq!(Arc::strong_count(&counts), ours);
        while log.drive().unwrap() {}
        assert_eq!((counts.0.load(SeqCst), others.0.load(SeqCst)), (0, 1));
        assert!(matches!(waits[0].as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    }
    log.close().unwrap();
}

#[test]
fn a_callback_is_called_once_however_it_goes() {
    let levels = [Ack::Buffered, Ack::Written, Ack::Durable];
    let (tell, told) = mpsc::channel();
    // Callbacks at every level of a record that is still on its way.
    let register = |log: &Log, index| {
        for level in levels {
            for wait in [log.wait(index, level).unwrap(), log.watch(index, level).unwrap()] {
                let tell = tell.clone();
                wait.then(move |how| tell.send((level, how)).unwrap());
            }
        }
    };
    let heard = || {
        let mut heard: Vec<_> = told.try_iter().collect();
        heard.sort_by_key(|(level, _)| *level);
        assert_eq!(heard.len(), 6, "{heard:?}");
        assert!(heard.chunks(2).zip(levels).all(|(two, at)| two.iter().all(|(l, _)| *l == at)));
        heard.into_iter().map(|(_, how)| how).collect::<Vec<_>>()
    };
    let open = |dir: &Arc<SimDir>| Log::open_in(dir.clone(), driven()).unwrap().0;
    let dir = Arc::new(SimDir::new());
    let log = open(&dir);
    // It comes: and who asks later is told here and now.
    let index = log.append_with(b"comes", Ack::Buffered).unwrap();
    register(&log, index);
    assert_eq!(told.try_iter().count(), 0);
    log.sync().unwrap();
    assert!(heard().iter().all(Result::is_ok));
    register(&log, index);
    assert!(heard().iter().all(Result::is_ok));
    // It is cut off.
    let index = log.append_with(b"is cut", Ack::Buffered).unwrap();
    register(&log, index);
    log.truncate_after(index - 1).unwrap();
    assert!(heard().iter().all(|how| matches!(how, Err(Error::Truncated { .. }))));
    // The log is closed, which makes it durable.
    let index = log.append_with(b"is closed", Ack::Buffered).unwrap();
    register(&log, index);
    log.close().unwrap();
    assert!(heard().iter().all(Result::is_ok));
    // The log is dropped, which does what is asked for if the disk is willing.
    let log = open(&dir);
    let index = log.append_with(b"is dropped", Ack::Buffered).unwrap();
    register(&log, index);
    drop(log);
    assert!(heard().iter().all(|how| matches!(how, Ok(()) | Err(Error::Closed))));
    // The log stops.
    let log = open(&dir);
    let index = log.append_with(b"is lost", Ack::Buffered).unwrap();
    register(&log, index);
    dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)).sticky());
    assert!(matches!(log.sync(), Err(Error::Stopped { .. })));
    assert!(heard().iter().all(|how| matches!(how, Err(Error::Stopped { .. }))));
    drop(log);
    drop(tell);
    assert_eq!(told.try_iter().count(), 0, "nobody is called twice");
}

/// The directory's lock is gone with the log: whoever waited on played the writer all the same, and where
/// the disk had been full its segment took the name of one that the next owner had filled.
#[test]
fn a_wait_that_outlives_its_log_touches_nothing() {
    for threads in [true, false] {
        let dir = Arc::new(SimDir::new());
        let options = Options { threads, policy: Policy::Never, ..small() };
        let (log, _) = Log::open_in(dir.clone(), options).unwrap();
        log.append(b"written when the log is dropped").unwrap();
        let wait = log.wait(1, Ack::Durable).unwrap();
        drop(log);
        let (next, _) = Log::open_in(dir.clone(), driven()).unwrap();
        assert_eq!(next.append_with(b"the next owner's", Ack::Durable).unwrap(), 2);
        let operations = dir.operations();
        let told = wait.block();
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
        assert_eq!(dir.operations(), operations);
    }
}

/// The others had left the list of those who wait, and nobody told them any more.
#[test]
fn a_callback_that_panics_keeps_nobody_waiting_and_stops_nothing() {
    let (log, _) = Log::open_in(Arc::new(SimDir::new()), driven()).unwrap();
    let (tell, told) = mpsc::channel();
    for index in 1..=3 {
        assert_eq!(log.append(b"a record").unwrap(), index);
        let tell = tell.clone();
        let call = move |how: plimsoll_log::Result<()>| {
            assert_ne!(index, 2, "this one panics");
            tell.send((index, how.is_ok())).unwrap();
        };
        log.watch(index, Ack::Durable).unwrap().then(call);
    }
    log.sync().unwrap();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(1, true), (3, true)]);
    log.health().unwrap();
    log.close().unwrap();
}

/// The thread that called it held locks that the end of the log takes.
#[test]
fn the_last_handle_of_a_log_may_go_with_a_callback() {
    struct Tells(mpsc::Sender<()>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let dir = Arc::new(SimDir::new());
    let gate = Arc::new(Gate::default());
    let (log, _) = Log::open_in(gate.wrap(dir.clone()), small()).unwrap();
    let log = Arc::new(log);
    let (tell, told) = mpsc::channel();
    gate.shut_after(0, None);
    let (other, index) = (Arc::clone(&log), log.append(b"a record").unwrap());
    let tells = Tells(tell);
    log.wait(index, Ack::Durable).unwrap().then(move |_| {
        drop(other);
        drop(tells);
    });
    drop(log);
    gate.open();
    told.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
    let ends = Instant::now() + Duration::from_secs(60);
    while Log::open_in(dir.clone(), driven()).is_err() {
        assert!(Instant::now() < ends, "it is still open");
        std::thread::yield_now();
    }
}

/// Its panic came out of an append, and the log did not close any more.
#[test]
fn an_observer_that_panics_stops_nothing() {
    struct Panics;
    impl Observer for Panics {
        fn observe(&self, event: Event<'_>) {
            panic!("{event:?} is not liked");
        }
    }
    for threads in [true, false] {
        let observer = Some(Arc::new(Panics) as Arc<dyn Observer>);
        let options = Options { threads, observer, ..small() };
        let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
        log.append_with(b"a record", Ack::Durable).unwrap();
        log.health().unwrap();
        log.close().unwrap();
    }
}
