//! Ctrl-C: the first is a request, the second an order.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use plimsoll_simdisk::mounted::Error;

use crate::exit::Exit;
use crate::output;

/// Set by Ctrl-C. A static, because a signal handler outlives everything else.
pub(super) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed.
pub(super) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Ctrl-C asks to stop; pressed again, it ends the process, and the kernel takes everything down.
pub(super) fn catch_ctrl_c() -> Result<()> {
    let caught = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
        output::news("stopping; Ctrl-C again stops at once");
    });
    caught.context("Ctrl-C cannot be caught")
}

/// What failed after Ctrl-C failed because of it, and is no answer.
pub(super) fn said(done: Result<Exit>) -> Result<Exit> {
    match done {
        Err(error) if interrupted() => {
            output::news(&match error.downcast_ref::<Error>() {
                Some(Error::Interrupted) => "interrupted".to_owned(),
                _ => format!("interrupted: {error:#}"),
            });
            Ok(Exit::Interrupted)
        }
        done => done,
    }
}
