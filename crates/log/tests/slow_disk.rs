//! A disk that does not fail and does not answer: the log goes on in its second directory, and nothing
//! that the first one does later harms it.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Error, Log, Options, Policy, Retain};
use plimsoll_sync::{
    Access, Allocation, Dir, Error as DiskError, File, Lock, OsDir, Promise, Result, SyncMethod,
};

/// What hangs while it is shut.
#[derive(Debug, Default)]
struct Gate {
    writes: Mutex<(bool, bool)>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, writes: bool, syncs: bool) {
        *self.writes.lock().unwrap() = (writes, syncs);
        self.opened.notify_all();
    }

    fn pass(&self, hangs: impl Fn(&(bool, bool)) -> bool) {
        let mut shut = self.writes.lock().unwrap();
        while hangs(&shut) {
            shut = self.opened.wait(shut).unwrap();
        }
    }
}

/// A directory on a disk that can be made to hang.
#[derive(Debug)]
struct Hanging<T>(T, Arc<Gate>);

impl Dir for Hanging<OsDir> {
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Hanging(self.0.create(name, access)?, Arc::clone(&self.1))))
    }
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Hanging(self.0.open(name, access)?, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.0.sync()
    }
    fn lock(&self, name: &str) -> Result<Lock> {
        self.0.lock(name)
    }
}

impl File for Hanging<Arc<dyn File>> {
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        self.0.read_at(buf, byte_offset)
    }
    fn write_at(&self, buf: &[u8], byte_offset: u64) -> Result<()> {
        self.1.pass(|(writes, _)| *writes);
        self.0.write_at(buf, byte_offset)
    }
    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        self.1.pass(|(writes, syncs)| *writes || *syncs);
        self.0.write_sync_at(buf, byte_offset, method)
    }
    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        self.1.pass(|(_, syncs)| *syncs);
        self.0.sync(method)
    }
    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        self.0.allocate(byte_offset, bytes, allocation)
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.truncate(len)
    }
    fn alignment(&self) -> usize {
        self.0.alignment()
    }
}

/// Two directories, of which the first can hang.
struct Disks {
    first: tempfile::TempDir,
    second: tempfile::TempDir,
    gate: Arc<Gate>,
}

impl Disks {
    fn new() -> Self {
        let scratch = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { first: scratch(), second: scratch(), gate: Arc::default() }
    }

    fn open(&self, policy: Policy) -> plimsoll_log::Result<Log> {
        let options = Options {
            policy,
            segment_bytes: 64 << 10,
            ring_bytes: 32 << 10,
            slow_after: Some(Duration::from_millis(500)),
            ..Options::default()
        };
        let first = Hanging(OsDir::open(self.first.path())?, Arc::clone(&self.gate));
        let second = OsDir::open(self.second.path())?;
        Log::open_in(vec![Arc::new(first), Arc::new(second)], options).map(|(log, _)| log)
    }
}

fn payload(index: u64) -> Vec<u8> {
    format!("record {index} ").repeat(7).into_bytes()
}

fn append(log: &Log, records: u64) {
    for index in log.last_index() + 1..=log.last_index() + records {
        assert_eq!(log.append(&payload(index)).unwrap(), index);
    }
    log.sync().unwrap();
}

fn expect(log: &Log, last: u64) {
    let mut reader = log.read_from(log.first_index()).unwrap();
    let mut next = log.first_index();
    while let Some(record) = reader.next_record().unwrap() {
        assert_eq!((record.index, record.payload), (next, &payload(next)[..]));
        next += 1;
    }
    assert_eq!(next, last + 1);
}

#[test]
fn a_disk_that_hangs_is_left_for_the_second_directory() {
    let policies = [Policy::everysec(), Policy::Always];
    let hangs = [(true, false), (false, true), (true, true)];
    for (policy, (writes, syncs)) in policies.into_iter().flat_map(|p| hangs.map(|h| (p, h))) {
        let disks = Disks::new();
        let log = disks.open(policy).unwrap();
        append(&log, 100);
        disks.gate.shut(writes, syncs);
        append(&log, 300);
        assert_eq!(log.durable().get(), 400);
        assert!(log.stats().failovers >= 1, "{policy:?}, writes {writes}, syncs {syncs}");
        // What the first disk does now is too late to matter.
        disks.gate.shut(false, false);
        append(&log, 300);
        expect(&log, 700);
        log.close().unwrap();
        let log = disks.open(policy).unwrap();
        expect(&log, 700);
    }
}

#[test]
fn a_log_is_not_opened_again_while_a_write_of_its_last_life_may_still_come() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    append(&log, 10);
    disks.gate.shut(true, false);
    append(&log, 10);
    log.close().unwrap();
    let refused = disks.open(Policy::everysec());
    assert!(matches!(refused, Err(Error::Disk(DiskError::Locked { .. }))), "{refused:?}");
    disks.gate.shut(false, false);
    let log = loop {
        match disks.open(Policy::everysec()) {
            Ok(log) => break log,
            Err(Error::Disk(DiskError::Locked { .. })) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    expect(&log, 20);
}

#[test]
fn a_segment_that_a_late_write_may_reach_is_not_recycled() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    append(&log, 10);
    disks.gate.shut(true, false);
    append(&log, 600);
    // Goes, together with the segment that was left.
    log.truncate_before(Retain::From(600)).unwrap();
    let spares = || {
        let names = OsDir::open(disks.first.path()).unwrap().list().unwrap();
        names.into_iter().filter(|name| name.ends_with(".spare")).count()
    };
    assert_eq!(spares(), 0, "the file a late write goes to was kept for another segment");
    disks.gate.shut(false, false);
    append(&log, 10);
    expect(&log, 620);
}

#[test]
fn patience_without_a_second_directory_is_refused() {
    let disks = Disks::new();
    let options = Options { slow_after: Some(Duration::from_millis(1)), ..Options::default() };
    let refused = Log::open(disks.first.path(), options);
    assert!(matches!(refused, Err(Error::Options(why)) if why.contains("second directory")));
}
