//! The smallest log that commits in groups: the first writer to come leads, and syncs for all who
//! came before its sync began. The others wait, and one of them leads next.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use plimsoll_sync::File;

use super::plan::{METHOD, RECORD_BYTES, RECORDS};

/// A log that many threads append to, and whose records share syncs.
pub(super) struct SharedLog {
    file: Arc<dyn File>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    appended: u64,
    durable: u64,
    leading: bool,
    byte_offset: u64,
    syncs: u64,
    failed: Option<plimsoll_sync::Error>,
}

impl SharedLog {
    pub(super) fn new(file: Arc<dyn File>) -> Self {
        Self { file, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn syncs(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).syncs
    }

    /// Appends a record. It is durable on return.
    pub(super) fn append(&self, record: &[u8]) -> plimsoll_sync::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.extend_from_slice(record);
        state.appended += 1;
        let mine = state.appended;
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if state.durable >= mine {
                return Ok(());
            }
            if state.leading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            let group = std::mem::take(&mut state.waiting);
            let last = state.appended;
            // A full file is written over from its start, as nobody reads this log back.
            let end = RECORDS * RECORD_BYTES as u64;
            let fits = state.byte_offset + group.len() as u64 <= end;
            let at = if fits { state.byte_offset } else { 0 };
            drop(state);
            let synced = self.file.write_sync_at(&group, at, METHOD);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.byte_offset = at + group.len() as u64;
            state.leading = false;
            state.syncs += 1;
            match synced {
                Ok(_kept) => state.durable = last,
                Err(error) => state.failed = Some(error),
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use plimsoll_sync::{Allocation, Error, Promise, SyncMethod};

    use super::*;

    /// Keeps what is written; its syncs fail from number `fails_at` on.
    #[derive(Debug)]
    struct Recorder {
        written: Mutex<Vec<u8>>,
        syncs: AtomicUsize,
        fails_at: usize,
    }

    impl File for Recorder {
        fn len(&self) -> plimsoll_sync::Result<u64> {
            Ok(0)
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> plimsoll_sync::Result<usize> {
            Ok(0)
        }
        fn write_at(&self, _: &[u8], _: u64) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn write_sync_at(
            &self,
            buf: &[u8],
            _: u64,
            _: SyncMethod,
        ) -> plimsoll_sync::Result<Promise> {
            if self.syncs.fetch_add(1, Ordering::Relaxed) >= self.fails_at {
                return Err(Error::io("fsync", "log", std::io::Error::other("gone")));
            }
            self.written.lock().unwrap().extend_from_slice(buf);
            thread::yield_now();
            Ok(Promise::Media)
        }
        fn sync(&self, _: SyncMethod) -> plimsoll_sync::Result<Promise> {
            Ok(Promise::Media)
        }
        fn allocate(&self, _: u64, _: u64, _: Allocation) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn truncate(&self, _: u64) -> plimsoll_sync::Result<()> {
            Ok(())
        }
        fn alignment(&self) -> usize {
            1
        }
    }

    fn recorder(fails_at: usize) -> Arc<Recorder> {
        Arc::new(Recorder { written: Mutex::default(), syncs: AtomicUsize::new(0), fails_at })
    }

    #[test]
    fn a_record_is_durable_when_append_returns_and_none_is_written_twice() {
        let file = recorder(usize::MAX);
        let log = SharedLog::new(Arc::clone(&file) as Arc<dyn File>);
        thread::scope(|scope| {
            for writer in 0..8u8 {
                let (log, file) = (&log, &file);
                scope.spawn(move || {
                    for number in 0..100u8 {
                        log.append(&[writer, number]).unwrap();
                        let written = file.written.lock().unwrap();
                        assert!(written.chunks(2).any(|record| record == [writer, number]));
                    }
                });
            }
        });
        let mut records: Vec<Vec<u8>> =
            file.written.lock().unwrap().chunks(2).map(<[u8]>::to_vec).collect();
        assert_eq!(records.len(), 800);
        records.sort();
        records.dedup();
        assert_eq!(records.len(), 800);
        assert_eq!(log.syncs(), file.syncs.load(Ordering::Relaxed) as u64);
    }

    #[test]
    fn a_failed_sync_fails_everybody_who_waits() {
        let log = SharedLog::new(recorder(5));
        let failed = thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..100).any(|_| log.append(b"r").is_err())))
                .collect();
            writers.into_iter().all(|writer| writer.join().unwrap())
        });
        assert!(failed);
    }
}
