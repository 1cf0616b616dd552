//! Cuts: what is old goes, and what comes after a record.

use std::time::Duration;

use plimsoll_log::Retain;

use crate::boundary::{guard, set, wanted};
use crate::code::{Code, Failure, Result};
use crate::handle::{LogRef, handle};

/// Removes the oldest segments that hold nothing from `index` on. Whole segments go, so a little more may
/// be kept than was asked for; the last one stays, and what is not durable. Durable on return.
/// first_index: the oldest record that is left, or NULL.
///
/// PLIMSOLL_DISK: what was removed before is gone, the rest is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_truncate_before(
    log: LogRef<'_>,
    index: u64,
    first_index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || retain(log, Retain::From(index), first_index))
}

/// As plimsoll_truncate_before, but keeps the newest segments, as many as take no more than `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_retain_bytes(
    log: LogRef<'_>,
    bytes: u64,
    first_index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || retain(log, Retain::Bytes(bytes), first_index))
}

/// As plimsoll_truncate_before, but keeps what was appended no longer than `age_ns` ago.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_retain_age(
    log: LogRef<'_>,
    age_ns: u64,
    first_index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || retain(log, Retain::Age(Duration::from_nanos(age_ns)), first_index))
}

/// Cuts off every record after `last_index`; they never come back, and the next append gets
/// last_index + 1. Durable on return, as is everything up to last_index. Appends go on meanwhile, but for
/// those to a ring in a file; whoever waits for a record that is cut is told PLIMSOLL_TRUNCATED.
///
/// PLIMSOLL_OUT_OF_RANGE: the log begins later. PLIMSOLL_OUT_OF_SPACE, _DISK: no file can be made for what
/// follows, and nothing has changed. PLIMSOLL_STOPPED: the disk failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_truncate_after(
    log: LogRef<'_>,
    last_index: u64,
    error: *mut Failure,
) -> Code {
    guard(error, || handle(log)?.with(|log| Ok(log.truncate_after(last_index)?)))
}

fn retain(log: LogRef<'_>, retain: Retain, first_index: *mut u64) -> Result<()> {
    let first_index = wanted(first_index, "first_index")?;
    set(first_index, handle(log)?.with(|log| Ok(log.truncate_before(retain)?))?);
    Ok(())
}
