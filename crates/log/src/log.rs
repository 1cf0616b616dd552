//! [`Log`]: the public face.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_sync::{Dir, Lock, OsDir};

use crate::accept::{Full, Gate};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::hash;
use crate::opening::Opening;
use crate::options::{Ack, Options, Ring as RingPlace};
use crate::patience::PatientDir;
use crate::place::Place;
use crate::reader::{Follower, Reader, Source};
use crate::recovery::{self, Recovery};
use crate::ring_note;
use crate::second_note;
use crate::segments::Entry;
use crate::shim::{Mutex, lock};
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
///
/// After a fork(3) only the parent uses it, and its readers: in the child whatever appends, waits or
/// changes something says [`Error::Forked`], and dropping it does nothing. The lock is held until both
/// have closed it or ended, so the child should exec or end soon.
#[derive(Debug)]
pub struct Log {
    pub(crate) core: Arc<Core>,
    pub(crate) role: Arc<Mutex<Writer>>,
    threads: Mutex<Threads>,
    /// Held for as long as the log is open.
    _locks: Arc<Vec<Lock>>,
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
        self.core.check_owner()?;
        Follower::new(Arc::clone(&self.core), index, level)
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
        self.core.check_owner()?;
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
        self.core.check_owner()?;
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
        if self.core.check_owner().is_err() {
            if let Ok(threads) = self.threads.get_mut() {
                threads.forget();
            }
            return;
        }
        // After `close` there is nothing left to do.
        if self.core.gate() < Gate::Stopped {
            let mut writer = lock(&self.role);
            while matches!(writer.turn(&self.core), Ok(Turn::Worked)) {}
            drop(writer);
        }
        self.end();
    }
}
