//! The functions of the header: pointers become references and slices, panics become codes. All the
//! unsafe code of this crate is here.
//!
//! A handle that may be NULL is an `Option` of a reference or of a box, which is what C passes. Where a
//! result goes is a plain pointer, written once and last: no reference, because C need not have written it
//! before, and may pass the same one twice, or from two threads. What the header asks of C (a pointer is
//! to what it says, a handle is not used after it was freed) is what these types ask.
#![expect(unsafe_code, reason = "the boundary to C")]
#![expect(clippy::missing_safety_doc, reason = "what a caller promises is said in the header")]

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr::{NonNull, null, null_mut};
use std::time::Duration;

use plimsoll_log::{Log, Retain, Wait};

use crate::code::{Code, CodeNumber, Failure, Refusal, Result};
use crate::handle::{LogHandle, ReaderHandle};
use crate::options::{self, AckNumber, Options};
use crate::report::{Bytes, Marks, Record, Recovery, Stats};

/// A log from C: any thread's, at any time.
type LogRef<'a> = Option<&'a LogHandle>;
/// A reader from C.
type ReaderRef<'a> = Option<&'a ReaderHandle>;

/// No path that a system takes is longer.
const PATH_BYTES_MAX: usize = 32 << 10;
/// No struct of this header will be larger: what says so was not set.
const STRUCT_BYTES_MAX: usize = 4096;
/// A record takes at least so much of the ring.
const RECORD_BYTES_MIN: u64 = 24;
/// No record is gathered from more.
const PIECES_MAX: usize = 65_536;

/// What plimsoll_on and plimsoll_watch call, once: with NULL when the record has come as far as was
/// asked, or else with why it never will, which is valid until the call returns.
///
/// It is called from a thread of the log, or from one that is in a call with the log, which may be the
/// one that asked for it. Appends and syncs wait behind it: it should return at once, must not call
/// Plimsoll, and must not throw (C++).
pub type Call = Option<unsafe extern "C" fn(context: *mut c_void, error: *const Failure)>;

/// The version of the library: "0.1.0". Static.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

/// The name of a code: "PLIMSOLL_LOCKED". Static, never NULL, whatever number it is.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_code_name(code: CodeNumber) -> *const c_char {
    Code::of(code).map_or(c"not a code of Plimsoll", Code::name).as_ptr()
}

/// Opens the log in a directory, or makes one there; the directory is made as well. Everything that
/// the recovery counts is durable on return, but for what was in the ring's file. Cost: two file heads
/// are read, and what came after the last mark of the newest segment; of a log that was closed no more
/// than 256 KiB.
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
    guard(error, || {
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
        let (opened, found) = Log::open(path, options)?;
        // SAFETY: `recovery` is NULL, or has `room` bytes.
        unsafe { fill(recovery, room, &Recovery::of(&found)) };
        set(Some(log), Box::into_raw(Box::new(LogHandle::new(opened, ack))));
        Ok(())
    })
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

/// Appends a record: a copy in memory, about 0.2 us for 100 bytes, and then a wait until it is as far
/// as `ack` says. Waits if the ring is full.
///
/// bytes: may be NULL if len is 0. index: its number, or NULL.
///
/// PLIMSOLL_TOO_LARGE, _OUT_OF_SPACE: not accepted, and the log goes on. PLIMSOLL_STOPPED: it may have
/// been accepted, but it is not as far as was asked. PLIMSOLL_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_append(
    log: LogRef<'_>,
    bytes: *const c_void,
    len: usize,
    ack: AckNumber,
    index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let (ack, index) = (options::ack(ack)?, wanted(index, "index")?);
        let appended = handle(log)?.with(|log| {
            // SAFETY: C promises so many bytes, for the time of this call.
            let record = unsafe { slice(bytes, len, log)? };
            Ok(match ack {
                None => log.append(record)?,
                Some(ack) => log.append_with(record, ack)?,
            })
        })?;
        set(index, appended);
        Ok(())
    })
}

/// Appends one record whose bytes lie in pieces, one behind the other, as with writev(2), without putting
/// them together first. On return it is as far as `ack` says.
///
/// pieces, count: at most 65,536; NULL and 0 are an empty record. index: its number, or NULL.
///
/// As plimsoll_append.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_append_pieces(
    log: LogRef<'_>,
    pieces: *const Bytes,
    count: usize,
    ack: AckNumber,
    index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let (ack, index) = (options::ack(ack)?, wanted(index, "index")?);
        let handle = handle(log)?;
        let appended = handle.with(|log| {
            if count > PIECES_MAX {
                return Err(Refusal::TooLarge(format!("a record has at most {PIECES_MAX} pieces")));
            }
            // SAFETY: few enough; C promises that they are there, for the time of this call.
            let pieces = unsafe { slices(pieces, count, "pieces", log)? };
            let bytes =
                pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.len() as u64));
            let max_bytes = log.max_record_bytes();
            if bytes > max_bytes {
                return Err(plimsoll_log::Error::TooLarge { bytes, max_bytes }.into());
            }
            Ok(log.append_pieces(&pieces, handle.ack(ack))?)
        })?;
        set(index, appended);
        Ok(())
    })
}

/// As plimsoll_append with PLIMSOLL_ACK_BUFFERED, but never waits: PLIMSOLL_WOULD_BLOCK where that would
/// wait for room in the ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_try_append(
    log: LogRef<'_>,
    bytes: *const c_void,
    len: usize,
    index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let index = wanted(index, "index")?;
        let appended = handle(log)?.with(|log| {
            // SAFETY: C promises so many bytes, for the time of this call.
            let record = unsafe { slice(bytes, len, log)? };
            Ok(log.try_append(record)?)
        })?;
        set(index, appended);
        Ok(())
    })
}

/// Appends records that stay together: after a crash all of them are there, or none. Their indexes
/// follow each other. At most half of the ring's bytes.
///
/// records, count: at least one. first_index: the number of the first, or NULL.
///
/// As plimsoll_append.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_append_batch(
    log: LogRef<'_>,
    records: *const Bytes,
    count: usize,
    ack: AckNumber,
    first_index: *mut u64,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let (ack, first_index) = (options::ack(ack)?, wanted(first_index, "first_index")?);
        let first = handle(log)?.with(|log| {
            if count == 0 {
                return Err(Refusal::invalid("a batch needs records, and there are none"));
            }
            let max = log.max_record_bytes();
            if count as u64 > max / RECORD_BYTES_MIN {
                let what = format!("{count} records at once do not fit into {max} bytes");
                return Err(Refusal::TooLarge(what));
            }
            // SAFETY: few enough; C promises that they are there, for the time of this call.
            let records = unsafe { slices(records, count, "records", log)? };
            let indexes = match ack {
                None => log.append_batch(&records)?,
                Some(ack) => log.append_batch_with(&records, ack)?,
            };
            Ok(*indexes.start())
        })?;
        set(first_index, first);
        Ok(())
    })
}

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

/// A reader of records from `from` on, as far as they are written (`level` PLIMSOLL_ACK_WRITTEN, or 0)
/// or durable (PLIMSOLL_ACK_DURABLE); then it waits for those that come. Every checksum is verified. It
/// holds a file open and 256 KiB, more where records are larger, and never makes an append wait.
///
/// reader: the handle; plimsoll_reader_free it, before or after the log.
///
/// PLIMSOLL_OUT_OF_RANGE: there is no such record, and it is not the next one either.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_reader_open(
    log: LogRef<'_>,
    from: u64,
    level: AckNumber,
    reader: *mut *mut ReaderHandle,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let reader = needed(reader, "reader")?;
        let opened = handle(log)?.follow(from, options::level(level)?)?;
        set(Some(reader), Box::into_raw(Box::new(opened)));
        Ok(())
    })
}

/// The next record. timeout_ns: 0 takes what is there, which is how to read a log through;
/// otherwise how long to wait for one, or PLIMSOLL_FOREVER.
///
/// record->bytes is the reader's, and valid until the next call with this reader: copy what you keep.
///
/// PLIMSOLL_AT_END: not there yet; ask again. PLIMSOLL_CLOSED, _STOPPED: everything was read, and no
/// more will come. PLIMSOLL_OUT_OF_RANGE: retention or a truncation took it; open another reader.
/// PLIMSOLL_CORRUPT: durable bytes have changed; the reader stays before them. PLIMSOLL_BUSY: another
/// thread is in a call with this reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_reader_next(
    reader: ReaderRef<'_>,
    timeout_ns: u64,
    record: *mut Record,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let record = needed(record, "record")?;
        let (index, payload) = reader.ok_or_else(|| is_null("reader"))?.next(timeout_ns)?;
        set(Some(record), Record { index, bytes: payload.cast(), len: payload.len() });
        Ok(())
    })
}

/// Frees a reader; NULL is nothing. The last call with it.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_reader_free(reader: Option<Box<ReaderHandle>>) {
    guard(null_mut(), || {
        drop(reader);
        Ok(())
    });
}

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
/// PLIMSOLL_OUT_OF_RANGE: the log begins later. PLIMSOLL_STOPPED: the disk failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_truncate_after(
    log: LogRef<'_>,
    last_index: u64,
    error: *mut Failure,
) -> Code {
    guard(error, || handle(log)?.with(|log| Ok(log.truncate_after(last_index)?)))
}

/// Does it, and says how it went: a panic as well, of what is done or of what finds the words for it.
/// `error` is what C passed for it.
fn guard(error: *mut Failure, act: impl FnOnce() -> Result<()>) -> Code {
    let done = catch_unwind(AssertUnwindSafe(act));
    let is_wanted = !error.is_null() && error.is_aligned();
    let report = || {
        let refusal = match done {
            Ok(Ok(())) => return (Code::OK, None),
            Ok(Err(refusal)) => refusal,
            Err(said) => Refusal::bug(said),
        };
        (refusal.code(), is_wanted.then(|| refusal.report()))
    };
    let (code, failure) = catch_unwind(AssertUnwindSafe(report)).unwrap_or_else(|said| {
        // To drop it may panic again.
        std::mem::forget(said);
        let refusal =
            Refusal::invalid("a bug in Plimsoll, please report it: an error without words");
        (Code::BUG, Some(Failure { code: Code::BUG, ..refusal.report() }))
    });
    if let (true, Some(failure)) = (is_wanted, failure) {
        // SAFETY: neither NULL nor misaligned; C promises that there is a plimsoll_error.
        unsafe { error.write(failure) };
    }
    code
}

fn is_null(what: &str) -> Refusal {
    Refusal::Invalid(format!("{what} is NULL"))
}

fn handle<'a>(log: LogRef<'a>) -> Result<&'a LogHandle> {
    log.ok_or_else(|| is_null("log"))
}

/// Where C wants a result, if it does. Asked before anything is done.
fn wanted<T>(to: *mut T, what: &str) -> Result<Option<NonNull<T>>> {
    if !to.is_null() && !to.is_aligned() {
        return Err(Refusal::Invalid(format!("{what} is not aligned")));
    }
    Ok(NonNull::new(to))
}

/// Where C must want one.
fn needed<T>(to: *mut T, what: &str) -> Result<NonNull<T>> {
    wanted(to, what)?.ok_or_else(|| is_null(what))
}

/// Puts a result where C [wants](wanted) it.
fn set<T>(to: Option<NonNull<T>>, value: T) {
    if let Some(to) = to {
        // SAFETY: not misaligned; C promises that there is room for it, and nobody else at it now.
        unsafe { to.write(value) };
    }
}

fn retain(log: LogRef<'_>, retain: Retain, first_index: *mut u64) -> Result<()> {
    let first_index = wanted(first_index, "first_index")?;
    set(first_index, handle(log)?.with(|log| Ok(log.truncate_before(retain)?))?);
    Ok(())
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
            // SAFETY: C promises that it can be called with this, from any thread, and does not throw.
            unsafe { call(context.into_inner(), error) };
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

/// The bytes of records, or of pieces of one.
///
/// # Safety
/// If `of` is not NULL there are `count` of them, no more than can be, and so many bytes of each;
/// nobody changes them as long as `'a` lasts.
unsafe fn slices<'a>(
    of: *const Bytes,
    count: usize,
    what: &str,
    log: &Log,
) -> Result<Vec<&'a [u8]>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if of.is_null() || !of.is_aligned() {
        return Err(Refusal::Invalid(format!(
            "{what} is NULL or not aligned, and count is {count}"
        )));
    }
    // SAFETY: neither NULL nor misaligned; the rest the caller promises.
    let each = unsafe { std::slice::from_raw_parts(of, count) };
    // SAFETY: the caller's promise.
    each.iter().map(|each| unsafe { slice(each.bytes, each.len, log) }).collect()
}

/// The bytes of a record.
///
/// # Safety
/// If `bytes` is not NULL there are `len` of them, and nobody changes them as long as `'a` lasts.
unsafe fn slice<'a>(bytes: *const c_void, len: usize, log: &Log) -> Result<&'a [u8]> {
    let max_bytes = log.max_record_bytes();
    if len as u64 > max_bytes {
        return Err(plimsoll_log::Error::TooLarge { bytes: len as u64, max_bytes }.into());
    }
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Refusal::Invalid(format!("bytes is NULL, and len is {len}"))),
        // SAFETY: not NULL, not longer than a ring; the rest the caller promises.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), len) }),
    }
}

/// # Safety
/// `path` is NULL or ends with NUL.
unsafe fn optional_path(path: *const c_char, what: &str) -> Result<Option<PathBuf>> {
    if path.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { path_of(path, what).map(Some) }
}

/// # Safety
/// `path` is NULL or ends with NUL.
unsafe fn path_of(path: *const c_char, what: &str) -> Result<PathBuf> {
    if path.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: not NULL, and the caller promises that there is an end.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.is_empty() || bytes.len() > PATH_BYTES_MAX {
        let len = bytes.len();
        return Err(Refusal::Invalid(format!("{what} has {len} bytes, which no path has")));
    }
    #[cfg(unix)]
    let path = {
        use std::os::unix::ffi::OsStrExt as _;
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    };
    #[cfg(not(unix))]
    let path = match std::str::from_utf8(bytes) {
        Ok(path) => PathBuf::from(path),
        Err(_) => return Err(Refusal::Invalid(format!("{what} is not UTF-8"))),
    };
    Ok(path)
}

/// Options of an older, of this, or of a newer header.
///
/// # Safety
/// `options` is NULL, or as many bytes as its first field says.
unsafe fn options_of(options: *const Options) -> Result<Options> {
    let mut taken = Options::new();
    // SAFETY: the caller's promise.
    let room = unsafe { struct_room(options.cast_mut(), "options", Options::BYTES_MIN)? };
    if room == 0 {
        return Ok(taken);
    }
    // SAFETY: not NULL, and the caller promises so many bytes.
    let given = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), room) };
    let (known, newer) = given.split_at(room.min(size_of::<Options>()));
    let to = (&raw mut taken).cast::<u8>();
    // SAFETY: no longer than `taken`, and any bytes are options.
    unsafe { to.copy_from_nonoverlapping(known.as_ptr(), known.len()) };
    if newer.iter().any(|byte| *byte != 0) {
        let what = "options has fields that this version of the library does not know; \
            use a newer one, or leave them 0";
        return Err(Refusal::invalid(what));
    }
    Ok(taken)
}

/// How large the caller's struct is, at least `bytes_min`; 0 if there is none.
///
/// # Safety
/// `of` is NULL, or begins with a size.
unsafe fn struct_room<T>(of: *mut T, what: &str, bytes_min: usize) -> Result<usize> {
    if of.is_null() {
        return Ok(0);
    }
    if !of.is_aligned() {
        return Err(Refusal::Invalid(format!("{what} is not aligned")));
    }
    // SAFETY: not NULL, aligned, and the caller promises that there is a size.
    let room = unsafe { of.cast::<usize>().read() };
    if !(bytes_min..=STRUCT_BYTES_MAX).contains(&room) {
        return Err(Refusal::Invalid(format!(
            "{what}.struct_bytes is {room}: set it to sizeof(plimsoll_{what})"
        )));
    }
    Ok(room)
}

/// Fills the caller's struct as far as both sides know it; what only the caller knows becomes 0. Its
/// first field stays.
///
/// # Safety
/// `to` has `room` bytes to write, none or at least those of a size, which is the first field of `T`.
unsafe fn fill<T>(to: *mut T, room: usize, value: &T) {
    if room == 0 {
        return;
    }
    // What is between two fields is nothing in particular.
    let from = std::ptr::from_ref(value).cast::<MaybeUninit<u8>>();
    // SAFETY: so long is a `T`.
    let from = unsafe { std::slice::from_raw_parts(from, size_of::<T>()) };
    // SAFETY: the caller's promise, and it is not NULL if there is room.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u8>>(), room) };
    let known = size_of::<usize>()..room.min(size_of::<T>());
    to[known.clone()].copy_from_slice(&from[known.clone()]);
    to[known.end..].fill(MaybeUninit::new(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(act: impl FnOnce() -> Result<()>) -> (Code, String) {
        let mut error = MaybeUninit::<Failure>::uninit();
        let code = guard(error.as_mut_ptr(), act);
        // SAFETY: a call that fails writes it.
        let error = unsafe { error.assume_init() };
        assert_eq!(error.code, code);
        // SAFETY: it ends with NUL.
        let text = unsafe { CStr::from_ptr(error.text.as_ptr()) };
        (code, text.to_str().unwrap().to_owned())
    }

    #[test]
    fn no_panic_leaves_an_entry() {
        let (code, text) = told(|| panic!("record {} is odd", 7));
        assert_eq!(code, Code::BUG);
        assert!(text.contains("record 7 is odd"), "{text}");
        assert_eq!(guard(null_mut(), || std::panic::panic_any(DropsBadly)), Code::BUG);
    }

    /// The words were found outside of what catches panics.
    #[test]
    fn no_panic_leaves_an_error_that_has_no_words() {
        let fails = || {
            let error = std::io::Error::other(SaysNothing);
            Err(plimsoll_sync::Error::io("read", "file", error).into())
        };
        let (code, text) = told(fails);
        assert_eq!(code, Code::BUG);
        assert!(text.contains("please report it"), "{text}");
    }

    #[derive(Debug)]
    struct SaysNothing;

    impl std::fmt::Display for SaysNothing {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no words")
        }
    }

    impl std::error::Error for SaysNothing {}

    #[test]
    fn nothing_is_written_where_it_is_not_aligned() {
        let mut room = [5_u64; 2];
        let odd = room.as_mut_ptr().cast::<u8>().wrapping_add(3).cast::<u64>();
        assert_eq!(wanted(odd, "index").unwrap_err().code(), Code::INVALID);
        assert_eq!(guard(odd.cast(), || Err(Refusal::Busy)), Code::BUSY);
        assert_eq!(room, [5, 5]);
    }

    /// What a panic may carry.
    struct DropsBadly;

    impl Drop for DropsBadly {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn a_struct_of_another_version_is_filled_as_far_as_both_know_it() {
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq)]
        struct Three(usize, u64, u64);
        let known = Three(24, 5, 6);
        let mut older = Three(16, 1, 2);
        // SAFETY: it has more than 16 bytes.
        unsafe { fill(&raw mut older, 16, &known) };
        assert_eq!(older, Three(16, 5, 2), "what an older caller does not have is not written");
        let mut newer = [Three(40, 1, 2), Three(3, 4, 9)];
        // SAFETY: it has 48 bytes.
        unsafe { fill(newer.as_mut_ptr(), 40, &known) };
        assert_eq!(newer, [Three(40, 5, 6), Three(0, 0, 9)], "what only it knows is 0");
    }
}
