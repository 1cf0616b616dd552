//! What a replica reads of its log: for whoever wants old entries, and to find what the disk has lost of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::EntryPayload;

use super::apply::Apply;
use super::error::{Error, Result};
use super::group::Group;
use super::holes::Holes;
use super::record::{from_log, to_log};
use super::types::Entry;

/// How long whoever reads waits for what another replica gives.
const GIVEN_WITHIN: Duration = Duration::from_secs(5);

impl<S: Apply> Group<S> {
    /// Payloads of entries from this index on, each with its index, until they have `max_bytes`: at
    /// least one where there is one. `None` is an entry of the engine's own. Reads the disk for what
    /// is not in memory any more.
    ///
    /// # Errors
    /// [`Error::Log`]: they cannot be read. [`Error::NotAnEntry`].
    pub fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<(u64, Option<Bytes>)>> {
        let end = self.applied().map_or(0, |last| last + 1);
        let entries = self.storage.read(from..end.max(from), max_bytes)?;
        let payload = |entry: Entry| match entry.payload {
            EntryPayload::Normal(payload) => (entry.log_id.index, Some(payload.0)),
            EntryPayload::Blank | EntryPayload::Membership(_) => (entry.log_id.index, None),
        };
        Ok(entries.into_iter().map(payload).collect())
    }

    /// As [`Group::read`], by whoever may wait: what the disk has lost comes from another replica, if one gives it in
    /// time. The future does not hold the group.
    pub fn read_patiently(
        self: &Arc<Self>,
        from: u64,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Vec<(u64, Option<Bytes>)>>> + Send + use<S> {
        let (group, mut wounds) = (Arc::downgrade(self), self.storage.wounds.watch());
        async move {
            let given_up = tokio::time::Instant::now() + GIVEN_WITHIN;
            loop {
                drop(wounds.borrow_and_update());
                let stopped = || Error::Stopped { why: "it was closed".to_owned() };
                let reading = group.upgrade().ok_or_else(stopped)?;
                let is_tended = reading.storage.wounds.are_tended();
                let read = move || {
                    let read = reading.read(from, max_bytes);
                    drop(reading);
                    read
                };
                let read = tokio::task::spawn_blocking(read).await.map_err(|_ended| stopped())?;
                match read {
                    Err(why) if why.damaged_from().is_some() && is_tended => {
                        let changed = tokio::time::timeout_at(given_up, wounds.changed()).await;
                        if !matches!(changed, Ok(Ok(()))) {
                            return Err(why);
                        }
                    }
                    read => return read,
                }
            }
        }
    }

    /// Reads the full segment of the log that has this entry again, or the oldest, past the page cache: how many bytes that
    /// was, how many stretches of it are damaged, and with which entry the next one begins. What is damaged is noted, and
    /// healed as ever. `None`: it is not full yet. It waits for the disk.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub fn check_log(&self, from: u64) -> Result<Option<(u64, usize, u64)>> {
        let Some(checked) = self.storage.log.check(to_log(from))? else { return Ok(None) };
        for first in checked.damaged.iter().filter_map(|records| from_log(*records.start())) {
            self.storage.wounds.note(first);
        }
        // The log's index is the engine's next.
        Ok(Some((checked.bytes, checked.damaged.len(), *checked.records.end())))
    }

    /// Has another segment of the log follow the one that is written, so that all that there is by now can be checked. It waits for
    /// the disk.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub fn seal_log(&self) -> Result<()> {
        Ok(self.storage.log.seal()?)
    }

    /// How many damaged entries of the log were healed by what other replicas have, and how many stretches that are
    /// known to be damaged are not healed.
    #[must_use]
    pub fn healed(&self) -> (u64, u64) {
        let wounds = &self.storage.wounds;
        (wounds.healed(), wounds.watch().borrow().open.len() as u64)
    }

    /// Whether something of the log is damaged that nobody has given in seconds: where this replica leads, another had better.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.storage.wounds.are_lasting()
    }

    /// How many entries its disk had lost when it was opened, of which the others are asked.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.storage.holes.get().map_or(0, Holes::count)
    }

    /// Whether it could not read who votes when it was opened, and can now: it is to be opened again.
    #[must_use]
    pub fn must_open_again(&self) -> bool {
        self.storage.hid_members() && !self.storage.wounds.are_open()
    }

    /// How many damaged stretches are not in the log any more, and were not healed before: let go of, or cut off.
    #[must_use]
    pub fn gone_damaged(&self) -> u64 {
        self.storage.wounds.gone()
    }
}
