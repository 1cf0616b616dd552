//! Exceptions: a class for each thing that the caller can do about it, with the codes of `plimsoll.h`.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::Error;
use plimsoll_sync::Error as DiskError;
use pyo3::exceptions::{PyException, PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

/// Which built-in exception it is as well.
#[derive(Clone, Copy)]
enum Also {
    Nothing,
    Value,
    Timeout,
    Os,
}

/// A class: its name, its code, what it is as well, what it says.
type Kind = (&'static str, i32, Also, &'static str);

const OTHER: i32 = 17;
const CLOSED: i32 = 8;
const INVALID: i32 = 13;

const KINDS: [Kind; 14] = [
    ("WouldBlock", 2, Also::Nothing, "The ring is full. Nothing was accepted; try later."),
    ("TimedOut", 3, Also::Timeout, "It did not happen in time. It still may."),
    ("OutOfRange", 4, Also::Nothing, "No such record: not yet appended, or gone."),
    ("Truncated", 5, Also::Nothing, "The record was cut off while somebody waited for it."),
    ("TooLarge", 6, Also::Value, "More than half of the ring at once. Nothing was accepted."),
    ("OutOfSpace", 7, Also::Nothing, "No room for another segment. Nothing was accepted."),
    ("Closed", CLOSED, Also::Value, "The log, or the crew, was closed."),
    ("Locked", 9, Also::Nothing, "Somebody else has the log: .holder says which process."),
    ("Disk", 10, Also::Os, "The disk, or the system, refused. The log goes on."),
    ("Stopped", 11, Also::Nothing, "The disk failed; records after .index may be lost."),
    ("Corrupt", 12, Also::Nothing, "Durable bytes have changed, or are gone."),
    ("Invalid", INVALID, Also::Value, "An argument or an option that cannot be."),
    ("Exhausted", 14, Also::Nothing, "There are no more indexes."),
    (
        "Version",
        18,
        Also::Nothing,
        "Another version of Plimsoll wrote this log. Nothing was changed.",
    ),
];

static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

/// A class with class attributes that say what its instances are, unless they know more.
fn class<'py>(
    py: Python<'py>,
    name: &str,
    bases: &[Bound<'py, PyType>],
    doc: &str,
    code: i32,
) -> PyResult<Bound<'py, PyType>> {
    let fields = PyDict::new(py);
    fields.set_item("__module__", "plimsoll")?;
    fields.set_item("__doc__", doc)?;
    fields.set_item("code", code)?;
    Ok(py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, fields))?.cast_into()?)
}

fn base(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    let made = BASE.get_or_try_init(py, || {
        let doc = "What a log raises. `code` is its number in plimsoll.h, `index` the record that it is \
            about, or None, `holder` the process that has a locked log, or None.";
        let base = class(py, "Error", &[py.get_type::<PyException>()], doc, OTHER)?;
        base.setattr("index", py.None())?;
        base.setattr("holder", py.None())?;
        PyResult::Ok(base.unbind())
    })?;
    Ok(made.bind(py))
}

fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    CLASSES.get_or_try_init(py, || {
        let make = |(name, code, also, doc): Kind| {
            let also = match also {
                Also::Nothing => None,
                Also::Value => Some(py.get_type::<PyValueError>()),
                Also::Timeout => Some(py.get_type::<PyTimeoutError>()),
                Also::Os => Some(py.get_type::<PyOSError>()),
            };
            let bases: Vec<_> = [base(py)?.clone()].into_iter().chain(also).collect();
            Ok(class(py, name, &bases, doc, code)?.unbind())
        };
        KINDS.into_iter().map(make).collect()
    })
}

/// Puts all of them into the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", base(py)?)?;
    for ((name, ..), class) in KINDS.into_iter().zip(classes(py)?) {
        module.add(name, class)?;
    }
    Ok(())
}

/// The exception for an error.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let mut text = error.to_string();
    let mut os_error = None;
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        let shared = cause.downcast_ref::<Arc<io::Error>>().map(|shared| &**shared);
        let said = cause.downcast_ref::<io::Error>().or(shared);
        os_error = os_error.or(said.and_then(io::Error::raw_os_error));
        source = cause.source();
    }
    let code = code(error);
    let exception = || -> PyResult<PyErr> {
        let class = class_of(py, code)?;
        let is_os = class.is_subclass_of::<PyOSError>()?;
        let value = match os_error.filter(|_| is_os) {
            Some(number) => class.call1((number, text))?,
            None => class.call1((text,))?,
        };
        if let Some(index) = index(error) {
            value.setattr("index", index)?;
        }
        if let Error::Disk(DiskError::Locked { holder, .. }) = error {
            value.setattr("holder", *holder)?;
        }
        Ok(PyErr::from_value(value))
    };
    exception().unwrap_or_else(|failed| failed)
}

/// The class of a code.
fn class_of(py: Python<'_>, code: i32) -> PyResult<Bound<'_, PyType>> {
    let found = KINDS.into_iter().zip(classes(py)?).find(|((_, number, ..), _)| *number == code);
    Ok(found.map_or(base(py)?, |(_, class)| class.bind(py)).clone())
}

/// What was closed is used.
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    let exception = || PyResult::Ok(PyErr::from_value(class_of(py, CLOSED)?.call1((what,))?));
    exception().unwrap_or_else(|failed| failed)
}

/// An argument that cannot be.
pub(crate) fn invalid(py: Python<'_>, what: String) -> PyErr {
    raise(py, &Error::Options(what))
}

/// Longer than anything runs, and every clock can count to it: what infinity is.
const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// So many seconds, also infinitely many.
pub(crate) fn duration(what: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(Python::attach(|py| invalid(py, format!("{what} is {seconds}"))));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(AGES).min(AGES))
}

const fn code(error: &Error) -> i32 {
    match error {
        Error::WouldBlock { .. } => 2,
        Error::TimedOut { .. } => 3,
        Error::OutOfRange { .. } => 4,
        Error::Truncated { .. } => 5,
        Error::TooLarge { .. } => 6,
        Error::OutOfSpace { .. } => 7,
        Error::Closed => CLOSED,
        Error::Disk(DiskError::Locked { .. }) => 9,
        Error::Disk(_) => 10,
        Error::Stopped { .. } => 11,
        Error::Corrupt(_) => 12,
        Error::Options(_) | Error::Forked => INVALID,
        Error::Exhausted { .. } => 14,
        Error::Version { .. } => 18,
        _ => OTHER,
    }
}

const fn index(error: &Error) -> Option<u64> {
    match error {
        Error::Stopped { durable, .. } => Some(*durable),
        Error::OutOfSpace { last_index } | Error::Exhausted { last_index } => Some(*last_index),
        Error::TimedOut { index, .. }
        | Error::OutOfRange { index, .. }
        | Error::Truncated { index } => Some(*index),
        Error::Corrupt(corruption) => Some(*corruption.records.start()),
        _ => None,
    }
}
