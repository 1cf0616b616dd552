//! Bytes that are no change: an error, never a panic, and no memory for what they claim.

use plimsoll_server::control::{Arrival, Catalog, Change};
use proptest::prelude::*;

use super::{id, settings};

fn bytes() -> Vec<u8> {
    let settings = settings(&[("retention.ms", "60000"), ("cleanup.policy", "compact")]);
    let (name, shards) = ("orders".to_owned(), vec![3, 4]);
    Change::Create { id: id(1), name, shards, settings }.encode()
}

#[test]
fn a_change_that_is_cut_short_or_goes_on_is_none() {
    let mut whole = bytes();
    for end in 0..whole.len() {
        Change::decode(&whole[..end]).unwrap_err();
    }
    whole.push(0);
    Change::decode(&whole).unwrap_err();
}

#[test]
fn a_count_of_partitions_is_held_against_the_bytes_that_remain() {
    let mut huge = Change::Grow { id: id(1), shards: vec![1] }.encode();
    huge[18..22].copy_from_slice(&u32::MAX.to_le_bytes());
    Change::decode(&huge).unwrap_err();
    for change in moves() {
        let whole = change.encode();
        for end in 0..whole.len() {
            Change::decode(&whole[..end]).unwrap_err();
        }
        let mut huge = whole;
        huge[18..22].copy_from_slice(&u32::MAX.to_le_bytes());
        Change::decode(&huge).unwrap_err();
    }
}

fn moves() -> [Change; 2] {
    let arrival = Arrival { partition: 0, shard: 4, opening: 2, base_epoch: 9, start: 5 };
    [
        Change::Move { id: id(1), partitions: vec![(0, 4), (1, 6)] },
        Change::Moved { id: id(1), arrivals: vec![arrival] },
    ]
}

proptest! {
    #[test]
    fn what_can_be_read_is_written_as_it_was(place in 0_usize..200, value: u8) {
        let mut bytes = bytes();
        let place = place % bytes.len();
        bytes[place] = value;
        if let Ok(change) = Change::decode(&bytes) {
            prop_assert_eq!(change.encode(), bytes);
            Catalog::default().apply(&change).unwrap();
        }
    }
}
