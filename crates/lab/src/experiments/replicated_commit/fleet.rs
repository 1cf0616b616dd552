//! All brokers of a run, and their topics.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_server::client::{self, Cluster, Connection};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{CreatableTopic, CreateTopicsRequest, TopicConfig};

use super::brokers::{Brokers, Place};
use super::plan::{SYNC_BEHIND, Way};
use super::status;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::experiment::Setup;
use crate::mount::Kind;
use crate::runner::Watch;
use crate::scratch::{BROKERS, SHARED_MEMORY, Scratch};

/// How long a broker may take for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_MS: i32 = 10_000;

/// The brokers that the wanted arms need. When this is dropped they are gone, with their data.
#[derive(Debug)]
pub(super) struct Fleet {
    one: Option<Brokers>,
    three: Option<Brokers>,
    /// After the brokers, which write in them.
    _data: Data,
    /// Whether what is acknowledged from memory is in memory that outlives the process, or with the kernel.
    pub(super) is_in_memory: bool,
}

/// Where brokers keep what they have.
#[derive(Debug)]
struct Data {
    on_disk: PathBuf,
    _memory: Option<Scratch>,
}

/// Why the arms are to stop: somebody asked for it, or one of them failed.
#[derive(Debug)]
pub(super) struct Stop<'a> {
    asked: &'a AtomicBool,
    /// Either of these.
    pub(super) stopped: AtomicBool,
    failed: Mutex<Option<String>>,
}

impl Fleet {
    /// Starts the brokers for these ways, and waits until they serve.
    pub(super) fn start(
        setup: &Setup<'_>,
        program: &Path,
        ways: &[Way],
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let scratch = setup.dir.path();
        let memory = memory(scratch)?;
        let data = Data { on_disk: scratch.join(BROKERS), _memory: memory };
        let place = |name: &str| Place {
            program: program.to_owned(),
            dir: data.on_disk.join(name),
            memory: data.memory().map(|memory| memory.join(name)),
        };
        let needs = |is_quorum| ways.iter().any(|way| way.is_quorum() == is_quorum);
        // The cluster first: it takes longest until it is well.
        let three = needs(true).then(|| Brokers::three(&place("three"), setup.seed)).transpose()?;
        let one = needs(false).then(|| Brokers::one(&place("one"), !setup.seed)).transpose()?;
        let is_in_memory = data.memory().is_some();
        let fleet = Self { one, three, _data: data, is_in_memory };
        for brokers in fleet.all() {
            brokers.until("all of them vote", watch, || {
                let all = brokers.look().map_err(|error| error.to_string())?;
                status::whole(&all).map(|()| true)
            })?;
            for way in [Way::QuorumMemory, Way::QuorumDisks] {
                let made = || make_topic(&brokers.clients(), way).map(|()| true);
                brokers.until("a topic is made", watch, made)?;
            }
        }
        Ok(fleet)
    }

    fn all(&self) -> impl Iterator<Item = &Brokers> {
        self.three.iter().chain(&self.one)
    }

    /// The brokers of a way.
    pub(super) fn of(&self, way: Way) -> &Brokers {
        let brokers = if way.is_quorum() { &self.three } else { &self.one };
        brokers.as_ref().expect("they were started for it")
    }

    /// CPU time that all of them have used.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        self.all().map(Brokers::cpu_ns).sum()
    }

    /// So many connections to the leader of what a way writes to.
    pub(super) fn connect(
        &self,
        way: Way,
        writers: usize,
        watch: &Watch<'_>,
    ) -> Result<Vec<Connection>> {
        let brokers = self.of(way);
        let mut connections = Vec::new();
        brokers.until("its leader answers", watch, || {
            let open = || -> std::result::Result<Vec<Connection>, client::Error> {
                let mut cluster = Cluster::open(&brokers.clients(), PATIENCE)?;
                let leader = cluster.leader(way.topic(), 0)?.addr().to_owned();
                (0..writers).map(|_| Connection::open(&leader, PATIENCE)).collect()
            };
            connections = open().map_err(|error| chain(&error))?;
            Ok(true)
        })?;
        Ok(connections)
    }
}

impl Data {
    fn memory(&self) -> Option<PathBuf> {
        self._memory.as_ref().map(|memory| memory.dir().path().join(BROKERS))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // No link is followed there. What stays is removed with the scratch directory.
        fs::remove_dir_all(&self.on_disk).ok();
    }
}

impl<'a> Stop<'a> {
    pub(super) const fn new(asked: &'a AtomicBool) -> Self {
        Self { asked, stopped: AtomicBool::new(false), failed: Mutex::new(None) }
    }

    /// Whether arms are to stop.
    pub(super) fn is_set(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.asked.load(Ordering::Relaxed)
    }

    /// Has the runner see what it looks at.
    pub(super) fn pass_on(&self) {
        self.stopped.store(self.is_set(), Ordering::Relaxed);
    }

    /// Stops all arms, because one failed. The first failure is the one that is told.
    pub(super) fn fail(&self, why: String) {
        self.stopped.store(true, Ordering::Relaxed);
        let mut failed = self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.get_or_insert(why);
    }

    /// The failure, if that is why they stopped.
    pub(super) fn failure(&self) -> Option<Error> {
        let failed = self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.clone().filter(|_| !self.asked.load(Ordering::Relaxed)).map(Error::Broker)
    }
}

/// A directory in memory, of the same name as the one on the disk. None where there is no such memory.
fn memory(scratch: &Path) -> Result<Option<Scratch>> {
    let shared = Path::new(SHARED_MEMORY);
    let is_memory =
        Environment::of(shared).0.mount.is_some_and(|mount| mount.kind() == Kind::Memory);
    if !is_memory {
        return Ok(None);
    }
    Ok(Some(Scratch::create(Scratch::twin_in(shared, scratch))?))
}

/// Makes the topic of a way, if it is not there.
fn make_topic(clients: &str, way: Way) -> std::result::Result<(), String> {
    let (name, value) = match way.is_synced() {
        true => ("flush.messages", "1".to_owned()),
        false => ("flush.ms", SYNC_BEHIND.as_millis().to_string()),
    };
    let topic = CreatableTopic {
        name: way.topic().to_owned(),
        num_partitions: 1,
        replication_factor: -1,
        configs: vec![TopicConfig { name: name.to_owned(), value: Some(value) }],
        ..CreatableTopic::default()
    };
    let question = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: PATIENCE_MS,
        ..CreateTopicsRequest::default()
    };
    let mut cluster = Cluster::open(clients, PATIENCE).map_err(|error| chain(&error))?;
    let asked = cluster.controller().and_then(|controller| controller.call(question));
    let made = asked.map_err(|error| chain(&error))?.topics.into_iter().next();
    match made.map(|topic| (topic.error_code, topic.error_message)) {
        Some((ErrorCode::None | ErrorCode::TopicAlreadyExists, _)) => Ok(()),
        Some((code, why)) => Err(why.unwrap_or_else(|| code.to_string())),
        None => Err("the broker says nothing of the topic".to_owned()),
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_stop_for_whoever_asks_and_tell_the_first_failure_only() {
        let asked = AtomicBool::new(false);
        let stop = Stop::new(&asked);
        assert!(!stop.is_set() && stop.failure().is_none());
        stop.fail("first".to_owned());
        stop.fail("second".to_owned());
        assert!(stop.is_set());
        assert_eq!(stop.failure().unwrap().to_string(), "first");
        // Brokers that end because they were asked to are no failure.
        asked.store(true, Ordering::Relaxed);
        assert!(stop.failure().is_none());
        let asked = AtomicBool::new(true);
        let stop = Stop::new(&asked);
        stop.pass_on();
        assert!(stop.stopped.load(Ordering::Relaxed));
    }
}
