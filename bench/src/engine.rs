//! What every engine must do here: append at a level, sync, be read back, close.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use plimsoll_log::Log;

use crate::task::Level;

/// How an engine is opened.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) dir: PathBuf,
    pub(crate) level: Level,
    pub(crate) appenders: usize,
    /// The log is to be read, and must not be emptied or recycled: a log of a gibibyte.
    pub(crate) keep: bool,
}

/// A log of somebody's, open.
pub(crate) trait Engine: Send + Sync {
    /// Appends a record; on return it is as far as the level that the engine was opened at.
    /// `appender` numbers the thread.
    fn append(&self, appender: usize, record: &[u8]) -> Result<()>;

    /// The log, where its appenders are tasks and not threads.
    fn tasks(&self) -> Option<&Arc<Log>> {
        None
    }

    /// Makes everything durable that was appended before.
    fn sync(&self) -> Result<()>;

    /// Whether it syncs each second by itself at [`Level::Interval`]; otherwise a thread calls
    /// [`Engine::sync`] for it.
    fn syncs_itself(&self) -> bool {
        false
    }

    /// Reads every record, and returns how many and their bytes.
    fn read(&self) -> Result<(u64, u64)>;

    /// How it syncs, where it knows.
    fn says(&self) -> Option<String> {
        None
    }

    /// Memory of another process that works for it.
    fn others_peak_kib(&self) -> u64 {
        0
    }

    /// Ends, with everything durable.
    fn close(self: Box<Self>) -> Result<()>;

    /// The trial is over and its log will be removed: nothing need be durable, and the process ends.
    fn abandon(self: Box<Self>);
}
