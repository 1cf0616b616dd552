//! Who is next.

use plimsoll_server::shard::{Fair, QUANTUM_BYTES};

/// Takes all that waits, and says of whom and how many bytes.
fn take_all(fair: &mut Fair<u8, u64>) -> Vec<(u64, usize)> {
    std::iter::from_fn(|| fair.pop_if(|_, _| true)).map(|(bytes, of)| (of, bytes)).collect()
}

#[test]
fn connections_get_as_many_bytes_as_each_other_whatever_they_send() {
    let mut fair = Fair::new();
    for _ in 0..1000 {
        fair.push(1, 0, QUANTUM_BYTES / 2, 1);
    }
    for _ in 0..4000 {
        fair.push(2, 0, 1024, 2);
    }
    // While both wait, neither is ahead by more than a turn and what did not fit into the one before.
    let mut bytes = [0_usize; 2];
    for (of, taken) in take_all(&mut fair).into_iter().take(2000) {
        bytes[usize::try_from(of).unwrap() - 1] += taken;
        assert!(bytes[0].abs_diff(bytes[1]) <= 2 * QUANTUM_BYTES, "{bytes:?}");
    }
}

#[test]
fn a_small_batch_waits_for_one_turn_of_each_other_connection_at_most() {
    let mut fair = Fair::new();
    for _ in 0..100 {
        fair.push(1, 0, QUANTUM_BYTES, 1);
        fair.push(2, 0, 10 * QUANTUM_BYTES, 2);
    }
    fair.push(3, 0, 100, 3);
    let taken = take_all(&mut fair);
    let before = taken.iter().position(|(of, _)| *of == 3).unwrap();
    assert!(before <= 2, "{:?}", &taken[..=before]);
    assert_eq!(fair.bytes(), 0);
}

#[test]
fn a_batch_of_many_turns_comes_in_the_end() {
    let mut fair = Fair::new();
    fair.push(1, 0, 20 * QUANTUM_BYTES, 1);
    for _ in 0..100 {
        fair.push(2, 0, QUANTUM_BYTES, 2);
    }
    let at = take_all(&mut fair).iter().position(|(of, _)| *of == 1).unwrap();
    assert!((19..=21).contains(&at), "after {at} turns");
}

#[test]
fn partitions_of_a_connection_take_turns_and_each_stays_in_order() {
    let mut fair = Fair::new();
    for (partition, number) in [(0, 1), (0, 2), (0, 3), (1, 10), (1, 11), (2, 20)] {
        fair.push(1, partition, 100, number);
    }
    let taken: Vec<u64> = take_all(&mut fair).into_iter().map(|(of, _)| of).collect();
    assert_eq!(taken, [1, 10, 20, 2, 11, 3]);
}

#[test]
fn what_has_no_room_stays_the_next() {
    let mut fair: Fair<u8, u64> = Fair::new();
    fair.push(1, 0, 100, 1);
    fair.push(2, 0, 10, 2);
    assert_eq!(fair.pop_if(|bytes, _| bytes < 50), None);
    assert_eq!(fair.bytes(), 110);
    assert_eq!(fair.pop_if(|_, _| true), Some((100, 1)));
    assert_eq!(fair.pop_if(|_, _| true), Some((10, 2)));
    assert_eq!((fair.bytes(), fair.pop_if(|_, _| true)), (0, None));
}
