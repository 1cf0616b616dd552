//! Ctrl-C, SIGTERM and SIGHUP: the first is a request, the second an order. The exit status tells which
//! signal it was, as shells say it. Under nohup(1) a hangup stays ignored.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use anyhow::{Context, Result};

/// Set when it was asked to stop. A static, because signals outlive everything else.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The signal that asked first.
static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT);

/// What Ctrl-C sends.
const SIGINT: u8 = 2;

/// Whether it was asked to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// The exit status of a process that was asked to stop; of Ctrl-C if it was not.
pub(crate) fn status() -> u8 {
    128 + SIGNAL.load(Ordering::SeqCst)
}

/// Calls `wake` when it is asked to stop; asked again, the process ends.
pub(crate) fn on_interrupt(wake: impl FnMut() + Send + 'static) -> Result<()> {
    on_interrupt_or(wake, || {})
}

/// The same, and calls `abandon` before the process ends.
pub(crate) fn on_interrupt_or(
    mut wake: impl FnMut() + Send + 'static,
    mut abandon: impl FnMut() + Send + 'static,
) -> Result<()> {
    let heard = move |signal: u8| {
        if INTERRUPTED.load(Ordering::SeqCst) {
            abandon();
            std::process::exit(i32::from(status()));
        }
        SIGNAL.store(signal, Ordering::SeqCst);
        INTERRUPTED.store(true, Ordering::SeqCst);
        wake();
    };
    listen(heard).context("signals cannot be caught")
}

/// Calls `heard` with the number of each signal that asks to stop, in a thread of its own.
#[cfg(unix)]
fn listen(mut heard: impl FnMut(u8) + Send + 'static) -> Result<()> {
    use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let hangup = (!hangup_is_ignored()).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))?;
    let listener = std::thread::Builder::new().name("signals".to_owned());
    listener.spawn(move || {
        for signal in signals.forever() {
            heard(u8::try_from(signal).expect("these have small numbers"));
        }
    })?;
    Ok(())
}

/// Whether whoever started this process had it ignore SIGHUP, as nohup(1) does: as Linux tells it
/// (proc_pid_status(5)). Elsewhere that is not asked, and a hangup ends a run.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores_hangup(&status)
}

/// Whether the lowest bit is set in `SigIgn`, which is that of signal 1.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
}

/// Calls `heard` when Ctrl-C is pressed, in a thread of its own.
#[cfg(not(unix))]
fn listen(mut heard: impl FnMut(u8) + Send + 'static) -> Result<()> {
    Ok(ctrlc::set_handler(move || heard(SIGINT))?)
}
