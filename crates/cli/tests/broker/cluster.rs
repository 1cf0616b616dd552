//! Three brokers as processes: one is killed, and the others go on.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::joining::until_these_vote;
use super::serving::{Broker, plimsoll, text};

/// How long the others may take to go on, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Three brokers' directories and addresses.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    clients: Vec<u16>,
    /// What each is started with beside that.
    more: Vec<String>,
}

impl Cluster {
    pub(crate) fn found() -> Self {
        Self::founded_by(|dir, members| {
            let founded = plimsoll(&["cluster", "init", "--members", members, "--dir"])
                .arg(dir.join("data-1"))
                .output();
            let founded = founded.unwrap();
            assert!(founded.status.success(), "{}", text(&founded.stderr));
            text(&founded.stdout)
        })
    }

    /// Of members whose settings come from `found`, which is told where data is to be and who they are.
    pub(crate) fn founded_by(found: impl FnOnce(&Path, &str) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ports = free_ports(7);
        let member = |node: usize| format!("{}=127.0.0.1:{}", node + 1, ports[node]);
        let members: Vec<_> = (0..3).map(member).collect();
        let config = found(dir.path(), &members.join(","));
        let config = config + "[groups]\ninitial-rebalance-delay = \"0s\"\n";
        fs::write(dir.path().join("cluster.toml"), config).unwrap();
        Self { dir, clients: ports[3..].to_vec(), more: Vec::new() }
    }

    /// Starts each with these from here on.
    pub(crate) fn with(self, more: &[&str]) -> Self {
        Self { more: more.iter().map(ToString::to_string).collect(), ..self }
    }

    pub(crate) fn start(&self, node: usize) -> Broker {
        let config = self.dir.path().join("cluster.toml");
        self.start_as(node, &config, &["--node", &node.to_string()], Broker::member)
    }

    /// One whose disk can be made to fail.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_limited(&self, node: usize) -> Broker {
        let config = self.dir.path().join("cluster.toml");
        self.start_as(node, &config, &["--node", &node.to_string()], Broker::limited)
    }

    /// One that was told by these settings who it is.
    pub(crate) fn start_with(&self, node: usize, settings: &str) -> Broker {
        let config = self.dir.path().join(format!("node-{node}.toml"));
        let rest = "[groups]\ninitial-rebalance-delay = \"0s\"\n";
        fs::write(&config, settings.to_owned() + rest).unwrap();
        self.start_as(node, &config, &[], Broker::member)
    }

    fn start_as(
        &self,
        node: usize,
        config: &Path,
        named: &[&str],
        begin: fn(&Path, &str, &[&str]) -> Broker,
    ) -> Broker {
        let listen = format!("127.0.0.1:{}", self.clients[node - 1]);
        let mut more = vec!["--config", config.to_str().unwrap()];
        more.extend(named);
        more.extend(self.more.iter().map(String::as_str));
        begin(&self.data(node), &listen, &more)
    }

    pub(crate) fn data(&self, node: usize) -> std::path::PathBuf {
        self.dir.path().join(format!("data-{node}"))
    }
}

/// Ports that nobody has just now, below those that connections are given; no other test of this process gets them.
pub(crate) fn free_ports(count: usize) -> Vec<u16> {
    static GIVEN: Mutex<u16> = Mutex::new(0);
    let mut given = GIVEN.lock().unwrap();
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).unwrap() + *given;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<_> = (first..).filter(is_free).take(count).collect();
    *given += ports[count - 1] + 1 - first;
    ports
}

/// Does this until it succeeds.
#[expect(clippy::disallowed_methods, reason = "processes elect a leader, and tell nobody here")]
pub(crate) fn in_time<T>(what: &str, mut act: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        match act() {
            Ok(done) => return done,
            Err(why) if begun.elapsed() > PATIENCE => panic!("{what}: {why}"),
            Err(_) => sleep(Duration::from_millis(200)),
        }
    }
}

pub(crate) fn run(broker: &Broker, line: &str, input: &str) -> Result<String, String> {
    let output = broker.run(line, input);
    let said = text(&output.stdout);
    if output.status.success() { Ok(said) } else { Err(text(&output.stderr)) }
}

/// What is in the topic, sorted.
pub(crate) fn read(broker: &Broker) -> Result<Vec<u32>, String> {
    let said = run(broker, "consume first --from earliest", "")?;
    let mut numbers: Vec<u32> = said.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

pub(crate) fn numbers(range: std::ops::Range<u32>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}

#[test]
fn a_broker_that_is_killed_takes_nothing_along_and_comes_back() {
    let cluster = Cluster::found();
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    // Until then two of them are none that can go on.
    until_these_vote(brokers[0].as_ref().unwrap(), &[1, 2, 3]);
    in_time("a topic with three copies", || {
        let first = brokers[0].as_ref().unwrap();
        run(first, "topic create first --partitions 2", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    for node in 1..=3 {
        let at = brokers[node - 1].as_ref().unwrap();
        let base = u32::try_from(node - 1).unwrap() * 100;
        in_time("each takes records", || run(at, "produce first", &numbers(base..base + 100)));
    }
    // The founder leads what nobody else was asked to lead.
    drop(brokers[0].take());
    let second = brokers[1].as_ref().unwrap();
    in_time("two go on", || run(second, "produce first", &numbers(300..400)));
    let third = brokers[2].as_ref().unwrap();
    let found = in_time("all is there", || read(third));
    assert!((0..400).all(|number| found.contains(&number)), "{found:?}");
    brokers[0] = Some(cluster.start(1));
    let first = brokers[0].as_ref().unwrap();
    in_time("it takes records again", || run(first, "produce first", &numbers(400..500)));
    let found = in_time("all is there", || read(first));
    assert!((0..500).all(|number| found.contains(&number)), "{found:?}");
    for broker in brokers.into_iter().flatten() {
        assert_eq!(broker.stop(), Some(0));
    }
}

/// It answered from a catalog that had nothing in it yet: topics were unknown, groups refused offsets, and consumers
/// were assigned nothing.
#[test]
fn a_broker_that_was_just_started_does_not_say_that_topics_are_not_there() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("a topic with three copies", || {
        run(&brokers[2], "topic create first --if-not-exists", "")?;
        run(&brokers[2], "topic list", "")
    });
    until_these_vote(&brokers[0], &[1, 2, 3]);
    drop(brokers);
    let third = cluster.start(3);
    let said = run(&third, "topic list", "");
    assert!(said.is_err(), "it can have heard of nobody, and said {said:?}");
    let _second = cluster.start(2);
    let said = in_time("two know", || run(&third, "topic list", ""));
    assert!(said.contains("first"), "{said}");
}

/// Each pointed to its own `cluster status` for who is awaited, and only the founder's said it; and that one more failure stops the
/// cluster none did.
#[test]
fn any_broker_says_who_is_awaited_how_many_more_may_fail_and_what_is_refused() {
    let cluster = Cluster::found();
    let (first, second) = (cluster.start(1), cluster.start(2));
    let status = |broker: &Broker| {
        let status = plimsoll(&["cluster", "status", "--http"]).arg(&broker.http).output().unwrap();
        (status.status.code(), text(&status.stdout))
    };
    // All of it at once: shards may be electing still.
    let says = |broker: &Broker, code, whats: &[(usize, &str)]| {
        in_time("it is said", || match status(broker) {
            (found, said)
                if found == Some(code)
                    && whats.iter().all(|(times, what)| said.matches(what).count() == *times) =>
            {
                Ok(())
            }
            (found, said) => Err(format!("{found:?}, not {code} and {whats:?}: {said}")),
        });
    };
    let awaited = "\nnode 3 is awaited: until all are there node 1 runs alone; ";
    for broker in [&first, &second] {
        says(broker, 0, &[(1, awaited), (0, "as far as is heard")]);
    }
    let third = cluster.start(3);
    until_these_vote(&first, &[1, 2, 3]);
    let goes_on = "\nas far as is heard, writes go on if 1 more voter fails, and stop if 2 do\n";
    for broker in [&first, &second, &third] {
        says(broker, 0, &[(1, goes_on), (0, "awaited")]);
    }
    let made = "topic create wide --partitions 3 --config min.insync.replicas=3";
    in_time("a topic that wants three copies", || run(&first, made, ""));
    drop(third);
    // The three shards that acknowledge first; each has a partition.
    let refused = "\n  producers to topic wide get NOT_ENOUGH_REPLICAS: min.insync.replicas asks for more than the 2 in sync\n";
    let guarded = "\n  guarded: what it acknowledges is durable on a majority first\n";
    let stops = "\nas far as is heard, writes stop if 1 more voter fails\n";
    for broker in [&first, &second] {
        says(broker, 1, &[(3, refused), (3, guarded), (1, stops)]);
    }
}

#[test]
fn brokers_in_one_rack_say_that_they_acknowledge_from_their_disks() {
    let cluster = Cluster::found().with(&["--rack", "a"]);
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("all are known to be in one rack", || {
        let status = plimsoll(&["cluster", "status", "--http"]).arg(&brokers[0].http).output();
        let said = text(&status.unwrap().stdout);
        let is_said = said.contains("racks: node 1 in a, node 2 in a, node 3 in a")
            && said.contains("warning: a majority of the voters stands in rack \"a\"");
        if is_said { Ok(()) } else { Err(said) }
    });
}

#[test]
fn a_directory_of_another_cluster_is_refused_and_so_is_founding_twice() {
    let cluster = Cluster::found();
    let again = plimsoll(&["cluster", "init", "--members", "1=127.0.0.1:1", "--dir"])
        .arg(cluster.data(1))
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("is in"), "{}", text(&again.stderr));
    let other = ["--node", "1", "--members", "1=127.0.0.1:1", "--cluster-id"];
    let refused = plimsoll(&["serve", "--listen", "127.0.0.1:19999", "--http", "none", "--dir"])
        .arg(cluster.data(1))
        .args(other)
        .arg("0123456789abcdef0123456789abcdef")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is of the cluster"), "{}", text(&refused.stderr));
    assert!(Path::new(&cluster.data(1)).exists());
}

/// Its start had the number of the one that it had forgotten, and the others took it for that: it elected, with one that had been away, who had
/// less than was acknowledged.
#[test]
fn a_directory_that_went_back_by_a_start_is_refused_by_whoever_met_that_one() {
    let cluster = Cluster::found();
    let [first, second, third] = [1, 2, 3].map(|node| cluster.start(node));
    until_these_vote(&first, &[1, 2, 3]);
    in_time("a topic", || run(&first, "topic create first --if-not-exists", ""));
    in_time("records", || run(&first, "produce first", &numbers(0..100)));
    assert_eq!(third.stop(), Some(0));
    let (data, copy) = (cluster.data(3), cluster.data(3).with_extension("before"));
    copy_all(&data, &copy);
    let third = cluster.start(3);
    in_time("the second has met it", || {
        let news = second.news();
        let met = news.lines().filter(|line| line.contains("another broker is here")).count();
        if met > 2 { Ok(()) } else { Err(news) }
    });
    assert_eq!(second.stop(), Some(0));
    in_time("records", || run(&first, "produce first", &numbers(100..200)));
    assert_eq!(third.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
    copy_all(&copy, &data);
    // With nothing in memory one that is killed is in doubt.
    assert_eq!(first.stop(), Some(0));
    let second = cluster.start(2);
    let mut third = cluster.start(3);
    in_time("it ends", || {
        third.ended().ok_or_else(|| third.news()).map(|code| assert_eq!(code, 2))
    });
    assert!(
        third.news().contains("the others know of a start of node 3 that this directory does not"),
        "{}",
        third.news()
    );
    // Started again it would count higher, and be admitted.
    let config = cluster.dir.path().join("cluster.toml");
    let mut again = plimsoll(&["serve", "--node", "3", "--http", "none", "--memory", "none"]);
    again.args(["--listen", "127.0.0.1:19999", "--until-stdin-ends", "--config"]).arg(config);
    let again = again.arg("--dir").arg(&data).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    assert!(
        text(&again.stderr)
            .contains("the others know of a start of node 3 that this directory does not")
    );
    let first = cluster.start(1);
    in_time("two go on", || run(&first, "produce first", &numbers(200..300)));
    let found = in_time("all is there", || read(&second));
    assert_eq!(found, (0..300).collect::<Vec<_>>());
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}
