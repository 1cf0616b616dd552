//! [`Records`]: what a `for` goes through.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_log::{self as log, Error, Follower, Reader, Record};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;
use crate::owner::Owner;
use crate::{Patience, SLICE};

/// Records in order, as (index, bytes). Ends where no record is there in time, and may be asked again;
/// `next_index` is the one that comes next.
#[pyclass(frozen, module = "plimsoll")]
pub(crate) struct Records {
    /// Not here while a thread looks for a record. No thread has it while Python code may run: a signal
    /// handler may ask for the next record as well.
    source: Mutex<Option<Source>>,
    returned: Condvar,
    next_index: AtomicU64,
    wait: Wait,
    owner: Owner,
}

/// Where they are.
pub(crate) enum Source {
    /// A log that is open here.
    Log(Follower),
    /// Files, which somebody else may be writing.
    Files(Reader),
}

impl Source {
    fn next_index(&self) -> u64 {
        match self {
            Self::Log(follower) => follower.next_index(),
            Self::Files(reader) => reader.next_index(),
        }
    }

    /// Nobody tells of what comes into files.
    fn next_within(&mut self, timeout: Duration) -> log::Result<Option<Record<'_>>> {
        match self {
            Self::Log(follower) => follower.next_within(timeout),
            Self::Files(reader) => reader.next_record(),
        }
    }
}

/// What one look at the log gave.
enum Look<'py> {
    Record(u64, Bound<'py, PyBytes>),
    NotYet,
    /// No more will come.
    End,
    /// Another thread is at it.
    Busy,
}

/// What it does at the end of the log.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    No,
    /// So many seconds, or for ever.
    For(Option<f64>),
}

impl Records {
    pub(crate) fn new(source: Source, wait: Wait, owner: Owner) -> Self {
        let next_index = AtomicU64::new(source.next_index());
        let (source, returned) = (Mutex::new(Some(source)), Condvar::new());
        Self { source, returned, next_index, wait, owner }
    }

    fn source(&self) -> MutexGuard<'_, Option<Source>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<'py>(&self, py: Python<'py>, slice: Duration) -> PyResult<Look<'py>> {
        let taken = self.source().take();
        let Some(source) = taken else {
            py.detach(|| {
                let wait = |here: &mut Option<Source>| here.is_none();
                let slice = if slice.is_zero() { SLICE } else { slice };
                drop(self.returned.wait_timeout_while(self.source(), slice, wait));
            });
            return Ok(Look::Busy);
        };
        let mut turn = Turn { of: self, source: Some(source) };
        let source = turn.source.as_mut().expect("it was taken");
        match py.detach(move || source.next_within(slice)) {
            Ok(Some(record)) => {
                self.next_index.store(record.index.saturating_add(1), SeqCst);
                Ok(Look::Record(record.index, PyBytes::new(py, record.payload)))
            }
            Ok(None) => Ok(Look::NotYet),
            Err(Error::Closed) => Ok(Look::End),
            Err(error) => {
                drop(turn);
                Err(raise(py, &error))
            }
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if self.owner.is_other() {
            // A thread that is not here may have held its locks.
            std::mem::forget(self.source.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Gives the source back, however it went.
struct Turn<'a> {
    of: &'a Records,
    source: Option<Source>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.of.source() = self.source.take();
        self.of.returned.notify_one();
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        self.owner.check(py)?;
        let patience = match self.wait {
            Wait::No => None,
            Wait::For(seconds) => Some(Patience::of(seconds)?),
        };
        loop {
            let slice = patience.as_ref().map_or(Duration::ZERO, Patience::slice);
            match self.look(py, slice)? {
                Look::Record(index, record) => return Ok(Some((index, record))),
                Look::End => return Ok(None),
                Look::NotYet if patience.is_none() => return Ok(None),
                Look::NotYet | Look::Busy => {}
            }
            match &patience {
                Some(patience) if !patience.goes_on(py)? => return Ok(None),
                Some(_) => {}
                None => py.check_signals()?,
            }
        }
    }

    /// Index of the record that comes next.
    #[getter]
    fn next_index(&self) -> u64 {
        self.next_index.load(SeqCst)
    }
}
