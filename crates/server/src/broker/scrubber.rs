//! [`Scrubber`]: reads every chapter of a shard again, its log, its snapshot and its manifest, past the page cache, so that a disk
//! that forgets is found out. Shards of topics and groups have no chapters, that of topics no snapshot.
//!
//! It does so by itself now and then, slowly, and when an operator asks for it (`scrubs.rs`). One pass reads at a time: an
//! operator's takes the place of one of the schedule, as it reads all of it too. What is found damaged is noted on the
//! shelf, where the mender sees it.
//!
//! A pass reads the files that there are when it begins. A file that a merge, a compaction or a heal makes meanwhile is left
//! to the next pass, as a new chapter is: what it holds was verified while it was copied, later than this pass began, and was
//! synced before it took the place of others. So at the end of a pass all that there was at its beginning was verified since.

use std::fmt::Debug;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::error::sentence;
use super::keeper::Keeper;
use super::mender::Mender;
use crate::chapter::{Error, Reread, Shelf};
use crate::cluster::{self, Apply, Group};

/// A start has more to do than that.
const REST_AFTER_START: Duration = Duration::from_secs(3600);
/// Bytes that are read before a file is opened anew, about: what is open has its room kept.
const PIECE_BYTES: u64 = 4 << 20;
/// Bytes a second that the schedule reads, so that others do not feel it.
const RATE: NonZeroU64 = NonZeroU64::new(16 << 20).expect("it is not zero");
/// A pass that waits for its rate looks this often whether it was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// How long what a start reads first may take to be written anew.
const HEADS_PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is.
const HEADS_LOOK: Duration = Duration::from_secs(1);
/// Files of which it is said why they were not read: the rest is counted.
const UNREAD_MAX: usize = 4;

/// Whose pass it is: an operator's scrub, by its number, or the schedule's.
pub(super) type ScrubId = u64;
/// The schedule's.
pub(super) const SCHEDULE: ScrubId = 0;

/// The log of a shard.
pub(super) trait Log: Debug + Send + Sync {
    /// Has all of it by now be what can be checked.
    fn seal(&self) -> cluster::Result<()>;

    /// [`Group::check_log`].
    fn check(&self, from: u64) -> cluster::Result<Option<(u64, usize, u64)>>;

    fn segments(&self) -> u64;

    /// Stretches that are known to be damaged.
    fn damaged(&self) -> u64;

    /// Stretches that were, and are not in the log any more, unhealed.
    fn gone(&self) -> u64;
}

/// Scrubs a shard.
#[derive(Debug)]
pub(super) struct Scrubber {
    pub(super) number: u32,
    /// And who heals them.
    pub(super) chapters: Option<(Arc<Shelf>, Arc<Mender>)>,
    /// Who writes what a start reads first.
    keeper: Option<Arc<Keeper>>,
    log: Weak<dyn Log>,
    /// How long the schedule rests; `None`: there is none.
    every: Option<Duration>,
    clock: fn() -> u64,
    /// Held by whoever reads.
    turn: tokio::sync::Mutex<()>,
    pass: Mutex<Pass>,
    /// When it last came to an end, in ms since 1970; 0: not yet.
    ended_ms: AtomicU64,
    /// Bytes that were there then to be read.
    bytes: AtomicU64,
}

/// Why the log was not read to its end.
enum NotRead {
    Stopped,
    Why(String),
}

/// A scrub that came to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scrubbed {
    pub(super) ended_ms: u64,
    pub(super) bytes: u64,
}

/// The pass that is under way, or the last.
#[derive(Debug, Clone, Default)]
pub(super) struct Pass {
    pub(super) scrub: ScrubId,
    pub(super) phase: Phase,
    /// In ms since 1970; 0: not yet.
    pub(super) begun_ms: u64,
    pub(super) ended_ms: u64,
    /// Bytes that were there to be read when it began.
    pub(super) due_bytes: u64,
    pub(super) read_bytes: u64,
    /// Runs that it found damaged.
    pub(super) damaged: u64,
    /// Stretches of the log that it found damaged.
    pub(super) log_damaged: u64,
    /// Snapshots and manifests that it found damaged, and those of them that are not written anew.
    pub(super) heads: u64,
    pub(super) heads_left: u64,
    /// How many the mender had healed when it began, and how many stretches were gone from its log.
    pub(super) healed_before: u64,
    pub(super) gone_before: u64,
    /// Why some of it was not read.
    pub(super) unread: Vec<String>,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// There was none since the start.
    #[default]
    Never = 0,
    /// Another shard's turn comes first.
    Waiting = 1,
    /// It reads.
    Running = 2,
    /// It has read all that it could.
    Ended = 3,
    /// It was stopped before.
    Stopped = 4,
}

impl Phase {
    pub(super) const ALL: [Self; 5] =
        [Self::Never, Self::Waiting, Self::Running, Self::Ended, Self::Stopped];

    /// Whether more is to be read.
    pub(super) fn goes_on(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

impl<S: Apply> Log for Group<S> {
    fn seal(&self) -> cluster::Result<()> {
        self.seal_log()
    }

    fn check(&self, from: u64) -> cluster::Result<Option<(u64, usize, u64)>> {
        self.check_log(from)
    }

    fn segments(&self) -> u64 {
        self.log_stats().segments
    }

    fn damaged(&self) -> u64 {
        self.healed().1
    }

    fn gone(&self) -> u64 {
        self.gone_damaged()
    }
}

impl Scrubber {
    pub(super) fn new(
        number: u32,
        chapters: Option<(Arc<Shelf>, Arc<Mender>)>,
        keeper: Option<Arc<Keeper>>,
        log: Weak<dyn Log>,
        every: Option<Duration>,
        clock: fn() -> u64,
    ) -> Self {
        Self {
            number,
            chapters,
            keeper,
            log,
            every,
            clock,
            turn: tokio::sync::Mutex::default(),
            pass: Mutex::default(),
            ended_ms: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// The last scrub since the start that came to its end, if one did.
    pub(super) fn last(&self) -> Option<Scrubbed> {
        let ended_ms = self.ended_ms.load(Ordering::Acquire);
        let bytes = self.bytes.load(Ordering::Relaxed);
        (ended_ms > 0).then_some(Scrubbed { ended_ms, bytes })
    }

    /// The pass that is under way, or the last.
    pub(super) fn pass(&self) -> Pass {
        self.lock().clone()
    }

    /// Scrubs for ever, as often as it was told.
    pub(super) async fn keep(self: Arc<Self>) {
        let Some(every) = self.every else { return };
        sleep(REST_AFTER_START.min(every)).await;
        loop {
            // Where an operator's reads, all is being read.
            let is_free = {
                let mut pass = self.lock();
                let is_free = !pass.phase.goes_on();
                if is_free {
                    *pass = Pass { phase: Phase::Waiting, ..Pass::default() };
                }
                is_free
            };
            if is_free {
                self.scrub(SCHEDULE, Some(RATE)).await;
            }
            sleep(every).await;
        }
    }

    /// Whether it reads what an operator asked for, or is about to.
    pub(super) fn is_an_operators(&self) -> bool {
        let pass = self.lock();
        pass.scrub != SCHEDULE && pass.phase.goes_on()
    }

    /// An operator's scrub comes: a pass of the schedule ends for it. Returns whether it does; another operator's stays.
    pub(super) fn expect(&self, scrub: ScrubId) -> bool {
        let mut pass = self.lock();
        if pass.scrub != SCHEDULE && pass.phase.goes_on() {
            return false;
        }
        let due_bytes = self.due_bytes();
        *pass = Pass { scrub, phase: Phase::Waiting, due_bytes, ..Pass::default() };
        true
    }

    /// Of its chapters, and of the segments of its log that are full, about.
    fn due_bytes(&self) -> u64 {
        let segments = self.log.upgrade().map_or(0, |log| log.segments());
        let segment_bytes = plimsoll_log::Options::default().segment_bytes;
        let live_bytes = self.chapters.as_ref().map_or(0, |(shelf, _)| shelf.size().live_bytes);
        live_bytes + segments.saturating_sub(1) * segment_bytes
    }

    /// Stretches of its log that are known to be damaged.
    pub(super) fn damaged_of_log(&self) -> u64 {
        self.log.upgrade().map_or(0, |log| log.damaged())
    }

    /// Stretches of its log that were, and are not in it any more.
    pub(super) fn gone_of_log(&self) -> u64 {
        self.log.upgrade().map_or(0, |log| log.gone())
    }

    /// Ends an operator's scrub, if it is this one.
    pub(super) fn stop(&self, scrub: ScrubId) {
        self.change(scrub, |pass| {
            (pass.phase, pass.ended_ms) = (Phase::Stopped, (self.clock)());
        });
    }

    /// Reads all of the shelf, if that is still wanted by then. What is found damaged is noted on the shelf, and said.
    pub(super) async fn scrub(self: &Arc<Self>, scrub: ScrubId, rate: Option<NonZeroU64>) {
        let _turn = self.turn.lock().await;
        let due_bytes = self.due_bytes();
        let is_wanted = self.change(scrub, |pass| {
            (pass.phase, pass.begun_ms) = (Phase::Running, (self.clock)());
            let healed = self.chapters.as_ref().map_or(0, |(_, mender)| mender.healed());
            (pass.due_bytes, pass.healed_before) = (due_bytes, healed);
            pass.gone_before = self.gone_of_log();
        });
        if !is_wanted {
            return;
        }
        let mut pace = Pace { rate, next: Instant::now() };
        if let Some((shelf, mender)) = &self.chapters {
            mender.tries_anew();
            for file in shelf.files() {
                match self.scrub_file(scrub, shelf, file, &mut pace).await {
                    Ok(()) => {}
                    Err(Error::Stopped) => return,
                    Err(why) => {
                        let why = sentence(&why);
                        tracing::error!(shard = self.number, why, "a chapter cannot be scrubbed");
                        self.change(scrub, |pass| {
                            // One more says that there are more.
                            if pass.unread.len() <= UNREAD_MAX {
                                pass.unread.push(why.clone());
                            }
                        });
                    }
                }
            }
        }
        match self.scrub_heads(scrub).await {
            Ok(()) => {}
            Err(NotRead::Stopped) => return,
            Err(NotRead::Why(why)) => {
                tracing::error!(shard = self.number, %why, "what a start reads cannot be scrubbed");
                self.change(scrub, |pass| pass.unread.push(why));
            }
        }
        match self.scrub_log(scrub, &mut pace).await {
            Ok(()) => {}
            Err(NotRead::Stopped) => return,
            Err(NotRead::Why(why)) => {
                tracing::error!(shard = self.number, %why, "the log cannot be scrubbed");
                self.change(scrub, |pass| pass.unread.push(format!("its log: {why}")));
            }
        }
        if self.pass().unread.is_empty() {
            self.bytes.store(due_bytes, Ordering::Relaxed);
            self.ended_ms.store((self.clock)(), Ordering::Release);
        }
        self.change(scrub, |pass| {
            (pass.phase, pass.ended_ms) = (Phase::Ended, (self.clock)());
        });
    }

    async fn scrub_file(
        self: &Arc<Self>,
        scrub: ScrubId,
        shelf: &Arc<Shelf>,
        file: u64,
        pace: &mut Pace,
    ) -> Result<(), Error> {
        let mut next = Some(0);
        while let Some(from) = next {
            // Dropped where this pass is: then whoever reads on the other thread stops.
            let (_lives, ends) = channel();
            let (scrubber, shelf, mut paced) = (Arc::clone(self), Arc::clone(shelf), *pace);
            let read = spawn_blocking(move || {
                let mut goes_on = |bytes| scrubber.has_read(scrub, bytes, &mut paced, &ends);
                let read = shelf.scrub(file, from, PIECE_BYTES, &mut goes_on);
                (read, paced)
            });
            let (read, paced) = read.await.map_err(|_ended| Error::Stopped)?;
            *pace = paced;
            let Reread { next: following, damaged, unread } = read?;
            self.change(scrub, |pass| {
                pass.damaged += damaged;
                if unread > 0 && pass.unread.len() <= UNREAD_MAX {
                    pass.unread.push(format!("{unread} pages of the table of file {file}"));
                }
            });
            next = following;
        }
        Ok(())
    }

    /// Reads what a start reads first. What is damaged of it is written anew, and looked at again until that is so.
    async fn scrub_heads(self: &Arc<Self>, scrub: ScrubId) -> Result<(), NotRead> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let until = Instant::now() + HEADS_PATIENCE;
        let mut is_first = true;
        loop {
            let keeper = Arc::clone(keeper);
            let checked = spawn_blocking(move || keeper.check()).await;
            let damaged = checked
                .map_err(|_ended| NotRead::Stopped)?
                .map_err(|why| NotRead::Why(sentence(&why)))?;
            let is_wanted = self.change(scrub, |pass| {
                pass.heads_left = damaged.len() as u64;
                if is_first {
                    pass.heads = pass.heads_left;
                }
            });
            is_first = false;
            if !is_wanted {
                return Err(NotRead::Stopped);
            }
            if damaged.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let names = damaged.join(", ");
                return Err(NotRead::Why(format!("{names}: damaged, and not written anew yet")));
            }
            sleep(HEADS_LOOK).await;
        }
    }

    /// Reads all that the log has by now, a segment at a time. The schedule leaves out the segment of records that is being
    /// written: that has come lately, and is read again to be settled, and another in its place takes room.
    async fn scrub_log(self: &Arc<Self>, scrub: ScrubId, pace: &mut Pace) -> Result<(), NotRead> {
        if scrub != SCHEDULE || self.chapters.is_none() {
            self.at_log(|log| log.seal()).await?;
        }
        let mut next = 0;
        loop {
            let (_lives, ends) = channel();
            let (scrubber, mut paced) = (Arc::clone(self), *pace);
            let read = spawn_blocking(move || {
                let log = scrubber.log.upgrade().ok_or(NotRead::Stopped)?;
                let checked = log.check(next).map_err(|why| NotRead::Why(why.to_string()));
                drop(log);
                let Some((bytes, damaged, next)) = checked? else { return Ok(None) };
                scrubber.change(scrub, |pass| pass.log_damaged += damaged as u64);
                match scrubber.has_read(scrub, bytes, &mut paced, &ends) {
                    true => Ok(Some((next, paced))),
                    false => Err(NotRead::Stopped),
                }
            });
            let Some((following, paced)) = read.await.map_err(|_ended| NotRead::Stopped)?? else {
                return Ok(());
            };
            (next, *pace) = (following, paced);
        }
    }

    /// Reads all that the log has by now, for no pass and as fast as the disk is: who was given it met damage there. What is
    /// damaged is noted.
    pub(super) async fn doubt_log(self: Arc<Self>) {
        let read = async {
            self.at_log(|log| log.seal()).await?;
            let mut next = Some(0);
            while let Some(from) = next {
                let checked = self.at_log(move |log| log.check(from)).await?;
                next = checked.map(|(_bytes, _damaged, following)| following);
            }
            Ok(())
        };
        if let Err(NotRead::Why(why)) = read.await {
            tracing::error!(shard = self.number, %why, "the log cannot be read again");
        }
    }

    /// Does with the log what waits for the disk.
    async fn at_log<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&dyn Log) -> cluster::Result<T> + Send + 'static,
    ) -> Result<T, NotRead> {
        let scrubber = Arc::clone(self);
        let done = spawn_blocking(move || {
            let log = scrubber.log.upgrade().ok_or(NotRead::Stopped)?;
            work(&*log).map_err(|why| NotRead::Why(why.to_string()))
        });
        done.await.map_err(|_ended| NotRead::Stopped)?
    }

    /// Waits as long as so many bytes may take; whether to read more.
    fn has_read(&self, scrub: ScrubId, bytes: u64, pace: &mut Pace, ends: &Receiver<()>) -> bool {
        pace.add(bytes);
        let mut is_wanted = self.change(scrub, |pass| pass.read_bytes += bytes);
        loop {
            let wait = pace.next.saturating_duration_since(Instant::now());
            if !is_wanted || wait.is_zero() {
                return is_wanted;
            }
            is_wanted = ends.recv_timeout(wait.min(LOOK)) == Err(RecvTimeoutError::Timeout)
                && self.change(scrub, |_pass| {});
        }
    }

    /// Changes the pass of a scrub, if that is under way still.
    fn change(&self, scrub: ScrubId, how: impl FnOnce(&mut Pass)) -> bool {
        let mut pass = self.lock();
        let is_it = pass.scrub == scrub && pass.phase.goes_on();
        if is_it {
            how(&mut pass);
        }
        is_it
    }

    fn lock(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How fast it reads.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Bytes a second; `None`: as fast as the disk is.
    rate: Option<NonZeroU64>,
    /// When the next piece may be read.
    next: Instant,
}

impl Pace {
    /// So many bytes were read. Where the disk was slower, nothing is made up for.
    fn add(&mut self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let from = self.next.max(Instant::now());
        self.next = from.checked_add(wait).unwrap_or(from);
    }
}
