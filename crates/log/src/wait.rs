//! [`Wait`]: until a record is written or durable. One thing to block on, with or without a timeout, to
//! await, or to have call back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::append::waiters::Ticket;
use crate::append::watermark::Watermark;
use crate::commit::Commit;
use crate::commit::writer::Turn;
use crate::error::{Error, Result};
use crate::options::Ack;
use crate::shim::{Deadline, thread};

/// A wait for a record, from [`crate::Log::wait`] or [`crate::Log::watch`]. It begins when it is made: a
/// truncation since then is told, also where another record has got the index.
///
/// ```
/// # fn main() -> plimsoll_log::Result<()> {
/// use plimsoll_log::{Ack, Log, Options};
/// use std::time::Duration;
///
/// async fn append_durably(log: &Log, record: &[u8]) -> plimsoll_log::Result<u64> {
///     let index = log.append_with(record, Ack::Buffered)?;
///     log.wait(index, Ack::Durable)?.await?; // holds up no thread
///     Ok(index)
/// }
/// # let dir = tempfile::tempdir().unwrap();
/// # let (log, _) = Log::open(dir.path(), Options::default())?;
///
/// let index = log.append(b"buffered")?;
/// let wait = log.wait(index, Ack::Durable)?;
/// if wait.block_for(Duration::from_millis(1)).is_err() {
///     // Something else can be looked at; it goes on becoming durable meanwhile.
///     wait.block()?;
/// }
/// log.watch(index, Ack::Written)?.then(|how| println!("written: {how:?}"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a wait does nothing until it is blocked on, awaited, or told what to call"]
pub struct Wait {
    commit: Arc<Commit>,
    index: u64,
    is_durable: bool,
    /// Whether it asks for what it waits for.
    hurries: bool,
    /// How often the log had been cut when it began.
    cuts: u64,
    ticket: Option<Ticket>,
}

impl Wait {
    /// From here on a truncation is noticed, so that nobody waits for another record of this index.
    pub(crate) fn new(commit: Arc<Commit>, index: u64, level: Ack, hurries: bool) -> Result<Self> {
        commit.intake.check_owner()?;
        let is_durable = level == Ack::Durable;
        let cuts = commit.intake.marks.cuts();
        let last_index = commit.intake.marks.appended.get();
        if index > last_index {
            // What was never appended will not come by waiting.
            let first_index = commit.files.first_index();
            return Err(Error::OutOfRange { index, first_index, last_index });
        }
        Ok(Self { commit, index, is_durable, hurries, cuts, ticket: None })
    }

    /// Waits until it has come so far, by playing the writer where nobody else does.
    ///
    /// On a disk that is full the log's threads try again until there is room, and this waits. In a log
    /// without threads nobody would: there it is [`Error::OutOfSpace`], and the record still may come.
    ///
    /// # Errors
    /// [`Error::Stopped`] or [`Error::Closed`] if it never will, [`Error::Truncated`] if the record was cut
    /// off.
    pub fn block(&self) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.commit.intake.check_owner()?;
        if self.hurries && block_on(&self.commit, self.index, self.cuts, self.is_durable)? {
            return Ok(());
        }
        self.mark().wait(self.index, self.cuts, None)
    }

    /// As [`Wait::block`], but no longer than `timeout`, even where the disk hangs: the log's own threads
    /// do the work, which costs waking one. It can be waited for again. In a log without threads only what
    /// is driven happens.
    ///
    /// # Errors
    /// As [`Wait::block`], and [`Error::TimedOut`]: it still may come.
    pub fn block_for(&self, timeout: Duration) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.hurry()?;
        self.mark().wait(self.index, self.cuts, Some(&Deadline::after(timeout)))
    }

    /// Has `call` called once, with how it went: here and now if it has come already, and otherwise from
    /// the thread that makes it so. It should return at once, and not call the log; the last handle of
    /// one may be dropped in it. A panic in it is caught, and ends nothing.
    pub fn then(self, call: impl FnOnce(Result<()>) + Send + 'static) {
        if !self.is_over()
            && let Err(error) = self.hurry()
        {
            return call(Err(error));
        }
        self.mark().call(self.index, self.cuts, Box::new(call));
    }

    fn is_over(&self) -> bool {
        self.mark().has_reached(self.index, self.cuts)
    }

    /// Asks for what is waited for.
    fn hurry(&self) -> Result<()> {
        self.commit.intake.check_owner()?;
        if !self.hurries {
            return Ok(());
        }
        // What a cut left is durable.
        if self.mark().cuts() == self.cuts {
            match self.is_durable {
                true => self.commit.syncer.want(self.index),
                false => self.commit.syncer.want_written(self.index),
            }
        }
        self.commit.signals.writer.wake();
        Ok(())
    }

    fn mark(&self) -> &Watermark {
        mark(&self.commit, self.is_durable)
    }
}

impl Future for Wait {
    type Output = Result<()>;

    /// Of a task that asks again the last waker counts.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        if self.ticket.is_none() {
            self.hurry()?;
        }
        let mut ticket = self.ticket.take();
        let polled = self.mark().poll(self.index, self.cuts, &mut ticket, context);
        self.ticket = ticket;
        polled
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.mark().forget(ticket);
        }
    }
}

fn mark(commit: &Commit, is_durable: bool) -> &Watermark {
    let marks = &commit.intake.marks;
    if is_durable { &marks.durable } else { &marks.written }
}

/// Waits for a record that was just appended, when the log had been cut so often. A disk that is full is no
/// refusal any more: the record is accepted.
pub(crate) fn wait_for_appended(
    commit: &Commit,
    index: u64,
    cuts: u64,
    is_durable: bool,
) -> Result<()> {
    wait_for(commit, index, cuts, is_durable).map_err(|error| match error {
        Error::OutOfSpace { .. } => mark(commit, is_durable).timed_out(index),
        error => error,
    })
}

/// Waits for a record that is there, when the log had been cut so often.
pub(crate) fn wait_for(commit: &Commit, index: u64, cuts: u64, is_durable: bool) -> Result<()> {
    let mark = mark(commit, is_durable);
    if mark.has_reached(index, cuts) || block_on(commit, index, cuts, is_durable)? {
        return Ok(());
    }
    mark.wait(index, cuts, None)
}

/// Plays the writer where that is no slower than waking it: nobody else waits, nobody is at it. Whether
/// the record has come; if not it was asked for.
fn block_on(commit: &Commit, index: u64, cuts: u64, is_durable: bool) -> Result<bool> {
    commit.intake.check_owner()?;
    let mark = mark(commit, is_durable);
    // What a cut left is durable.
    if mark.cuts() == cuts {
        match is_durable {
            true => commit.syncer.want(index),
            false => commit.syncer.want_written(index),
        }
    }
    let marks = &commit.intake.marks;
    let alone = marks.durable.waiting() == 0 && marks.written.waiting() == 0;
    let role = match commit.has_threads {
        true if alone => commit.try_role(),
        true => None,
        // Nobody else does it.
        false => Some(commit.role()),
    };
    if let Some(mut writer) = role {
        while mark.get() < index {
            match writer.turn(commit)? {
                Turn::Worked => {}
                // An append has its index and is about to show its record; nobody else would write it.
                Turn::Idle if !commit.has_threads && mark.cuts() == cuts => thread::yield_now(),
                Turn::Idle => break,
                Turn::Stuck if commit.has_threads => break,
                Turn::Stuck => return Err(Error::OutOfSpace { last_index: marks.appended.get() }),
            }
            // Others have come: they need not wait for us to get a turn again.
            if commit.has_threads && mark.waiting() > 0 {
                break;
            }
        }
        drop(writer);
        if mark.has_reached(index, cuts) && !commit.syncer.is_wanted() {
            return Ok(true);
        }
    }
    commit.signals.writer.wake();
    Ok(false)
}
