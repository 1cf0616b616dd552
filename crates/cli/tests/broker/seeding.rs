//! Brokers as processes that lack what the others have let go of: they are given it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cluster::{Cluster, in_time, numbers, read, run};
use super::joining::until_these_vote;
use super::serving::{Broker, plimsoll, text};

/// Chapters of so many bytes: a few thousand records.
pub(crate) const SMALL: [&str; 2] = ["--chapter-bytes", "64KiB"];
/// About a chapter.
pub(crate) const EACH: u32 = 10_000;
/// Who did not answer for so long is away.
const AWAY: Duration = Duration::from_secs(5);

/// The last chapter that is settled of shard 2, and not in its log any more.
pub(crate) fn settled(cluster: &Cluster, node: usize) -> u64 {
    let dir = cluster.data(node);
    let listed = plimsoll(&["chapter", "list", dir.to_str().unwrap(), "--json"]).output().unwrap();
    let Ok(listed) = serde_json::from_slice::<Value>(&listed.stdout) else { return 0 };
    listed["shards"][0]["settled"]["chapter"].as_u64().unwrap_or(0)
}

/// Sends these, and waits until a chapter more of them is settled there.
pub(crate) fn settle(cluster: &Cluster, at: usize, broker: &Broker, first: u32) {
    let before = settled(cluster, at);
    in_time("it takes records", || run(broker, "produce first", &numbers(first..first + EACH)));
    in_time("a chapter is settled", || {
        let now = settled(cluster, at);
        if now > before { Ok(()) } else { Err(format!("{now} is the last")) }
    });
}

fn until_seeded(broker: &Broker) {
    in_time("it is given what it lacks", || {
        let said = broker.news();
        if said.contains("it opens again") { Ok(()) } else { Err(said) }
    });
}

/// Says that something is done, also where that fails: else whoever waits for it would wait for ever.
struct DoneOnDrop<'a>(&'a AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What is answered about its health, asked time and again while this is done. Whoever is cut off, as it closes, asks again.
fn health_while(broker: &Broker, does: impl FnOnce()) -> Result<BTreeSet<String>, String> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut found = BTreeSet::new();
            while !is_done.load(Ordering::SeqCst) {
                let mut stream = TcpStream::connect(&broker.http).map_err(|why| why.to_string())?;
                let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
                let mut answer = String::new();
                let answered = asked.and_then(|()| stream.read_to_string(&mut answer));
                if answered.is_ok_and(|bytes| bytes > 0) {
                    found.insert(answer.lines().next().unwrap_or_default().to_owned());
                }
                thread::park_timeout(Duration::from_millis(2));
            }
            Ok(found)
        });
        {
            let _done = DoneOnDrop(&is_done);
            does();
        }
        asking.join().unwrap()
    })
}

fn has_all(broker: &Broker, end: u32) -> Result<(), String> {
    let found = read(broker)?;
    let lacks: Vec<u32> = (0..end).filter(|number| found.binary_search(number).is_err()).collect();
    let few = lacks.iter().take(3).collect::<Vec<_>>();
    if lacks.is_empty() { Ok(()) } else { Err(format!("{} are lacking: {few:?}…", lacks.len())) }
}

/// A node that was away until the others had let go of what it lacked never came back.
#[test]
fn a_broker_that_was_away_for_chapters_is_given_them_and_serves_all() {
    let cluster = Cluster::found().with(&SMALL);
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    in_time("a topic with three copies", || {
        let first = brokers[0].as_ref().unwrap();
        run(first, "topic create first", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    // Who does not vote by now will not while it lacks chapters, and the first would be the only one.
    until_these_vote(brokers[0].as_ref().unwrap(), &[1, 2, 3]);
    settle(&cluster, 3, brokers[0].as_ref().unwrap(), 0);
    drop(brokers[2].take());
    // The log is kept back for who answered lately: beyond that it goes.
    let (away, mut rounds) = (Instant::now(), 1);
    while rounds < 4 || away.elapsed() < AWAY {
        settle(&cluster, 1, brokers[0].as_ref().unwrap(), rounds * EACH);
        rounds += 1;
    }
    settle(&cluster, 1, brokers[0].as_ref().unwrap(), rounds * EACH);
    let end = (rounds + 1) * EACH;
    brokers[2] = Some(cluster.start(3));
    let third = brokers[2].as_ref().unwrap();
    // Its address refused connections while it closed and opened again: who looked whether it lives took it for dead.
    let health = health_while(third, || {
        until_seeded(third);
        in_time("it votes", || until_trusted(&cluster, 3));
    });
    let answers = ["HTTP/1.0 200 OK", "HTTP/1.0 503 Service Unavailable"].map(str::to_owned);
    assert_eq!(health.expect("nobody is refused"), BTreeSet::from(answers));
    let first = brokers[0].as_ref().unwrap();
    in_time("it takes records", || run(first, "produce first", &numbers(end..end + 9)));
    // It votes again, or nobody would lead.
    drop(brokers[0].take());
    let third = brokers[2].as_ref().unwrap();
    in_time("two go on, and have all", || {
        has_all(third, end + 9).map_err(|why| {
            let said = plimsoll(&["broker", "status", "--json", "--http", &third.http]).output();
            format!("{why}; {}", text(&said.unwrap().stdout))
        })
    });
}

#[test]
fn one_broker_that_ran_alone_for_chapters_becomes_three() {
    let mut alone = None;
    let cluster = Cluster::founded_by(|dir, members| {
        let data = dir.join("data-1");
        let broker = Broker::serve(&data, &SMALL);
        broker.ok("topic create first");
        alone = Some(broker);
        let id = fs::read_to_string(data.join("cluster")).unwrap();
        format!("members = \"{members}\"\ncluster-id = \"{}\"\n", &id[..32])
    });
    let cluster = cluster.with(&SMALL);
    let broker = alone.unwrap();
    for round in 0..3 {
        settle(&cluster, 1, &broker, round * EACH);
    }
    assert_eq!(broker.stop(), Some(0));
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    for new in [1, 2] {
        until_seeded(brokers[new].as_ref().unwrap());
    }
    let first = brokers[0].as_ref().unwrap();
    in_time("it takes records", || run(first, "produce first", &numbers(3 * EACH..3 * EACH + 9)));
    for new in [2, 3] {
        in_time("it has re-entered", || until_trusted(&cluster, new));
    }
    // They vote soon. Who was killed before that comes back.
    in_time("the others have them all without it", || {
        drop(brokers[0].take());
        let begun = Instant::now();
        let found = loop {
            let found = has_all(brokers[1].as_ref().unwrap(), 3 * EACH + 9);
            if found.is_ok() || begun.elapsed() > Duration::from_secs(15) {
                break found;
            }
        };
        if found.is_err() {
            brokers[0] = Some(cluster.start(1));
        }
        found.map_err(|why| why + "\n" + &brokers[1].as_ref().unwrap().news())
    });
}

/// Changes a byte of a log where this text lies, once it lies there.
fn damage_log(log: &Path, lies: &[u8]) -> Result<(), String> {
    for entry in fs::read_dir(log).map_err(|why| why.to_string())? {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap_or_default();
        if let Some(at) = bytes.windows(lies.len()).position(|window| window == lies) {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[lies[0] ^ 1], at as u64).unwrap();
            return Ok(());
        }
    }
    Err(format!("{} has not all yet", log.display()))
}

/// Who was seeded met the damage, and nobody else: it was asked again and again, for as long as no scrub came by.
#[test]
fn a_giver_that_does_not_know_that_its_log_is_damaged_finds_that_and_gives() {
    let cluster = Cluster::founded_by(|dir, members| {
        let data = dir.join("data-1");
        let broker = Broker::serve(&data, &SMALL);
        broker.ok("topic create first --config plimsoll.read.committed=durable");
        drop(broker);
        let id = fs::read_to_string(data.join("cluster")).unwrap();
        format!("members = \"{members}\"\ncluster-id = \"{}\"\n", &id[..32])
    });
    let cluster = cluster.with(&SMALL);
    let first = cluster.start(1);
    for round in 0..3 {
        settle(&cluster, 1, &first, round * EACH);
    }
    let end = 3 * EACH;
    // What was durable is said behind each 4 KiB: only that is damaged, and not torn.
    let rots = format!("the record that rots\n{}", numbers(end..end + 1000));
    in_time("it takes records", || run(&first, "produce first", &rots));
    in_time("it is durable", || {
        let described = run(&first, "topic describe first --json", "")?;
        let said: Value = serde_json::from_str(&described).unwrap();
        let at = &said["partitions"][0];
        if at["last_stable_offset"] == at["high_watermark"] { Ok(()) } else { Err(described) }
    });
    in_time("it takes records", || run(&first, "produce first", &numbers(end..end + 9)));
    // It is read from memory here, and by who is given the log from the disk.
    let log = cluster.data(1).join("shard-2");
    in_time("it is written", || damage_log(&log, b"the record that rots"));
    let others = [cluster.start(2), cluster.start(3)];
    others.iter().for_each(until_seeded);
    assert!(first.news().contains("another node met damage in its log"), "{}", first.news());
}

fn until_trusted(cluster: &Cluster, node: usize) -> Result<(), String> {
    let doubts = (1..=6).map(|number| cluster.data(node).join(format!("seeded-{number}")));
    let doubt = doubts.into_iter().find(|doubt| doubt.exists());
    doubt.map_or(Ok(()), |doubt| Err(format!("there is {}", doubt.display())))
}

/// It would have voted again in a term in which it had voted.
#[test]
fn a_broker_that_lost_its_disk_does_not_come_back_under_its_number() {
    let cluster = Cluster::found();
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    in_time("a topic with three copies", || {
        let first = brokers[0].as_ref().unwrap();
        run(first, "topic create first", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    // Who has a vote has saved one.
    in_time("it takes records", || {
        let at = brokers[2].as_ref().unwrap();
        run(at, "produce first", &numbers(0..10))
    });
    in_time("two go on", || {
        // In order: one that was killed may be in doubt, and beside one that has lost its disk nobody would lead.
        assert_eq!(brokers[0].take().and_then(Broker::stop), Some(0));
        let begun = Instant::now();
        let found = loop {
            let found = has_all(brokers[1].as_ref().unwrap(), 10);
            if found.is_ok() || begun.elapsed() > Duration::from_secs(15) {
                break found;
            }
        };
        brokers[0] = Some(cluster.start(1));
        found
    });
    drop(brokers[2].take());
    fs::remove_dir_all(cluster.data(3)).unwrap();
    let mut lost = cluster.start(3);
    in_time("it ends", || lost.ended().map(|status| assert_eq!(status, 2)).ok_or(lost.news()));
    in_time("it says why", || {
        let said = lost.news();
        // That it votes and has nothing, or that its start is another than the one that was met.
        let why = "it does not come back under its number: `plimsoll cluster join` has another";
        if said.contains(why) { Ok(()) } else { Err(said) }
    });
    let second = brokers[1].as_ref().unwrap();
    in_time("the others go on", || run(second, "produce first", &numbers(10..20)));
}
