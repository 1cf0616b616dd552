//! A snapshot of the groups whose checksum is right, and changes behind it, all anything: each is
//! refused, or is written as it was read; what the changes make can be read again, and led.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{bounded, parts, sealed};
use plimsoll_server::groups::{Change, Groups, Settings, Store};

const NOW: u64 = 1_800_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = parts(bytes);
    let mut store = parts.next().and_then(snapshot).unwrap_or_default();
    for part in parts {
        let Ok(change) = bounded(part.len(), || Change::decode(part)) else { continue };
        assert_eq!(change.encode(), part);
        let before = store.clone();
        if store.apply(&change).is_err() {
            assert_eq!(store, before);
        }
    }
    assert_eq!(Store::decode(&store.encode()).as_ref(), Ok(&store));
    lead(&store);
});

fn snapshot(body: &[u8]) -> Option<Store> {
    let bytes = sealed(body);
    let store = bounded(bytes.len(), || Store::decode(&bytes)).ok()?;
    assert_eq!(store.encode(), bytes);
    Some(store)
}

/// Loads all of them, looks at each, and lets time pass until all members are gone.
fn lead(store: &Store) {
    let mut groups = Groups::load(Settings::default(), store, NOW);
    for (name, _) in store.groups() {
        drop(groups.describe(name));
    }
    drop(groups.expire(store, NOW));
    drop(groups.tick(NOW + u64::from(u32::MAX)));
}
