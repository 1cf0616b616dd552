//! [`Records`]: what a `for` goes through.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_log::{Error, Follower};
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
    follower: Mutex<Option<Follower>>,
    returned: Condvar,
    next_index: AtomicU64,
    wait: Wait,
    owner: Owner,
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
    pub(crate) fn new(follower: Follower, wait: Wait, owner: Owner) -> Self {
        let next_index = AtomicU64::new(follower.next_index());
        let (follower, returned) = (Mutex::new(Some(follower)), Condvar::new());
        Self { follower, returned, next_index, wait, owner }
    }

    fn follower(&self) -> MutexGuard<'_, Option<Follower>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look<'py>(&self, py: Python<'py>, slice: Duration) -> PyResult<Look<'py>> {
        let taken = self.follower().take();
        let Some(follower) = taken else {
            py.detach(|| {
                let wait = |here: &mut Option<Follower>| here.is_none();
                let slice = if slice.is_zero() { SLICE } else { slice };
                drop(self.returned.wait_timeout_while(self.follower(), slice, wait));
            });
            return Ok(Look::Busy);
        };
        let mut turn = Turn { of: self, follower: Some(follower) };
        let follower = turn.follower.as_mut().expect("it was taken");
        match py.detach(move || follower.next_within(slice)) {
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

/// Gives the follower back, however it went.
struct Turn<'a> {
    of: &'a Records,
    follower: Option<Follower>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.of.follower() = self.follower.take();
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
