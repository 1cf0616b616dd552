//! What of a log's oldest end is kept.

use std::time::Duration;

use super::Files;
use crate::error::Result;
use crate::segment::head::segment_name;

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

impl Files {
    /// First index of the oldest segment that is kept, for all that is known of the disk.
    pub(crate) fn keep_from(&self, retain: Retain) -> Result<u64> {
        match retain {
            Retain::From(index) => Ok(index),
            Retain::Bytes(bytes) => self.first_within(bytes),
            Retain::Age(age) => {
                let now = self.clock.unix_ns();
                let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
                self.first_younger_than(now.saturating_sub(age_ns), now)
            }
        }
    }

    /// Files of one log may differ in size.
    fn first_within(&self, bytes: u64) -> Result<u64> {
        let all = self.segments.all();
        let mut first_index = all.last().copied().unwrap_or(1);
        let mut left = bytes;
        for &index in all.iter().rev() {
            let file_bytes = self.open(index)?.len()?;
            if file_bytes > left {
                break;
            }
            left -= file_bytes;
            first_index = index;
        }
        Ok(first_index)
    }

    /// A segment is as old as the beginning of the next. One that was begun in the future was begun while
    /// the clock was ahead: those behind it decide.
    fn first_younger_than(&self, since: u64, now: u64) -> Result<u64> {
        let all = self.segments.all();
        let mut undecided = None;
        for pair in all.windows(2) {
            let head = self.head(pair[1])?.ok();
            match head.and_then(|head| head.link).map(|link| link.unix_ns) {
                Some(begun) if begun > now => {
                    undecided.get_or_insert(pair[0]);
                }
                Some(begun) if begun < since => undecided = None,
                _ => return Ok(undecided.unwrap_or(pair[0])),
            }
        }
        Ok(undecided.or(all.last().copied()).unwrap_or(1))
    }

    /// Removes the oldest segments, but for the last, as long as the next begins no later than
    /// `keep_from`. Durable on return. In the turn of retention.
    pub(crate) fn remove_before(&self, keep_from: u64) -> Result<()> {
        while let Some(oldest) = self.segments.pop_before(keep_from) {
            if let Err(error) = self.stock.give_back(&segment_name(oldest)) {
                self.segments.put_back(oldest);
                return Err(error);
            }
        }
        Ok(())
    }
}
