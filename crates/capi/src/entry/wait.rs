//! Waits for a record that was appended: in the call, or by being called.

use std::ffi::c_void;
use std::ptr::null;

use plimsoll_log::{Log, Wait};

use crate::boundary::{call_back, guard, is_null, set, wanted};
use crate::code::{Code, Failure, Refusal, Result};
use crate::handle::{LogRef, handle};
use crate::options::{self, AckNumber};

/// What plimsoll_on and plimsoll_watch call, once: with NULL when the record has come as far as was
/// asked, or else with why it never will, which is valid until the call returns.
///
/// It is called from a thread of the log (or of its crew), or from one that is in a call with the log, which
/// may be the one that asked for it. Appends and syncs wait behind it: it should return at once, must not
/// throw (C++), and must not call Plimsoll: such a call is PLIMSOLL_INVALID, and what it frees is leaked.
pub type Call = Option<unsafe extern "C" fn(context: *mut c_void, error: *const Failure)>;

/// Waits until a record is as far as `level` says: PLIMSOLL_ACK_WRITTEN (it survives a crash of the
/// process) or PLIMSOLL_ACK_DURABLE (it survives a power cut). Asks for that, under any policy: the
/// write or the sync goes on when the time is over. Any number of threads may wait, for any record.
///
/// timeout_ns: PLIMSOLL_FOREVER, or how long at most, also where the disk hangs; 0 asks and only looks.
///
/// PLIMSOLL_TIMED_OUT: it still may come. PLIMSOLL_OUT_OF_RANGE: no such record. PLIMSOLL_TRUNCATED: it
/// was cut off. PLIMSOLL_STOPPED, _CLOSED: it never will come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_wait(
    log: LogRef<'_>,
    index: u64,
    level: AckNumber,
    timeout_ns: u64,
    error: *mut Failure,
) -> Code {
    guard(error, || handle(log)?.wait(index, options::awaited(level)?, timeout_ns))
}

/// Has `call` called with `context`, once, when a record is as far as `level` says, or never will be:
/// PLIMSOLL_ACK_WRITTEN or PLIMSOLL_ACK_DURABLE. Asks for that, as plimsoll_wait does, and holds up
/// nobody. If it has come already, `call` is called before this returns.
///
/// Where this fails, `call` is not called. Otherwise it is, at the latest before plimsoll_close or
/// plimsoll_free returns: told PLIMSOLL_TRUNCATED, _STOPPED or _CLOSED if the record did not come so
/// far. What `context` is to must last until then.
///
/// PLIMSOLL_OUT_OF_RANGE: no such record. PLIMSOLL_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_on(
    log: LogRef<'_>,
    index: u64,
    level: AckNumber,
    call: Call,
    context: *mut c_void,
    error: *mut Failure,
) -> Code {
    guard(error, || tell(log, call, context, |log| Ok(log.wait(index, options::awaited(level)?)?)))
}

/// As plimsoll_on, but asks for nothing: `call` is called when the policy, or somebody else, has it so.
/// For whoever appends much and wants to hear of it, not to have a sync for each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_watch(
    log: LogRef<'_>,
    index: u64,
    level: AckNumber,
    call: Call,
    context: *mut c_void,
    error: *mut Failure,
) -> Code {
    guard(error, || tell(log, call, context, |log| Ok(log.watch(index, options::awaited(level)?)?)))
}

/// Makes everything durable that was appended before. index: the last of it, or NULL.
///
/// As plimsoll_wait, for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_sync(
    log: LogRef<'_>,
    index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let index = wanted(index, "index")?;
        set(index, handle(log)?.with(|log| Ok(log.sync()?))?);
        Ok(())
    })
}

/// Has it called when a wait has ended.
fn tell(
    log: LogRef<'_>,
    call: Call,
    context: *mut c_void,
    wait: impl FnOnce(&Log) -> Result<Wait>,
) -> Result<()> {
    let call = call.ok_or_else(|| is_null("call"))?;
    let context = Context(context);
    handle(log)?.with(|log| {
        wait(log)?.then(move |how| {
            let failure = how.err().map(|error| Refusal::from(error).report());
            let error = failure.as_ref().map_or(null(), std::ptr::from_ref);
            let context = context.into_inner();
            // SAFETY: C promises that it can be called with this, from any thread, and does not throw.
            call_back(|| unsafe { call(context, error) });
        });
        Ok(())
    })
}

/// What C wants back in its call.
struct Context(*mut c_void);

// SAFETY: it is only handed back; the header says that this may be in another thread.
unsafe impl Send for Context {}

impl Context {
    fn into_inner(self) -> *mut c_void {
        self.0
    }
}
