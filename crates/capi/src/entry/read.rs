//! Reads records: in order, or a piece of one.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::boundary::{guard, is_null, needed, room, set};
use crate::code::{Code, Failure};
use crate::handle::{LogRef, ReaderHandle, ReaderRef, handle};
use crate::options::{self, AckNumber};
use crate::report::Record;

/// A reader of records from `from` on, as far as they are written (`level` PLIMSOLL_ACK_WRITTEN, or 0)
/// or durable (PLIMSOLL_ACK_DURABLE); then it waits for those that come. Every checksum is verified. It
/// holds a file open and 256 KiB, more where records are larger, and never makes an append wait. One that
/// has read a mebibyte in order is helped by a thread, and holds 1.3 MiB.
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
/// PLIMSOLL_TRUNCATED: also what was read last, and others have come in its place; open another reader.
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

/// Frees a reader; NULL is nothing. The last call with it. In a forked child it is leaked.
#[unsafe(no_mangle)]
pub extern "C" fn plimsoll_reader_free(reader: Option<Box<ReaderHandle>>) {
    guard(null_mut(), || {
        if let Some(reader) = reader {
            reader.free();
        }
        Ok(())
    });
}

/// Reads a piece of a record that is written, without the rest of it: its bytes from `offset` on, as many
/// as there are or as `len` says. **Not checked**: the checksum covers the whole record, so have checksums
/// of your own in what you read so.
///
/// bytes: room for `len`, all of which may be written, also where this fails. read: how many there were; 0
/// behind the record's end.
///
/// PLIMSOLL_OUT_OF_RANGE: it is not written yet, or gone by retention. PLIMSOLL_CORRUPT: it is not where it
/// should be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_read_piece(
    log: LogRef<'_>,
    index: u64,
    offset: u64,
    bytes: *mut c_void,
    len: usize,
    read: *mut usize,
    error: *mut Failure,
) -> Code {
    guard(error, || {
        let read = needed(read, "read")?;
        let log = handle(log)?;
        // SAFETY: C promises so much room, for the time of this call.
        let bytes = unsafe { room(bytes, len)? };
        set(Some(read), log.with(|log| Ok(log.read_piece(index, offset, bytes)?))?);
        Ok(())
    })
}
