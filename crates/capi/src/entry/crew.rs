//! Crews: threads and ring memory that many logs share.

use std::ffi::c_char;
use std::ptr::null_mut;

use plimsoll_log::Crew;

use super::log::open_by;
use crate::boundary::{guard, is_null, needed, options_of, set};
use crate::code::{Code, Failure};
use crate::handle::{CrewHandle, CrewRef, LogHandle};
use crate::options::{CrewOptions, Options};
use crate::report::Recovery;

/// Starts the threads of a crew: for a program with dozens of logs, or with one a tenant. A log by itself
/// (plimsoll_open) has four threads and a segment of 64 MiB before its first record; the logs of a crew
/// share its threads, which sleep unless a log has something to do, and its ring memory, and begin small.
///
/// options: NULL is all defaults. crew: the handle; plimsoll_crew_free it, before or after its logs.
///
/// PLIMSOLL_INVALID: options. PLIMSOLL_DISK: a thread cannot be started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_crew_start(
    options: *const CrewOptions,
    crew: *mut *mut CrewHandle,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let crew = needed(crew, "crew")?;
        // SAFETY: C promises that they are NULL or as large as they say.
        let options = unsafe { options_of(options)? };
        let started = Crew::start(options.check()?)?;
        set(Some(crew), Box::into_raw(Box::new(CrewHandle(started))));
        Ok(())
    })
}

/// As plimsoll_open, with the threads and the ring memory of a crew. The log is one like any other, and
/// keeps the promises of its own options as if it were alone. A record that is only buffered stays so for
/// longer: under PLIMSOLL_POLICY_INTERVAL until the sync that is due for it. None is larger than what the
/// crew has (stats.max_record_bytes).
///
/// As plimsoll_open. PLIMSOLL_INVALID: also after a fork, in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_crew_open_log(
    crew: CrewRef<'_>,
    path: *const c_char,
    options: *const Options,
    log: *mut *mut LogHandle,
    recovery: *mut Recovery,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let CrewHandle(crew) = crew.ok_or_else(|| is_null("crew"))?;
        // SAFETY: C promises what it does to plimsoll_open.
        unsafe { open_by(path, options, log, recovery, |path, options| crew.open(path, options)) }
    })
}

/// Frees a crew; NULL is nothing. The last call with it. Its logs go on: its threads end when it and the
/// last of its logs are gone, closed or freed, and the call that ends them waits for that. In a forked
/// child nothing ends.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_crew_free(crew: Option<Box<CrewHandle>>) {
    guard(null_mut(), || {
        drop(crew);
        Ok(())
    });
}
