//! [`Log`]: the public face.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use plimsoll_sync::{Dir, Lock, OsDir};

use crate::active::Previous;
use crate::core::{Core, Full};
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::format::{Decoded, Kind, hash};
use crate::opening::Opening;
use crate::options::{Ack, Options, Ring as RingPlace};
use crate::patience::PatientDir;
use crate::place::{Place, segment_name};
use crate::reader::{Follower, Reader, Source};
use crate::recovery::{self, Recovery, read_piece};
use crate::ring_note;
use crate::second_note;
use crate::segments::Entry;
use crate::shim::{Mutex, lock, try_lock};
use crate::spares;
use crate::stats::Stats;
use crate::threads::{Threads, sync_or_fail_over};
use crate::watermark::Watermark;
use crate::writer::{Turn, Writer};

/// The file that whoever writes a log holds locked.
pub const LOCK: &str = "lock";

/// A commit log in a directory. Share it by reference or in an [`Arc`]: any number of threads may
/// append, read and wait at once.
///
/// Dropping a log closes it as a crash would: what was buffered is written if that is possible, and
/// nothing is reported. [`Log::close`] says how it went.
#[derive(Debug)]
pub struct Log {
    core: Arc<Core>,
    role: Arc<Mutex<Writer>>,
    threads: Mutex<Threads>,
    /// Held for as long as the log is open.
    _locks: Arc<Vec<Lock>>,
}

/// How much of its oldest end a log keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// This record and what comes after it.
    From(u64),
    /// So many bytes of files.
    Bytes(u64),
    /// What was appended so long ago, at most.
    Age(Duration),
}

/// A wait for a record, to be taken up again and again: [`Log::waiting`].
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    index: u64,
    durable: bool,
    /// How often the log had been cut when it began.
    cuts: u64,
}

impl Log {
    /// Opens the log in a directory, or makes one there; the directory is made as well. On return
    /// everything that [`Recovery`] counts is durable.
    ///
    /// Cost: two file heads are read, and what came after the last mark of the newest segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if durable records are lost: nothing is changed then. [`Error::Disk`] if
    /// another process has the log (`Locked` inside names it) or the directory fails.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<(Self, Recovery)> {
        let path = path.as_ref();
        let failed = |error| plimsoll_sync::Error::io("create", path, error);
        std::fs::create_dir_all(path).map_err(failed)?;
        Self::open_in(vec![Arc::new(OsDir::open(path)?)], options)
    }

    /// Opens the log in the first of these directories; a second one is where it goes on when the
    /// first fails. Both are read, in this order, whichever was used last. Once a log may have records
    /// in a second directory it is not opened without it.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_in(dirs: Vec<Arc<dyn Dir>>, options: Options) -> Result<(Self, Recovery)> {
        let _span = tracing::info_span!("open").entered();
        options.check()?;
        let Some(first) = dirs.first() else {
            return Err(Error::Options("a log needs a directory".to_owned()));
        };
        if options.slow_after.is_some() && dirs.len() < 2 {
            return Err(Error::Options("slow_after needs a second directory".to_owned()));
        }
        // Each: two logs with one second directory, or a directory named twice, would remove files of
        // each other.
        let locks = dirs.iter().map(|dir| dir.lock(LOCK)).collect::<plimsoll_sync::Result<_>>()?;
        let locks = Arc::new(locks);
        ring_note::check(&**first, &options.ring)?;
        if dirs.len() > 1 {
            second_note::write(&**first)?;
        }
        let limit = options.slow_after;
        let patient: Vec<_> = limit.map_or_else(Vec::new, |limit| {
            let patient = |dir| Arc::new(PatientDir::new(dir, limit, Arc::downgrade(&locks)));
            dirs.iter().cloned().map(patient).collect()
        });
        let dirs: Vec<Arc<dyn Dir>> = match limit {
            None => dirs,
            Some(_) => patient.iter().map(|dir| Arc::clone(dir) as Arc<dyn Dir>).collect(),
        };
        let places: Vec<Place> =
            dirs.into_iter().map(|dir| Place::probe(dir, options.direct)).collect::<Result<_>>()?;
        let found = recovery::find(&places, options.accept_loss)?;
        let opening = Opening { options, places, found, recovery: Recovery::default() };
        let (core, writer, recovery) = opening.open()?;
        let (core, role) = (Arc::new(core), Arc::new(Mutex::new(writer)));
        let threads =
            if core.options.threads { Threads::start(&core, &role)? } else { Threads::default() };
        patient.iter().for_each(|dir| dir.arm());
        tracing::info!(?recovery, "open");
        Ok((Self { core, role, threads: Mutex::new(threads), _locks: locks }, recovery))
    }

    /// Appends a record and returns its index. How far it is then the policy says: durable under
    /// [`crate::Policy::Always`], otherwise buffered ([`Ack`] says what each survives).
    ///
    /// Cost: a checksum and a copy, about 100 ns for 100 bytes, if nothing is waited for. Waits if the
    /// ring is full.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfSpace`]: not accepted, and the log goes on.
    /// [`Error::Stopped`], [`Error::Closed`]: if it was accepted before, whether it is durable is in
    /// the error.
    pub fn append(&self, record: &[u8]) -> Result<u64> {
        self.append_with(record, self.core.options.policy.ack())
    }

    /// Appends a record, and returns once it is as far as `ack` says.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_with(&self, record: &[u8], ack: Ack) -> Result<u64> {
        let index = self.accept(&[(record, hash(record))], Full::Wait)?;
        self.finish_append(index, ack)?;
        Ok(index)
    }

    /// As [`Log::append`], but says [`Error::WouldBlock`] where that would wait for room in the ring.
    /// Buffered on return, whatever the policy. A truncation that is under way is waited for.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn try_append(&self, record: &[u8]) -> Result<u64> {
        let index = self.accept(&[(record, hash(record))], Full::Refuse)?;
        self.finish_append(index, Ack::Buffered)?;
        Ok(index)
    }

    /// Appends records that stay together: after a crash all of them are there, or none. As far as the
    /// policy says on return.
    ///
    /// # Errors
    /// As [`Log::append`]; a batch has at most half of the ring's bytes.
    pub fn append_batch<R: AsRef<[u8]>>(&self, records: &[R]) -> Result<RangeInclusive<u64>> {
        self.append_batch_with(records, self.core.options.policy.ack())
    }

    /// As [`Log::append_batch`], and returns once they are as far as `ack` says.
    ///
    /// # Errors
    /// As [`Log::append_batch`].
    pub fn append_batch_with<R: AsRef<[u8]>>(
        &self,
        records: &[R],
        ack: Ack,
    ) -> Result<RangeInclusive<u64>> {
        if records.is_empty() {
            return Err(Error::Options("a batch of no records".to_owned()));
        }
        let hashed = |record: &'_ R| hash(record.as_ref());
        let records: Vec<(&[u8], u64)> =
            records.iter().map(|record| (record.as_ref(), hashed(record))).collect();
        let last = self.accept(&records, Full::Wait)?;
        self.finish_append(last, ack)?;
        Ok(last + 1 - records.len() as u64..=last)
    }

    fn accept(&self, records: &[(&[u8], u64)], full: Full) -> Result<u64> {
        self.core.accept(records, full, &|| self.make_room())
    }

    fn finish_append(&self, index: u64, ack: Ack) -> Result<()> {
        match ack {
            Ack::Buffered => {
                if self.core.options.policy.ack() == Ack::Durable {
                    self.core.want(index);
                    self.core.writer_signal.wake_if_asleep();
                }
                // The fence is in `Core::accept`.
                self.core.writer_signal.wake_if_asleep_after_fence();
                Ok(())
            }
            Ack::Written => {
                if self.core.options.policy.ack() == Ack::Durable {
                    self.core.want(index);
                }
                self.wait_written(index)
            }
            Ack::Durable => self.wait_durable(index),
        }
    }

    /// Waits until a record is with the kernel: from then on it survives a crash of the process.
    ///
    /// # Errors
    /// [`Error::Stopped`] if it will not be, [`Error::Truncated`] if it was cut off.
    pub fn wait_written(&self, index: u64) -> Result<()> {
        self.wait(index, &self.core.written, false)
    }

    /// Waits until a record is durable: from then on it survives a power cut. Asks for a sync, under
    /// any policy.
    ///
    /// # Errors
    /// [`Error::Stopped`] if it will not be, [`Error::Truncated`] if it was cut off.
    pub fn wait_durable(&self, index: u64) -> Result<()> {
        self.wait(index, &self.core.durable, true)
    }

    /// As [`Log::wait_written`], but no longer than `timeout`, even where the disk hangs: the log's own
    /// threads do the work, which costs waking one. In a log without them only what is driven happens.
    ///
    /// # Errors
    /// As [`Log::wait_written`], and [`Error::TimedOut`]: it still may be written.
    pub fn wait_written_timeout(&self, index: u64, timeout: Duration) -> Result<()> {
        self.wait_on(self.waiting(index, Ack::Written)?, timeout)
    }

    /// As [`Log::wait_durable`], but no longer than `timeout`; see [`Log::wait_written_timeout`]. The
    /// sync is asked for at once, and goes on when nobody waits for it any more.
    ///
    /// # Errors
    /// As [`Log::wait_durable`], and [`Error::TimedOut`]: it still may become durable.
    pub fn wait_durable_timeout(&self, index: u64, timeout: Duration) -> Result<()> {
        self.wait_on(self.waiting(index, Ack::Durable)?, timeout)
    }

    /// Begins to wait for a record to be written or durable (`Buffered` counts as `Written`); who has
    /// to look at something else in between then [waits on](Log::wait_on).
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: there is no such record.
    pub fn waiting(&self, index: u64, level: Ack) -> Result<Waiting> {
        let durable = level == Ack::Durable;
        let cuts = self.mark(durable).cuts();
        self.check_appended(index)?;
        Ok(Waiting { index, durable, cuts })
    }

    fn mark(&self, durable: bool) -> &Watermark {
        if durable { &self.core.durable } else { &self.core.written }
    }

    /// As [`Log::wait_written_timeout`] or [`Log::wait_durable_timeout`]. A truncation since it began is
    /// told, also where another record has got the index.
    ///
    /// # Errors
    /// As those two.
    pub fn wait_on(&self, waiting: Waiting, timeout: Duration) -> Result<()> {
        let Waiting { index, durable, cuts } = waiting;
        let mark = self.mark(durable);
        // In this order: a mark that went back and came here again was cut before.
        if mark.get() >= index && mark.cuts() == cuts {
            return Ok(());
        }
        self.hurry(waiting);
        mark.wait_timeout_since(index, timeout, cuts)
    }

    /// As [`Log::wait_on`], for tasks: asks for what is waited for, and is pending until it has come or
    /// never will, when the task is woken. Of a task that asks again the last waker counts.
    ///
    /// ```
    /// # fn main() -> plimsoll_log::Result<()> {
    /// use plimsoll_log::{Ack, Log, Options};
    /// use std::future::poll_fn;
    ///
    /// async fn append_durably(log: &Log, record: &[u8]) -> plimsoll_log::Result<u64> {
    ///     let index = log.append_with(record, Ack::Buffered)?;
    ///     let waiting = log.waiting(index, Ack::Durable)?;
    ///     poll_fn(|context| log.poll_on(waiting, context)).await?;
    ///     Ok(index)
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stopped`] if it will not be, [`Error::Truncated`] if it was cut off.
    pub fn poll_on(&self, waiting: Waiting, context: &mut Context<'_>) -> Poll<Result<()>> {
        let Waiting { index, durable, cuts } = waiting;
        let mark = self.mark(durable);
        if mark.get() >= index && mark.cuts() == cuts {
            return Poll::Ready(Ok(()));
        }
        self.hurry(waiting);
        mark.poll_since(index, cuts, context)
    }

    /// Asks for what is waited for.
    fn hurry(&self, waiting: Waiting) {
        let Waiting { index, durable, cuts } = waiting;
        // What a cut left is durable.
        if durable && self.core.durable.cuts() == cuts {
            self.core.want(index);
        }
        self.core.writer_signal.wake();
    }

    /// Plays the writer where that is no slower than waking it: nobody else waits, nobody is at it.
    fn wait(&self, index: u64, mark: &Watermark, durable: bool) -> Result<()> {
        // From here on a truncation is noticed, so that nobody waits for another record of this index.
        let cuts = mark.cuts();
        self.check_appended(index)?;
        if mark.get() >= index {
            return Ok(());
        }
        if durable {
            self.core.want(index);
        }
        let alone = self.core.durable.waiting() == 0 && self.core.written.waiting() == 0;
        let role = match self.core.options.threads {
            true if alone => try_lock(&self.role),
            true => None,
            // Nobody else does it.
            false => Some(lock(&self.role)),
        };
        if let Some(mut writer) = role {
            while mark.get() < index {
                match writer.turn(&self.core)? {
                    Turn::Worked => {}
                    Turn::Idle => break,
                    Turn::Stuck if self.core.options.threads => break,
                    Turn::Stuck => {
                        return Err(Error::OutOfSpace { last_index: self.core.last.get() });
                    }
                }
                // Others have come: they need not wait for us to get a turn again.
                if self.core.options.threads && mark.waiting() > 0 {
                    break;
                }
            }
            drop(writer);
            let others_wait = self.core.wanted.load(SeqCst) > self.core.durable.get();
            if mark.get() >= index && !others_wait {
                return Ok(());
            }
        }
        self.core.writer_signal.wake();
        mark.wait_since(index, cuts)
    }

    /// What was never appended will not come by waiting.
    fn check_appended(&self, index: u64) -> Result<()> {
        let last_index = self.core.last.get();
        if index > last_index {
            return Err(Error::OutOfRange { index, first_index: self.first_index(), last_index });
        }
        Ok(())
    }

    /// Makes everything durable that was appended before, and returns the index of the last of it.
    ///
    /// # Errors
    /// As [`Log::wait_durable`].
    pub fn sync(&self) -> Result<u64> {
        let index = self.core.last.get();
        self.wait_durable(index)?;
        Ok(index)
    }

    /// The oldest record; one more than the newest if there is none.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.core.first_index()
    }

    /// The newest record that was accepted; one less than the oldest if there is none.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.core.last.get()
    }

    /// The last record that was accepted, to be read or waited on.
    #[must_use]
    pub fn appended(&self) -> &Watermark {
        &self.core.last
    }

    /// The last record that the kernel has, to be read or waited on. Waiting here does not hurry
    /// anything; [`Log::wait_written`] does.
    #[must_use]
    pub fn written(&self) -> &Watermark {
        &self.core.written
    }

    /// The last record that is durable, to be read or waited on. Waiting here does not ask for a
    /// sync; [`Log::wait_durable`] does.
    #[must_use]
    pub fn durable(&self) -> &Watermark {
        &self.core.durable
    }

    /// Records from `index` on, as far as they are written when they are asked for. What is only
    /// buffered is not read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such record and it is not the next one.
    pub fn read_from(&self, index: u64) -> Result<Reader> {
        Reader::new(Source::Live(Arc::clone(&self.core)), index, Ack::Written)
    }

    /// Records from `index` on, and then those that come, once they are as far as `level` says
    /// (`Buffered` counts as `Written`).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such record and it is not the next one.
    pub fn follow(&self, index: u64, level: Ack) -> Result<Follower> {
        Follower::new(Arc::clone(&self.core), index, level)
    }

    /// Removes the oldest segments that nobody asked to keep, and returns the oldest record that is
    /// left. Whole segments go, so a little more may be kept than was asked for; the last one stays.
    /// Durable on return.
    ///
    /// # Errors
    /// The directory fails: what was removed before is gone, the rest is there. Also if one failed
    /// earlier and still holds a file that was replaced: it would be taken for the log's beginning.
    pub fn truncate_before(&self, retain: Retain) -> Result<u64> {
        // Before it is known what goes: a cut gives indexes away again.
        let _retention = lock(&self.core.retention);
        let keep_from = match retain {
            Retain::From(index) => index,
            Retain::Bytes(bytes) => self.first_within(bytes)?,
            Retain::Age(age) => self.first_younger_than(age)?,
        };
        // The oldest that is left must have a record that is durable: then its link is, and a power cut
        // leaves a log that knows where it was.
        let keep_from = keep_from.min(self.core.durable.get());
        self.core.sweep()?;
        while let Some(old) = self.core.segments.pop_before(keep_from) {
            let name = segment_name(old.first_index);
            if let Err(error) = spares::give_back(&self.core, old.place, &name) {
                self.core.segments.put_back(old);
                return Err(error);
            }
        }
        Ok(self.first_index())
    }

    /// First index of the oldest segment that, with those after it, takes no more than so many bytes.
    /// Files of one log may differ in size.
    fn first_within(&self, bytes: u64) -> Result<u64> {
        let all = self.core.segments.all();
        let mut first_index = all.last().map_or(1, |entry| entry.first_index);
        let mut left = bytes;
        for entry in all.iter().rev() {
            let dir = &*self.core.places[entry.place].dir;
            let name = segment_name(entry.first_index);
            let file_bytes = dir.open(&name, plimsoll_sync::Access::default())?.len()?;
            if file_bytes > left {
                break;
            }
            left -= file_bytes;
            first_index = entry.first_index;
        }
        Ok(first_index)
    }

    /// First index of the oldest segment that has records younger than `age`: a segment is as old as
    /// the beginning of the next.
    fn first_younger_than(&self, age: Duration) -> Result<u64> {
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let since = self.core.clock().unix_ns().saturating_sub(age_ns);
        let all = self.core.segments.all();
        for pair in all.windows(2) {
            let dir = &*self.core.places[pair[1].place].dir;
            let link = read_piece(dir, pair[1])?.ok().and_then(|piece| piece.link);
            if link.is_none_or(|link| link.unix_ns >= since) {
                return Ok(pair[0].first_index);
            }
        }
        Ok(all.last().map_or(1, |entry| entry.first_index))
    }

    /// Cuts off every record after `last_index`; they never come back. The next append gets
    /// `last_index + 1`. Durable on return, as is everything up to `last_index`. Appends wait
    /// meanwhile; who waits for a record that is cut is told [`Error::Truncated`]. A retention that is
    /// under way is waited for.
    ///
    /// Nothing is overwritten: the log goes on in a new segment.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the log begins later. [`Error::Stopped`] if the disk fails.
    pub fn truncate_after(&self, last_index: u64) -> Result<()> {
        // What is being taken away shall not get its name again meanwhile.
        let _retention = lock(&self.core.retention);
        self.core.role_wanted.fetch_add(1, SeqCst);
        let writer = lock(&self.role);
        self.core.role_wanted.fetch_sub(1, SeqCst);
        let mut writer = writer;
        let (first_index, newest) = (self.first_index(), self.core.last.get());
        if last_index.saturating_add(1) < first_index {
            return Err(Error::OutOfRange { index: last_index, first_index, last_index: newest });
        }
        self.core.while_quiet(|| {
            // So that nothing is on its way when the rest is cut.
            writer.finish(&self.core)?;
            if last_index >= self.core.last.get() {
                return Ok(((), None));
            }
            let end = self.end_of(last_index)?;
            // Before anything changes: on a full disk there may be none.
            let spare = spares::take(&self.core, writer.active.segment.place)?;
            self.core.wanted.store(0, SeqCst);
            // Before the files change, so that a reader who does not find a record knows why.
            for mark in [&self.core.durable, &self.core.written, &*self.core.last] {
                mark.set_back(last_index);
            }
            writer
                .cut(&self.core, &spare, last_index, end)
                .map_err(|error| self.core.stop(error))?;
            Ok(((), Some(last_index + 1)))
        })
    }

    /// Where a durable record ends.
    fn end_of(&self, index: u64) -> Result<Option<Previous>> {
        let Some(covering) = self.core.segments.covering(index) else {
            return Ok(None);
        };
        let entry = covering.entry;
        let dir = &*self.core.places[entry.place].dir;
        let corrupt = |damage| {
            Error::corrupt(segment_name(entry.first_index), 0, damage, entry.first_index..=index)
        };
        let piece = read_piece(dir, entry)?.map_err(corrupt)?;
        let file = dir.open(&segment_name(entry.first_index), plimsoll_sync::Access::default())?;
        let mut cursor = Cursor::new(file, piece.header);
        loop {
            match cursor.peek()? {
                Decoded::Frame(frame) => {
                    cursor.skip(&frame);
                    if frame.kind == Kind::Record && frame.index == index {
                        break;
                    }
                }
                Decoded::Bad(damage) => return Err(corrupt(damage)),
                Decoded::Empty | Decoded::Needs(_) => {
                    return Err(corrupt(crate::format::Damage::Empty));
                }
            }
        }
        let ordinal = piece.link.map_or(0, |link| link.ordinal);
        let salt = piece.header.salt;
        Ok(Some(Previous { salt, end: cursor.at(), first_index: entry.first_index, ordinal }))
    }

    /// What the log did since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// The largest record that this log takes, in bytes.
    #[must_use]
    pub fn max_record_bytes(&self) -> u64 {
        self.core.options.max_record_bytes()
    }

    /// Makes everything durable, says so in the log, and ends. Everything that was appended is durable
    /// on return.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the disk failed: records after the one that it names may be lost.
    pub fn close(self) -> Result<()> {
        let finished = lock(&self.role).finish(&self.core);
        self.end();
        finished?;
        if self.core.options.ring != RingPlace::Memory {
            ring_note::forget(&*self.core.places[0].dir)?;
        }
        let is_first = |at: &Entry| at.place == 0;
        let all_first = self.core.segments.all().iter().all(is_first)
            && !self.core.stale.any(|at| !is_first(at));
        if self.core.places.len() > 1 && all_first {
            second_note::forget(&*self.core.places[0].dir)?;
        }
        Ok(())
    }

    fn end(&self) {
        self.core.close();
        lock(&self.threads).join(&self.core);
        // They would be removed by the next open as well.
        let spares = std::mem::take(&mut *lock(&self.core.spares));
        let ready = spares.ready.into_iter().map(|spare| (spare.place, spare.name));
        for (place, name) in ready.chain(spares.used) {
            self.core.places[place].dir.remove(&name).ok();
        }
    }

    /// Takes the steps that the log's threads would take, for a log that has none
    /// ([`Options::threads`]): one write, one sync if it is due, one segment made ready if it is time.
    /// Returns whether anything was done.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn drive(&self) -> Result<bool> {
        let turn = lock(&self.role).turn(&self.core)?;
        self.core.watch_age();
        let due = self.core.sync_due() == Some(Duration::ZERO);
        if due {
            sync_or_fail_over(&self.core, &self.role)?;
        }
        let place = lock(&self.role).active.segment.place;
        let prepared = match spares::keep_ready(&self.core, place) {
            Ok(prepared) => prepared,
            Err(Error::OutOfSpace { .. }) => false,
            Err(error) => {
                tracing::warn!(%error, "no segment could be prepared");
                false
            }
        };
        Ok(turn == Turn::Worked || due || prepared)
    }

    /// For an append that found the ring full, in a log without threads.
    fn make_room(&self) -> Result<()> {
        if self.drive()? {
            return Ok(());
        }
        // Nothing was due, so what is written is not durable yet.
        if self.core.lag() > Duration::ZERO {
            return sync_or_fail_over(&self.core, &self.role);
        }
        let mut writer = lock(&self.role);
        match spares::keep_ready(&self.core, writer.active.segment.place) {
            Ok(true) => Ok(()),
            Ok(false) | Err(Error::OutOfSpace { .. }) => {
                Err(Error::OutOfSpace { last_index: self.core.last.get() })
            }
            // The writer would meet it only once this segment is full, and it will not be.
            Err(error) => writer.fail_over(&self.core, error),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // After `close` there is nothing left to do.
        if self.core.gate() < crate::core::Gate::Stopped {
            let mut writer = lock(&self.role);
            while matches!(writer.turn(&self.core), Ok(Turn::Worked)) {}
            drop(writer);
        }
        self.end();
    }
}
