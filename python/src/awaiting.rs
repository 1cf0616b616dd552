//! [`Messenger`]: what a task of asyncio awaits.
//!
//! The log calls back from a thread that others wait for, and that some join with the interpreter in
//! their hands: it must not wait for the interpreter. So it only sends a message, and a thread of ours,
//! which the log does not know, takes it to the event loop.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_log::{Result, Wait};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::error::raise;

/// Takes what has come to those who await it, for a log, or for all of a crew. Its thread starts with the
/// first of them, and ends when the logs, and the object of a crew, are gone and everybody has been told.
#[derive(Default)]
pub(crate) struct Messenger {
    letters: Mutex<Option<Sender<Letter>>>,
}

/// To whom, and how it went.
struct Letter {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
    how: Result<()>,
}

impl Messenger {
    /// A future of the running event loop, which is done when the wait is over.
    pub(crate) fn tell<'py>(&self, py: Python<'py>, wait: Wait) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = event_loop.call_method0("create_future")?;
        let letters = self.letters(py)?;
        let (to, promised) = (event_loop.unbind(), future.clone().unbind());
        // It may be called here and now.
        py.detach(|| {
            wait.then(move |how| {
                let letter = Letter { event_loop: to, future: promised, how };
                // Without a thread the interpreter has ended, and nobody waits.
                letters.send(letter).ok();
            });
        });
        Ok(future)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sender<Letter>>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn letters(&self, py: Python<'_>) -> PyResult<Sender<Letter>> {
        if let Some(letters) = &*self.lock() {
            return Ok(letters.clone());
        }
        // Before the lock is taken: Python code may run meanwhile, and other threads that come here.
        let settle = wrap_pyfunction!(settle, py)?.unbind();
        let mut letters = self.lock();
        if let Some(letters) = &*letters {
            return Ok(letters.clone());
        }
        let (sender, receiver) = channel();
        let named = thread::Builder::new().name("plimsoll-await".to_owned());
        named.spawn(move || deliver(&receiver, settle))?;
        *letters = Some(sender.clone());
        Ok(sender)
    }
}

fn deliver(letters: &Receiver<Letter>, settle: Py<PyCFunction>) {
    while let Ok(Letter { event_loop, future, how }) = letters.recv() {
        let delivered = Python::try_attach(|py| {
            let error = how.err().map(|error| raise(py, &error).into_value(py));
            let arguments = (&settle, future, error);
            // A loop that was closed has nobody who waits.
            drop(event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), arguments));
            drop(event_loop);
        });
        if delivered.is_none() {
            // The interpreter ends.
            std::mem::forget(settle);
            return;
        }
    }
    Python::try_attach(|_| drop(settle));
}

/// Called in the event loop: the future may have been cancelled meanwhile.
#[pyfunction]
fn settle(future: &Bound<'_, PyAny>, error: &Bound<'_, PyAny>) -> PyResult<()> {
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    if error.is_none() {
        future.call_method1("set_result", (error,))?;
    } else {
        future.call_method1("set_exception", (error,))?;
    }
    Ok(())
}
