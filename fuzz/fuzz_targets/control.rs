//! Changes of a catalog, of any bytes: each is refused, or is written as it was read; and what the
//! catalog intends is an entry of a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{bounded, parts};
use plimsoll_server::control::{Catalog, Change, reconcile};
use plimsoll_server::shard::State;

fuzz_target!(|bytes: &[u8]| {
    let mut catalog = Catalog::default();
    for part in parts(bytes) {
        let Ok(change) = bounded(part.len(), || Change::decode(part)) else { continue };
        assert_eq!(change.encode(), part);
        let before = catalog.clone();
        if catalog.apply(&change).is_err() {
            assert_eq!(catalog, before);
        }
    }
    for number in [0, 2, 3] {
        drop(reconcile(&catalog, number, &State::default()));
    }
});
