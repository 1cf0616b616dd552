//! From memory to the disk: a writer takes records from the intake's ring and puts them into segments, a
//! syncer makes them durable. [`Commit`] joins the parts, which do not know one another.
//!
//! ```text
//!  appenders ──► intake (ring) ──► writer ──► segment ──► syncer
//!                    ▲          (its role: a lock)     (sync turn: a lock)
//!                    └──────────────── room again ◄───────┘
//! ```
//!
//! * [`writer`]: the role that takes, stages and writes; [`take`]: from the ring into a segment.
//! * [`succession`]: one segment follows another; [`replace`]: after one failed; [`truncate`]: at both
//!   ends of the log; [`heal`]: a damaged segment is exchanged for what it was.
//! * [`syncer`]: what is written and not durable, when it is due, and its syncs.
//! * [`duties`]: the steps that threads take, or whoever drives the log; [`threads`], [`signal`].
//!
//! The order in which locks are taken stands at [`crate::shim::Rank`].
//!
//! Its words: whoever plays the *role* takes records in *turns*. A segment follows another in a *step* (first,
//! rotate, cut) and takes a *spare*; it *fails*, is *replaced*, and a log without one is *homeless*. A sync is
//! *wanted* or *due*, one *sync turn* at a time, and *late* where it takes too long. Threads take *duties*
//! when a *signal* wakes them.

pub(crate) mod duties;
pub(crate) mod heal;
pub(crate) mod replace;
pub(crate) mod signal;
pub(crate) mod succession;
pub(crate) mod syncer;
pub(crate) mod take;
pub(crate) mod threads;
pub(crate) mod truncate;
pub(crate) mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use self::signal::Signal;
use self::syncer::{Synced, Syncer};
use self::writer::Writer;
use crate::append::gate::Gate;
use crate::append::intake::Intake;
use crate::append::marks::Apart;
use crate::clock::Clock;
use crate::crew::budget::Budget;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::files::notes;
use crate::files::place::Spare;
use crate::options::Policy;
use crate::read::Live;
use crate::segment::format::FRAME_BYTES;
use crate::segment::handle::Segment;
use crate::segment::head::segment_name;
use crate::segment::scan::Closed;
use crate::shim::{AtomicBool, AtomicU64, Rank, Ranked, RankedGuard};
use crate::stats::{Event, Tell};

/// The parts of a log that is open for writing.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) policy: Policy,
    pub(crate) intake: Intake,
    pub(crate) files: Arc<Files>,
    pub(crate) syncer: Syncer,
    pub(crate) tell: Tell,
    pub(crate) signals: Apart<Signals>,
    /// The ring is in a file: what is in it survives a crash of the process.
    pub(crate) ring_outlives_us: bool,
    /// Whether others do the work of readers and appenders: see [`crate::Options::threads`].
    pub(crate) has_threads: bool,
    /// What they share, if they are a crew's.
    pub(crate) budget: Option<Arc<Budget>>,
    /// Since when records are gathered that go to the kernel together; 0 if none are.
    gathers_since: AtomicU64,
    /// So often in a row no file could be made ready.
    prepared_in_vain: AtomicU64,
    writer: Ranked<Writer>,
    /// Threads that want the writer's role and are no writers.
    role_wanted: AtomicU64,
    sweep_wanted: AtomicBool,
    /// A segment failed, and there is no room for another yet: what is not durable is in the ring only.
    is_homeless: AtomicBool,
}

/// Wakes those who do the work.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) writer: Signal,
    pub(crate) syncer: Signal,
    pub(crate) preparer: Signal,
}

impl Commit {
    pub(crate) fn new(
        policy: Policy,
        intake: Intake,
        files: Arc<Files>,
        syncer: Syncer,
        tell: Tell,
        writer: Writer,
        has_threads: bool,
    ) -> Self {
        Self {
            policy,
            intake,
            files,
            syncer,
            tell,
            signals: Apart(Signals::default()),
            ring_outlives_us: false,
            has_threads,
            budget: None,
            gathers_since: AtomicU64::new(0),
            prepared_in_vain: AtomicU64::new(0),
            writer: Ranked::new(Rank::Role, writer),
            role_wanted: AtomicU64::new(0),
            sweep_wanted: AtomicBool::new(false),
            is_homeless: AtomicBool::new(false),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.files.clock
    }

    pub(crate) fn is_in_crew(&self) -> bool {
        self.budget.is_some()
    }

    /// What readers need of it.
    pub(crate) fn live(&self) -> Live {
        let (files, marks) = (Arc::clone(&self.files), Arc::clone(&self.intake.marks));
        Live { files, marks, helps: self.has_threads, owner: self.intake.owner }
    }

    /// The writer's role.
    pub(crate) fn role(&self) -> RankedGuard<'_, Writer> {
        self.writer.lock()
    }

    /// The writer's role, if nobody plays it.
    pub(crate) fn try_role(&self) -> Option<RankedGuard<'_, Writer>> {
        self.writer.try_lock()
    }

    /// The writer's role, for somebody for whom the writer makes way between two of its turns.
    pub(crate) fn role_by_force(&self) -> RankedGuard<'_, Writer> {
        self.role_wanted.fetch_add(1, SeqCst);
        let writer = self.writer.lock();
        if self.role_wanted.fetch_sub(1, SeqCst) == 1 {
            // It sleeps until nobody wants the role, and then waits for the lock as everybody does.
            self.signals.writer.wake();
        }
        writer
    }

    /// Whether the writer makes way.
    pub(crate) fn is_role_wanted(&self) -> bool {
        self.role_wanted.load(SeqCst) > 0
    }

    /// Records up to `index`, which end at `position` in the ring, are with the kernel.
    fn written(&self, segment: &Arc<Segment>, index: u64, position: u64) {
        self.syncer.note_written(segment, index, position);
        if self.policy == Policy::Never {
            self.intake.release(position);
        }
        self.wake_syncer();
    }

    /// Wakes the syncer: at once if a sync is due, else only if it sleeps with none scheduled.
    pub(crate) fn wake_syncer(&self) {
        match self.due() {
            None => {}
            Some(due) if due.is_zero() => self.signals.syncer.wake(),
            Some(_) => self.signals.syncer.wake_if_asleep(),
        }
    }

    /// When the next background sync is due.
    pub(crate) fn due(&self) -> Option<Duration> {
        let intake = &self.intake;
        self.syncer.due(intake.is_pressed(), intake.is_ring_short().then(|| intake.ring.filled()))
    }

    /// Whether what is not durable is so old that appends wait.
    pub(crate) fn look_at_age(&self) {
        self.intake.set_overdue(self.syncer.is_late());
    }

    /// Makes everything durable that is written.
    pub(crate) fn sync(&self) -> Result<()> {
        if let Some(synced) = self.syncer.sync()? {
            self.release(synced);
        }
        Ok(())
    }

    /// What became durable makes room in the ring.
    fn release(&self, synced: Synced) {
        self.intake.release(synced.position);
        self.look_at_age();
        self.tell.synced(synced.index, synced.records, synced.took);
    }

    /// A file for the next segment, with room for so many bytes of frames.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`], and the gate is closed.
    fn take_spare(&self, bytes: u64) -> Result<Spare> {
        self.files.stock.take(bytes).map_err(|error| self.no_spare(error))
    }

    /// Makes a file ready if it is time. Returns whether it did.
    pub(crate) fn keep_ready(&self) -> Result<bool> {
        let more = |room| {
            if !self.is_homeless() {
                self.intake.raise_room_limit(room);
            }
        };
        let prepared = self.files.stock.keep_ready(more).map_err(|error| self.no_spare(error))?;
        if prepared {
            self.room_again();
        }
        Ok(prepared)
    }

    fn no_spare(&self, error: Error) -> Error {
        if !error.is_out_of_space() {
            return error;
        }
        if self.intake.gate() != Gate::OutOfSpace {
            tracing::warn!("no room for another segment");
            self.tell.happened(Event::OutOfSpace);
        }
        self.intake.set_gate(Gate::OutOfSpace);
        Error::OutOfSpace { last_index: self.intake.marks.appended.get() }
    }

    /// There may be room on the disk where there was none. First of all for what was accepted already.
    fn room_again(&self) {
        if self.intake.gate() == Gate::OutOfSpace {
            if !self.is_homeless() {
                self.intake.set_gate(Gate::Open);
            }
            self.signals.preparer.wake();
            self.signals.writer.wake();
        }
    }

    /// Whether what is not durable has no segment, for want of room.
    pub(crate) fn is_homeless(&self) -> bool {
        self.is_homeless.load(SeqCst)
    }

    fn set_homeless(&self, is_homeless: bool) {
        self.is_homeless.store(is_homeless, SeqCst);
    }

    /// Has the files removed that a cut or a failure left.
    fn sweep_soon(&self) {
        self.sweep_wanted.store(true, SeqCst);
        self.signals.preparer.wake_if_asleep();
    }

    /// Whether there are files to be removed.
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.sweep_wanted.load(SeqCst)
    }

    /// Removes what a cut or a failure left, if it is time. What cannot be removed stays until somebody
    /// takes segments away, or opens the log.
    pub(crate) fn sweep(&self) -> bool {
        if !self.sweep_wanted.swap(false, SeqCst) || self.intake.is_stopped() {
            return false;
        }
        let _retention = self.files.retention_turn();
        if let Err(error) = self.files.sweep() {
            tracing::warn!(%error, "a segment that was replaced could not be removed");
        }
        true
    }

    /// Accepts nothing more, and tells everybody who waits why.
    pub(crate) fn stop(&self, source: Error) -> Error {
        let error = self.intake.stop(source);
        tracing::error!(%error, "the log stops");
        self.tell.happened(Event::Stopped);
        error
    }

    /// Makes everything durable, and notes that it is. The last thing that a log does.
    pub(crate) fn finish(&self) -> Result<()> {
        let index = self.intake.marks.appended.get();
        let closed = {
            let mut writer = self.role();
            if self.intake.is_stopped() {
                return Err(self.intake.why_stopped());
            }
            writer.drain(self, index)?;
            writer.end(self, index)?
        };
        {
            let _retention = self.files.retention_turn();
            self.files.sweep()?;
        }
        match notes::write_closed(self.files.dir(), &closed) {
            // Everything is durable all the same: the next open reads more of the newest segment.
            Err(error) if error.is_out_of_space() => {
                tracing::warn!("the disk is full: where the log ends is not noted");
                notes::remove_unfinished(self.files.dir())?;
            }
            noted => noted?,
        }
        if self.ring_outlives_us {
            notes::forget_ring(self.files.dir())?;
        }
        // What is durable in a file without a name is gone when the file is closed.
        self.files.check_names()
    }
}

impl Writer {
    /// Says in the segment that everything up to `index` is durable, durably, if there is room for it.
    fn end(&mut self, commit: &Commit, index: u64) -> Result<Closed> {
        let generation = self.generation;
        let active = self.active.as_mut().expect("everything is durable in a segment");
        if index > active.marked && active.fits(FRAME_BYTES as u64) {
            active.stage_mark(index, generation);
            // All is durable already; but a file that has failed takes no more. What replaces it says the
            // same.
            let marked = active.write_end().and_then(|_bytes| {
                active.segment.file.sync(commit.files.place.method.call)?;
                Ok(())
            });
            if let Err(error) = marked {
                self.fail(commit, error)?;
            }
        }
        let Some(active) = &self.active else {
            return Err(Error::OutOfSpace { last_index: index });
        };
        let link = active.segment.link;
        tracing::debug!(segment = segment_name(link.first_index), "the log ends here");
        Ok(Closed {
            log_id: commit.files.log_id,
            generation: link.generation,
            first_index: link.first_index,
            salt: active.segment.header.salt,
            last_index: index,
            records_end: active.segment.end.load(SeqCst),
            frames_end: active.next_offset(),
            sparse: active.sparse.clone(),
        })
    }
}
