//! The steps that a log takes: write, sync, make the next file ready. Each has no loop of its own and says
//! when it wants to be called again, so that threads of the log's own, those of a crew, and whoever
//! [drives](crate::Log::drive) a log without threads all take the same ones.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::Commit;
use super::syncer::early;
use super::writer::Turn;
use crate::append::gate::Gate;
use crate::crew::budget::Holder;
use crate::error::{Error, Result};
use crate::options::Policy;

/// How long the writer or the preparer waits for room before it tries again by itself.
const STUCK: Duration = Duration::from_millis(100);
/// How often the age of what is written is looked at.
const WATCH: Duration = Duration::from_millis(10);
const WATCH_IN_CREW: Duration = Duration::from_millis(500);
/// What a log gathers before it writes, at most.
const GATHERED_BYTES: u64 = 64 << 10;
/// So often in a row no segment could be made ready, while appends wait for it, before the log goes on
/// elsewhere.
const PREPARED_IN_VAIN: u64 = 10;

/// When a step wants to be taken again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once.
    Again,
    /// When woken, and after so long at the latest.
    Within(Duration),
    /// When woken.
    Woken,
    /// Never: the log is closed or has stopped.
    Never,
}

impl Commit {
    pub(crate) fn is_over(&self) -> bool {
        self.intake.gate() >= Gate::Stopped
    }

    /// Writes what is there, and syncs it if somebody waits for that.
    pub(crate) fn write_step(&self) -> Next {
        if self.is_role_wanted() && !self.is_over() {
            // Whoever wants to cut the log off gets its turn between two of ours, and wakes us.
            return Next::Within(STUCK);
        }
        if let Some(later) = self.gathers() {
            return Next::Within(later);
        }
        let turn = self.role().turn(self);
        self.look_at_age();
        self.wake_syncer();
        match turn {
            Ok(Turn::Worked) => Next::Again,
            _ if self.is_over() => Next::Never,
            Err(_stopped) => Next::Never,
            Ok(Turn::Stuck) => Next::Within(STUCK),
            // The age of what is written is still watched.
            Ok(Turn::Idle) if self.policy != Policy::Never && !self.syncer.lag().is_zero() => {
                Next::Within(if self.is_in_crew() { WATCH_IN_CREW } else { WATCH })
            }
            Ok(Turn::Idle) => {
                if self.is_in_crew() {
                    self.rest();
                }
                Next::Woken
            }
        }
    }

    /// In a crew, and where the ring outlives the process, buffered records go to the kernel with the sync that is due for
    /// them, in one call: how long until then. Not where somebody waits, or there are many.
    fn gathers(&self) -> Option<Duration> {
        let Policy::Interval { max_age, .. } = self.policy else { return None };
        let is_wanted = self.syncer.is_wanted() || self.syncer.is_write_wanted();
        let outlives_us = self.ring_outlives_us && self.intake.marks.written.waiting() == 0;
        if !(self.is_in_crew() || outlives_us) || self.is_over() || is_wanted {
            return None;
        }
        let taken = self.role().taken();
        let bytes = self.intake.ring.filled().saturating_sub(taken);
        let most = self.policy.unsynced_bytes_max(self.intake.ring.capacity())?;
        if bytes == 0 || bytes > most.min(GATHERED_BYTES) || self.intake.is_pressed() {
            self.gathers_since.store(0, SeqCst);
            return None;
        }
        let now = ns(self.clock().now());
        let since = match self.gathers_since.load(SeqCst) {
            0 => {
                self.gathers_since.store(now, SeqCst);
                now
            }
            since => since,
        };
        let left = ns(early(max_age)).saturating_sub(now.saturating_sub(since));
        if left > 0 {
            let left = Duration::from_nanos(left);
            // A thread of the log's own is told of no append: it looks how many there are.
            return Some(if self.is_in_crew() { left } else { left.min(WATCH) });
        }
        self.gathers_since.store(0, SeqCst);
        self.syncer.want(self.intake.marks.appended.get());
        None
    }

    /// Gives back memory that was used, if everything is durable and much was.
    pub(crate) fn rest(&self) {
        self.intake.rest();
        if let Some(mut writer) = self.try_role() {
            writer.rest();
        }
    }

    /// Whether the writer has anything to do.
    pub(crate) fn has_writing(&self, taken: u64) -> bool {
        self.is_over() || self.intake.ring.filled() != taken || self.syncer.is_sync_wanted()
    }

    /// Syncs if that is due.
    pub(crate) fn sync_step(&self) -> Next {
        if self.is_over() {
            return Next::Never;
        }
        match self.due() {
            Some(due) if due.is_zero() => match self.sync_or_replace() {
                Ok(()) => Next::Again,
                Err(_stopped) => Next::Never,
            },
            Some(later) => Next::Within(later),
            None => Next::Woken,
        }
    }

    /// Whether the syncer has anything to do, now or later.
    pub(crate) fn has_syncing(&self) -> bool {
        self.is_over() || self.due().is_some()
    }

    /// One background sync. If it fails, the writer's role is taken to go on elsewhere.
    pub(crate) fn sync_or_replace(&self) -> Result<()> {
        if self.sync().is_ok() {
            return Ok(());
        }
        let mut writer = self.role();
        // The writer may have met the failure first, and be somewhere else by now. If not, the latch of
        // the file fails again without asking the disk.
        match self.sync() {
            Ok(()) => Ok(()),
            Err(error) => writer.fail(self, error).map(drop),
        }
    }

    /// Makes the next file ready if it is time, and removes those that are stale.
    pub(crate) fn prepare_step(&self) -> Next {
        if self.is_over() {
            return Next::Never;
        }
        self.sweep();
        match self.keep_ready() {
            Ok(_) => {
                self.prepared_in_vain.store(0, SeqCst);
                Next::Woken
            }
            Err(Error::OutOfSpace { .. }) => Next::Within(STUCK),
            // Others of this process have them; the directory is as good as it was.
            Err(error) if error.is_out_of_descriptors() => {
                tracing::warn!(%error, "no segment could be prepared");
                Next::Within(STUCK)
            }
            Err(error) => {
                tracing::warn!(%error, "no segment could be prepared");
                let in_vain = self.prepared_in_vain.fetch_add(1, SeqCst) + 1;
                // Appends stop before the writer would meet this.
                if in_vain >= PREPARED_IN_VAIN && self.intake.is_pressed() {
                    self.prepared_in_vain.store(0, SeqCst);
                    if self.role().fail(self, error).is_err() {
                        return Next::Never;
                    }
                }
                Next::Within(STUCK)
            }
        }
    }

    /// Whether the preparer has anything to do.
    pub(crate) fn has_preparing(&self) -> bool {
        self.is_over() || self.files.stock.is_due() || self.is_sweep_due()
    }

    /// Takes each step once, for a log without threads. Returns whether anything was done.
    pub(crate) fn drive(&self) -> Result<bool> {
        let turn = self.role().turn(self)?;
        self.look_at_age();
        let due = self.due().is_some_and(|due| due.is_zero());
        if due {
            self.sync_or_replace()?;
        }
        let swept = self.sweep();
        let prepared = match self.keep_ready() {
            Ok(prepared) => prepared,
            Err(Error::OutOfSpace { .. }) => false,
            Err(error) => {
                tracing::warn!(%error, "no segment could be prepared");
                false
            }
        };
        if turn == Turn::Idle && self.is_in_crew() {
            self.rest();
        }
        Ok(turn == Turn::Worked || due || swept || prepared)
    }

    /// For an append that finds no room and does not wait for it; 0 if segments have some.
    pub(crate) fn ask_for_room(&self, segment_room: u64) {
        if self.intake.gate() == Gate::Overdue {
            // It may not be any more.
            self.signals.writer.wake();
        }
        if segment_room > 0 {
            self.files.stock.ask(segment_room);
            self.signals.preparer.wake();
        }
    }

    /// For an append that finds no room: makes some, or wakes those who do.
    pub(crate) fn make_room(&self, segment_room: u64) -> Result<bool> {
        if segment_room > 0 {
            self.files.stock.ask(segment_room);
        }
        if let Some(budget) = &self.budget {
            budget.press();
        }
        if self.has_threads {
            self.signals.writer.wake();
            self.signals.syncer.wake();
            self.signals.preparer.wake();
            return Ok(false);
        }
        if self.drive()? {
            return Ok(true);
        }
        // Nothing was due, so what is written is not durable yet.
        if self.syncer.unsynced_bytes() > 0 && self.policy != Policy::Never {
            self.sync_or_replace()?;
            return Ok(true);
        }
        match self.keep_ready() {
            Ok(true) => Ok(true),
            Ok(false) | Err(Error::OutOfSpace { .. }) => {
                Err(Error::OutOfSpace { last_index: self.intake.marks.appended.get() })
            }
            Err(error) if error.is_out_of_descriptors() => Err(error),
            // The writer would meet it only once this segment is full, and it will not be.
            Err(error) => self.role().fail(self, error).map(|_| true),
        }
    }
}

impl Holder for Commit {
    fn press(&self) {
        let marks = &self.intake.marks;
        let index = marks.appended.get();
        if index > marks.durable.get() {
            self.syncer.want(index);
            self.signals.writer.wake();
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).max(1)
}
