//! [`Log`]: the public face.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_sync::{Dir, OsDir};

use crate::append::intake::{Accepted, Full, Incoming};
use crate::commit::Commit;
use crate::commit::heal::Checked;
use crate::crew::shared::Shared;
use crate::error::{Error, Result};
use crate::files::retain::Retain;
use crate::held::Held;
use crate::open::mend::{self, Recovery};
use crate::options::{Ack, Options};
use crate::read::follower::Follower;
use crate::read::piece;
use crate::read::reader::Reader;
use crate::read::source::Source;
use crate::segment::format::{hash, hash_pieces};
use crate::shim::{Mutex, lock};
use crate::stats::Stats;
use crate::wait::{Wait, wait_for, wait_for_appended};

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
    commit: Arc<Commit>,
    /// Until the log ends.
    held: Mutex<Option<Held>>,
}

impl Log {
    /// Opens the log in a directory, or makes one there; the directory is made as well, durably, with all
    /// above it that is missing. On return everything that [`Recovery`] counts is durable, but for what was
    /// in the ring's file.
    ///
    /// Cost: two file heads are read, and the newest segment, whole (64 MiB unless set otherwise), with
    /// those before it that may not be durable; a second time, through the page cache, where the log writes
    /// through that. Of a log that was closed no more than 256 KiB.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if durable records are lost: nothing is changed then. [`Error::Disk`] if
    /// another process has the log (`Locked` inside names it) or the directory fails.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<(Self, Recovery)> {
        Self::open_in(Arc::new(OsDir::create_all(path.as_ref())?), options)
    }

    /// Opens the log in this directory, or makes one there.
    ///
    /// # Errors
    /// As [`Log::open`].
    #[expect(clippy::needless_pass_by_value, reason = "as std does with options that are built")]
    pub fn open_in(dir: Arc<dyn Dir>, options: Options) -> Result<(Self, Recovery)> {
        Self::open_with(dir, &options, None)
    }

    /// The same, by itself or with a crew.
    pub(crate) fn open_with(
        dir: Arc<dyn Dir>,
        options: &Options,
        crew: Option<Arc<Shared>>,
    ) -> Result<(Self, Recovery)> {
        let _span = tracing::info_span!("open").entered();
        options.check()?;
        let lock = dir.lock(LOCK)?;
        let (commit, recovery) = mend::open(dir, options, crew.as_deref())?;
        let commit = Arc::new(commit);
        let held = Held::start(&commit, lock, options.threads, crew)?;
        tracing::info!(?recovery, "open");
        Ok((Self { commit, held: Mutex::new(Some(held)) }, recovery))
    }

    /// Appends a record and returns its index. How far it is then the policy says: durable under
    /// [`crate::Policy::Always`], otherwise buffered ([`Ack`] says what each survives).
    ///
    /// Cost: a checksum and a copy, about 100 ns for 100 bytes, if nothing is waited for. Waits if the
    /// ring is full, first come, first served.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfSpace`]: not accepted, and the log goes on.
    /// [`Error::Stopped`], [`Error::Closed`]: if it was accepted before, whether it is durable is in
    /// the error. [`Error::TimedOut`], in a log without threads whose disk is full: it is accepted, and
    /// becomes durable once the log is driven and has room.
    pub fn append(&self, record: &[u8]) -> Result<u64> {
        self.append_with(record, self.commit.policy.ack())
    }

    /// Appends a record, and returns once it is as far as `ack` says.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_with(&self, record: &[u8], ack: Ack) -> Result<u64> {
        let incoming = Incoming { pieces: &[record], bytes: record.len(), hash: hash(record) };
        self.accept(&[incoming], Full::Wait, ack)
    }

    /// Appends a record whose bytes lie in pieces, one behind the other, without putting them together
    /// first; returns once it is as far as `ack` says.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_pieces(&self, pieces: &[&[u8]], ack: Ack) -> Result<u64> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let incoming = Incoming { pieces, bytes, hash: hash_pieces(pieces) };
        self.accept(&[incoming], Full::Wait, ack)
    }

    /// As [`Log::append`], but says [`Error::WouldBlock`] where that would wait for room in the ring.
    /// Buffered on return, whatever the policy.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn try_append(&self, record: &[u8]) -> Result<u64> {
        let incoming = Incoming { pieces: &[record], bytes: record.len(), hash: hash(record) };
        self.accept(&[incoming], Full::Refuse, Ack::Buffered)
    }

    /// Appends records that stay together: after a crash all of them are there, or none. As far as the
    /// policy says on return.
    ///
    /// # Errors
    /// As [`Log::append`]; a batch has at most half of the ring's bytes.
    pub fn append_batch<R: AsRef<[u8]>>(&self, records: &[R]) -> Result<RangeInclusive<u64>> {
        self.append_batch_with(records, self.commit.policy.ack())
    }

    /// As [`Log::append_batch`], and returns once they are as far as `ack` says. Errors likewise.
    pub fn append_batch_with<R: AsRef<[u8]>>(
        &self,
        records: &[R],
        ack: Ack,
    ) -> Result<RangeInclusive<u64>> {
        if records.is_empty() {
            return Err(Error::Options("a batch of no records".to_owned()));
        }
        let pieces: Vec<&[u8]> = records.iter().map(AsRef::as_ref).collect();
        let incoming = |piece| Incoming {
            pieces: std::slice::from_ref(piece),
            bytes: piece.len(),
            hash: hash(piece),
        };
        let incoming: Vec<Incoming<'_>> = pieces.iter().map(incoming).collect();
        let last = self.accept(&incoming, Full::Wait, ack)?;
        Ok(last + 1 - records.len() as u64..=last)
    }

    fn accept(&self, records: &[Incoming<'_>], full: Full, ack: Ack) -> Result<u64> {
        let commit = &*self.commit;
        let mut timing = None;
        let make_room = |bytes| commit.make_room(bytes);
        let ask = |bytes| commit.ask_for_room(bytes);
        let accepted = commit.intake.accept(records, full, &make_room, &ask, &mut timing)?;
        let Accepted { index, cuts } = accepted;
        if let Some(timing) = timing {
            commit.tell.accepted(timing);
            commit.look_at_age();
        }
        if ack == Ack::Durable {
            wait_for_appended(commit, index, cuts, true)?;
            return Ok(index);
        }
        if commit.policy.ack() == Ack::Durable {
            commit.syncer.want(index);
        }
        if ack == Ack::Written {
            wait_for_appended(commit, index, cuts, false)?;
        } else {
            // Publishing a record comes before this look in every order; between what is wanted and the
            // look there is a fence.
            match commit.policy.ack() {
                Ack::Durable => commit.signals.writer.wake_if_asleep(),
                _ => commit.signals.writer.nudge(),
            }
        }
        Ok(index)
    }

    /// The oldest record; one more than the newest if there is none.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.commit.files.first_index()
    }

    /// The newest record that was accepted; one less than the oldest if there is none.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.commit.intake.marks.appended.get()
    }

    /// The last record that the kernel has.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.commit.intake.marks.written.get()
    }

    /// The last record that is durable.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.commit.intake.marks.durable.get()
    }

    /// A wait until a record is with the kernel or durable (`Buffered` counts as `Written`), which asks
    /// for that, under any policy. What came before it counts too: a record that retention has taken away
    /// is as far as it can be.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: no such record was appended yet.
    pub fn wait(&self, index: u64, level: Ack) -> Result<Wait> {
        Wait::new(Arc::clone(&self.commit), index, level, true)
    }

    /// As [`Log::wait`], but asks for nothing: it comes when the policy, or somebody else, has it so.
    ///
    /// # Errors
    /// As [`Log::wait`].
    pub fn watch(&self, index: u64, level: Ack) -> Result<Wait> {
        Wait::new(Arc::clone(&self.commit), index, level, false)
    }

    /// Makes everything durable that was appended before, and returns the index of the last of it.
    ///
    /// # Errors
    /// As [`Wait::block`].
    pub fn sync(&self) -> Result<u64> {
        let cuts = self.commit.intake.marks.cuts();
        let index = self.last_index();
        wait_for(&self.commit, index, cuts, true)?;
        Ok(index)
    }

    /// Whether the log is as it should be.
    ///
    /// # Errors
    /// [`Error::Stopped`]: nothing is accepted any more. [`Error::OutOfSpace`]: what was accepted behind the
    /// record that it names is in memory only, and there is no room for it: a segment failed, or a crash left
    /// more in the ring than there is room for now. The log goes on once there is.
    pub fn health(&self) -> Result<()> {
        let intake = &self.commit.intake;
        intake.check_owner()?;
        if intake.is_stopped() {
            return Err(intake.why_stopped());
        }
        if self.commit.is_homeless() || intake.is_beyond_room() {
            return Err(Error::OutOfSpace { last_index: self.durable() });
        }
        Ok(())
    }

    /// Records from `index` on, as far as they are written when they are asked for. What is only
    /// buffered is not read.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such record and it is not the next one.
    pub fn read_from(&self, index: u64) -> Result<Reader> {
        Reader::new(Source::Live(self.commit.live()), index, Ack::Written)
    }

    /// Reads a piece of a record that is written: its bytes from `offset` on, as many as `buf` takes or the
    /// record has, and returns how many. **Not checked**: the checksum covers the whole record.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the record is not there or not written yet; [`Error::Corrupt`] and
    /// [`Error::Disk`] as of a reader.
    pub fn read_piece(&self, index: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        piece::read(&self.commit.live(), index, offset, buf)
    }

    /// Records from `index` on, and then those that come, once they are as far as `level` says
    /// (`Buffered` counts as `Written`).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such record and it is not the next one.
    pub fn follow(&self, index: u64, level: Ack) -> Result<Follower> {
        self.commit.intake.check_owner()?;
        Follower::new(self.commit.live(), index, level)
    }

    /// Removes the oldest segments that nobody asked to keep, and returns the oldest record that is
    /// left. Whole segments go, so a little more may be kept than was asked for; the last one stays.
    /// Durable on return.
    ///
    /// # Errors
    /// The directory fails: what was removed before is gone, the rest is there. Also if a file that was
    /// replaced cannot be removed: it would be taken for the log's beginning.
    pub fn truncate_before(&self, retain: Retain) -> Result<u64> {
        self.commit.intake.check_owner()?;
        self.commit.truncate_before(retain)
    }

    /// Cuts off every record after `last_index`; they never come back. The next append gets
    /// `last_index + 1`. Durable on return, as is everything up to `last_index`. Appends go on meanwhile,
    /// but for those to a ring in a file; whoever waits for a record that is cut is told
    /// [`Error::Truncated`]. A retention that is under way is waited for.
    ///
    /// Nothing is overwritten: the log goes on in a new segment.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the log begins later. [`Error::OutOfSpace`] or [`Error::Disk`] if no file
    /// can be made for what follows: nothing has changed then. [`Error::Stopped`] if the disk fails.
    pub fn truncate_after(&self, last_index: u64) -> Result<()> {
        self.commit.intake.check_owner()?;
        self.commit.truncate_after(last_index)
    }

    /// Reads the full segment that has this record again, or the oldest where that is gone: past the page cache, where that is
    /// possible, so that what its disk has lost is found before anybody wants it. `None`: that segment is not full yet, or not
    /// all of it is durable. Nothing is changed. Retention and [`Log::truncate_after`] wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn check(&self, index: u64) -> Result<Option<Checked>> {
        self.commit.intake.check_owner()?;
        self.commit.check(index)
    }

    /// Has another segment follow the one that is written, if that has records, so that [`Log::check`] reads it too. All that was
    /// appended before is durable on return.
    ///
    /// # Errors
    /// [`Error::Disk`], [`Error::Stopped`] and [`Error::OutOfSpace`] as of [`Log::truncate_after`].
    pub fn seal(&self) -> Result<()> {
        self.commit.intake.check_owner()?;
        self.commit.seal_all()
    }

    /// Which records of the segment that has this one cannot be read: looked for past the page cache, where
    /// that is possible, in all of the segment. The one that is written is sealed first, and another follows.
    /// Nothing else is changed.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: more is damaged than records: where the segment begins, or where it ends.
    /// [`Error::OutOfRange`] if the record is not there; [`Error::Disk`], [`Error::Stopped`] and
    /// [`Error::OutOfSpace`] as of [`Log::truncate_after`].
    pub fn find_damage(&self, index: u64) -> Result<Vec<RangeInclusive<u64>>> {
        self.commit.intake.check_owner()?;
        self.commit.find_damage(index)
    }

    /// Puts what [`Log::find_damage`] finds back in its place, from what somebody else has: `record` gives each
    /// record that is missing, as it was appended. A stretch of whose first it gives none stays as it is. The
    /// segment is written again under another name, with the bytes that it had, verified, synced, and exchanged
    /// for the damaged one in one step: a crash leaves one or the other. Readers go on in it. Durable on return.
    ///
    /// What survives of a damaged record is held against what is given: where its length and checksum can be read,
    /// nothing else is taken. Where they cannot, **the caller knows that it is the record that was appended**; it
    /// must have its length at least.
    ///
    /// Retention and [`Log::truncate_after`] wait meanwhile; appends, syncs and readers do not.
    ///
    /// # Errors
    /// As [`Log::find_damage`]; [`Error::Corrupt`] also if what is given is not what is missing, or none of it. Nothing has
    /// changed then, and the log goes on.
    pub fn heal(&self, index: u64, record: impl FnMut(u64) -> Option<Vec<u8>>) -> Result<()> {
        self.commit.intake.check_owner()?;
        self.commit.heal(index, record)
    }

    /// What the log did since it was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let commit = &*self.commit;
        let appended = commit.intake.appended();
        let mut stats = Stats {
            records: appended.records,
            payload_bytes: appended.payload_bytes,
            first_index: self.first_index(),
            last_index: self.last_index(),
            written: self.written(),
            durable: self.durable(),
            lag_ns: u64::try_from(commit.syncer.lag().as_nanos()).unwrap_or(u64::MAX),
            ring_bytes: appended.ring_bytes,
            segments: commit.files.segments.len() as u64,
            method: commit.files.place.method.name(),
            layout: commit.files.place.layout.name().to_owned(),
            ..Stats::default()
        };
        commit.tell.report(&mut stats);
        stats
    }

    /// What a power cut would take now, of what was accepted: at most so many bytes, heads of frames
    /// included, and the age of the oldest record that was taken from the ring. As of [`Log::stats`], and
    /// cheaper.
    #[must_use]
    pub fn at_risk(&self) -> (u64, Duration) {
        (self.commit.intake.appended().ring_bytes, self.commit.syncer.lag())
    }

    /// The largest record that this log takes, in bytes.
    #[must_use]
    pub fn max_record_bytes(&self) -> u64 {
        self.commit.intake.max_record_bytes()
    }

    /// Takes the steps that the log's threads would take, for a log that has none
    /// ([`Options::threads`]): one write, one sync if it is due, one segment made ready if it is time.
    /// Returns whether anything was done.
    ///
    /// # Errors
    /// The log has stopped.
    pub fn drive(&self) -> Result<bool> {
        self.commit.intake.check_owner()?;
        self.commit.drive()
    }

    /// Makes everything durable, notes where the log ends, and ends. Everything that was appended is
    /// durable on return.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the disk failed: records after the one that it names may be lost.
    /// [`Error::OutOfSpace`] if the disk is full: likewise. [`Error::Disk`] names a segment that somebody
    /// has removed: its records are lost.
    pub fn close(self) -> Result<()> {
        self.commit.intake.check_owner()?;
        let finished = self.commit.finish();
        if let Some(held) = lock(&self.held).take() {
            held.end(&self.commit);
        }
        finished
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // After `close` there is nothing left to do.
        if let Some(held) = lock(&self.held).take() {
            held.abandon(&self.commit);
        }
    }
}
