//! A record of the engine's log, a slot of the identity and a file of terms whose checksums are right, and the place of a
//! snapshot: each is refused, or is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{bounded, sealed};
use plimsoll_server::cluster::{Place, record_again, slot_again, terms_again};

fuzz_target!(|bytes: &[u8]| {
    if let Some(again) = bounded(bytes.len(), || record_again(bytes)) {
        assert_eq!(again, bytes);
    }
    if let Some(place) = bounded(bytes.len(), || Place::decode(bytes)) {
        assert_eq!(place.encode(), bytes);
    }
    if let Some(slot) = bytes.first_chunk::<72>() {
        let slot = sealed(slot).try_into().unwrap();
        if let Some(again) = slot_again(&slot) {
            assert_eq!(again, slot);
        }
    }
    let terms = sealed(bytes);
    if let Some(again) = bounded(bytes.len(), || terms_again(&terms)) {
        assert_eq!(again, terms);
    }
});
