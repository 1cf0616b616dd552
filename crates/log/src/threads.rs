//! The log's own threads: writer, syncer, preparer (the [flusher](crate::flusher) has a file of its own).
//! Each loops over one step that has no loop of its own, so that a log without threads takes the same
//! steps ([`crate::Log::drive`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::accept::Gate;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::flusher::Flusher;
use crate::shim::thread::{self, JoinHandle};
use crate::shim::{Mutex, lock};
use crate::spares;
use crate::writer::{Turn, Writer, has_work};

/// The writer looks for records by itself this often, so that appends need not wake it.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks in vain it sleeps until it is woken.
const LOOKS_IN_VAIN: u32 = if cfg!(shuttle) { 2 } else { 50 };
/// How long the writer waits for room before it tries again by itself.
const STUCK: Duration = Duration::from_millis(100);

/// So often in a row no segment could be made ready, while appends wait for it, before the log goes on
/// elsewhere.
const PREPARED_IN_VAIN: u32 = 10;

/// The threads of a log, while they run.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Where one cannot be started, those that run are ended: the directory's lock is about to go.
    pub(crate) fn start(core: &Arc<Core>, role: &Arc<Mutex<Writer>>) -> Result<Self> {
        let mut threads = Self::default();
        let started = threads.start_all(core, role);
        if started.is_err() {
            core.close();
            threads.join(core);
        }
        started.map(|()| threads)
    }

    fn start_all(&mut self, core: &Arc<Core>, role: &Arc<Mutex<Writer>>) -> Result<()> {
        lock(role).flusher = Arc::new(Flusher::start(core.clock().clone())?);
        type Body = Box<dyn Fn(&Core, &Mutex<Writer>) + Send>;
        let mut bodies: Vec<(&str, Body)> =
            vec![("log-writer", Box::new(write)), ("log-syncer", Box::new(sync))];
        for place in 0..core.places.len() {
            bodies.push(("log-preparer", Box::new(move |core, role| prepare(core, role, place))));
        }
        for (name, body) in bodies {
            let (core, role) = (Arc::clone(core), Arc::clone(role));
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
                let ran = catch_unwind(AssertUnwindSafe(|| body(&core, &role)));
                if ran.is_err() {
                    // It has said why; nobody shall wait for it.
                    let error = std::io::Error::other("a thread of the log panicked");
                    core.stop(plimsoll_sync::Error::io("run", name, error).into());
                }
            });
            let failed = |error| plimsoll_sync::Error::io("start a thread", name, error);
            self.handles.push(spawned.map_err(failed)?);
        }
        Ok(())
    }

    /// Waits for them to end, once the gate is closed.
    pub(crate) fn join(&mut self, core: &Core) {
        for signal in
            [&core.writer_signal, &core.syncer_signal].into_iter().chain(&core.preparer_signals)
        {
            signal.wake();
        }
        for handle in self.handles.drain(..) {
            // A thread that panicked has said so.
            drop(handle.join());
        }
    }

    /// They are those of another process.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.handles));
    }
}

fn is_over(core: &Core) -> bool {
    core.gate() >= Gate::Stopped
}

fn write(core: &Core, role: &Mutex<Writer>) {
    core.writer_signal.is_me();
    let mut in_vain = 0;
    loop {
        // Whoever wants to cut the log off gets its turn between two of ours.
        while core.role_wanted.load(SeqCst) > 0 && !is_over(core) {
            thread::yield_now();
        }
        let (turn, taken) = {
            let mut writer = lock(role);
            (writer.turn(core), writer.taken)
        };
        core.watch_age();
        core.wake_syncer();
        if matches!(turn, Ok(Turn::Worked)) {
            in_vain = 0;
            continue;
        }
        if is_over(core) {
            return;
        }
        let longest = match turn {
            Err(_stopped) => return,
            Ok(Turn::Stuck) => Some(STUCK),
            Ok(_) if in_vain < LOOKS_IN_VAIN => Some(LOOK),
            // The age of what is written is still watched.
            Ok(_) if core.lag() > Duration::ZERO => Some(LOOK * 10),
            Ok(_) => None,
        };
        in_vain += 1;
        match longest {
            Some(longest) => core.writer_signal.sleep(Some(longest)),
            None => {
                let is_work = || has_work(core, taken) || is_over(core);
                core.writer_signal.sleep_unless(None, is_work);
                in_vain = 0;
            }
        }
    }
}

fn sync(core: &Core, role: &Mutex<Writer>) {
    core.syncer_signal.is_me();
    while !is_over(core) {
        match core.sync_due() {
            Some(Duration::ZERO) => {
                if sync_or_fail_over(core, role).is_err() {
                    return;
                }
            }
            Some(later) => core.syncer_signal.sleep(Some(later)),
            None => {
                let is_work = || core.sync_due().is_some() || is_over(core);
                core.syncer_signal.sleep_unless(None, is_work);
            }
        }
    }
}

/// One background sync. If it fails, the writer's role is taken to go on elsewhere.
pub(crate) fn sync_or_fail_over(core: &Core, role: &Mutex<Writer>) -> Result<()> {
    if core.sync_now().is_ok() {
        return Ok(());
    }
    let mut writer = lock(role);
    // The writer may have met the failure first, and be somewhere else by now. If not, the latch of
    // the file fails again without asking the disk.
    match core.sync_now() {
        Ok(()) => Ok(()),
        Err(error) => writer.fail_over(core, error),
    }
}

fn prepare(core: &Core, role: &Mutex<Writer>, place: usize) {
    let mut in_vain = 0;
    let signal = &core.preparer_signals[place];
    signal.is_me();
    // Who opens a log to read it needs no file.
    signal.sleep_unless(None, || is_over(core) || core.has_accepted());
    while !is_over(core) {
        let is_here = || core.place.load(SeqCst) == place as u64;
        let prepared = if is_here() { spares::keep_ready(core, place) } else { Ok(false) };
        let longest = match prepared {
            Ok(_) => {
                in_vain = 0;
                None
            }
            Err(Error::OutOfSpace { .. }) => Some(STUCK),
            Err(error) => {
                tracing::warn!(%error, "no segment could be prepared");
                in_vain += 1;
                // Appends stop before the writer would meet this.
                if in_vain >= PREPARED_IN_VAIN && core.pressed.load(SeqCst) {
                    in_vain = 0;
                    let mut writer = lock(role);
                    if is_here() && writer.fail_over(core, error).is_err() {
                        return;
                    }
                }
                Some(STUCK)
            }
        };
        // The writer may have asked for one just now, when we were not asleep yet.
        let is_work = || is_over(core) || longest.is_none() && is_here() && spares::is_due(core);
        signal.sleep_unless(longest, is_work);
    }
}
