//! [`Records`]: what a `for` goes through.

use std::sync::Mutex;
use std::time::Duration;

use plimsoll_log::{Error, Follower};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::Patience;
use crate::error::raise;

/// Records in order, as (index, bytes). Ends where no record is there in time, and may be asked again;
/// `next_index` is the one that comes next.
#[pyclass(frozen, module = "plimsoll")]
pub(crate) struct Records {
    follower: Mutex<Follower>,
    wait: Wait,
}

/// What it does at the end of the log.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    No,
    /// So many seconds, or for ever.
    For(Option<f64>),
}

impl Records {
    pub(crate) fn new(follower: Follower, wait: Wait) -> Self {
        Self { follower: Mutex::new(follower), wait }
    }
}

#[pymethods]
impl Records {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        let mut guard = self.follower.lock_py_attached(py).expect("nothing panics with it");
        let patience = match self.wait {
            Wait::No => None,
            Wait::For(seconds) => Some(Patience::of(seconds)?),
        };
        loop {
            let slice = patience.as_ref().map_or(Duration::ZERO, Patience::slice);
            let follower = &mut *guard;
            match py.detach(move || follower.next_within(slice)) {
                Ok(Some(record)) => {
                    return Ok(Some((record.index, PyBytes::new(py, record.payload))));
                }
                Ok(None) => {}
                // No more will come: that is how a loop ends.
                Err(Error::Closed) => return Ok(None),
                Err(error) => return Err(raise(py, &error)),
            }
            match &patience {
                Some(patience) if patience.goes_on(py)? => {}
                _ => return Ok(None),
            }
        }
    }

    /// Index of the record that comes next.
    #[getter]
    fn next_index(&self, py: Python<'_>) -> u64 {
        self.follower.lock_py_attached(py).expect("nothing panics with it").next_index()
    }
}
