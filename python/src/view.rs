//! [`View`]: a log's files, which somebody else may be writing.

use std::path::PathBuf;

use plimsoll_log as log;
use pyo3::prelude::*;

use crate::error::raise;
use crate::owner::Owner;
use crate::records::{Records, Source, Wait};

/// A log's files, read while it may be open elsewhere.
#[pyclass(frozen, module = "plimsoll")]
pub(crate) struct View {
    view: log::View,
    owner: Owner,
    #[pyo3(get)]
    path: PathBuf,
}

#[pymethods]
impl View {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let view = py.detach(|| log::View::open(&path)).map_err(|error| raise(py, &error))?;
        Ok(Self { view, owner: Owner::this(), path })
    }

    #[getter]
    fn is_log(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |view| Ok(view.is_log()))
    }

    #[getter]
    fn first_index(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |view| Ok(view.first_index()))
    }

    #[getter]
    fn generation(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |view| Ok(view.generation()))
    }

    #[pyo3(signature = (start = None))]
    fn read(&self, py: Python<'_>, start: Option<u64>) -> PyResult<Records> {
        let open = |view: &log::View| view.read_from(start.unwrap_or_else(|| view.first_index()));
        Ok(Records::new(Source::Files(self.with(py, open)?), Wait::No, self.owner))
    }
}

impl View {
    /// Looks at the files, while others run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&log::View) -> log::Result<T> + Send,
    ) -> PyResult<T> {
        self.owner.check(py)?;
        py.detach(|| look(&self.view)).map_err(|error| raise(py, &error))
    }
}
