//! [`Follower`]: records in order, and then those that come.

use std::time::Duration;

use super::Live;
use super::reader::{Reader, Record};
use super::source::Source;
use crate::append::watermark::Watermark;
use crate::error::{Error, Result};
use crate::options::Ack;
use crate::shim::Deadline;

/// Waits for records and reads them as they come.
#[derive(Debug)]
pub struct Follower {
    reader: Reader,
    live: Live,
    level: Ack,
}

impl Follower {
    pub(crate) fn new(live: Live, from: u64, level: Ack) -> Result<Self> {
        let reader = Reader::new(Source::Live(live.clone()), from, level)?;
        Ok(Self { reader, live, level })
    }

    /// Index of the record that comes next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.reader.next_index()
    }

    /// The next record; waits until there is one.
    ///
    /// # Errors
    /// As [`Reader::next_record`]; [`Error::Closed`] and [`Error::Stopped`] when no more will come.
    pub fn next_record(&mut self) -> Result<Record<'_>> {
        while !self.reader.advance()? {
            self.wait(None)?;
        }
        Ok(self.reader.current())
    }

    /// The next record; waits for it, but no longer than `timeout`.
    ///
    /// # Errors
    /// As [`Follower::next_record`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<Record<'_>>> {
        if !self.reader.advance()? {
            match self.wait(Some(&Deadline::after(timeout))) {
                Err(Error::TimedOut { .. }) => return Ok(None),
                waited => waited?,
            }
            if !self.reader.advance()? {
                return Ok(None);
            }
        }
        Ok(Some(self.reader.current()))
    }

    /// Waits for the next record, without asking anybody to hurry.
    fn wait(&self, deadline: Option<&Deadline>) -> Result<()> {
        if !self.live.owner.is_this() {
            return Err(Error::Forked);
        }
        let mark = self.mark();
        let cuts = mark.cuts();
        match mark.wait(self.next_index(), cuts, deadline) {
            // What was cut off was not read, and another record may come in its place.
            Err(Error::Truncated { .. }) => Ok(()),
            waited => waited,
        }
    }

    fn mark(&self) -> &Watermark {
        let marks = &self.live.marks;
        if self.level == Ack::Durable { &marks.durable } else { &marks.written }
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Follower>();
};
