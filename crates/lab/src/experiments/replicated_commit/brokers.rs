//! Brokers as processes of this program: started, watched, ended.
//!
//! Invariant: no broker outlives its [`Brokers`]. They are killed when that is dropped, and each ends by
//! itself when its standard input does, which the system sees to if this process is killed. Ctrl-C does not
//! reach them: they are in a process group of their own.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::status::{self, Status};
use crate::counters;
use crate::error::{Error, Result};
use crate::runner::Watch;

/// How long brokers may take for one thing, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);
/// Ports below those that the system gives to connections that go out.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// So much of what a broker said last is told.
const LAST_WORDS_BYTES: u64 = 1500;

/// Where brokers have their data, and what they are.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The program that serves.
    pub(super) program: PathBuf,
    /// A directory on the disk that is measured; made here.
    pub(super) dir: PathBuf,
    /// A directory in memory, if there is any; made here.
    pub(super) memory: Option<PathBuf>,
}

/// Some brokers: one alone, or those of a cluster.
#[derive(Debug)]
pub(super) struct Brokers {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    number: usize,
    child: RefCell<Child>,
    clients: SocketAddr,
    http: SocketAddr,
    /// The file of what it says.
    news: PathBuf,
}

impl Brokers {
    /// Starts one alone.
    pub(super) fn one(place: &Place, seed: u64) -> Result<Self> {
        let made = || {
            let ports = free_ports(2, seed)?;
            Ok(Self { nodes: vec![Node::start(place, 1, &ports, &[])?] })
        };
        made().map_err(|error| cannot_start(place, &error))
    }

    /// Founds a cluster of three, and starts them.
    pub(super) fn three(place: &Place, seed: u64) -> Result<Self> {
        let made = || {
            let ports = free_ports(9, seed)?;
            let member = |(node, port): (usize, &SocketAddr)| format!("{}={port}", node + 1);
            let members: Vec<String> = ports[6..].iter().enumerate().map(member).collect();
            fs::create_dir_all(&place.dir)?;
            let config = place.dir.join("cluster.toml");
            fs::write(&config, found(place, &members.join(","))?)?;
            let mut brokers = Self { nodes: Vec::new() };
            for number in 1..=3 {
                let config = config.to_string_lossy();
                let named = ["--config", &*config, "--node", &number.to_string()];
                let ports = &ports[2 * (number - 1)..2 * number];
                brokers.nodes.push(Node::start(place, number, ports, &named)?);
            }
            Ok(brokers)
        };
        made().map_err(|error| cannot_start(place, &error))
    }

    /// Where clients find one of them.
    pub(super) fn clients(&self) -> String {
        self.nodes[0].clients.to_string()
    }

    /// What each says of itself.
    pub(super) fn look(&self) -> io::Result<Vec<Status>> {
        self.nodes.iter().map(|node| status::ask(node.http)).collect()
    }

    /// CPU time that all of them have used.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        self.nodes.iter().map(|node| counters::cpu_ns_of(node.child.borrow().id())).sum()
    }

    /// Waits until something is so, or fails: because they took too long for it, one ended, or somebody asked
    /// the run to stop.
    pub(super) fn until(
        &self,
        what: &str,
        watch: &Watch<'_>,
        mut is_so: impl FnMut() -> std::result::Result<bool, String>,
    ) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            watch.check()?;
            self.check()?;
            let why = match is_so() {
                Ok(true) => return Ok(()),
                Ok(false) => String::new(),
                Err(why) => format!(": {why}"),
            };
            if Instant::now() >= deadline {
                let said: Vec<String> = self.nodes.iter().map(Node::last_words).collect();
                return Err(Error::Broker(format!(
                    "the brokers that were started took longer than {} s until {what}{why}; {}",
                    PATIENCE.as_secs(),
                    said.join("; ")
                )));
            }
            thread::park_timeout(PAUSE);
        }
    }

    /// Fails if one of them ended.
    pub(super) fn check(&self) -> Result<()> {
        self.nodes.iter().try_for_each(|node| match node.child.borrow_mut().try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Broker(format!(
                "broker {} ended by itself ({status}); {}",
                node.number,
                node.last_words()
            ))),
            Err(error) => Err(Error::Broker(format!("broker {} is lost: {error}", node.number))),
        })
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        // All at once: what is left of a cluster need not elect anybody.
        for node in &mut self.nodes {
            node.child.get_mut().kill().ok();
        }
        for node in &mut self.nodes {
            node.child.get_mut().wait().ok();
        }
    }
}

impl Node {
    /// Starts the node `number`, with its `ports` for clients and for operators.
    fn start(
        place: &Place,
        number: usize,
        ports: &[SocketAddr],
        more: &[&str],
    ) -> io::Result<Self> {
        fs::create_dir_all(&place.dir)?;
        let (clients, http) = (ports[0], ports[1]);
        let news = place.dir.join(format!("news-{number}"));
        let mut command = command(place);
        command.args(["serve", "--until-stdin-ends", "--scrub-every", "never", "--dir"]);
        command.arg(place.dir.join(format!("data-{number}")));
        command.args(["--listen", &clients.to_string(), "--http", &http.to_string(), "--memory"]);
        match &place.memory {
            Some(memory) => {
                let memory = memory.join(format!("node-{number}"));
                fs::create_dir_all(&memory)?;
                command.arg(memory);
            }
            None => {
                command.arg("none");
            }
        }
        command.args(more);
        // Held until it is to end.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&news)?);
        Ok(Self { number, child: RefCell::new(command.spawn()?), clients, http, news })
    }

    /// `broker 2 said last: …`
    fn last_words(&self) -> String {
        let said = end_of(&self.news).unwrap_or_else(|error| error.to_string());
        let said: Vec<&str> = said.lines().rev().take(2).collect();
        let said: Vec<&str> = said.into_iter().rev().collect();
        match said.is_empty() {
            true => format!("broker {} said nothing", self.number),
            false => format!("broker {} said last: {}", self.number, said.join(" / ")),
        }
    }
}

/// The end of a file of text.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LAST_WORDS_BYTES)))?;
    let mut end = Vec::new();
    file.take(LAST_WORDS_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// The settings of a new cluster.
fn found(place: &Place, members: &str) -> io::Result<String> {
    let mut command = command(place);
    command.args(["cluster", "init", "--members", members, "--dir"]).arg(place.dir.join("data-1"));
    let founded = command.stdin(Stdio::null()).output()?;
    if !founded.status.success() {
        let said = String::from_utf8_lossy(&founded.stderr).trim().to_owned();
        return Err(io::Error::other(format!("no cluster can be founded: {said}")));
    }
    String::from_utf8(founded.stdout).map_err(io::Error::other)
}

/// The program, whatever the user's own brokers are told by the environment, a file or Ctrl-C.
fn command(place: &Place) -> Command {
    let mut command = Command::new(&place.program);
    command.current_dir(&place.dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLIMSOLL_") {
            command.env_remove(name);
        }
    }
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Ports of this machine that nobody has just now.
fn free_ports(count: usize, seed: u64) -> io::Result<Vec<SocketAddr>> {
    // Two runs of one seed may be under way.
    let mut rng = Pcg64Mcg::seed_from_u64(seed ^ u64::from(std::process::id()));
    let mut held = Vec::new();
    for _ in 0..1000 {
        let port = rng.random_range(PORTS);
        // Held until all are found, so that none is found twice.
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        if held.len() == count {
            return held.iter().map(TcpListener::local_addr).collect();
        }
    }
    Err(io::Error::other("no ports are free between 20000 and 32000"))
}

fn cannot_start(place: &Place, error: &io::Error) -> Error {
    Error::Broker(format!("no broker can be started ({}): {error}", place.program.display()))
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let ports = free_ports(9, 1).unwrap();
        let mut different = ports.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), 9);
        // A child that another test is starting has them until its exec(2), too.
        let is_free = |port: &SocketAddr| {
            let mut tries = iter::repeat_with(|| TcpListener::bind(port).is_ok()).take(1000);
            tries.any(|is_bound| {
                thread::park_timeout(if is_bound { Duration::ZERO } else { PAUSE });
                is_bound
            })
        };
        assert!(ports.iter().all(is_free), "{ports:?}");
    }

    /// A shell that takes `serve` for a script of its directory.
    #[cfg(unix)]
    fn served_by(script: &str) -> (tempfile::TempDir, Place) {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("serve"), script).unwrap();
        let dir = tmp.path().to_owned();
        (tmp, Place { program: "/bin/sh".into(), dir, memory: None })
    }

    #[test]
    #[cfg(unix)]
    fn a_broker_that_ends_is_named_with_what_it_said_last() {
        use std::sync::atomic::AtomicBool;

        let (_tmp, place) = served_by("echo 'the disk is on fire' >&2; exit 3");
        let brokers = Brokers::one(&place, 1).unwrap();
        let watch = Watch { cancel: &AtomicBool::new(false), progress: &|_| {} };
        let why = brokers.until("it serves", &watch, || Ok(false)).unwrap_err().to_string();
        assert!(why.starts_with("broker 1 ended by itself (exit status: 3)"), "{why}");
        assert!(why.ends_with("said last: the disk is on fire"), "{why}");
        let missing = Place { program: "/no/such/program".into(), ..place };
        let why = Brokers::one(&missing, 1).unwrap_err().to_string();
        assert!(why.contains("/no/such/program"), "{why}");
    }

    #[test]
    #[cfg(unix)]
    fn a_broker_is_held_by_its_standard_input_and_gone_when_its_brokers_are_dropped() {
        // It would outlive its standard input for long.
        let (_tmp, place) = served_by("cat; echo ended >&2; exec sleep 30");
        let brokers = Brokers::one(&place, 1).unwrap();
        thread::park_timeout(Duration::from_millis(100));
        brokers.check().unwrap();
        assert_eq!(brokers.nodes[0].last_words(), "broker 1 said nothing", "held");
        let process = brokers.nodes[0].child.borrow().id().to_string();
        let is_there = || Command::new("kill").args(["-0", &process]).output().unwrap();
        assert!(is_there().status.success());
        let begun = Instant::now();
        drop(brokers);
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody ended it");
        assert!(!is_there().status.success(), "process {process} is still there");
    }
}
