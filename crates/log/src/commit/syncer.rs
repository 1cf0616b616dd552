//! [`Syncer`]: makes durable what was written. It knows what is written and not durable, decides when that
//! is due, and syncs it, one sync at a time.
//!
//! Invariant: what [`Synced`] names was covered by a sync that returned well, or by a write with a sync of
//! its own, of every segment that held any of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use plimsoll_sync::SyncMethod;

use crate::append::marks::Marks;
use crate::clock::Clock;
use crate::error::Result;
use crate::options::Policy;
use crate::segment::handle::{Previous, Segment};
use crate::shim::{AtomicU64, Mutex, Rank, Ranked, RankedGuard, lock};

#[derive(Debug)]
pub(crate) struct Syncer {
    marks: Arc<Marks>,
    clock: Clock,
    policy: Policy,
    call: SyncMethod,
    ring_bytes: u64,
    /// The last record that somebody wants durable.
    wanted: AtomicU64,
    /// The last record that somebody wants written.
    written_wanted: AtomicU64,
    unsynced: Mutex<Unsynced>,
    /// Since when the oldest record is not durable that was taken from the ring, in nanoseconds; 0 if there
    /// is none. Appends look at it.
    oldest: AtomicU64,
    durable: Ranked<Durable>,
}

/// What is written and not durable.
#[derive(Debug)]
struct Unsynced {
    /// Segments with such bytes, oldest first.
    segments: Vec<Arc<Segment>>,
    /// The last record written, and where the next one is in the ring.
    index: u64,
    position: u64,
    /// Where what is not durable begins in the ring.
    from: u64,
    /// When the oldest of it was taken from the ring.
    since: Option<Duration>,
    /// When the oldest was that is taken and not written.
    taken_at: Option<Duration>,
}

/// Where what is durable ends: the segment, for the link of one that begins there, and the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Durable {
    pub(crate) previous: Option<Previous>,
    pub(crate) position: u64,
}

/// What became durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) index: u64,
    /// Where the next record is in the ring: everything before may be overwritten.
    pub(crate) position: u64,
    /// How many records were not durable before.
    pub(crate) records: u64,
    pub(crate) took: Duration,
}

/// While somebody has this, nobody else syncs.
#[derive(Debug)]
pub(crate) struct SyncTurn<'a> {
    syncer: &'a Syncer,
    durable: RankedGuard<'a, Durable>,
}

impl Syncer {
    /// Of a log whose durable records end there, with what of `marks` behind it is in the ring.
    pub(crate) fn new(
        marks: Arc<Marks>,
        clock: Clock,
        policy: Policy,
        call: SyncMethod,
        ring_bytes: u64,
        durable: Durable,
    ) -> Self {
        let Durable { position, .. } = durable;
        let index = marks.durable.get();
        let unsynced = Unsynced {
            segments: Vec::new(),
            index,
            position,
            from: position,
            since: None,
            taken_at: None,
        };
        Self {
            marks,
            clock,
            policy,
            call,
            ring_bytes,
            wanted: AtomicU64::new(0),
            written_wanted: AtomicU64::new(0),
            unsynced: Mutex::new(unsynced),
            oldest: AtomicU64::new(0),
            durable: Ranked::new(Rank::Sync, durable),
        }
    }

    /// Somebody wants this record to be durable.
    pub(crate) fn want(&self, index: u64) {
        self.wanted.fetch_max(index, SeqCst);
    }

    /// Somebody wants this record to be written.
    pub(crate) fn want_written(&self, index: u64) {
        self.written_wanted.fetch_max(index, SeqCst);
    }

    /// What was wanted was cut off, or will never come.
    pub(crate) fn want_nothing(&self) {
        self.wanted.store(0, SeqCst);
        self.written_wanted.store(0, SeqCst);
    }

    /// Whether somebody wants what is not written.
    pub(crate) fn is_write_wanted(&self) -> bool {
        self.written_wanted.load(SeqCst) > self.marks.written.get()
    }

    /// Whether somebody wants what is not durable.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(SeqCst) > self.marks.durable.get()
    }

    /// Whether somebody wants a sync of what is written.
    pub(crate) fn is_sync_wanted(&self) -> bool {
        self.is_wanted() && self.marks.written.get() > self.marks.durable.get()
    }

    /// Records are taken from the ring, and about to be written: they get older, however long that takes.
    pub(crate) fn note_taken(&self) {
        let now = self.clock.now();
        let mut unsynced = lock(&self.unsynced);
        unsynced.taken_at.get_or_insert(now);
        self.show_age(&unsynced);
    }

    fn show_age(&self, unsynced: &Unsynced) {
        let ns = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.oldest.store(unsynced.since.or(unsynced.taken_at).map_or(0, ns), SeqCst);
    }

    /// Records up to `index`, which end at `position` in the ring, are with the kernel.
    pub(crate) fn note_written(&self, segment: &Arc<Segment>, index: u64, position: u64) {
        let now = self.clock.now();
        // First the mark, so that no sync calls durable what it does not call written.
        self.marks.reach_written(index);
        let mut unsynced = lock(&self.unsynced);
        assert!(index >= unsynced.index, "records are written in order");
        if unsynced.segments.last().is_none_or(|last| !Arc::ptr_eq(last, segment)) {
            unsynced.segments.push(Arc::clone(segment));
        }
        unsynced.index = index;
        unsynced.position = position;
        let taken_at = unsynced.taken_at.take().unwrap_or(now);
        unsynced.since.get_or_insert(taken_at);
        self.show_age(&unsynced);
    }

    /// When the next background sync is due: how long until then, or `None` if there is nothing to
    /// sync. `is_pressed`: somebody waits for room. `filled`: up to where the ring is, if that is what they
    /// wait for.
    pub(crate) fn due(&self, is_pressed: bool, filled: Option<u64>) -> Option<Duration> {
        let unsynced = lock(&self.unsynced);
        let since = unsynced.since?;
        // Under any policy: what a full segment holds is not left for later.
        if unsynced.segments.len() > 1 {
            return Some(Duration::ZERO);
        }
        let bytes = unsynced.position - unsynced.from;
        // Not for a few bytes, so that syncs do not crowd out writes; but where all is written that may be
        // in the ring, nothing else makes room.
        if is_pressed && (bytes >= self.ring_bytes / 2 || filled == Some(unsynced.position)) {
            return Some(Duration::ZERO);
        }
        if self.policy.unsynced_bytes_max(self.ring_bytes).is_some_and(|max| bytes >= max) {
            return Some(Duration::ZERO);
        }
        match self.policy {
            // Under `always` the writer syncs what it writes.
            Policy::Never | Policy::Always => None,
            Policy::Interval { max_age, .. } => {
                let at = since.saturating_add(early(max_age));
                Some(at.saturating_sub(self.clock.now()))
            }
        }
    }

    /// Age of the oldest record that was taken from the ring and is not durable.
    pub(crate) fn lag(&self) -> Duration {
        match self.oldest.load(SeqCst) {
            0 => Duration::ZERO,
            since => self.clock.now().saturating_sub(Duration::from_nanos(since)),
        }
    }

    /// Whether the oldest record that is not durable is older than was promised.
    pub(crate) fn is_late(&self) -> bool {
        match self.policy {
            Policy::Interval { max_age, .. } => self.lag() > max_age.saturating_mul(2),
            Policy::Never | Policy::Always => false,
        }
    }

    /// Bytes of the ring that were written and are not durable.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        let unsynced = lock(&self.unsynced);
        unsynced.position - unsynced.from
    }

    /// Syncs everything that is written, now; `None` if there is nothing. The error is that of the
    /// segments as they were.
    pub(crate) fn sync(&self) -> Result<Option<Synced>> {
        let mut turn = self.turn();
        let (segments, index, position) = {
            let unsynced = lock(&self.unsynced);
            (unsynced.segments.clone(), unsynced.index, unsynced.position)
        };
        let Some(last) = segments.last() else {
            return Ok(None);
        };
        let _span = tracing::trace_span!("sync", index, segments = segments.len()).entered();
        let begun = self.clock.now();
        // Where records end now is no later than what the sync covers.
        let previous = last.previous();
        for segment in &segments {
            segment.file.sync(self.call)?;
        }
        let took = self.clock.now().saturating_sub(begun);
        {
            let mut unsynced = lock(&self.unsynced);
            let all = unsynced.index == index;
            unsynced.segments.retain(|segment| {
                let covered = segments.iter().any(|synced| Arc::ptr_eq(synced, segment));
                !covered || (!all && Arc::ptr_eq(segment, last))
            });
            // After a failure meanwhile there is no segment to sync.
            unsynced.since = (!all && !unsynced.segments.is_empty()).then_some(begun);
            unsynced.from = position;
            self.show_age(&unsynced);
        }
        Ok(Some(turn.reach(Some(previous), index, position, took)))
    }

    /// Waits until nobody syncs.
    pub(crate) fn turn(&self) -> SyncTurn<'_> {
        SyncTurn { syncer: self, durable: self.durable.lock() }
    }

    /// The turn, if nothing waits for a sync: then a write that syncs itself covers all.
    pub(crate) fn turn_if_all_durable(&self) -> Option<SyncTurn<'_>> {
        let turn = self.turn();
        lock(&self.unsynced).segments.is_empty().then_some(turn)
    }

    /// A segment has failed: what is not durable is not waited for in it any more. It is still in the
    /// ring.
    pub(crate) fn give_up(&self) {
        let mut unsynced = lock(&self.unsynced);
        unsynced.segments.clear();
        (unsynced.since, unsynced.taken_at) = (None, None);
        self.show_age(&unsynced);
    }
}

impl SyncTurn<'_> {
    /// Where what is durable ends.
    pub(crate) fn durable(&self) -> Durable {
        *self.durable
    }

    /// Everything up to `index`, which ends at `position` in the ring, is durable in the segments that the
    /// log has now, whatever was unsynced in others; nothing behind it is written.
    pub(crate) fn all_durable(
        mut self,
        previous: Option<Previous>,
        index: u64,
        position: u64,
        took: Duration,
    ) -> Synced {
        {
            let mut unsynced = lock(&self.syncer.unsynced);
            unsynced.segments.clear();
            (unsynced.index, unsynced.position, unsynced.from) = (index, position, position);
            (unsynced.since, unsynced.taken_at) = (None, None);
            self.syncer.show_age(&unsynced);
        }
        self.syncer.marks.reach_written(index);
        self.reach(previous, index, position, took)
    }

    fn reach(
        &mut self,
        previous: Option<Previous>,
        index: u64,
        position: u64,
        took: Duration,
    ) -> Synced {
        let marks = &self.syncer.marks;
        assert!(position >= self.durable.position, "positions of the ring only grow");
        *self.durable = Durable { previous, position };
        let records = index.saturating_sub(marks.durable.get());
        marks.reach_durable(index);
        Synced { index, position, records, took }
    }
}

/// When a sync begins, so that no record gets older than that: the oldest was a little older than was
/// noted when it was taken, and the sync takes its time.
pub(super) fn early(max_age: Duration) -> Duration {
    max_age - max_age.mul_f64(0.1).min(Duration::from_millis(100))
}
