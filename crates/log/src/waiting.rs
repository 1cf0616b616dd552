//! [`Waiting`]: until a record is written or durable, by playing the writer or by waking it.

use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::log::Log;
use crate::options::Ack;
use crate::shim::{lock, try_lock};
use crate::watermark::Watermark;
use crate::writer::Turn;

/// A wait for a record, to be taken up again and again: [`Log::waiting`].
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    index: u64,
    durable: bool,
    /// How often the log had been cut when it began.
    cuts: u64,
}

impl Log {
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
        self.core.check_owner()?;
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
        self.hurry(waiting)?;
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
        self.hurry(waiting)?;
        mark.poll_since(index, cuts, context)
    }

    /// Asks for what is waited for.
    fn hurry(&self, waiting: Waiting) -> Result<()> {
        self.core.check_owner()?;
        let Waiting { index, durable, cuts } = waiting;
        // What a cut left is durable.
        if durable && self.core.durable.cuts() == cuts {
            self.core.want(index);
        }
        self.core.writer_signal.wake();
        Ok(())
    }

    /// Plays the writer where that is no slower than waking it: nobody else waits, nobody is at it.
    fn wait(&self, index: u64, mark: &Watermark, durable: bool) -> Result<()> {
        self.core.check_owner()?;
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
}
