//! Bytes that are no entry and no snapshot: an error, never a panic, and no memory for what they claim.

use plimsoll_server::shard::{Draft, Entry, Item, Malformed, State};
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::batch::{batch, opening};

fn entry() -> Vec<u8> {
    let mut draft = Draft::new();
    draft.push_batch(opening(0, 1), 0, 0, &batch(2, None, 0));
    draft.push(&Item::Ceiling { opening: opening(0, 1), ceiling: Some(4) });
    draft.finish(9).to_vec()
}

/// All items, or the first error.
fn read(bytes: &[u8]) -> Result<usize, Malformed> {
    let items: Result<Vec<_>, _> = Entry::decode(bytes)?.items().collect();
    items.map(|items| items.len())
}

#[test]
fn an_entry_that_is_cut_short_is_none() {
    let whole = entry();
    assert_eq!(read(&whole), Ok(2));
    for end in 0..whole.len() {
        assert!(read(&whole[..end]).is_err(), "{end} of {} bytes", whole.len());
    }
}

#[test]
fn an_entry_with_more_behind_it_is_none() {
    let mut more = entry();
    more.push(0);
    assert!(read(&more).is_err());
    // Nor is one that says so itself.
    let length = u32::try_from(more.len()).unwrap();
    more[4..8].copy_from_slice(&length.to_le_bytes());
    assert_eq!(read(&more), Err(Malformed::Trailing(1, "an entry's items")));
}

#[test]
fn a_snapshot_with_any_byte_changed_is_none() {
    let mut state = State::default();
    state.pass(1, 1).unwrap();
    let whole = state.encode();
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0x10;
        assert!(State::decode(&changed).is_err(), "byte {place}");
        assert!(State::decode(&whole[..place]).is_err(), "{place} bytes");
    }
}

/// The next entry, leadership or fence would have had no number.
#[test]
fn a_snapshot_that_nothing_could_follow_is_none() {
    const APPLIED: usize = 16;
    const TURNS: usize = 40;
    for place in [APPLIED, TURNS] {
        let mut body = State::default().encode();
        body.truncate(body.len() - 8);
        body[place..place + 8].fill(0xff);
        let checksum = XxHash3_64::oneshot(&body);
        body.extend(checksum.to_le_bytes());
        assert!(matches!(State::decode(&body), Err(Malformed::Field(_, u64::MAX))), "{place}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_an_entry_panic(
        place in 0_usize..200, value: u8, more in prop::collection::vec(any::<u8>(), 0..64)
    ) {
        let mut bytes = entry();
        let place = place % bytes.len();
        bytes[place] = value;
        let _unread = read(&bytes);
        bytes.truncate(place);
        bytes.extend(more);
        let _unread = read(&bytes);
        drop(State::default().apply(1, &bytes, &mut Vec::new()));
    }
}
