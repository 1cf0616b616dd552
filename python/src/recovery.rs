//! [`Recovery`]: what opening a log found.

use plimsoll_log as log;
use pyo3::prelude::*;

/// What opening a log found, and did about it.
#[pyclass(frozen, get_all, module = "plimsoll")]
pub(crate) struct Recovery {
    created: bool,
    clean: bool,
    first_index: u64,
    last_index: u64,
    replayed: u64,
    discarded: Vec<String>,
    torn_tail: Option<String>,
    ring_ignored: Option<String>,
    lost: Option<String>,
}

#[pymethods]
impl Recovery {
    fn __repr__(&self) -> String {
        let Self { first_index, last_index, clean, torn_tail, .. } = self;
        let clean = if *clean { "True" } else { "False" };
        let torn = torn_tail.as_ref().map_or(String::new(), |torn| format!(", torn: {torn}"));
        format!("<plimsoll.Recovery: records {first_index} to {last_index}, clean={clean}{torn}>")
    }
}

impl Recovery {
    pub(crate) fn of(found: log::Recovery) -> Self {
        let torn = |torn: log::TornTail| {
            format!("{} at byte offset {}: {}", torn.segment, torn.byte_offset, torn.damage)
        };
        Self {
            created: found.created,
            clean: found.clean,
            first_index: found.first_index,
            last_index: found.last_index,
            replayed: found.replayed,
            discarded: found.discarded,
            torn_tail: found.torn_tail.map(torn),
            ring_ignored: found.ring_ignored,
            lost: found.lost.map(|lost| lost.to_string()),
        }
    }
}
