//! A snapshot of a shard whose checksum is right, and an entry behind it, both anything: each is
//! refused, or is written as it was read; and what the entry makes of the state can be read again.
#![no_main]

use std::hint::black_box;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use plimsoll_fuzz::{bounded, parts, sealed};
use plimsoll_server::shard::{Draft, Entry, Held, Item, Malformed, State};

fuzz_target!(|bytes: &[u8]| {
    let mut parts = parts(bytes);
    let mut state = parts.next().and_then(snapshot).unwrap_or_default();
    for entry in parts {
        if let Ok(items) = bounded(entry.len(), || read(entry)) {
            again(entry, &items);
            let held = bounded(entry.len(), || Held::new(Bytes::copy_from_slice(entry)));
            held.expect("an entry whose items are read has places");
        }
        if state.apply(state.applied() + 1, entry, &mut Vec::new()).is_err() {
            // Nothing may be made of it any more.
            return;
        }
        assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
        look(&state);
    }
});

fn snapshot(body: &[u8]) -> Option<State> {
    let bytes = sealed(body);
    let state = bounded(bytes.len(), || State::decode(&bytes)).ok()?;
    assert_eq!(state.encode(), bytes);
    look(&state);
    Some(state)
}

fn read(entry: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    Entry::decode(entry)?.items().collect()
}

/// What is not a batch is written as it was read; batches are not copied.
fn again(bytes: &[u8], items: &[Item<'_>]) {
    let mut draft = Draft::new();
    let acts: Vec<_> = items.iter().filter(|item| !matches!(item, Item::Batch { .. })).collect();
    acts.iter().for_each(|item| draft.push(item));
    if draft.is_empty() {
        return;
    }
    let written = draft.finish(Entry::decode(bytes).unwrap().time);
    assert_eq!(read(&written).unwrap().iter().collect::<Vec<_>>(), acts);
    if acts.len() == items.len() {
        // All but the flag, which may say more than the items ask for.
        assert_eq!((&written[2..], written[0]), (&bytes[2..], bytes[0]));
    }
}

/// All that is asked of a state.
fn look(state: &State) {
    black_box(state.needs_from());
    black_box(state.is_due(u64::MAX));
    for (_, partition) in state.partitions() {
        let (start, next) = (partition.start(), partition.next());
        for offset in [start, next, i64::MAX] {
            black_box(partition.point_of(offset));
            partition.points_from(offset).count();
            black_box(partition.point_at_time(offset));
        }
        partition.gaps().for_each(|gap| assert!(gap.from < gap.to));
        partition.end_of_epoch(i32::MAX);
        partition.epoch(state.turns());
        partition.end_at(state.applied());
    }
}
