//! The threads of a log by itself: writer, syncer, preparer (the [flusher](crate::segment::flusher) has a
//! file of its own). Each loops over one [step](super::duties).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Commit;
use super::duties::Next;
use crate::error::Result;
use crate::segment::flusher::Flusher;
use crate::shim::thread::{self, JoinHandle};

/// The writer looks for records by itself this often, so that appends need not wake it.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks in vain it sleeps until it is woken.
const LOOKS_IN_VAIN: u32 = if cfg!(shuttle) { 2 } else { 50 };

/// The threads of a log, while they run.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Where one cannot be started, those that run are ended: the directory's lock is about to go.
    pub(crate) fn start(commit: &Arc<Commit>) -> Result<Self> {
        let mut threads = Self::default();
        let started = threads.start_all(commit);
        if started.is_err() {
            commit.intake.close();
            threads.join(commit);
        }
        started.map(|()| threads)
    }

    fn start_all(&mut self, commit: &Arc<Commit>) -> Result<()> {
        commit.role().flusher = Arc::new(Flusher::start(commit.clock().clone())?);
        let bodies: [(&str, fn(&Commit)); 3] =
            [("log-writer", write), ("log-syncer", sync), ("log-preparer", prepare)];
        for (name, body) in bodies {
            let commit = Arc::clone(commit);
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let ran = catch_unwind(AssertUnwindSafe(|| body(&commit)));
                if ran.is_err() {
                    // It has said why; nobody shall wait for it.
                    let error = std::io::Error::other("a thread of the log panicked");
                    commit.stop(plimsoll_sync::Error::io("run", name, error).into());
                }
            });
            let failed = |error| plimsoll_sync::Error::io("start a thread", name, error);
            self.handles.push(spawned.map_err(failed)?);
        }
        Ok(())
    }

    /// Waits for them to end, once the gate is closed.
    pub(crate) fn join(&mut self, commit: &Commit) {
        let signals = &commit.signals;
        for signal in [&signals.writer, &signals.syncer, &signals.preparer] {
            signal.wake();
        }
        for handle in self.handles.drain(..) {
            // A thread that panicked has said so.
            drop(handle.join());
        }
    }
}

fn write(commit: &Commit) {
    let signal = &commit.signals.writer;
    signal.register_current_thread();
    let mut in_vain = 0;
    loop {
        let next = commit.write_step();
        match next {
            Next::Again => {
                in_vain = 0;
                continue;
            }
            Next::Never => return,
            Next::Within(longest) if commit.is_role_wanted() => {
                signal.sleep_unless(Some(longest), || !commit.is_role_wanted());
            }
            Next::Woken | Next::Within(_) if in_vain < LOOKS_IN_VAIN => signal.sleep(Some(LOOK)),
            Next::Within(longest) => signal.sleep(Some(longest)),
            Next::Woken => {
                let taken = commit.role().taken();
                signal.sleep_unless(None, || commit.has_writing(taken));
                in_vain = 0;
            }
        }
        in_vain += 1;
    }
}

fn sync(commit: &Commit) {
    let signal = &commit.signals.syncer;
    signal.register_current_thread();
    loop {
        match commit.sync_step() {
            Next::Again => {}
            Next::Within(later) => signal.sleep(Some(later)),
            Next::Woken => signal.sleep_unless(None, || commit.has_syncing()),
            Next::Never => return,
        }
    }
}

fn prepare(commit: &Commit) {
    let signal = &commit.signals.preparer;
    signal.register_current_thread();
    // Whoever opens a log to read it needs no file.
    signal.sleep_unless(None, || {
        commit.is_over() || commit.intake.has_accepted() || commit.is_sweep_due()
    });
    loop {
        match commit.prepare_step() {
            Next::Again => {}
            Next::Within(longest) => signal.sleep_unless(Some(longest), || commit.is_over()),
            // The writer may have asked for one just now, when we were not asleep yet.
            Next::Woken => signal.sleep_unless(None, || commit.has_preparing()),
            Next::Never => return,
        }
    }
}
