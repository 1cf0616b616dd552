//! A disk that does not fail and does not answer: the log goes on in its second directory, and nothing
//! that the first one does later harms it.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use plimsoll_log::{Error, Log, Options, Policy, Retain, View};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{
    Access, Allocation, Dir, Error as DiskError, File, Lock, OsDir, Promise, Result, SyncMethod,
};

/// What a disk does not answer for now.
#[derive(Debug, Clone, Copy, Default)]
struct Hangs {
    writes: bool,
    syncs: bool,
    /// New files, their blocks, and names.
    files: bool,
}

const ALL: Hangs = Hangs { writes: true, syncs: true, files: true };

#[derive(Debug, Default)]
struct Gate {
    hangs: Mutex<Hangs>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, hangs: Hangs) {
        *self.hangs.lock().unwrap() = hangs;
        self.opened.notify_all();
    }

    fn open(&self) {
        self.shut(Hangs::default());
    }

    fn pass(&self, waits: impl Fn(&Hangs) -> bool) {
        let mut hangs = self.hangs.lock().unwrap();
        while waits(&hangs) {
            hangs = self.opened.wait(hangs).unwrap();
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
        self.1.pass(|hangs| hangs.files);
        Ok(Arc::new(Hanging(self.0.create(name, access)?, Arc::clone(&self.1))))
    }
    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Hanging(self.0.open(name, access)?, Arc::clone(&self.1))))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.1.pass(|hangs| hangs.files);
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.1.pass(|hangs| hangs.files);
        self.0.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.1.pass(|hangs| hangs.syncs);
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
        self.1.pass(|hangs| hangs.writes);
        self.0.write_at(buf, byte_offset)
    }
    fn write_sync_at(&self, buf: &[u8], byte_offset: u64, method: SyncMethod) -> Result<Promise> {
        self.1.pass(|hangs| hangs.writes || hangs.syncs);
        self.0.write_sync_at(buf, byte_offset, method)
    }
    fn sync(&self, method: SyncMethod) -> Result<Promise> {
        self.1.pass(|hangs| hangs.syncs);
        self.0.sync(method)
    }
    fn allocate(&self, byte_offset: u64, bytes: u64, allocation: Allocation) -> Result<()> {
        self.1.pass(|hangs| hangs.files);
        self.0.allocate(byte_offset, bytes, allocation)
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.0.truncate(len)
    }
    fn alignment(&self) -> usize {
        self.0.alignment()
    }
}

/// A disk that can hang, and one in memory, which never does.
struct Disks {
    first: tempfile::TempDir,
    second: Arc<SimDir>,
    gate: Arc<Gate>,
}

impl Disks {
    fn new() -> Self {
        let first = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { first, second: Arc::new(SimDir::new()), gate: Arc::default() }
    }

    fn options(policy: Policy) -> Options {
        Options {
            policy,
            segment_bytes: 64 << 10,
            ring_bytes: 32 << 10,
            slow_after: Some(Duration::from_millis(500)),
            ..Options::default()
        }
    }

    fn open(&self, policy: Policy) -> plimsoll_log::Result<Log> {
        let first = Hanging(OsDir::open(self.first.path())?, Arc::clone(&self.gate));
        let second: Arc<dyn Dir> = Arc::clone(&self.second) as _;
        Log::open_in(vec![Arc::new(first), second], Self::options(policy)).map(|(log, _)| log)
    }
}

fn payload(index: u64) -> Vec<u8> {
    format!("record {index} ").repeat(7).into_bytes()
}

/// Opens once the calls that were given up have ended.
fn once_unlocked<T>(open: impl Fn() -> plimsoll_log::Result<T>) -> plimsoll_log::Result<T> {
    loop {
        match open() {
            Err(Error::Disk(DiskError::Locked { .. })) => thread::yield_now(),
            opened => return opened,
        }
    }
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
    let (writes, syncs) =
        (Hangs { writes: true, ..Hangs::default() }, Hangs { syncs: true, ..Hangs::default() });
    let policies = [Policy::everysec(), Policy::Always];
    for (policy, hangs) in policies.into_iter().flat_map(|p| [writes, syncs, ALL].map(|h| (p, h))) {
        let disks = Disks::new();
        let log = disks.open(policy).unwrap();
        append(&log, 100);
        disks.gate.shut(hangs);
        append(&log, 300);
        assert_eq!(log.durable().get(), 400);
        assert!(log.stats().failovers >= 1, "{policy:?}, {hangs:?}");
        // What the first disk does now is too late to matter.
        disks.gate.open();
        append(&log, 300);
        expect(&log, 700);
        log.close().unwrap();
        let log = once_unlocked(|| disks.open(policy)).unwrap();
        expect(&log, 700);
    }
}

/// The next segment was being made ready on the disk that hangs: nobody waits for that.
#[test]
fn a_disk_that_hangs_over_a_new_segment_is_left_as_well() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    disks.gate.shut(Hangs { files: true, ..Hangs::default() });
    append(&log, 250);
    disks.gate.shut(ALL);
    append(&log, 600);
    assert!(log.stats().failovers >= 1);
    disks.gate.open();
    expect(&log, 850);
    log.close().unwrap();
    expect(&once_unlocked(|| disks.open(Policy::everysec())).unwrap(), 850);
}

#[test]
fn a_log_with_records_in_a_second_directory_is_not_opened_without_it() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    append(&log, 10);
    disks.gate.shut(ALL);
    append(&log, 10);
    disks.gate.open();
    log.close().unwrap();
    let alone = || Log::open(disks.first.path(), Options::default());
    let refused = once_unlocked(alone).unwrap_err().to_string();
    assert!(refused.contains("second directory"), "{refused}");
    let refused = View::open(disks.first.path()).unwrap_err().to_string();
    assert!(refused.contains("second directory"), "{refused}");
    let log = once_unlocked(|| disks.open(Policy::everysec())).unwrap();
    expect(&log, 20);
}

#[test]
fn a_directory_is_not_the_second_one_of_itself_nor_of_two_logs() {
    let disks = Disks::new();
    let open = || OsDir::open(disks.first.path()).map(|dir| Arc::new(dir) as Arc<dyn Dir>).unwrap();
    let twice = Log::open_in(vec![open(), open()], Options::default());
    assert!(matches!(twice, Err(Error::Disk(DiskError::Locked { .. }))), "{twice:?}");
    let other: Arc<dyn Dir> = Arc::new(SimDir::new());
    let _log = Log::open_in(vec![other, open()], Options::default()).unwrap();
    let shared = Log::open_in(vec![Arc::new(SimDir::new()), open()], Options::default());
    assert!(matches!(shared, Err(Error::Disk(DiskError::Locked { .. }))), "{shared:?}");
}

#[test]
fn a_log_is_not_opened_again_while_a_write_of_its_last_life_may_still_come() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    append(&log, 10);
    disks.gate.shut(Hangs { writes: true, ..Hangs::default() });
    append(&log, 10);
    log.close().unwrap();
    let refused = disks.open(Policy::everysec());
    assert!(matches!(refused, Err(Error::Disk(DiskError::Locked { .. }))), "{refused:?}");
    disks.gate.open();
    let log = once_unlocked(|| disks.open(Policy::everysec())).unwrap();
    expect(&log, 20);
}

#[test]
fn a_segment_that_a_late_write_may_reach_is_not_recycled() {
    let disks = Disks::new();
    let log = disks.open(Policy::everysec()).unwrap();
    append(&log, 10);
    disks.gate.shut(Hangs { writes: true, ..Hangs::default() });
    append(&log, 600);
    // Goes, together with the segment that was left.
    log.truncate_before(Retain::From(600)).unwrap();
    let spares = || {
        let names = OsDir::open(disks.first.path()).unwrap().list().unwrap();
        names.into_iter().filter(|name| name.ends_with(".spare")).count()
    };
    assert_eq!(spares(), 0, "the file a late write goes to was kept for another segment");
    disks.gate.open();
    append(&log, 10);
    expect(&log, 620);
}

#[test]
fn patience_without_a_second_directory_is_refused() {
    let disks = Disks::new();
    let options = Options { slow_after: Some(Duration::from_millis(1)), ..Options::default() };
    let refused = Log::open(disks.first.path(), options);
    assert!(matches!(refused, Err(Error::Options(why)) if why.contains("second directory")));
    let refused = disks.open(Policy::Never);
    assert!(matches!(refused, Err(Error::Options(why)) if why.contains("Never")));
}
