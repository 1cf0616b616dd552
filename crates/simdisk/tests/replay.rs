//! One seed replays everything, and no seed breaks the rules: random operations against a model
//! that only knows, for each byte, what it may be after a power cut.

use std::collections::BTreeSet;

use plimsoll_simdisk::{DiskOptions, Fault, FaultKind, Operation, Persistence, SimDir, Tear};
use plimsoll_sync::{Access, Allocation, Crash, Dir, File, SyncMethod, System};
use proptest::prelude::*;

/// The longest file of these tests.
const BYTES: usize = 3 * 4096;

#[derive(Debug, Clone)]
enum Do {
    Write { at: usize, bytes: usize, value: u8 },
    WriteDsync { at: usize, bytes: usize, value: u8 },
    Truncate { len: usize },
    Zero { at: usize, bytes: usize },
    Reserve { at: usize, bytes: usize },
    Punch { at: usize, bytes: usize },
    Sync,
    SystemCrash { seed: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Do>> {
    let up_to =
        |most: usize| (0..BYTES, 1..most).prop_map(|(at, bytes)| (at, bytes.min(BYTES - at)));
    let range = || up_to(6000);
    // Of several whole pages too.
    let pages = || prop_oneof![up_to(2 * BYTES), Just((0, BYTES))];
    let step = prop_oneof![
        6 => (range(), 1..=255u8)
            .prop_map(|((at, bytes), value)| Do::Write { at, bytes, value }),
        2 => (range(), 1..=255u8)
            .prop_map(|((at, bytes), value)| Do::WriteDsync { at, bytes, value }),
        2 => (0..BYTES).prop_map(|len| Do::Truncate { len }),
        1 => pages().prop_map(|(at, bytes)| Do::Zero { at, bytes }),
        1 => range().prop_map(|(at, bytes)| Do::Reserve { at, bytes }),
        2 => pages().prop_map(|(at, bytes)| Do::Punch { at, bytes }),
        2 => Just(Do::Sync),
        1 => any::<u64>().prop_map(|seed| Do::SystemCrash { seed }),
    ];
    prop::collection::vec(step, 0..24)
}

fn disk(tear: Tear) -> SimDir {
    SimDir::with(DiskOptions { system: System::Linux, tear, ..DiskOptions::default() })
}

fn act(file: &dyn File, step: &Do) {
    match *step {
        Do::Write { at, bytes, value } => file.write_at(&vec![value; bytes], at as u64).unwrap(),
        Do::WriteDsync { at, bytes, value } => {
            let buf = vec![value; bytes];
            file.write_sync_at(&buf, at as u64, SyncMethod::RwfDsync).unwrap();
        }
        Do::Truncate { len } => file.truncate(len as u64).unwrap(),
        Do::Zero { at, bytes } => {
            file.allocate(at as u64, bytes as u64, Allocation::Zeroed).unwrap();
        }
        Do::Reserve { at, bytes } => {
            file.allocate(at as u64, bytes as u64, Allocation::Reserved).unwrap();
        }
        Do::Punch { at, bytes } => assert!(file.punch(at as u64, bytes as u64).unwrap()),
        Do::Sync => drop(file.sync(SyncMethod::Fsync).unwrap()),
        Do::SystemCrash { .. } => unreachable!("not an operation of a file"),
    }
}

/// What each byte and the length may be after a power cut.
struct Model {
    live: Vec<u8>,
    bytes: Vec<BTreeSet<u8>>,
    lens: BTreeSet<usize>,
}

impl Model {
    fn new() -> Self {
        Self {
            live: Vec::new(),
            bytes: vec![BTreeSet::from([0]); BYTES],
            lens: BTreeSet::from([0]),
        }
    }

    fn grow(&mut self, len: usize) {
        if len > self.live.len() {
            self.live.resize(len, 0);
            self.lens.insert(len);
        }
    }

    fn put(&mut self, at: usize, bytes: usize, value: u8) {
        self.grow(at + bytes);
        for byte in at..at + bytes {
            self.live[byte] = value;
            self.bytes[byte].insert(value);
        }
    }

    fn act(&mut self, step: &Do) {
        match *step {
            Do::Write { at, bytes, value } => self.put(at, bytes, value),
            Do::WriteDsync { at, bytes, value } => {
                self.put(at, bytes, value);
                // The write is durable, and the length with it; nothing else is promised.
                for byte in at..at + bytes {
                    self.bytes[byte] = BTreeSet::from([value]);
                }
                self.lens = BTreeSet::from([self.live.len()]);
            }
            Do::Truncate { len } => {
                for byte in len..BYTES {
                    self.bytes[byte].insert(0);
                }
                if len < self.live.len() {
                    self.lens.insert(len);
                    self.live.truncate(len);
                }
                self.grow(len);
            }
            Do::Zero { at, bytes } => {
                // Zeros are written in up to three parts, each of which may be the last that counts.
                for part in [at.next_multiple_of(4096), (at + bytes) / 4096 * 4096] {
                    if (at..at + bytes).contains(&part) {
                        self.grow(part);
                    }
                }
                self.put(at, bytes, 0);
            }
            Do::Reserve { at, bytes } => self.grow(at + bytes),
            Do::Punch { at, bytes } => {
                for byte in at..at + bytes {
                    self.bytes[byte].insert(0);
                }
                let len = self.live.len();
                self.live[at.min(len)..(at + bytes).min(len)].fill(0);
            }
            Do::Sync => {
                for byte in 0..BYTES {
                    let live = self.live.get(byte).copied().unwrap_or(0);
                    self.bytes[byte] = BTreeSet::from([live]);
                }
                self.lens = BTreeSet::from([self.live.len()]);
            }
            Do::SystemCrash { .. } => {}
        }
    }

    /// The bytes were found after a crash that left the device its cache.
    fn found(&mut self, bytes: Vec<u8>) {
        for byte in bytes.len()..BYTES {
            self.bytes[byte].insert(0);
        }
        self.lens.insert(bytes.len());
        self.live = bytes;
    }

    fn check(&self, found: &[u8]) -> Result<(), TestCaseError> {
        prop_assert!(self.lens.contains(&found.len()), "{} of {:?}", found.len(), self.lens);
        for (at, byte) in found.iter().enumerate() {
            let allowed = &self.bytes[at];
            prop_assert!(allowed.contains(byte), "byte {at} is {byte}, not of {allowed:?}");
        }
        Ok(())
    }
}

fn content(dir: &SimDir) -> Vec<u8> {
    let file = dir.open("a", Access::default()).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_of_an_image_is_durable_or_pending_or_zero(
        steps in steps(),
        small in any::<bool>(),
        journal in any::<bool>(),
        seed in any::<u64>(),
    ) {
        // What a journal leaves, the pessimist expects too.
        let mut dir = SimDir::with(DiskOptions {
            system: System::Linux,
            tear: if small { Tear::Bytes512 } else { Tear::Bytes4096 },
            persistence: if journal { Persistence::Journal } else { Persistence::Posix },
            ..DiskOptions::default()
        });
        let mut model = Model::new();
        dir.create("a", Access::default()).unwrap();
        for step in &steps {
            if let Do::SystemCrash { seed } = step {
                dir = dir.crash(Crash::System, *seed);
                let found = content(&dir);
                model.check(&found)?;
                model.found(found);
                continue;
            }
            act(&*dir.open("a", Access::default()).unwrap(), step);
            model.act(step);
            prop_assert!(content(&dir) == model.live);
            for seed in seed..seed.saturating_add(3) {
                model.check(&content(&dir.power_cut(seed)))?;
            }
        }
    }
}

/// A run with faults, told by its history and its crash states.
fn story(seed: u64) -> (Vec<String>, Vec<Vec<u8>>) {
    let dir = disk(Tear::Bytes512);
    dir.inject(Fault::new(Operation::Write, FaultKind::LostWrite).nth(3));
    dir.inject(Fault::new(Operation::Sync, FaultKind::DropFlush).nth(2).sticky());
    let file = dir.create("a", Access::default()).unwrap();
    for number in 0..20u8 {
        let at = u64::from(number) * 700 % 5000;
        file.write_at(&[number; 900], at).unwrap();
        if number % 6 == 0 {
            file.sync(SyncMethod::Fsync).unwrap();
        }
    }
    drop(dir.lock("lock").unwrap());
    let history = dir.history().iter().map(ToString::to_string).collect();
    let crashes = [Crash::Process, Crash::System, Crash::PowerCut];
    let states = crashes.map(|crash| content(&dir.crash(crash, seed)));
    (history, states.to_vec())
}

#[test]
fn the_same_seed_tells_the_same_story() {
    for seed in 0..50 {
        assert_eq!(story(seed), story(seed));
    }
    let states: BTreeSet<_> = (0..50).map(|seed| story(seed).1).collect();
    assert!(states.len() > 25, "seeds must differ: {}", states.len());
}

#[test]
fn a_seed_means_the_same_on_every_machine() {
    let dir = disk(Tear::Bytes512);
    let file = dir.create("a", Access::default()).unwrap();
    file.write_sync_at(&[b'-'; 4096], 0, SyncMethod::Fsync).unwrap();
    file.write_at(&[b'+'; 4096], 0).unwrap();
    let sectors = |seed| -> String {
        let found = content(&dir.power_cut(seed));
        found.chunks(512).map(|sector| char::from(sector[0])).collect()
    };
    let found: Vec<String> = (0..12).map(sectors).collect();
    assert_eq!(found, GOLDEN, "old seeds in old reports must replay");
}

const GOLDEN: [&str; 12] = [
    "++++++--", "++++++++", "++++++++", "++++++++", "++++++++", "++++++++", "--------", "-+++++++",
    "+++-----", "--------", "--------", "++------",
];

#[test]
fn the_history_tells_what_was_done_and_forgets_what_is_old() {
    let (history, _) = story(0);
    assert_eq!(history[0], "#0 create a: done");
    assert_eq!(history[1], "#1 sync directory: done");
    assert_eq!(history[2], "#2 write a 900 bytes at 0: done");
    assert_eq!(history[3], "#3 sync a fsync: done");
    assert_eq!(history[5], "#5 write a 900 bytes at 1400: done (fault: LostWrite)");
    let dir = SimDir::with(DiskOptions { history_steps: 2, ..DiskOptions::default() });
    dir.open("missing", Access::default()).unwrap_err();
    for _ in 0..3 {
        dir.list().unwrap();
    }
    let numbers: Vec<u64> = dir.history().iter().map(|step| step.number).collect();
    assert_eq!(numbers, [2, 3]);
}
