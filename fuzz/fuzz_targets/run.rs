//! A slot of the mark, a witness, and a list of starts, whose checksums are right and which say anything:
//! each is refused, or is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{bounded, sealed};
use plimsoll_server::run::{Mark, SHARDS_MAX, SLOT_BYTES, Starts, Witness};
use twox_hash::XxHash3_64;

const HEAD_BYTES: usize = 56;
const PLACE_BYTES: usize = 32;
const WITNESS_BYTES: usize = HEAD_BYTES + 8 + SHARDS_MAX * PLACE_BYTES;

fuzz_target!(|bytes: &[u8]| {
    mark(bytes);
    witness(bytes);
    starts(bytes);
});

fn starts(bytes: &[u8]) {
    let bytes = sealed(bytes);
    if let Ok(starts) = bounded(bytes.len(), || Starts::decode(&bytes)) {
        assert!(starts.encode() == bytes, "{starts:?}");
    }
}

fn mark(bytes: &[u8]) {
    let mut body = bytes.to_vec();
    body.resize(SLOT_BYTES - 8, 0);
    let slot = sealed(&body).try_into().unwrap();
    if let Ok((sequence, mark)) = bounded(SLOT_BYTES, || Mark::decode(&slot)) {
        assert!(mark.encode(sequence) == slot, "{mark:?}");
    }
}

/// A head, and places of 16 bytes, each with its checksum behind it.
fn witness(bytes: &[u8]) {
    let Some((head, places)) = bytes.split_at_checked(HEAD_BYTES) else { return };
    let mut bytes = sealed(head);
    let seed = XxHash3_64::oneshot(head);
    for place in places.chunks_exact(16).take(SHARDS_MAX) {
        bytes.extend(place);
        bytes.extend(XxHash3_64::oneshot_with_seed(seed, place).to_le_bytes());
        bytes.extend([0; 8]);
    }
    bytes.resize(WITNESS_BYTES, 0);
    let Ok(witness) = bounded(bytes.len(), || Witness::decode(&bytes)) else { return };
    assert_eq!(Witness::decode(&witness.encode()).as_ref(), Ok(&witness));
}
