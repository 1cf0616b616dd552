//! Records go from the ring into a segment: checked by nobody on the way, copied once.

use crate::append::ring::{Queued, Ring};
use crate::error::Result;
use crate::segment::active::Active;
use crate::segment::format::FRAME_BYTES;

/// Takes records up to `filled` that are no part of a larger batch and fit, into the segment and beside
/// what is staged: most of them. Until a write is due, or the next one is no such record.
pub(super) fn take_small(ring: &Ring, active: &mut Active, taken: &mut u64, filled: u64) {
    while *taken < filled && !active.is_write_due() {
        let queued = ring.head(*taken);
        let bytes = queued.frame.bytes() as u64;
        if queued.frame.more > 0 || !active.has_room(bytes) || !active.fits(bytes) {
            return;
        }
        take_whole(ring, active, taken, queued);
    }
}

/// Takes a record, or a whole batch, which lies in one segment.
pub(super) fn take_unit(ring: &Ring, active: &mut Active, taken: &mut u64) -> Result<()> {
    let end = *taken + unit_bytes(ring, *taken);
    while *taken < end {
        take_record(ring, active, taken)?;
    }
    Ok(())
}

/// Bytes of the record or the batch that begins there.
pub(super) fn unit_bytes(ring: &Ring, taken: u64) -> u64 {
    let mut bytes = 0;
    loop {
        let frame = ring.head(taken + bytes).frame;
        bytes += frame.bytes() as u64;
        if frame.more == 0 {
            return bytes;
        }
    }
}

/// A record for which there is room in the staging.
fn take_whole(ring: &Ring, active: &mut Active, taken: &mut u64, queued: Queued) {
    let payload_bytes = queued.frame.payload_bytes as usize;
    let padded = active.stage_whole(queued.frame, queued.payload_hash);
    ring.read(*taken + FRAME_BYTES as u64, padded);
    padded[payload_bytes..].fill(0);
    *taken += queued.frame.bytes() as u64;
}

fn take_record(ring: &Ring, active: &mut Active, taken: &mut u64) -> Result<()> {
    let queued = ring.head(*taken);
    if active.has_room(queued.frame.bytes() as u64) {
        take_whole(ring, active, taken, queued);
        return Ok(());
    }
    active.stage_head(queued.frame, queued.payload_hash)?;
    let mut position = *taken + FRAME_BYTES as u64;
    let mut left = queued.frame.payload_bytes as usize;
    while left > 0 {
        let piece = active.stage_payload(left)?;
        ring.read(position, piece);
        position += piece.len() as u64;
        left -= piece.len();
    }
    active.end_record()?;
    *taken += queued.frame.bytes() as u64;
    Ok(())
}
