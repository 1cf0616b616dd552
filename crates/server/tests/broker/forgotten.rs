//! Three brokers, of which one has a directory that went back to an earlier state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_server::broker::{Failed, Node, Options, Seat, found};

use super::forwarded::{three_of, until};
use super::unsynced;

/// It went on voting until it had closed, which while it was given something could take long.
#[test]
#[expect(clippy::disallowed_methods, reason = "nothing is to happen for a while")]
fn who_is_refused_votes_for_nobody_from_then_on() {
    let root = tempfile::tempdir().unwrap();
    let dir = |id: u64| root.path().join(id.to_string());
    let cluster = found(&dir(1)).unwrap();
    let seats = RefCell::new(BTreeMap::<u64, Seat>::new());
    let open = |id: u64, seat: &Seat| {
        let options = Options { seat: Some(seat.clone()), spreads_leaders: false, ..unsynced() };
        Node::open(&dir(id), options).unwrap()
    };
    let mut brokers = three_of(&cluster, |id, seat| {
        let node = open(id, &seat);
        seats.borrow_mut().insert(id, seat);
        node
    });
    let seats = seats.into_inner();
    brokers.remove(&2).unwrap().close();
    brokers.remove(&3).unwrap().close();
    let copy = root.path().join("copy");
    copy_all(&dir(3), &copy);
    let first = brokers.remove(&1).unwrap();
    // The first meets a start that the second has not heard of, and the copy has forgotten.
    let third = open(3, &seats[&3]);
    until("it is met", || {
        let rolls = first.node.runtime().block_on(first.node.roll());
        rolls[0].rows.iter().any(|row| row.node == 3)
    });
    third.close().unwrap();
    fs::remove_dir_all(dir(3)).unwrap();
    copy_all(&copy, &dir(3));
    let (second, third) = (open(2, &seats[&2]), open(3, &seats[&3]));
    until("it is refused", || matches!(third.lost(), Some(Failed::WentBack { .. })));
    first.close();
    let nobody_leads =
        || [&second, &third].iter().all(|node| node.shards().iter().all(|shard| !shard.leads));
    // The first may have had the second lead as it closed, which does not see at once that it is left by itself.
    until("nobody leads", nobody_leads);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        assert!(nobody_leads(), "two of three are no majority");
        thread::sleep(Duration::from_millis(20));
    }
    second.close().unwrap();
    third.close().unwrap();
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}
