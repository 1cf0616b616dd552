//! A shard that a node is given in place of its own, and crashes on the way.

use std::sync::{Arc, Mutex};

use plimsoll_server::backup::Error;
use plimsoll_server::cluster::Needed;
use plimsoll_server::seed::fetch;
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Crash, Dir};

use super::chapters::chapters_of;
use super::{Broker, UNCOMMITTED, unsynced};

const SHARED: u32 = 2;
/// One in so many moments is crashed.
const SAMPLED: usize = 2;

fn dir(disk: &Arc<SimDir>) -> Arc<dyn Dir> {
    Arc::clone(disk) as _
}

fn needs(through: u64) -> Option<Needed> {
    Some(Needed { through, ends: (0, 0) })
}

/// Systems that died at moments of what is done with a disk.
fn crashes(disk: &SimDir) -> Arc<Mutex<(usize, Vec<SimDir>)>> {
    let left = Arc::new(Mutex::new((0, Vec::new())));
    let leaves = Arc::clone(&left);
    disk.watch(move |moment| {
        let mut left = leaves.lock().unwrap();
        left.0 += 1;
        if left.0 % SAMPLED == 0 {
            let seed = left.0 as u64;
            left.1.push(moment.crash(Crash::PowerCut, seed));
        }
    });
    left
}

#[test]
fn after_a_crash_at_any_moment_a_shard_that_is_given_is_the_old_one_or_the_new() {
    let giver = Arc::new(SimDir::new());
    let mut broker = Broker::open(&giver, chapters_of(1500));
    broker.create("orders", &[]);
    for number in 0..30 {
        broker.produced("orders", &format!("{number}"));
    }
    broker.until_settled(2);
    let old = Arc::new(giver.power_cut(1));
    let old_records = {
        let mut broker = Broker::open(&Arc::new(old.power_cut(2)), chapters_of(1500));
        broker.consume("orders", UNCOMMITTED)
    };
    for number in 30..90 {
        broker.produced("orders", &format!("{number}"));
    }
    broker.until_settled(6);
    let new_records = broker.consume("orders", UNCOMMITTED);
    broker.close();
    assert!(old_records.len() < new_records.len() && new_records.starts_with(&old_records));

    let left = crashes(&old);
    fetch(&dir(&giver), &dir(&old), SHARED, &|| needs(60), &mut |_| true).unwrap();
    // From here on it is the new one.
    let given_at = left.lock().unwrap().1.len();
    let mut broker = Broker::open(&old, chapters_of(1500));
    assert_eq!(broker.consume("orders", UNCOMMITTED), new_records);
    let chapters = old.open_dir("chapters-2").unwrap().list().unwrap();
    assert!(!chapters.iter().any(|name| name.ends_with(".seed")), "{chapters:?}");
    broker.produced("orders", "more");
    broker.close();
    let images = std::mem::take(&mut left.lock().unwrap().1);
    assert!(given_at > 5 && images.len() > given_at + 5, "{given_at} of {}", images.len());
    for (at, image) in images.into_iter().enumerate() {
        let mut broker = Broker::open(&Arc::new(image), chapters_of(1500));
        let found = broker.consume("orders", UNCOMMITTED);
        let is_new = found.starts_with(&new_records);
        assert!(is_new || (at < given_at && found == old_records), "moment {at}: {}", found.len());
    }
}

#[test]
fn a_giver_that_has_no_more_gives_nothing_and_what_there_was_stays() {
    let giver = Arc::new(SimDir::new());
    let mut broker = Broker::open(&giver, chapters_of(1500));
    broker.create("orders", &[]);
    for number in 0..30 {
        broker.produced("orders", &format!("{number}"));
    }
    broker.until_settled(2);
    let records = broker.consume("orders", UNCOMMITTED);
    let behind = Arc::new(giver.crash(Crash::Process, 0));
    broker.close();
    let refused =
        fetch(&dir(&giver), &dir(&behind), SHARED, &|| needs(1 << 20), &mut |_| true).unwrap_err();
    assert!(matches!(refused, Error::NoMore), "{refused}");
    let mut broker = Broker::open(&behind, chapters_of(1500));
    assert_eq!(broker.consume("orders", UNCOMMITTED), records);
    broker.close();
}

/// It was taken, and then no start went on: a giver that was never opened again, and has let go of nothing, has no snapshot.
#[test]
fn what_a_giver_without_a_snapshot_gives_is_its_whole_log() {
    let giver = Arc::new(SimDir::new());
    let mut broker = Broker::open(&giver, unsynced());
    broker.create("orders", &[]);
    for number in 0..10 {
        broker.produced("orders", &format!("{number}"));
    }
    let behind = Arc::new(giver.crash(Crash::Process, 0));
    for number in 10..40 {
        broker.produced("orders", &format!("{number}"));
    }
    let records = broker.consume("orders", UNCOMMITTED);
    let names = giver.list().unwrap();
    assert!(!names.iter().any(|name| name == "state-2"), "{names:?}");

    // This one has a snapshot, of a log that goes on otherwise.
    let mut other = Broker::open(&behind, unsynced());
    other.produced("orders", "mine");
    other.close();
    let names = behind.list().unwrap();
    assert!(names.iter().any(|name| name == "state-2"), "{names:?}");
    let left = crashes(&behind);
    fetch(&dir(&giver), &dir(&behind), SHARED, &|| needs(20), &mut |_| true).unwrap();
    broker.close();
    let given_at = left.lock().unwrap().1.len();
    let mut broker = Broker::open(&behind, unsynced());
    assert_eq!(broker.consume("orders", UNCOMMITTED), records);
    broker.close();
    let images = std::mem::take(&mut left.lock().unwrap().1);
    for image in images.into_iter().skip(given_at) {
        let mut broker = Broker::open(&Arc::new(image), unsynced());
        assert_eq!(broker.consume("orders", UNCOMMITTED), records);
    }
}
