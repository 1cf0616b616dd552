//! Accepting records: what an append does until its records are in the ring.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::{Frame, INDEX_END, Kind, frame_bytes};
use crate::shim::{AtomicU64, lock};
use crate::stats::{Event, ns};

/// One append in so many is timed.
const TIMED: u64 = 64;

/// What appenders change, one at a time.
#[derive(Debug)]
pub(crate) struct Tail {
    next_index: u64,
    pub(crate) position: u64,
    /// The ring's released position when it was last asked for.
    released: u64,
    pub(crate) records: u64,
    pub(crate) payload_bytes: u64,
}

/// Whether records are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    Open,
    /// The oldest record that is not durable is too old.
    Overdue,
    OutOfSpace,
    Stopped,
    Closed,
}

/// As a number, as every append looks at it.
#[derive(Debug, Default)]
pub(crate) struct AtomicGate(AtomicU64);

/// What an append does when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Wait,
    Refuse,
}

impl Core {
    /// Accepts records, all or none: the index of the last one. `drive` makes room where the log has
    /// no threads of its own.
    pub(crate) fn accept(
        &self,
        records: &[(&[u8], u64)],
        full: Full,
        drive: &dyn Fn() -> Result<()>,
    ) -> Result<u64> {
        self.check_owner()?;
        let bytes: u64 = records.iter().map(|(payload, _)| frame_bytes(payload.len()) as u64).sum();
        let max_bytes = self.options.max_batch_bytes();
        if bytes > max_bytes || records.len() >= crate::format::BATCH_RECORDS_MAX {
            return Err(Error::TooLarge { bytes, max_bytes });
        }
        let mut tail = lock(&self.tail);
        let timed = tail.next_index.is_multiple_of(TIMED).then(|| self.clock().now());
        let mut stalled = None;
        // How often there had been more room before it was looked for in vain.
        let mut looked_at = None;
        loop {
            match self.gate.get() {
                Gate::Open if self.has_room(&mut tail, bytes) => break,
                Gate::Stopped => return Err(self.why_stopped()),
                Gate::Closed => return Err(Error::Closed),
                Gate::OutOfSpace if !self.fits(&tail, bytes) => {
                    return Err(Error::OutOfSpace { last_index: tail.next_index - 1 });
                }
                Gate::OutOfSpace if self.has_room(&mut tail, bytes) => break,
                Gate::Open | Gate::Overdue | Gate::OutOfSpace => {}
            }
            let behind_bytes = tail.position - self.ring.released();
            if full == Full::Refuse {
                return Err(Error::WouldBlock { behind_bytes });
            }
            stalled.get_or_insert_with(|| self.clock().now());
            let Some(seen) = looked_at.take() else {
                looked_at = Some(self.room.get());
                continue;
            };
            drop(tail);
            self.wait_for_room(seen, drive)?;
            tail = lock(&self.tail);
        }
        if records.len() as u64 > INDEX_END - tail.next_index {
            return Err(Error::Exhausted { last_index: tail.next_index - 1 });
        }
        let mut position = tail.position;
        let mut more = u32::try_from(records.len()).expect("checked above");
        for (number, &(payload, payload_hash)) in (0_u64..).zip(records) {
            more -= 1;
            let payload_bytes = u32::try_from(payload.len()).expect("less than a ring");
            let index = tail.next_index + number;
            let frame = Frame { kind: Kind::Record, index, payload_bytes, more };
            self.ring.put(position, frame, payload_hash, payload);
            position += frame.bytes() as u64;
            tail.payload_bytes += u64::from(payload_bytes);
        }
        tail.records += records.len() as u64;
        tail.next_index += records.len() as u64;
        tail.position = position;
        let index = tail.next_index - 1;
        // First the mark, so that `written` never comes before it.
        self.last.set(index);
        self.ring.publish(position);
        drop(tail);
        // Between what was stored and a look at who waits for it: here, and in `finish_append`.
        fence(SeqCst);
        self.last.wake(index);
        if let Some(begun) = timed.or(stalled) {
            self.timed(begun, stalled);
        }
        Ok(index)
    }

    /// Whether anything was accepted since the log was opened.
    pub(crate) fn has_accepted(&self) -> bool {
        lock(&self.tail).records > 0
    }

    #[cold]
    fn timed(&self, begun: Duration, stalled: Option<Duration>) {
        let now = self.clock().now();
        self.counts.change(|counts| {
            counts.append_ns.saturating_record(ns(now.saturating_sub(begun)));
            if let Some(stalled) = stalled {
                counts.stall_ns.saturating_record(ns(now.saturating_sub(stalled)));
            }
        });
        if let Some(stalled) = stalled {
            self.tell(Event::Stalled { took: now.saturating_sub(stalled) });
        }
    }

    fn has_room(&self, tail: &mut Tail, bytes: u64) -> bool {
        let end = tail.position + bytes;
        if end - tail.released > self.ring.capacity() {
            tail.released = self.ring.released();
        }
        end - tail.released <= self.ring.capacity() && self.fits(tail, bytes)
    }

    /// Whether segments have room for what the ring would hold then.
    fn fits(&self, tail: &Tail, bytes: u64) -> bool {
        tail.position + bytes <= self.room_limit.load(SeqCst)
    }

    /// Waits until there is more room than when there had been more `seen` times.
    #[cold]
    fn wait_for_room(&self, seen: u64, drive: &dyn Fn() -> Result<()>) -> Result<()> {
        self.pressed.store(true, SeqCst);
        if !self.options.threads {
            return drive();
        }
        self.writer_signal.wake();
        self.syncer_signal.wake();
        self.preparer_signal().wake();
        // Whoever opens the gate does not move this mark.
        match self.room.wait_timeout(seen + 1, Duration::from_millis(20)) {
            Ok(()) | Err(Error::TimedOut { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate.get()
    }

    /// Opens or closes the gate, unless it is closed for good.
    pub(crate) fn set_gate(&self, gate: Gate) {
        self.gate.change(|now| (now < Gate::Stopped).then_some(gate));
    }

    /// Ring positions up to this one certainly have room in segments.
    pub(crate) fn set_room_limit(&self, position: u64) {
        self.room_limit.store(position, SeqCst);
        self.room.step();
    }

    /// Segments have room for so much more.
    pub(crate) fn raise_room_limit(&self, by: u64) {
        self.room_limit.fetch_add(by, SeqCst);
        self.room.step();
    }

    /// Appends nothing while `act` runs; the next index is what it returns, if it returns one.
    pub(crate) fn while_quiet<T>(
        &self,
        act: impl FnOnce() -> Result<(T, Option<u64>)>,
    ) -> Result<T> {
        let mut tail = lock(&self.tail);
        let (done, next_index) = act()?;
        if let Some(next_index) = next_index {
            tail.next_index = next_index;
        }
        Ok(done)
    }
}

impl Tail {
    /// `released` and `position`: where the ring begins and ends.
    pub(crate) fn new(next_index: u64, released: u64, position: u64) -> Self {
        Self { next_index, position, released, records: 0, payload_bytes: 0 }
    }
}

impl AtomicGate {
    fn get(&self) -> Gate {
        Gate::of(self.0.load(Relaxed))
    }

    pub(crate) fn change(&self, mut to: impl FnMut(Gate) -> Option<Gate>) {
        let change = |now| to(Gate::of(now)).map(|gate| gate as u64);
        self.0.fetch_update(SeqCst, SeqCst, change).ok();
    }
}

impl Gate {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Open,
            1 => Self::Overdue,
            2 => Self::OutOfSpace,
            3 => Self::Stopped,
            _ => Self::Closed,
        }
    }
}
