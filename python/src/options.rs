//! [`Keywords`]: how a log is opened, as Python says it; [`auto`]: how often it is best synced.

use std::path::PathBuf;

use plimsoll_log::{Options, Policy, Ring};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{duration, invalid, raise};

/// What `Log` and `Crew.open` are told by keywords.
pub(crate) struct Keywords<'a> {
    pub(crate) policy: &'a str,
    pub(crate) max_age: f64,
    pub(crate) max_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) ring_file: Option<PathBuf>,
    pub(crate) first_index: u64,
    pub(crate) page_cache: bool,
    pub(crate) accept_loss: bool,
}

impl Keywords<'_> {
    /// As the log takes them; its own check comes when it is opened.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<Options> {
        let policy = match self.policy {
            "interval" => {
                let max_age = duration("max_age", self.max_age)?;
                Policy::Interval { max_age, max_bytes: self.max_bytes }
            }
            "always" => Policy::Always,
            "never" => Policy::Never,
            other => {
                let what = format!("policy is {other:?}; it is 'interval', 'always' or 'never'");
                return Err(invalid(py, what));
            }
        };
        Ok(Options {
            policy,
            segment_bytes: self.segment_bytes,
            ring_bytes: self.ring_bytes,
            ring: self.ring_file.map_or(Ring::Memory, Ring::File),
            direct: !self.page_cache,
            first_index: self.first_index,
            accept_loss: self.accept_loss,
            ..Options::default()
        })
    }
}

/// Keywords for a policy that suits the disk which a durability profile is about.
#[pyfunction]
pub(crate) fn auto<'py>(py: Python<'py>, profile: &str) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    match Policy::auto(profile).map_err(|error| raise(py, &error))? {
        Policy::Interval { max_age, max_bytes } => {
            keywords.set_item("policy", "interval")?;
            keywords.set_item("max_age", max_age.as_secs_f64())?;
            keywords.set_item("max_bytes", max_bytes)?;
        }
        Policy::Always => keywords.set_item("policy", "always")?,
        Policy::Never => keywords.set_item("policy", "never")?,
    }
    Ok(keywords)
}
