//! A byte of a small data directory is flipped, wherever it lies: the broker serves what was written,
//! or says that something is wrong. It never panics, and no record is another's.
//!
//! A place of each file, drawn from `PLIMSOLL_SEED`; `PLIMSOLL_EVERY=1` takes every byte of the
//! sectors that hold anything and one in 64 KiB of those that do not, `PLIMSOLL_EVERY=7` one of these
//! in seven.
#![expect(clippy::print_stdout, reason = "how many places were served, and how many refused")]

#[path = "shared/served.rs"]
mod served;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use plimsoll_log::View;
use plimsoll_server::broker::{Options, cluster_in};
use plimsoll_server::kafka::batch::Batch;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    CreatableTopic, CreateTopicsRequest, FetchPartition, FetchRequest, FetchTopic,
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchRequest,
    OffsetFetchTopic, ProducePartition, ProduceRequest, ProduceTopic, TopicConfig,
};
use plimsoll_server::kafka::records::{Draft, Records};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::{Access, Crash, Dir};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use served::Served as Broker;

/// Synced in the background, and before it is answered.
const NOTES: &str = "notes";
const LEDGER: &str = "ledger";
const RECORDS: i64 = 6;
const COMMITTED: i64 = 3;

/// What panicked, on any thread: so that one test runs at a time.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn any_byte_of_a_directory_that_was_closed_can_be_flipped() {
    flip_all(true);
}

#[test]
fn any_byte_of_a_directory_that_was_not_closed_can_be_flipped() {
    flip_all(false);
}

/// Where nothing calls a change of control durable, damage to it looks like a write that was cut off: the
/// topics were gone, their records stayed where nobody found them, and what groups had read was forgotten.
#[test]
fn topics_that_control_has_lost_are_missed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let written = written(false);
    for topic in [NOTES, LEDGER] {
        let (disk, place) =
            (Arc::new(written.crash(Crash::Process, 0)), change_of(&written, topic));
        flip(&disk, &place, 1);
        let Found::Refused(why) = look(&disk) else { panic!("{topic} was not missed") };
        assert!(why.starts_with("shard 0 has lost changes"), "{why}");
    }
}

/// Where control's log names a topic.
fn change_of(written: &SimDir, topic: &str) -> Place {
    let segments = files(written).into_iter().filter(|(dir, _)| dir.as_deref() == Some("shard-0"));
    let mut found = segments.filter_map(|(dir, file)| {
        let bytes = bytes_of(written, dir.as_deref(), &file);
        let at = bytes.windows(topic.len()).position(|bytes| bytes == topic.as_bytes())?;
        Some(Place { dir, file, at: at as u64 })
    });
    found.next().unwrap()
}

/// A directory with topics of both classes and a group that is half through one.
fn written(is_closed: bool) -> SimDir {
    let disk = Arc::new(SimDir::new());
    let mut broker = Broker::open(&disk).unwrap();
    broker.create(NOTES, &[]);
    broker.create(LEDGER, &[("flush.messages", "1")]);
    for number in 0..RECORDS {
        assert_eq!(broker.produce(NOTES, &value(NOTES, number)), Ok(number));
        assert_eq!(broker.produce(LEDGER, &value(LEDGER, number)), Ok(number));
    }
    broker.commit(COMMITTED);
    if is_closed {
        broker.close();
        return disk.crash(Crash::Process, 0);
    }
    let left = disk.crash(Crash::Process, 0);
    drop(broker.stop());
    left
}

/// Long enough for a mark of the log with each: what comes before it is called durable.
fn value(topic: &str, number: i64) -> String {
    format!("{topic} {number} ").repeat(600)
}

/// A byte of a file.
#[derive(Debug, Clone)]
struct Place {
    dir: Option<String>,
    file: String,
    at: u64,
}

fn flip_all(is_closed: bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let written = &written(is_closed);
    std::panic::set_hook(Box::new(|panic| panics().push(panic.to_string())));
    let at_risk = at_risk(written, is_closed);
    let id = bytes_of(written, None, "cluster");
    let id = cluster_in(&id).unwrap();
    let (mut holes, mut served, mut refused) = (String::new(), 0, 0);
    let mut dice = Pcg64Mcg::seed_from_u64(number("PLIMSOLL_SEED").unwrap_or(0));
    let places = places(written, &mut dice);
    for (number, place) in places.iter().enumerate() {
        if number > 0 && number % 10_000 == 0 {
            println!("{number} of {} places", places.len());
        }
        let by = dice.random_range(1..=u8::MAX);
        let disk = Arc::new(written.crash(Crash::Process, 0));
        flip(&disk, place, by);
        let found = within_a_minute(move || look(&disk));
        let panics = std::mem::take(&mut *panics());
        let judged = match found {
            _ if !panics.is_empty() => Err(format!("panics: {panics:?}")),
            None => Err("does not come to an end".to_owned()),
            Some(found) => found.judge(id, at_risk).map_err(|wrong| format!("{wrong}: {found:?}")),
        };
        match judged {
            Ok(true) => served += 1,
            Ok(false) => refused += 1,
            Err(wrong) => writeln!(holes, "{place:?} by {by:#04x}: {wrong:.600}").unwrap(),
        }
    }
    drop(std::panic::take_hook());
    println!("{served} served, {refused} refused");
    assert!(holes.is_empty(), "\n{holes}");
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
}

/// How many of the last entries nothing in the log calls durable, for each shard (`docs/recovery.md`,
/// *What cannot be told*): damage there looks like a write that was cut off. None of a log that was
/// closed.
fn at_risk(written: &SimDir, is_closed: bool) -> [u64; 4] {
    if is_closed {
        return [0; 4];
    }
    [0, 1, 2, 3].map(|number| {
        let reports = View::of(written.open_dir(&format!("shard-{number}")).unwrap()).unwrap();
        let reports = reports.verify(&|_, _| {}).unwrap();
        let last = reports.iter().map(|report| report.last_index).max().unwrap();
        last - reports.iter().map(|report| report.durable).max().unwrap()
    })
}

/// The places that are asked for.
fn places(written: &SimDir, dice: &mut Pcg64Mcg) -> Vec<Place> {
    let mut all = Vec::new();
    for (dir, file) in files(written) {
        let mut here = worth_a_flip(&bytes_of(written, dir.as_deref(), &file));
        match number("PLIMSOLL_EVERY") {
            Some(every) => here = here.into_iter().step_by(every.try_into().unwrap()).collect(),
            None if here.is_empty() => {}
            None => here = vec![here[dice.random_range(0..here.len())]],
        }
        all.extend(here.into_iter().map(|at| Place { dir: dir.clone(), file: file.clone(), at }));
    }
    all
}

fn files(written: &SimDir) -> Vec<(Option<String>, String)> {
    let mut all: Vec<_> = written.list().unwrap().into_iter().map(|file| (None, file)).collect();
    for dir in (0..4).map(|number| format!("shard-{number}")) {
        let files = written.open_dir(&dir).unwrap().list().unwrap();
        all.extend(files.into_iter().map(|file| (Some(dir.clone()), file)));
    }
    all
}

/// All bytes of sectors that hold anything, and a few of those that do not.
fn worth_a_flip(bytes: &[u8]) -> Vec<u64> {
    let mut places = Vec::new();
    for (sector, bytes) in (0..).step_by(512).zip(bytes.chunks(512)) {
        if bytes.iter().any(|byte| *byte != 0) {
            places.extend(sector..sector + bytes.len() as u64);
        } else if sector % (64 << 10) == 0 {
            places.push(sector);
        }
    }
    places
}

fn open(disk: &SimDir, dir: Option<&str>, file: &str) -> Arc<dyn plimsoll_sync::File> {
    match dir {
        Some(dir) => disk.open_dir(dir).unwrap().open(file, Access::default()).unwrap(),
        None => disk.open(file, Access::default()).unwrap(),
    }
}

fn bytes_of(disk: &SimDir, dir: Option<&str>, file: &str) -> Vec<u8> {
    let file = open(disk, dir, file);
    let mut bytes = vec![0; file.len().unwrap().try_into().unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn flip(disk: &SimDir, place: &Place, by: u8) {
    let file = open(disk, place.dir.as_deref(), &place.file);
    let mut byte = [0];
    file.read_at(&mut byte, place.at).unwrap();
    file.write_at(&[byte[0] ^ by], place.at).unwrap();
}

/// What a client found in a directory.
#[derive(Debug)]
enum Found {
    /// It was not opened, for this reason.
    Refused(String),
    /// It was, with this to say of the run before.
    Opened {
        verdict: String,
        cluster_id: String,
        notes: Result<Vec<(i64, String)>, ErrorCode>,
        ledger: Result<Vec<(i64, String)>, ErrorCode>,
        committed: Result<i64, ErrorCode>,
        /// The offset of the next record.
        next: Result<i64, ErrorCode>,
    },
}

fn look(disk: &Arc<SimDir>) -> Found {
    let mut broker = match Broker::open(disk) {
        Ok(broker) => broker,
        Err(why) => return Found::Refused(why),
    };
    let found = Found::Opened {
        verdict: broker.node.verdict().to_owned(),
        cluster_id: broker.node.cluster_id().to_owned(),
        notes: broker.consume(NOTES),
        ledger: broker.consume(LEDGER),
        committed: broker.committed(),
        next: broker.produce(NOTES, "next"),
    };
    drop(broker.stop());
    found
}

impl Found {
    /// Whether all was served, and otherwise refused; or what must not be.
    fn judge(&self, id: &str, at_risk: [u64; 4]) -> Result<bool, String> {
        let Self::Opened { verdict, cluster_id, notes, ledger, committed, next } = self else {
            return Ok(false);
        };
        if cluster_id != id {
            return Err("it is another cluster".to_owned());
        }
        let is_said = verdict.starts_with("records may be lost");
        let notes = prefix(NOTES, notes, if is_said { at_risk[2] } else { 0 })?;
        let ledger = prefix(LEDGER, ledger, at_risk[3])?;
        match committed {
            Ok(COMMITTED) => {}
            Ok(-1) if at_risk[1] > 0 => {}
            Ok(other) => return Err(format!("the group committed {COMMITTED}, not {other}")),
            Err(_) => return Ok(false),
        }
        match next {
            Ok(next) if *next < RECORDS => Err(format!("offset {next} is given away again")),
            next => Ok(notes && ledger && next.is_ok()),
        }
    }
}

/// Whether records were read: those that were written, but for so many of the last.
fn prefix(
    topic: &str,
    found: &Result<Vec<(i64, String)>, ErrorCode>,
    at_risk: u64,
) -> Result<bool, String> {
    let found = match found {
        Ok(found) => found,
        Err(ErrorCode::UnknownTopicOrPartition) => return Err(format!("{topic} is not there")),
        Err(_) => return Ok(false),
    };
    for (number, (offset, record)) in (0..).zip(found) {
        if (number, &value(topic, number)) != (*offset, record) {
            return Err(format!("record {number} of {topic} is another"));
        }
    }
    let missing = RECORDS.unsigned_abs() - found.len() as u64;
    if missing > at_risk {
        return Err(format!("{missing} records of {topic} are missing, and nobody says so"));
    }
    Ok(true)
}

impl Broker {
    fn open(disk: &Arc<SimDir>) -> Result<Self, String> {
        let options = Options { ring_bytes: 4 << 20, auto_create: false, ..Options::default() };
        Self::start(disk, options).map_err(|why| why.to_string())
    }

    /// Ends in order.
    fn close(self) {
        self.stop().close().unwrap();
    }

    fn create(&mut self, name: &str, configs: &[(&str, &str)]) {
        let configs = configs.iter().map(|(name, value)| TopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.collect(),
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        assert_eq!(self.client.call(request).unwrap().topics[0].error_code, ErrorCode::None);
    }

    fn produce(&mut self, topic: &str, value: &str) -> Result<i64, ErrorCode> {
        let mut draft = Draft::default();
        draft.push(1_000, None, Some(value.as_bytes()), &[]);
        let records = Some(draft.batch(Compression::None, None).pieces().concat().into());
        let partition_data = vec![ProducePartition { index: 0, records }];
        let topic_data = vec![ProduceTopic { name: topic.to_owned(), partition_data }];
        let (transactional_id, acks, timeout_ms) = (None, -1, 20_000);
        let request = ProduceRequest { transactional_id, acks, timeout_ms, topic_data };
        let produced = self.client.call(request).unwrap().responses.remove(0);
        let produced = &produced.partition_responses[0];
        checked(produced.error_code).map(|()| produced.base_offset)
    }

    fn commit(&mut self, committed_offset: i64) {
        let partitions =
            vec![OffsetCommitPartition { committed_offset, ..OffsetCommitPartition::default() }];
        let topics = vec![OffsetCommitTopic { name: NOTES.to_owned(), partitions }];
        let group_id = "g".to_owned();
        let request = OffsetCommitRequest { group_id, topics, ..OffsetCommitRequest::default() };
        let code = self.client.call(request).unwrap().topics[0].partitions[0].error_code;
        assert_eq!(code, ErrorCode::None);
    }

    fn committed(&mut self) -> Result<i64, ErrorCode> {
        let topic = OffsetFetchTopic { name: NOTES.to_owned(), partition_indexes: vec![0] };
        let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: Some(vec![topic]) };
        let answer = self.client.call(request).unwrap();
        checked(answer.error_code)?;
        let found = &answer.topics[0].partitions[0];
        checked(found.error_code).map(|()| found.committed_offset)
    }

    /// Every offset and value.
    fn consume(&mut self, topic: &str) -> Result<Vec<(i64, String)>, ErrorCode> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let partition = FetchPartition {
                fetch_offset: from,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            };
            let topics = vec![FetchTopic {
                topic: topic.to_owned(),
                partitions: vec![partition],
                ..Default::default()
            }];
            let request = FetchRequest { topics, ..FetchRequest::default() };
            let fetched = self.client.call(request).unwrap().responses.remove(0);
            let fetched = &fetched.partitions[0];
            checked(fetched.error_code)?;
            let mut bytes = fetched.records.0.concat().into();
            let before = all.len();
            while let Some(batch) = Batch::take(&mut bytes).unwrap() {
                from = batch.header().last_offset() + 1;
                for record in Records::of(&batch, 1 << 20).unwrap().iter() {
                    let record = record.unwrap();
                    let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                    all.push((record.offset, value));
                }
            }
            if all.len() == before {
                return Ok(all);
            }
        }
    }
}

fn checked(code: ErrorCode) -> Result<(), ErrorCode> {
    if code == ErrorCode::None { Ok(()) } else { Err(code) }
}

/// What becomes of it, unless it hangs or panics.
fn within_a_minute<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, awaited) = mpsc::channel();
    std::thread::spawn(move || done.send(what()));
    awaited.recv_timeout(Duration::from_secs(60)).ok()
}

fn panics() -> std::sync::MutexGuard<'static, Vec<String>> {
    PANICS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}
