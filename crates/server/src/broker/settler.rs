//! [`Settler`]: writes chapters that have ended, once they are durable in the log; and has go what is past its
//! retention in those that are settled.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, sleep};

use super::ends::Ends;
use super::error::{Failed, sentence};
use super::keeper::Keeper;
use super::leader::Ask;
use super::leadership::why_failed;
use super::replica::{Applier, Replica};
use super::room::Room;
use crate::chapter::{self, Footer, Plan, Shelf, Writer};
use crate::cluster::Group;
use crate::shard::Item;

/// How often it is looked for a chapter that has ended.
const LOOK: Duration = Duration::from_millis(250);
/// How often it is looked for what is past its retention.
const EXPIRE: Duration = Duration::from_secs(60);
/// Others may have filled the disk, and may free it.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Bytes of the log that are read at once.
const READ_BYTES: usize = 4 << 20;
/// No slower, so that a chapter that took an hour does not take half of one.
const BYTES_A_SECOND_MIN: u64 = 32 << 20;

/// What writes the chapters of one shard, and when.
#[derive(Debug)]
pub(super) struct Settler {
    pub(super) number: u32,
    pub(super) shelf: Arc<Shelf>,
    pub(super) replica: Arc<Replica>,
    pub(super) keeper: Arc<Keeper>,
    pub(super) room: Arc<Room>,
    pub(super) asks: mpsc::WeakUnboundedSender<Ask>,
    pub(super) clock: fn() -> u64,
    pub(super) ends: Arc<Ends>,
}

/// How fast a chapter is written: in half of the time in which it came, so that others hardly feel it; where the
/// next one waits already, or room is needed, as fast as the disk takes it.
struct Pace {
    begun: Instant,
    bytes: u64,
    bytes_a_second: u64,
}

impl Settler {
    /// Settles what ends, until it is told to end, or the shard has stopped.
    pub(super) async fn settle(self: Arc<Self>, group: Arc<Group<Applier>>) {
        // Also where it is dropped: what is written on another thread ends soon.
        let _end = self.ends.on_drop();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut expires, mut is_again) = (Instant::now(), false);
        while !self.ends.has_come() {
            tokio::select! {
                _ = looks.tick() => {}
                () = self.replica.ended.notified() => {}
                () = self.ends.told() => return,
            }
            if self.replica.has_deleted.swap(false, Ordering::Relaxed) && !self.shelf.is_empty() {
                self.keeper.keep_soon();
            }
            let settled = tokio::select! {
                settled = self.settle_next(&group) => settled,
                () = self.ends.told() => return,
            };
            if matches!(settled, Ok(true)) || expires.elapsed() >= EXPIRE {
                expires = Instant::now();
                self.expire().await;
            }
            let Err(why) = settled else {
                is_again = false;
                continue;
            };
            if self.ends.has_come() || why_failed(&group).is_some() {
                return;
            }
            let (is_gone, why) = (matches!(why, Failed::Gone { .. }), sentence(&why));
            if is_gone && !is_again {
                // It was deleted meanwhile: the next plan knows.
                tracing::info!(shard = self.number, why, "a chapter is planned anew");
            } else {
                tracing::error!(shard = self.number, why, "a chapter cannot be settled");
            }
            is_again = is_gone;
            tokio::select! {
                () = sleep(REST_AFTER_FAILURE) => {}
                () = self.ends.told() => return,
            }
        }
    }

    /// Settles the oldest chapter that has ended, if there is one. Whether there was.
    async fn settle_next(self: &Arc<Self>, group: &Arc<Group<Applier>>) -> Result<bool, Failed> {
        let Some(ended) = self.replica.lock().state.ended().next().copied() else {
            return Ok(false);
        };
        let number = self.number;
        let first_index = self.shelf.settled().end + 1;
        let (plan, is_pressed, applied) = {
            let state = &self.replica.lock().state;
            let plan = Plan::of(state, ended, first_index);
            (plan, state.ended().len() > 1, state.applied())
        };
        // It leaves out what was deleted by now: that is to be durable too. The engine counts from 0.
        let durable = group.wait_durable(applied - 1).await;
        durable.map_err(|why| Failed::Shard { number, why })?;
        let (settler, log) = (Arc::clone(self), Arc::clone(group));
        let written = spawn_blocking(move || settler.write(plan, is_pressed, &log)).await;
        written.map_err(|_ended| Failed::Offline { number })??;
        // From here on it is read there, and soon not in the log any more.
        self.replica.lock().state.settle(ended.end);
        self.keeper.keep_soon();
        Ok(true)
    }

    /// Writes a chapter, durably. Reads the log, and waits for the disk.
    fn write(&self, plan: Plan, is_pressed: bool, group: &Group<Applier>) -> Result<(), Failed> {
        let _writing = self.ends.begin();
        if self.ends.has_come() {
            return Err(Failed::Offline { number: self.number });
        }
        let (needs_from, end) = (plan.needs_from(), plan.ended.end);
        let is_pressed = is_pressed || self.room.is_short();
        let (begun, bytes) = (Instant::now(), plan.bytes());
        let mut pace = Pace::of(&plan, is_pressed);
        let mut unread = None;
        let settled = self.shelf.settle(plan, |writer| {
            let Some(from) = needs_from else { return writer.finish() };
            self.copy(writer, from, end, group, &mut pace, &mut unread)
        });
        let number = self.number;
        // A small one says how fast a sync is.
        if settled.is_ok() && is_pressed && bytes >= BYTES_A_SECOND_MIN {
            let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            let bytes_a_second = bytes.saturating_mul(1000) / ms;
            self.replica.settled_a_second.store(bytes_a_second, Ordering::Relaxed);
        }
        match unread {
            Some(why) => Err(why),
            None => settled.map_err(|why| Failed::Chapters { number, why }),
        }
    }

    /// Has the writer take these entries of the log.
    fn copy(
        &self,
        mut writer: Writer,
        from: u64,
        end: u64,
        group: &Group<Applier>,
        pace: &mut Pace,
        unread: &mut Option<Failed>,
    ) -> Result<Footer, chapter::Error> {
        let mut next = from;
        while next <= end {
            // The engine counts from 0.
            let entries = group.read(next - 1, READ_BYTES).map_err(|why| {
                *unread = Some(Failed::Shard { number: self.number, why });
                chapter::Error::Stopped
            })?;
            let is_it = entries.first().is_some_and(|(index, _)| index + 1 == next);
            if !is_it {
                *unread = Some(Failed::Gone { number: self.number, index: next });
                return Err(chapter::Error::Stopped);
            }
            for (index, payload) in entries {
                next = index + 2;
                let Some(payload) = payload.filter(|_| index < end) else { continue };
                let due = pace.due(writer.take(index + 1, &payload)?);
                if self.ends.has_come_within(due) {
                    return Err(chapter::Error::Stopped);
                }
            }
        }
        writer.finish()
    }

    /// Has go what lies in chapters and is past its retention, or more than is to be kept.
    async fn expire(&self) {
        let now = (self.clock)();
        let expiring = self.shelf.expiring(&self.replica.lock().state, now);
        if expiring.is_empty() {
            return;
        }
        let shelf = Arc::clone(&self.shelf);
        let Ok(expired) = spawn_blocking(move || shelf.expired(expiring)).await else { return };
        let Some(asks) = self.asks.upgrade().filter(|_| !expired.is_empty()) else { return };
        let items = expired.into_iter().map(|(opening, start)| Item::Expire { opening, start });
        let (reply, _nobody_waits) = tokio::sync::oneshot::channel();
        asks.send(Ask::Act { items: items.collect(), reply }).ok();
    }
}

impl Pace {
    fn of(plan: &Plan, is_pressed: bool) -> Self {
        let points = plan.runs.iter().filter_map(|(_, points)| points.first());
        let first = points.map(|point| point.time).min().unwrap_or(plan.ended.time);
        let came_ms = plan.ended.time.saturating_sub(first).max(1);
        let twice = plan.bytes().saturating_mul(2_000) / came_ms;
        let bytes_a_second = if is_pressed { u64::MAX } else { twice.max(BYTES_A_SECOND_MIN) };
        Self { begun: Instant::now(), bytes: 0, bytes_a_second }
    }

    /// How long to wait behind so many bytes more.
    fn due(&mut self, bytes: usize) -> Duration {
        self.bytes += bytes as u64;
        let ms = self.bytes.saturating_mul(1000) / self.bytes_a_second;
        Duration::from_millis(ms).saturating_sub(self.begun.elapsed())
    }
}
