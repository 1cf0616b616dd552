//! Bytes that are no mark, no witness and no list of starts: an error or a doubt, never a panic, and never innocence.

use std::collections::BTreeMap;

use plimsoll_server::run::{
    Doubt, Error, Mark, Run, SHARDS_MAX, SLOT_BYTES, Starts, State, Verdict,
};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir, SyncMethod};
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::{begin, ends, memory, start};

fn change(dir: &SimDir, name: &str, at: u64, change: impl Fn(u8) -> u8) {
    let file = dir.open(name, SyncMethod::ORDINARY.access()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_sync_at(&[change(byte[0])], at, SyncMethod::ORDINARY).unwrap();
}

fn doubt(verdict: &Verdict) -> Option<Doubt> {
    match verdict {
        Verdict::MayHaveLost(loss) => Some(loss.doubt),
        Verdict::NothingLost(_) => None,
    }
}

/// The newest slot said *running*. Once it was damaged the one before, *quiesced*, was believed,
/// and the next start had forgotten that anything was wrong.
#[test]
fn one_damaged_byte_leaves_a_doubt_that_lasts_until_there_is_a_fence() {
    for at in (0..2 * SLOT_BYTES as u64).step_by(37).chain([4088, 8191]) {
        let (data, memory) = (SimDir::new(), memory());
        let (run, _) = begin(&data, &memory, &ends([]));
        assert!(run.quiesce(&ends([]), 1001).unwrap());
        run.acknowledged(3, 1).unwrap();
        change(&data, "run", at, |byte| byte ^ 0x10);
        let (data, memory) = (data.crash(Crash::Process, 0), memory.crash(Crash::Process, 0));
        for _ in 0..2 {
            let (again, verdict) = begin(&data, &memory, &ends([]));
            assert_eq!(doubt(&verdict), Some(Doubt::Unsettled), "byte {at}");
            assert!(again.incarnation() > run.incarnation());
            assert!(!again.close(&ends([]), 1002).unwrap(), "a doubt is no clean end");
        }
        let (fenced, _) = begin(&data, &memory, &ends([]));
        fenced.fenced(&ends([(3, 2)]), 1003).unwrap();
        let (_, verdict) = begin(&data, &memory, &ends([(3, 2)]));
        assert_eq!(doubt(&verdict), None);
    }
}

#[test]
fn a_file_without_a_whole_slot_is_refused_and_left_as_it_is() {
    let (data, memory) = (SimDir::new(), memory());
    begin(&data, &memory, &ends([]));
    change(&data, "run", 0, |byte| byte + 1);
    change(&data, "run", 4096, |byte| byte + 1);
    for _ in 0..2 {
        let refused = Run::begin(start(&data, &memory), &ends([]));
        assert!(matches!(refused, Err(Error::Unreadable(_))));
    }
    let file = data.open("run", SyncMethod::ORDINARY.access()).unwrap();
    for length in [0, 1, 4095] {
        file.truncate(length).unwrap();
        assert!(matches!(Run::begin(start(&data, &memory), &ends([])), Err(Error::Unreadable(_))));
    }
}

#[test]
fn a_witness_with_one_changed_byte_is_none() {
    for at in (0..160).chain([8255]) {
        let (data, memory) = (SimDir::new(), memory());
        let (run, _) = begin(&data, &memory, &ends([]));
        for (shard, index) in [(3, 1), (4, 7), (3, 9)] {
            run.acknowledged(shard, index).unwrap();
        }
        change(&memory, "witness-1", at, |byte| byte ^ 0x10);
        let (_, verdict) = begin(&data, &memory, &ends([(3, 9), (4, 7)]));
        assert_eq!(doubt(&verdict), Some(Doubt::NoWitness), "byte {at}");
    }
}

#[test]
fn a_witness_that_is_short_or_goes_on_is_none() {
    for length in [0, 63, 64, 8255, 8257, 1 << 20] {
        let (data, memory) = (SimDir::new(), memory());
        begin(&data, &memory, &ends([])).0.busy(1000).unwrap();
        let file = memory.open("witness-1", SyncMethod::ORDINARY.access()).unwrap();
        file.truncate(length).unwrap();
        let (_, verdict) = begin(&data, &memory, &ends([]));
        assert_eq!(doubt(&verdict), Some(Doubt::NoWitness), "{length} bytes");
    }
}

/// What it says is no evidence then, and the next start goes on behind the mark.
#[test]
fn a_list_of_starts_with_one_changed_byte_is_none_and_is_begun_anew() {
    for at in 0..64 {
        let (data, memory) = (SimDir::new(), memory());
        drop((begin(&data, &memory, &ends([])), begin(&data, &memory, &ends([]))));
        change(&data, "starts", at, |byte| byte ^ 0x10);
        assert_eq!(Starts::read(&data).unwrap(), Starts::default(), "byte {at}");
        assert!(!Run::went_back(&data, &memory).unwrap(), "byte {at}");
        let (run, verdict) = begin(&data, &memory, &ends([]));
        assert_eq!((run.incarnation(), doubt(&verdict)), (3, None), "byte {at}");
        assert_eq!(run.starts().newest(9), [(3, 9)]);
    }
}

/// One slot of a copy's mark was damaged: it counted one more, as the run that memory knew of, and was believed.
#[test]
fn a_directory_that_went_back_is_found_out_though_its_mark_is_damaged() {
    for slot in [0, SLOT_BYTES as u64] {
        let (data, memory) = (SimDir::new(), memory());
        drop(begin(&data, &memory, &ends([])));
        let copy = data.crash(Crash::Process, 0);
        drop(begin(&data, &memory, &ends([])));
        change(&copy, "run", slot + 100, |byte| byte ^ 0x10);
        assert!(Run::went_back(&copy, &memory).unwrap(), "slot at {slot}");
        change(&data, "run", slot + 100, |byte| byte ^ 0x10);
        assert!(!Run::went_back(&data, &memory).unwrap(), "slot at {slot}");
    }
}

#[test]
fn more_shards_than_there_is_room_for_are_refused() {
    let (data, memory) = (SimDir::new(), memory());
    let shards = |count: usize| -> BTreeMap<u32, u64> {
        (0..u32::try_from(count).unwrap()).map(|shard| (shard, 0)).collect()
    };
    let many = Run::begin(start(&data, &memory), &shards(SHARDS_MAX + 1));
    assert!(matches!(many, Err(Error::TooManyShards { count: 257, .. })));
    assert_eq!(data.list().unwrap(), Vec::<String>::new());
    let (run, _) = begin(&data, &memory, &shards(SHARDS_MAX));
    run.acknowledged(0, 5).unwrap();
    assert!(matches!(run.acknowledged(1000, 1), Err(Error::TooManyShards { count: 257, .. })));
    assert!(matches!(run.quiesce(&shards(257), 0), Err(Error::TooManyShards { count: 257, .. })));
}

proptest! {
    #[test]
    fn a_list_of_starts_that_can_be_read_is_written_as_it_was(place in 0_usize..56, value: u8) {
        let (data, memory) = (SimDir::new(), memory());
        drop((begin(&data, &memory, &ends([])), begin(&data, &memory, &ends([]))));
        let mut bytes = Starts::read(&data).unwrap().encode();
        bytes[place] = value;
        let (body, checksum) = bytes.split_last_chunk_mut::<8>().unwrap();
        *checksum = XxHash3_64::oneshot(body).to_le_bytes();
        if let Ok(starts) = Starts::decode(&bytes) {
            prop_assert_eq!(starts.encode(), bytes);
        }
    }

    /// With a checksum that is right.
    #[test]
    fn a_mark_that_can_be_read_is_written_as_it_was(
        place in 0_usize..120,
        value: u8,
        state in 0_usize..4,
    ) {
        let state =
            [State::Running, State::Quiesced, State::Clean, State::Doubtful][state];
        let ends = ends([(3, 50), (4, 0), (9, 1)]);
        let mark = Mark { data: 42, incarnation: 9, boot: Some(7), state, when_ms: 1000, ends };
        let mut slot = mark.encode(6);
        slot[place] = value;
        let (body, checksum) = slot.split_last_chunk_mut::<8>().unwrap();
        *checksum = XxHash3_64::oneshot(body).to_le_bytes();
        if let Ok((sequence, mark)) = Mark::decode(&slot) {
            prop_assert_eq!(mark.encode(sequence), slot);
        }
    }
}
