//! [`LogReader`]: entries and the vote, as the engine reads them: to apply, to send, and at its
//! start.
//!
//! What was appended is read from the moment on that `append` returned, from memory. What is older
//! comes from the disk, on the engine's own thread, a piece at a time, and others have their turn
//! between two pieces: at open all of the log is read so, to be applied.

use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use futures_util::{Stream, stream};
use openraft::{OptionalSend, RaftLogReader};

use super::storage::Storage;
use super::types::{Entry, Types, Vote};

/// Bytes of entries that are read, or sent, at once; one entry may be larger.
const PIECE_BYTES: usize = 1 << 20;

/// A reader of the log of a group.
#[derive(Debug, Clone)]
pub(crate) struct LogReader {
    storage: Arc<Storage>,
}

impl LogReader {
    pub(crate) fn new(storage: Arc<Storage>) -> Self {
        Self { storage }
    }

    /// What the disk has lost is waited for, where other replicas are asked for it.
    async fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
        read(&self.storage, range, max_bytes).await
    }
}

impl RaftLogReader<Types> for LogReader {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + std::fmt::Debug + OptionalSend,
    {
        // The engine asks so at its start only.
        match self.storage.holes.get() {
            None => self.read(indexes(&range), usize::MAX).await,
            Some(_) => Ok(self.storage.read_with_blanks(indexes(&range))?),
        }
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let entries = self.read(start..end, PIECE_BYTES).await?;
        // Others than were asked for are not sent: of who lacks what was let go of see `network`.
        let is_it = entries.first().is_some_and(|first| first.log_id.index == start);
        Ok(if is_it { entries } else { Vec::new() })
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + std::fmt::Debug + OptionalSend,
    {
        let begin = (Arc::clone(&self.storage), indexes(&range), Vec::new().into_iter());
        stream::try_unfold(begin, |(storage, mut left, mut piece)| async move {
            if piece.len() == 0 {
                piece = read(&storage, left.clone(), PIECE_BYTES).await?.into_iter();
                tokio::task::yield_now().await;
            }
            let Some(entry) = piece.next() else { return Ok(None) };
            left.start = entry.log_id.index + 1;
            Ok(Some((entry, (storage, left, piece))))
        })
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.storage.identity.known().vote)
    }
}

async fn read(storage: &Storage, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<Entry>> {
    let mut wounds = None;
    loop {
        let why = match storage.read(range.clone(), max_bytes) {
            Err(why) if why.damaged_from().is_some() && storage.wounds.are_tended() => why,
            read => return Ok(read?),
        };
        // What is given between the look and the wait is seen by the next look.
        let Some(wounds) = &mut wounds else {
            wounds = Some(storage.wounds.watch());
            continue;
        };
        tracing::warn!(%why, "the log is damaged: another replica is asked");
        if wounds.changed().await.is_err() {
            return Err(why.into());
        }
    }
}

fn indexes(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}
