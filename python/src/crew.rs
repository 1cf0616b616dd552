//! [`Crew`]: threads and ring memory that many logs share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_log::{self as log, CrewOptions};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::awaiting::Messenger;
use crate::error::{closed, raise};
use crate::log::Log;
use crate::options::Keywords;
use crate::owner::Owner;

/// Threads and ring memory that many logs share. Any thread may open logs with it.
#[pyclass(frozen, weakref, module = "plimsoll")]
pub(crate) struct Crew {
    /// Until it is closed. Its logs share what it has for longer.
    open: Mutex<Option<Arc<log::Crew>>>,
    messenger: Arc<Messenger>,
    owner: Owner,
}

#[pymethods]
impl Crew {
    #[new]
    #[pyo3(signature = (*, threads = 4, ring_bytes = 256 << 20))]
    fn new(py: Python<'_>, threads: usize, ring_bytes: u64) -> PyResult<Self> {
        let start = || log::Crew::start(CrewOptions { threads, ring_bytes });
        let started = py.detach(start).map_err(|error| raise(py, &error))?;
        let open = Mutex::new(Some(Arc::new(started)));
        Ok(Self { open, messenger: Arc::default(), owner: Owner::this() })
    }

    #[pyo3(signature = (path, *, policy = "interval", max_age = 1.0, max_bytes = 64 << 20,
        segment_bytes = 64 << 20, ring_bytes = 32 << 20, ring_file = None, first_index = 1,
        page_cache = false, accept_loss = false))]
    #[expect(clippy::too_many_arguments, reason = "keywords, those of `Log`")]
    fn open(
        &self,
        py: Python<'_>,
        path: PathBuf,
        policy: &str,
        max_age: f64,
        max_bytes: u64,
        segment_bytes: u64,
        ring_bytes: u64,
        ring_file: Option<PathBuf>,
        first_index: u64,
        page_cache: bool,
        accept_loss: bool,
    ) -> PyResult<Log> {
        self.owner.check(py)?;
        let keywords = Keywords {
            policy,
            max_age,
            max_bytes,
            segment_bytes,
            ring_bytes,
            ring_file,
            first_index,
            page_cache,
            accept_loss,
        };
        let options = keywords.check(py)?;
        let crew = self.inside().clone();
        let crew = crew.ok_or_else(|| closed(py, "the crew is closed"))?;
        let messenger = Arc::clone(&self.messenger);
        Log::open(py, path, options, messenger, move |path, options| crew.open(path, options))
    }

    /// Logs that are being opened meanwhile are.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check(py)?;
        let crew = self.inside().take();
        py.detach(|| drop(crew));
        Ok(())
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inside().is_none()
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (kind, *_exception))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        // A forked child that ends with `sys.exit` is not told about the crew instead.
        if self.owner.is_other() && !kind.is_none() {
            return Ok(());
        }
        self.close(py)
    }
}

impl Crew {
    /// Held for a moment only, in which no Python code runs: it may be another call of the same thread.
    fn inside(&self) -> MutexGuard<'_, Option<Arc<log::Crew>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let crew = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.owner.is_other() {
            // To end it is its parent's.
            std::mem::forget(crew);
        } else if crew.is_some() {
            // Its threads end, if no log has them; others run meanwhile.
            Python::attach(|py| py.detach(|| drop(crew)));
        }
    }
}
