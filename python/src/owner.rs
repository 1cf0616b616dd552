//! [`Owner`]: the process that opened a log. A fork copies the log's memory, and none of its threads; its
//! files are those of the process that goes on.

use std::process;

use pyo3::prelude::*;

use crate::error::invalid;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn this() -> Self {
        Self(process::id())
    }

    pub(crate) fn is_other(self) -> bool {
        self.0 != process::id()
    }

    /// Raises in a forked child.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_other() {
            let Self(owner) = self;
            let what = format!(
                "process {owner} opened the log, and this is process {}: after a fork only the parent uses it",
                process::id()
            );
            return Err(invalid(py, what));
        }
        Ok(())
    }
}
