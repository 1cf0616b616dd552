//! Appends: a record, one in pieces, a batch.

use std::ffi::c_void;

use crate::boundary::{guard, set, slice, slices, wanted};
use crate::code::{Code, Failure, Refusal};
use crate::handle::{LogRef, handle};
use crate::options::{self, AckNumber};
use crate::report::Bytes;

/// A record takes at least so much of the ring.
const RECORD_BYTES_MIN: u64 = 24;
/// No record is gathered from more.
const PIECES_MAX: usize = 65_536;

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
