//! What was written stays readable, byte for byte.

use plimsoll_server::shard::{
    Draft, Entry, Fence, Generation, Item, Open, Producers, Sequenced, Settings, State, Why,
};

use super::batch::{batch, opening};
use super::testdata::golden;

/// Every kind of item once, in an order that can be applied behind a leadership.
fn entries() -> Vec<Vec<u8>> {
    let at = opening(3, 1);
    let settings = Settings {
        retention_ms: Some(604_800_000),
        retention_bytes: None,
        batch_bytes_max: 1_048_588,
        append_timestamps: true,
        compaction: None,
    };
    let fence = Fence { why: Why::UncleanStart, guaranteed: 2, given: Some(9), since: 1_000_000 };
    let sequenced = Some(Sequenced { producer: 77, epoch: 2, first: 0 });
    let producers = Producers::default();

    let mut acts = Draft::new();
    acts.push(&Item::Feature(1));
    acts.push(&Item::Open(Open { opening: at, base_epoch: 4, start: 10, settings, producers }));
    acts.push(&Item::Ceiling { opening: at, ceiling: Some(1000) });
    let mut batches = Draft::new();
    batches.push_batch(at, 10, 4, &batch(2, sequenced, 1_000_001));
    batches.push_batch(at, 12, 4, &batch(1, None, -1));
    let mut after = Draft::new();
    after.push(&Item::Fence(fence));
    after.push(&Item::Trim { opening: at, start: 11 });
    after.push(&Item::Configure {
        opening: at,
        settings: Settings { retention_ms: None, ..settings },
    });
    after.push(&Item::Advance);
    after.push(&Item::ChapterEnd(1));
    let mut last = Draft::new();
    last.push(&Item::Close { opening: at });
    let mut intended = Draft::new();
    intended.push(&Item::Intended(12));
    let mut after_loss = Draft::new();
    after_loss.push(&Item::Fence(Fence { why: Why::Operator, ..fence }));
    after_loss.push(&Item::Generation(Generation { number: 3, digest: 1 << 90 }));
    vec![
        acts.finish(1_000_000).to_vec(),
        batches.finish(1_000_001).to_vec(),
        after.finish(1_000_002).to_vec(),
        last.finish(1_000_003).to_vec(),
        intended.finish(1_000_004).to_vec(),
        after_loss.finish(1_000_005).to_vec(),
    ]
}

#[test]
fn entries_are_written_and_read_as_ever() {
    for (number, entry) in entries().iter().enumerate() {
        assert_eq!(
            entry,
            &golden(&format!("shard/testdata/entry-{number}.v1"), entry),
            "entry {number}"
        );
        let read: Result<Vec<_>, _> = Entry::decode(entry).unwrap().items().collect();
        let mut draft = Draft::new();
        for item in read.unwrap() {
            draft.push(&item);
        }
        let time = Entry::decode(entry).unwrap().time;
        assert_eq!(&draft.finish(time).to_vec(), entry, "entry {number} is not what it says");
    }
}

#[test]
fn a_snapshot_is_written_and_read_as_ever() {
    let mut state = State::default();
    state.pass(1, 1).unwrap();
    for (index, entry) in (2..).zip(entries()) {
        state.apply(index, &entry, &mut Vec::new()).unwrap();
    }
    let bytes = state.encode();
    assert_eq!(bytes, golden("shard/testdata/state.v4", &bytes));
    assert_eq!(State::decode(&bytes), Ok(state));
}

#[test]
fn a_snapshot_of_version_3_is_read_as_ever() {
    let mut state = State::default();
    state.pass(1, 1).unwrap();
    for (index, entry) in (2..).zip(entries()).take(5) {
        state.apply(index, &entry, &mut Vec::new()).unwrap();
    }
    assert_eq!(State::decode(include_bytes!("testdata/state.v3")), Ok(state));
}

#[test]
fn a_snapshot_of_version_2_is_read_as_ever() {
    let mut state = State::default();
    state.pass(1, 1).unwrap();
    // What came with the version after it stands last.
    for (index, entry) in (2..).zip(entries()).take(4) {
        state.apply(index, &entry, &mut Vec::new()).unwrap();
    }
    assert_eq!(State::decode(include_bytes!("testdata/state.v2")), Ok(state));
}

/// It had no chapters: all that it has is of the one that is open.
#[test]
fn a_snapshot_of_version_1_is_read_as_ever() {
    let state = State::decode(include_bytes!("testdata/state.v1")).unwrap();
    let partition = state.partition(opening(3, 1)).unwrap();
    assert_eq!((state.applied(), partition.start(), partition.next()), (5, 11, 1000));
    assert_eq!(partition.point_of(11).map(|point| point.index), Some(3));
    assert_eq!((state.ended().len(), state.open_chapter()), (0, Some((152, 1_000_001))));
}
