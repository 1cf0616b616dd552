//! A log: opened, closed, freed; how it is and what it did.

use std::ffi::c_char;
use std::path::PathBuf;
use std::ptr::null_mut;

use plimsoll_log::{Log, Policy, Recovery as Found};

use crate::boundary::{
    fill, guard, is_null, needed, optional_path, options_of, path_of, set, struct_room, text_of,
};
use crate::code::{Code, Failure, Result};
use crate::handle::{LogHandle, LogRef, handle};
use crate::options::Options;
use crate::report::{Marks, Recovery, Stats};

/// Sets policy, max_age_ns and max_bytes of options to what suits the disk that a durability profile is about
/// (`plimsoll lab` writes durability-profile.json): as little at risk as costs under 10 % more than one sync at
/// the end.
///
/// profile: its text. options: with struct_bytes set.
///
/// PLIMSOLL_INVALID: no such profile, or nothing was measured that tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_options_auto(
    profile: *const c_char,
    options: *mut Options,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        // SAFETY: C promises that it is NULL or ends with NUL.
        let profile = unsafe { text_of(profile, "profile")? };
        if options.is_null() {
            return Err(is_null("options"));
        }
        // SAFETY: C promises that they are as large as they say.
        let mut taken = unsafe { options_of(options)? };
        taken.set_policy(Policy::auto(profile)?);
        // SAFETY: the same; there is more than a size, as they were taken.
        unsafe { fill(options, taken.struct_bytes.min(size_of::<Options>()), &taken) };
        Ok(())
    })
}

/// Opens the log in a directory, or makes one there; the directory is made as well. Everything that
/// the recovery counts is durable on return, but for what was in the ring's file. Cost: two file heads
/// are read, and the newest segment, whole, with those before it that may not be durable; of a log that was
/// closed no more than 256 KiB.
///
/// options: NULL is all defaults. log: the handle; close it with plimsoll_close, then plimsoll_free
/// it. recovery: what was found, or NULL.
///
/// PLIMSOLL_LOCKED: another process (or handle) has it. PLIMSOLL_CORRUPT: durable records are lost;
/// nothing was changed. PLIMSOLL_DISK: the directory fails. PLIMSOLL_INVALID: options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_open(
    path: *const c_char,
    options: *const Options,
    log: *mut *mut LogHandle,
    recovery: *mut Recovery,
    error: *mut Failure,
) -> Code {
    let open = |path, options| Log::open(path, options);
    // SAFETY: C promises it.
    guard(error, || unsafe { open_by(path, options, log, recovery, open) })
}

/// Makes everything durable, says so in the log, and ends it: everything that was appended is durable
/// if this succeeds. The handle stays until plimsoll_free, and every later call with it, from any
/// thread, is PLIMSOLL_CLOSED, at once also while this still waits.
///
/// Calls that are in the log already end first, as they would without this: an append gets its room,
/// a wait gets its sync or its timeout. Readers that wait are woken, and told PLIMSOLL_CLOSED.
///
/// PLIMSOLL_STOPPED, _OUT_OF_SPACE, _DISK: closed, but not everything is durable. PLIMSOLL_CLOSED:
/// another call closed it, and has ended. PLIMSOLL_INVALID: after a fork, in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_close(log: LogRef<'_>, error: *mut Failure) -> Code {
    guard(error, || handle(log)?.close())
}

/// Frees a handle; NULL is nothing. The last call with it. A log that was not closed ends as in a crash
/// of the process, but for what can still be written: nothing says how it went. Its readers go on
/// reading what is there. In a forked child it is leaked.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_free(log: Option<Box<LogHandle>>) {
    guard(null_mut(), || {
        if let Some(log) = log {
            log.free();
        }
        Ok(())
    });
}

/// Whether the log is as it should be: then PLIMSOLL_OK. Asks nothing of the disk, and says nothing of
/// what the disk will do next.
///
/// PLIMSOLL_STOPPED: nothing is accepted any more, and records after `index` may be lost.
/// PLIMSOLL_OUT_OF_SPACE: a segment failed, and there is no room for another, so what was accepted after
/// `index` is in memory only; the log goes on once there is room. PLIMSOLL_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_health(log: LogRef<'_>, error: *mut Failure) -> Code {
    guard(error, || handle(log)?.with(|log| Ok(log.health()?)))
}

/// How far the log is. Cost: four loads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_log_marks(
    log: LogRef<'_>,
    marks: *mut Marks,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let marks = needed(marks, "marks")?;
        set(Some(marks), handle(log)?.with(|log| Ok(Marks::of(log)))?);
        Ok(())
    })
}

/// What the log did since it was opened. Set stats->struct_bytes before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_log_stats(
    log: LogRef<'_>,
    stats: *mut Stats,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        if stats.is_null() {
            return Err(is_null("stats"));
        }
        // SAFETY: C promises that it is what it says.
        let room = unsafe { struct_room(stats, "stats", size_of::<usize>())? };
        let found = handle(log)?.with(|log| Ok(Stats::of(log)))?;
        // SAFETY: it has `room` bytes.
        unsafe { fill(stats, room, &found) };
        Ok(())
    })
}

/// Opens a log by itself, or with a crew.
///
/// # Safety
/// What plimsoll_open asks of C.
pub(super) unsafe fn open_by(
    path: *const c_char,
    options: *const Options,
    log: *mut *mut LogHandle,
    recovery: *mut Recovery,
    open: impl FnOnce(PathBuf, plimsoll_log::Options) -> plimsoll_log::Result<(Log, Found)>,
) -> Result<()> {
    let log = needed(log, "log")?;
    // SAFETY: C promises that it is NULL or a path.
    let path = unsafe { path_of(path, "path")? };
    // SAFETY: C promises that they are NULL or as large as they say.
    let options = unsafe { options_of(options)? };
    // SAFETY: C promises that it is NULL or a path.
    let ring_file = unsafe { optional_path(options.ring_file, "options.ring_file")? };
    // SAFETY: as above. Before anything is opened, so that there is nothing to undo.
    let room = unsafe { struct_room(recovery, "recovery", size_of::<usize>())? };
    let options = options.check(ring_file)?;
    let ack = options.policy.ack();
    let (opened, found) = open(path, options)?;
    // SAFETY: `recovery` is NULL, or has `room` bytes.
    unsafe { fill(recovery, room, &Recovery::of(&found)) };
    set(Some(log), Box::into_raw(Box::new(LogHandle::new(opened, ack))));
    Ok(())
}
