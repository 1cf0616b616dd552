//! The log for Python: the module `plimsoll`. What users read is `README.md` and `plimsoll.pyi`.
//!
//! A call that may wait releases the interpreter first; one that may wait for long comes back every
//! [`SLICE`] to look for Ctrl-C.

mod awaiting;
mod crew;
mod error;
mod log;
mod options;
mod owner;
mod records;
mod recovery;
mod stats;
mod view;

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long somebody waits before a signal is seen.
const SLICE: Duration = Duration::from_millis(100);

/// An embeddable commit log whose appenders never wait for a disk they did not ask to wait for.
#[pymodule]
mod plimsoll {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::crew::Crew;
    #[pymodule_export]
    use crate::log::Log;
    #[pymodule_export]
    use crate::options::auto;
    #[pymodule_export]
    use crate::records::Records;
    #[pymodule_export]
    use crate::recovery::Recovery;
    #[pymodule_export]
    use crate::view::View;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::error::add_to(module)
    }
}

/// A wait in slices, with a look for signals after each.
struct Patience {
    /// `None` waits for ever.
    until: Option<Instant>,
}

impl Patience {
    fn of(seconds: Option<f64>) -> PyResult<Self> {
        let timeout = seconds.map(|seconds| error::duration("timeout", seconds)).transpose()?;
        // What no clock can count to is for ever.
        Ok(Self { until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)) })
    }

    fn slice(&self) -> Duration {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(SLICE, |left| left.min(SLICE))
    }

    /// Whether there is time left; raises what a signal handler raised.
    fn goes_on(&self, py: Python<'_>) -> PyResult<bool> {
        py.check_signals()?;
        Ok(self.until.is_none_or(|until| Instant::now() < until))
    }
}
