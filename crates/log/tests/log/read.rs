//! Reading from anywhere, and following what is appended.

use std::time::Duration;

use plimsoll_log::{Ack, Error, Log, Options, Policy};

use crate::common::{payload, scratch, small};

#[test]
fn a_reader_starts_anywhere() {
    let dir = scratch();
    let (log, _) = Log::open(dir.path(), small()).unwrap();
    for index in 1..=1000 {
        log.append(&payload(index)).unwrap();
    }
    log.sync().unwrap();
    for from in [1, 2, 99, 500, 999, 1000] {
        let mut reader = log.read_from(from).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!((record.index, record.payload), (from, &payload(from)[..]));
    }
    assert!(log.read_from(1001).unwrap().next_record().unwrap().is_none());
    assert!(matches!(log.read_from(1002), Err(Error::OutOfRange { .. })));
    assert!(matches!(log.read_from(0), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_piece_of_a_record_is_read_by_itself_wherever_the_record_is() {
    let dir = scratch();
    let options = Options { segment_bytes: 1 << 20, ring_bytes: 1 << 20, ..Options::default() };
    let (log, _) = Log::open(dir.path(), options).unwrap();
    let large: Vec<u8> = (0..300_000_u32).map(|byte| (byte / 7).to_le_bytes()[0]).collect();
    for index in 1..=900 {
        if index % 100 == 50 {
            let (front, back) = large.split_at(index * 300);
            assert_eq!(
                log.append_pieces(&[front, b"", back], Ack::Buffered).unwrap(),
                index as u64
            );
        } else {
            log.append(&payload(index as u64)).unwrap();
        }
    }
    log.sync().unwrap();
    assert!(log.stats().segments > 2);
    let mut piece = [0; 1000];
    for index in (50..900).step_by(100) {
        for offset in [0, 1, 150_000, 299_000_usize] {
            assert_eq!(log.read_piece(index, offset as u64, &mut piece).unwrap(), 1000);
            assert_eq!(piece[..], large[offset..][..1000], "record {index} at {offset}");
        }
        assert_eq!(log.read_piece(index, 299_990, &mut piece).unwrap(), 10, "its end");
        for behind in [300_000, u64::MAX] {
            assert_eq!(log.read_piece(index, behind, &mut piece).unwrap(), 0, "behind it");
        }
    }
    for index in [1, 2, 49, 51, 399, 900] {
        let whole = payload(index);
        assert_eq!(log.read_piece(index, 0, &mut piece).unwrap(), whole.len());
        assert_eq!(piece[..whole.len()], whole[..]);
    }
    assert!(matches!(log.read_piece(901, 0, &mut piece), Err(Error::OutOfRange { .. })));
    assert!(matches!(log.read_piece(0, 0, &mut piece), Err(Error::OutOfRange { .. })));
}

#[test]
fn a_follower_sees_every_record_in_order_while_they_are_appended() {
    for level in [Ack::Written, Ack::Durable] {
        let dir = scratch();
        let (log, _) = Log::open(dir.path(), small()).unwrap();
        let mut follower = log.follow(1, level).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for index in 1..=2000 {
                    log.append(&payload(index)).unwrap();
                }
                log.sync().unwrap();
            });
            for index in 1..=2000 {
                let record = follower.next_record().unwrap();
                assert_eq!((record.index, record.payload), (index, &payload(index)[..]));
            }
        });
        assert!(follower.next_within(Duration::from_millis(1)).unwrap().is_none());
        log.close().unwrap();
        assert!(matches!(follower.next_record(), Err(Error::Closed)));
    }
}

/// Long reads are read ahead by a thread: past frames that cross pieces, records larger than what is
/// read at once, ends of segments, and the end of a log that grows meanwhile.
#[test]
fn a_long_read_finds_every_record_while_the_log_grows() {
    let sizes = [100_usize, 1000, 70_000, 7, 140_000, 4096, 300_000, 0, 33_333];
    let record = |index: u64| -> Vec<u8> {
        let len = sizes[usize::try_from(index).unwrap() % sizes.len()];
        (0..len).map(|byte| (byte as u64 * 7 + index).to_le_bytes()[0]).collect()
    };
    let tmp = scratch();
    let options = Options {
        policy: Policy::Never,
        segment_bytes: 16 << 20,
        ring_bytes: 4 << 20,
        ..Options::default()
    };
    let (log, _) = Log::open(tmp.path(), options).unwrap();
    let (half, last) = (500, 1000);
    (1..=half).for_each(|index| assert_eq!(log.append(&record(index)).unwrap(), index));
    log.sync().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in half + 1..=last {
                log.append(&record(index)).unwrap();
            }
        });
        let mut follower = log.follow(1, Ack::Written).unwrap();
        for index in 1..=last {
            let read = follower.next_record().unwrap();
            assert_eq!((read.index, read.payload), (index, &*record(index)));
        }
        // From near the end, and back again.
        for from in [900, 3, 499] {
            let mut reader = log.read_from(from).unwrap();
            for index in from..=last {
                let read = reader.next_record().unwrap().unwrap();
                assert_eq!((read.index, read.payload), (index, &*record(index)));
            }
            assert!(reader.next_record().unwrap().is_none());
        }
    });
    assert!(log.stats().rotations > 1);
}
