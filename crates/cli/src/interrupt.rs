//! Ctrl-C: the first is a request, the second an order.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::exit::Exit;

/// Set by Ctrl-C. A static, because a signal handler outlives everything else.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Calls `wake` when Ctrl-C is pressed; pressed again, it ends the process.
pub(crate) fn on_interrupt(mut wake: impl FnMut() + Send + 'static) -> Result<()> {
    let caught = ctrlc::set_handler(move || {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        wake();
    });
    caught.context("Ctrl-C cannot be caught")
}
