//! Three brokers, of which one has, or two have, a disk that is full.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_server::broker::{Node, Options, found};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_simdisk::{DiskOptions, SimDir};
use plimsoll_sync::{Access, Allocation, Dir, File};

use super::forwarded::{metadata, three_of, until};
use super::unsynced;

const SHARED: usize = 2;

fn small() -> Arc<dyn Dir> {
    let capacity_bytes = Some(1 << 30);
    let disk = DiskOptions { capacity_bytes, history_steps: 0, ..DiskOptions::default() };
    Arc::new(SimDir::with(disk))
}

/// Others fill it, up to within the upper half of the reserve.
fn fill(disk: &Arc<dyn Dir>) -> Arc<dyn File> {
    let free_bytes = disk.space().unwrap().free_bytes;
    let others = disk.create("others", Access::default()).unwrap();
    others.allocate(0, free_bytes - (180 << 20), Allocation::Reserved).unwrap();
    others
}

fn empty(disk: &Arc<dyn Dir>, others: Arc<dyn File>) {
    // Open, it would keep its room.
    drop(others);
    disk.remove("others").unwrap();
    disk.sync().unwrap();
}

#[test]
fn a_leader_whose_disk_is_full_has_another_lead_and_follows_again_once_it_has_room() {
    let root = tempfile::tempdir().unwrap();
    let cluster = found(&root.path().join("1")).unwrap();
    let disk = small();
    for file in fs::read_dir(root.path().join("1")).unwrap() {
        let file = file.unwrap();
        let copy = disk.create(file.file_name().to_str().unwrap(), Access::default()).unwrap();
        copy.write_at(&fs::read(file.path()).unwrap(), 0).unwrap();
    }
    let mut brokers = three_of(&cluster, |id, seat| {
        let options = Options { seat: Some(seat), spreads_leaders: false, ..unsynced() };
        match id {
            1 => Node::open_in(&disk, PathBuf::from("data"), options).unwrap(),
            id => Node::open(&root.path().join(id.to_string()), options).unwrap(),
        }
    });
    assert!(brokers[&1].node.shards()[SHARED].leads, "the founder leads at first");
    let others = fill(&disk);
    let mut leader = 1;
    until("another leads", || {
        let second = brokers.get_mut(&2).unwrap();
        leader = metadata(second, "votes", false).topics[0].partitions[0].leader_id;
        leader > 1
    });
    let leader = u64::try_from(leader).unwrap();
    let leads = brokers.get_mut(&leader).unwrap();
    until("it takes records", || leads.produce("votes", "1").error_code == ErrorCode::None);
    until("it says who has no room", || {
        let shard = &leads.node.shards()[SHARED];
        shard.is_guarded && shard.unwell.get(&1).is_some_and(|why| why == "no room on its disk")
    });
    let behind = brokers[&1].node.shards()[SHARED].committed;
    let has = brokers[&leader].node.shards()[SHARED].committed;
    assert!(behind < has, "{behind} of {has}");
    empty(&disk, others);
    until("it catches up by itself", || {
        brokers[&1].node.shards()[SHARED].committed
            >= brokers[&leader].node.shards()[SHARED].committed
    });
    until("all are well", || brokers[&leader].node.shards()[SHARED].unwell.is_empty());
    for (_, broker) in brokers {
        broker.close();
    }
}

/// Its status said that it is led, and nothing was taken.
#[test]
fn a_shard_of_which_no_majority_has_room_is_said_to_take_no_records() {
    let root = tempfile::tempdir().unwrap();
    let cluster = found(&root.path().join("1")).unwrap();
    let disks = [small(), small()];
    let mut brokers = three_of(&cluster, |id, seat| {
        let options = Options { seat: Some(seat), spreads_leaders: false, ..unsynced() };
        match id {
            1 => Node::open(&root.path().join("1"), options).unwrap(),
            id => {
                let disk = &disks[usize::try_from(id).unwrap() - 2];
                Node::open_in(disk, PathBuf::from("data"), options).unwrap()
            }
        }
    });
    let asked = Arc::clone(&brokers[&2].node);
    let refuses = |number: usize| {
        let rolls = asked.runtime().block_on(asked.roll());
        let leader = rolls[number].leader;
        rolls[number].rows.iter().any(|row| row.refuses && Some(row.node) == leader)
    };
    assert!(!refuses(SHARED), "there is room");
    let others = disks.each_ref().map(fill);
    until("it is said", || refuses(SHARED));
    let leads = brokers.get_mut(&1).unwrap();
    let error = leads.produce("votes", "1").error_code;
    assert_eq!(error, ErrorCode::KafkaStorageError, "what is said is so");
    disks.iter().zip(others).for_each(|(disk, others)| empty(disk, others));
    until("it is not said any more", || !refuses(SHARED));
    let leads = brokers.get_mut(&1).unwrap();
    until("it takes records", || leads.produce("votes", "1").error_code == ErrorCode::None);
    drop(asked);
    for (_, broker) in brokers {
        broker.close();
    }
}
