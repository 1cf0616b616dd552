//! [`Crew`]: threads, memory and disk that many logs share.
//!
//! A log by itself has four threads, which look for records by themselves, and takes the room that a busy
//! log needs before it is busy. For dozens of logs in a process, or a thousand that are mostly idle, a
//! crew has few threads for all of them, which sleep unless a log has something to do:
//!
//! * [`pool`]: the threads; [`task`]: a step of a log that waits for one. Buffered records wake nobody at once: under
//!   [`crate::Policy::Interval`] a log's records go to the kernel with the sync that is due for them, in
//!   one call, so that a record a second costs a few wake-ups a hundred logs.
//! * [`budget`]: bytes of records that may be in all rings together. What an idle log has in memory goes
//!   back to the system.
//! * Segments begin small, and each is four times as large as the one before; none is made ready before it
//!   is time. How a filesystem syncs best is found out once.
//!
//! Its words: a *task* is a *duty* of a log; woken it is *ready*, nudged it waits for the end of a *nap*, or for
//! its *timer*. Among the threads of the *pool* one is *keeper* of the time, one its *deputy*. A log draws a
//! *grant* on the *budget*, of which it is a *holder*.

pub(crate) mod budget;
pub(crate) mod pool;
pub(crate) mod shared;
pub(crate) mod task;

use std::path::Path;
use std::sync::Arc;

use plimsoll_sync::{Dir, OsDir};

use self::budget::Budget;
use self::pool::Pool;
use self::shared::Shared;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::open::mend::Recovery;
use crate::options::Options;

/// More threads serve no more disks, and a system has no room for any number of them.
const THREADS_MAX: usize = 1024;

/// What the logs of a crew share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrewOptions {
    /// Threads for all logs, at most 1,024: 4 unless set. One that waits for a disk serves no other log meanwhile.
    pub threads: usize,
    /// Bytes of records that may be accepted and not yet durable, in all logs together: 256 MiB unless
    /// set. Who finds them used up waits, as with a ring that is full. A log has 64 KiB at least.
    pub ring_bytes: u64,
}

/// Threads, memory and disk that many logs share.
///
/// ```
/// use plimsoll_log::{Ack, Crew, CrewOptions, Options};
/// # let tmp = tempfile::tempdir()?;
/// let crew = Crew::start(CrewOptions::default())?;
/// let mut logs = Vec::new();
/// for tenant in 0..100 {
///     let path = tmp.path().join(format!("tenant-{tenant}"));
///     logs.push(crew.open(path, Options::default())?.0);
/// }
/// logs[42].append_with(b"durable, and only this log was synced", Ack::Durable)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its threads end when it and the last of its logs are gone.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
}

impl Crew {
    /// Starts its threads.
    ///
    /// # Errors
    /// [`Error::Options`], or a thread cannot be started.
    pub fn start(options: CrewOptions) -> Result<Self> {
        let CrewOptions { threads, ring_bytes } = options;
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(Error::Options(format!(
                "a crew of {threads} threads; it must have 1 to {THREADS_MAX}"
            )));
        }
        let pool = Pool::start(threads)?;
        Ok(Self { shared: Arc::new(Shared::new(pool, Budget::new(ring_bytes))) })
    }

    /// Opens a log, which shares what the crew has: as [`Log::open`], with the options of that log. Its
    /// largest record is not larger than the crew's ring bytes.
    ///
    /// # Errors
    /// As [`Log::open`]. [`Error::Forked`] after a fork(3): the crew's threads are not here.
    pub fn open(&self, path: impl AsRef<Path>, options: Options) -> Result<(Log, Recovery)> {
        self.open_in(Arc::new(OsDir::create_all(path.as_ref())?), options)
    }

    /// Opens a log in this directory.
    ///
    /// # Errors
    /// As [`Crew::open`].
    #[expect(clippy::needless_pass_by_value, reason = "as std does with options that are built")]
    pub fn open_in(&self, dir: Arc<dyn Dir>, options: Options) -> Result<(Log, Recovery)> {
        if !self.shared.pool.is_ours() {
            return Err(Error::Forked);
        }
        Log::open_with(dir, &options, Some(Arc::clone(&self.shared)))
    }
}

impl Default for CrewOptions {
    fn default() -> Self {
        Self { threads: 4, ring_bytes: 256 << 20 }
    }
}
