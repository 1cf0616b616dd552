//! What crosses between C and Rust: pointers become references and slices, panics become codes, and
//! results go where C wants them.
//!
//! Where a result goes is a plain pointer, written once and last: no reference, because C need not have
//! written it before, and may pass the same one twice, or from two threads.
#![expect(unsafe_code, reason = "the boundary to C")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr::NonNull;

use plimsoll_log::Log;

use crate::code::{Code, Failure, Refusal, Result};
use crate::options::Given;
use crate::report::Bytes;

/// No path that a system takes is longer.
const PATH_BYTES_MAX: usize = 32 << 10;
/// No struct of this header will be larger: what says so was not set.
const STRUCT_BYTES_MAX: usize = 4096;
/// No text that is passed in has more.
const TEXT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Whether this thread calls back to C.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Does it, and says how it went: a panic as well, of what is done or of what finds the words for it.
/// `error` is what C passed for it.
pub(crate) fn guard(error: *mut Failure, act: impl FnOnce() -> Result<()>) -> Code {
    let act = || {
        if CALLING.get() {
            // What it would free is leaked.
            std::mem::forget(act);
            return Err(Refusal::invalid(
                "a callback calls Plimsoll, which waits for it to return",
            ));
        }
        act()
    };
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

/// Calls back to C. What that calls meanwhile is refused: it would wait for itself.
pub(crate) fn call_back(call: impl FnOnce()) {
    CALLING.set(true);
    call();
    CALLING.set(false);
}

pub(crate) fn is_null(what: &str) -> Refusal {
    Refusal::Invalid(format!("{what} is NULL"))
}

/// Where C wants a result, if it does. Asked before anything is done.
pub(crate) fn wanted<T>(to: *mut T, what: &str) -> Result<Option<NonNull<T>>> {
    if !to.is_null() && !to.is_aligned() {
        return Err(Refusal::Invalid(format!("{what} is not aligned")));
    }
    Ok(NonNull::new(to))
}

/// Where C must want one.
pub(crate) fn needed<T>(to: *mut T, what: &str) -> Result<NonNull<T>> {
    wanted(to, what)?.ok_or_else(|| is_null(what))
}

/// Puts a result where C [wants](wanted) it.
pub(crate) fn set<T>(to: Option<NonNull<T>>, value: T) {
    if let Some(to) = to {
        // SAFETY: not misaligned; C promises that there is room for it, and nobody else at it now.
        unsafe { to.write(value) };
    }
}

/// The bytes of records, or of pieces of one.
///
/// # Safety
/// If `of` is not NULL there are `count` of them, no more than can be, and so many bytes of each;
/// nobody changes them as long as `'a` lasts.
pub(crate) unsafe fn slices<'a>(
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
pub(crate) unsafe fn slice<'a>(bytes: *const c_void, len: usize, log: &Log) -> Result<&'a [u8]> {
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

/// Where bytes of a record are to be read to. All of it becomes 0, as C need not have written it before.
///
/// # Safety
/// If `bytes` is not NULL there is room for `len` of them, and nobody else at it as long as `'a` lasts.
pub(crate) unsafe fn room<'a>(bytes: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    // No record has more.
    let len = len.min(u32::MAX as usize);
    match (bytes.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Refusal::Invalid(format!("bytes is NULL, and len is {len}"))),
        (false, _) => {
            // SAFETY: not NULL, and the caller promises so much room.
            unsafe { bytes.write_bytes(0, len) };
            // SAFETY: the same, and it was written.
            Ok(unsafe { std::slice::from_raw_parts_mut(bytes.cast(), len) })
        }
    }
}

/// # Safety
/// `path` is NULL or ends with NUL.
pub(crate) unsafe fn optional_path(path: *const c_char, what: &str) -> Result<Option<PathBuf>> {
    if path.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { path_of(path, what).map(Some) }
}

/// # Safety
/// `path` is NULL or ends with NUL.
pub(crate) unsafe fn path_of(path: *const c_char, what: &str) -> Result<PathBuf> {
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

/// # Safety
/// `text` is NULL or ends with NUL; nobody changes it as long as `'a` lasts.
pub(crate) unsafe fn text_of<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: not NULL, and the caller promises that there is an end.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(Refusal::Invalid(format!(
            "{what} has {} bytes, which is too much",
            bytes.len()
        )));
    }
    str::from_utf8(bytes).map_err(|why| Refusal::Invalid(format!("{what} is not UTF-8: {why}")))
}

/// Options of an older, of this, or of a newer header.
///
/// # Safety
/// `options` is NULL, or as many bytes as its first field says.
pub(crate) unsafe fn options_of<T: Given>(options: *const T) -> Result<T> {
    let mut taken = T::DEFAULTS;
    // SAFETY: the caller's promise.
    let room = unsafe { struct_room(options.cast_mut(), T::NAME, T::BYTES_MIN)? };
    if room == 0 {
        return Ok(taken);
    }
    // SAFETY: not NULL, and the caller promises so many bytes.
    let given = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), room) };
    let (known, newer) = given.split_at(room.min(size_of::<T>()));
    let to = (&raw mut taken).cast::<u8>();
    // SAFETY: no longer than `taken`, and any bytes are some.
    unsafe { to.copy_from_nonoverlapping(known.as_ptr(), known.len()) };
    if newer.iter().any(|byte| *byte != 0) {
        return Err(Refusal::Invalid(format!(
            "{} has fields that this version of the library does not know; use a newer one, or \
            leave them 0",
            T::NAME
        )));
    }
    Ok(taken)
}

/// How large the caller's struct is, at least `bytes_min`; 0 if there is none.
///
/// # Safety
/// `of` is NULL, or begins with a size.
pub(crate) unsafe fn struct_room<T>(of: *mut T, what: &str, bytes_min: usize) -> Result<usize> {
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
pub(crate) unsafe fn fill<T>(to: *mut T, room: usize, value: &T) {
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
    use std::ptr::null_mut;

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
