//! [`Log`]: a log that may be closed while others are in it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use plimsoll_log::{self as log, Ack, Error, Retain};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyTuple};

use crate::Patience;
use crate::awaiting::Messenger;
use crate::error::{duration, invalid, raise};
use crate::options::Keywords;
use crate::owner::Owner;
use crate::records::{Records, Source, Wait};
use crate::recovery::Recovery;
use crate::stats::dict_of;

/// What is copied without letting others run meanwhile: that would cost more than the copy.
const QUICK_BYTES: usize = 64 << 10;
/// No log takes a larger record: half of the largest ring.
const RECORD_BYTES_MAX: usize = 256 << 20;

/// Begins a wait that asks for what it waits for, or one that does not.
type Begin = fn(&log::Log, u64, Ack) -> log::Result<log::Wait>;

/// A commit log in a directory. Any thread may use it.
#[pyclass(frozen, weakref, module = "plimsoll", name = "Log")]
pub(crate) struct Log {
    /// Held for reading by every call that is in it, so that closing waits for them.
    open: RwLock<Option<log::Log>>,
    /// Held while it is closed, so that whoever closes it as well returns when it is done.
    closing: Mutex<()>,
    owner: Owner,
    policy: Ack,
    messenger: Arc<Messenger>,
    #[pyo3(get)]
    path: PathBuf,
    recovery: Py<Recovery>,
}

#[pymethods]
impl Log {
    #[new]
    #[pyo3(signature = (path, *, policy = "interval", max_age = 1.0, max_bytes = 64 << 20,
        segment_bytes = 64 << 20, ring_bytes = 32 << 20, ring_file = None, first_index = 1,
        page_cache = false, accept_loss = false))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn new(
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
    ) -> PyResult<Self> {
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
        Self::open(py, path, options, Arc::default(), |path, options| log::Log::open(path, options))
    }

    #[getter]
    fn recovery(&self, py: Python<'_>) -> Py<Recovery> {
        self.recovery.clone_ref(py)
    }

    #[pyo3(signature = (record, ack = None))]
    fn append(
        &self,
        py: Python<'_>,
        record: &Bound<'_, PyAny>,
        ack: Option<&str>,
    ) -> PyResult<u64> {
        let (record, ack) = (payload(record)?, self.ack(py, ack)?);
        if ack == Ack::Buffered && record.len() <= QUICK_BYTES {
            self.owner.check(py)?;
            match self.inside(|log| log.try_append(&record)) {
                Ok(index) => return Ok(index),
                // It waits for room then, and others run meanwhile.
                Err(Error::WouldBlock { .. }) => {}
                Err(error) => return Err(raise(py, &error)),
            }
        }
        self.with(py, |log| log.append_with(&record, ack))
    }

    fn try_append(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<u64> {
        let record = payload(record)?;
        self.with(py, |log| log.try_append(&record))
    }

    #[pyo3(signature = (records, ack = None))]
    fn append_batch(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        ack: Option<&str>,
    ) -> PyResult<(u64, u64)> {
        let ack = self.ack(py, ack)?;
        let records = records.try_iter()?.map(|record| payload(&record?));
        let records = records.collect::<PyResult<Vec<_>>>()?;
        let indexes = self.with(py, |log| log.append_batch_with(&records, ack))?;
        Ok(indexes.into_inner())
    }

    #[pyo3(signature = (pieces, ack = None))]
    fn append_pieces(
        &self,
        py: Python<'_>,
        pieces: &Bound<'_, PyAny>,
        ack: Option<&str>,
    ) -> PyResult<u64> {
        let ack = self.ack(py, ack)?;
        let pieces = pieces.try_iter()?.map(|piece| payload(&piece?));
        let pieces = pieces.collect::<PyResult<Vec<_>>>()?;
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        self.with(py, |log| log.append_pieces(&pieces, ack))
    }

    #[pyo3(signature = (index, level = "durable", timeout = None))]
    fn wait(&self, py: Python<'_>, index: u64, level: &str, timeout: Option<f64>) -> PyResult<()> {
        self.block(py, index, level, timeout, log::Log::wait)
    }

    #[pyo3(signature = (index, level = "durable", timeout = None))]
    fn watch(&self, py: Python<'_>, index: u64, level: &str, timeout: Option<f64>) -> PyResult<()> {
        self.block(py, index, level, timeout, log::Log::watch)
    }

    #[pyo3(signature = (index, level = "durable"))]
    fn wait_async<'py>(
        &self,
        py: Python<'py>,
        index: u64,
        level: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.future(py, index, level, log::Log::wait)
    }

    #[pyo3(signature = (index, level = "durable"))]
    fn watch_async<'py>(
        &self,
        py: Python<'py>,
        index: u64,
        level: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.future(py, index, level, log::Log::watch)
    }

    fn health(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, log::Log::health)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, log::Log::sync)
    }

    #[getter]
    fn first_index(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.first_index()))
    }

    #[getter]
    fn last_index(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.last_index()))
    }

    #[getter]
    fn written(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.written()))
    }

    #[getter]
    fn durable(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.durable()))
    }

    #[getter]
    fn max_record_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.max_record_bytes()))
    }

    #[pyo3(signature = (start = None, level = "written"))]
    fn read(&self, py: Python<'_>, start: Option<u64>, level: &str) -> PyResult<Records> {
        self.records(py, start, level, Wait::No)
    }

    fn read_piece<'py>(
        &self,
        py: Python<'py>,
        index: u64,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let piece = self.with(py, |log| {
            // Untouched it takes no memory.
            let mut piece = vec![0; length.min(RECORD_BYTES_MAX)];
            let read = log.read_piece(index, offset, &mut piece)?;
            piece.truncate(read);
            Ok(piece)
        })?;
        Ok(PyBytes::new(py, &piece))
    }

    #[pyo3(signature = (start = None, timeout = None, level = "written"))]
    fn follow(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        timeout: Option<f64>,
        level: &str,
    ) -> PyResult<Records> {
        self.records(py, start, level, Wait::For(timeout))
    }

    fn truncate_before(&self, py: Python<'_>, index: u64) -> PyResult<u64> {
        self.with(py, |log| log.truncate_before(Retain::From(index)))
    }

    fn retain_bytes(&self, py: Python<'_>, bytes: u64) -> PyResult<u64> {
        self.with(py, |log| log.truncate_before(Retain::Bytes(bytes)))
    }

    fn retain_age(&self, py: Python<'_>, seconds: f64) -> PyResult<u64> {
        let age = duration("seconds", seconds)?;
        self.with(py, |log| log.truncate_before(Retain::Age(age)))
    }

    fn truncate_after(&self, py: Python<'_>, last_index: u64) -> PyResult<()> {
        self.with(py, |log| log.truncate_after(last_index))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict_of(py, self.with(py, |log| Ok(log.stats()))?)
    }

    /// Calls that are in it end first. It is no error to close twice.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.owner.check(py)?;
        let close = || {
            let _closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
            open.map_or(Ok(()), log::Log::close)
        };
        py.detach(close).map_err(|error| raise(py, &error))
    }

    #[getter]
    fn closed(&self) -> bool {
        matches!(self.inside(|_| Ok(())), Err(Error::Closed))
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
        // A forked child that ends with `sys.exit` is not told about the log instead.
        if self.owner.is_other() && !kind.is_none() {
            return Ok(());
        }
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = self.path.display();
        match self.with(py, |log| Ok((log.first_index(), log.last_index()))) {
            Ok((first, last)) => format!("<plimsoll.Log {path}: records {first} to {last}>"),
            Err(_) => format!("<plimsoll.Log {path}: closed>"),
        }
    }
}

impl Log {
    /// Opens a log by itself, or with a crew; its messenger may be others' as well.
    pub(crate) fn open(
        py: Python<'_>,
        path: PathBuf,
        options: log::Options,
        messenger: Arc<Messenger>,
        open: impl FnOnce(&Path, log::Options) -> log::Result<(log::Log, log::Recovery)> + Send,
    ) -> PyResult<Self> {
        let policy = options.policy.ack();
        let opened = py.detach(|| open(&path, options));
        let (opened, found) = opened.map_err(|error| raise(py, &error))?;
        let recovery = Py::new(py, Recovery::of(found))?;
        let (open, closing, owner) = (RwLock::new(Some(opened)), Mutex::new(()), Owner::this());
        Ok(Self { open, closing, owner, policy, messenger, path, recovery })
    }

    /// Does something with the log, while others run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&log::Log) -> log::Result<T> + Send,
    ) -> PyResult<T> {
        self.owner.check(py)?;
        py.detach(|| self.inside(act)).map_err(|error| raise(py, &error))
    }

    /// Does something with the log, unless it is closed or is about to be: nobody waits behind that.
    fn inside<T>(&self, act: impl FnOnce(&log::Log) -> log::Result<T>) -> log::Result<T> {
        let open = match self.open.try_read() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Only closing takes it for writing.
            Err(TryLockError::WouldBlock) => return Err(Error::Closed),
        };
        open.as_ref().ok_or(Error::Closed).and_then(act)
    }

    /// Waits in slices. It does not hold the log open: closing makes durable what is waited for.
    fn block(
        &self,
        py: Python<'_>,
        index: u64,
        level: &str,
        timeout: Option<f64>,
        begin: Begin,
    ) -> PyResult<()> {
        let (patience, level) = (Patience::of(timeout)?, self.awaited(py, level)?);
        let wait = self.with(py, |log| begin(log, index, level))?;
        loop {
            let slice = patience.slice();
            // The time of a slice is not the caller's.
            match py.detach(|| wait.block_for(slice)) {
                Err(late @ Error::TimedOut { .. }) if !patience.goes_on(py)? => {
                    return Err(raise(py, &late));
                }
                Err(Error::TimedOut { .. }) => {}
                done => return done.map_err(|error| raise(py, &error)),
            }
        }
    }

    fn future<'py>(
        &self,
        py: Python<'py>,
        index: u64,
        level: &str,
        begin: Begin,
    ) -> PyResult<Bound<'py, PyAny>> {
        let level = self.awaited(py, level)?;
        let wait = self.with(py, |log| begin(log, index, level))?;
        self.messenger.tell(py, wait)
    }

    fn records(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        level: &str,
        wait: Wait,
    ) -> PyResult<Records> {
        let level = self.ack(py, Some(level))?;
        if let Wait::For(timeout) = wait {
            // What is wrong with it is said now, not at the first record.
            Patience::of(timeout)?;
        }
        let open = |log: &log::Log| log.follow(start.unwrap_or_else(|| log.first_index()), level);
        Ok(Records::new(Source::Log(self.with(py, open)?), wait, self.owner))
    }

    /// How far a record is to be when somebody has waited for it: an append returns with less.
    fn awaited(&self, py: Python<'_>, level: &str) -> PyResult<Ack> {
        match self.ack(py, Some(level))? {
            Ack::Buffered => {
                let what = "a wait is for 'written' or 'durable': an append returns with less";
                Err(invalid(py, what.to_owned()))
            }
            level => Ok(level),
        }
    }

    fn ack(&self, py: Python<'_>, ack: Option<&str>) -> PyResult<Ack> {
        match ack {
            None => Ok(self.policy),
            Some("buffered") => Ok(Ack::Buffered),
            Some("written") => Ok(Ack::Written),
            Some("durable") => Ok(Ack::Durable),
            Some(other) => {
                let what = format!("{other:?} is not 'buffered', 'written' or 'durable'");
                Err(invalid(py, what))
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.owner.is_other() {
            // To end it is its parent's.
            std::mem::forget(open);
        } else if open.is_some() {
            // What is buffered is written, and threads end; others run meanwhile.
            Python::attach(|py| py.detach(|| drop(open)));
        }
    }
}

/// The bytes of anything that has them. What may change under us is copied.
fn payload(record: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = record.cast::<PyBytes>() {
        return Ok(bytes.clone().into());
    }
    let copy = PyMemoryView::from(record)?.call_method0("tobytes")?;
    Ok(copy.cast_into::<PyBytes>()?.into())
}
