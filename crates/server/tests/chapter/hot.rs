//! A start reads on where chapters were read last.

use std::sync::Arc;

use plimsoll_server::shard::Batch;
use plimsoll_simdisk::{Operation, SimDir};
use plimsoll_sync::{Access, Crash, Dir};

use super::log::{OF_SMALL, SMALL_ENDS, bytes_of, shelf, small};

const FILE: &str = "hot";

/// Both chapters, of which somebody read one batch of one partition before it was stopped; and the bytes behind that.
fn stopped() -> (Arc<SimDir>, usize) {
    let (log, disk) = (small(), Arc::new(SimDir::new()));
    let (shelf, mut state) = (shelf(&disk), log.state_at(SMALL_ENDS));
    log.settle_next(&shelf, &mut state).unwrap();
    log.settle_next(&shelf, &mut state).unwrap();
    let of = OF_SMALL[0]();
    let read = shelf.read(of, 0, i64::MAX, 1).unwrap();
    let next = Batch::read(read.last().unwrap()).unwrap().end().unwrap();
    let behind = shelf.read(of, next, i64::MAX, usize::MAX).unwrap();
    assert_eq!(read.len(), 1);
    assert!(!behind.is_empty());
    shelf.read(of, 0, i64::MAX, 1).unwrap();
    shelf.remember();
    (disk, behind.iter().map(bytes::Bytes::len).sum())
}

#[test]
fn a_start_reads_on_where_it_was_stopped() {
    let (disk, behind) = stopped();
    let disk = Arc::new(disk.power_cut(7));
    let shelf = shelf(&disk);
    let reads = || disk.history().iter().filter(|step| step.operation == Operation::Read).count();
    let before = reads();
    assert_eq!(shelf.warm(), behind);
    assert!(reads() > before);
    // Who is told to end reads nothing more.
    shelf.end();
    assert_eq!(shelf.warm(), 0);
}

#[test]
fn a_start_does_without_places_that_are_damaged_or_missing() {
    let (disk, _) = stopped();
    let length = bytes_of(&disk, FILE).len() as u64;
    for at in 0..=length {
        let disk = Arc::new(disk.crash(Crash::Process, 0));
        let file = disk.open(FILE, Access::default()).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 0xff], at).unwrap();
        assert_eq!(shelf(&disk).warm(), 0, "byte {at}");
    }
    disk.remove(FILE).unwrap();
    assert_eq!(shelf(&disk).warm(), 0);
}
