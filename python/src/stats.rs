//! What a log did, as a dictionary.

use plimsoll_log::{Distribution, Stats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Counts by name, and distributions.
pub(crate) fn dict_of(py: Python<'_>, stats: Stats) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in [
        ("records", stats.records),
        ("payload_bytes", stats.payload_bytes),
        ("written_bytes", stats.written_bytes),
        ("lag_ns", stats.lag_ns),
        ("ring_bytes", stats.ring_bytes),
        ("segments", stats.segments),
        ("rotations", stats.rotations),
        ("failovers", stats.failovers),
    ] {
        dict.set_item(name, value)?;
    }
    for (name, counted) in [
        ("append_ns", stats.append_ns),
        ("write_ns", stats.write_ns),
        ("sync_ns", stats.sync_ns),
        ("group_records", stats.group_records),
        ("occupancy_bytes", stats.occupancy_bytes),
        ("stall_ns", stats.stall_ns),
    ] {
        let Distribution { n, p50, p99, p999, max } = counted;
        let quantiles = PyDict::new(py);
        for (of, value) in [("n", n), ("p50", p50), ("p99", p99), ("p999", p999), ("max", max)] {
            quantiles.set_item(of, value)?;
        }
        dict.set_item(name, quantiles)?;
    }
    dict.set_item("method", stats.method)?;
    dict.set_item("layout", stats.layout)?;
    Ok(dict)
}
