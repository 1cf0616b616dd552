//! A broker of three whose disk fails, or has lost something.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use super::cluster::{Cluster, in_time, numbers, read, run};

#[test]
fn a_broker_whose_disk_fails_has_others_lead_says_so_and_comes_back() {
    let cluster = Cluster::found();
    let mut first = cluster.start_limited(1);
    let [second, third] = [2, 3].map(|node| cluster.start(node));
    in_time("a topic with three copies", || {
        run(&first, "topic create first", "")
            .or_else(|why| if why.contains("exists") { Ok(String::new()) } else { Err(why) })
    });
    for (base, at) in [(0, &first), (100, &second), (200, &third)] {
        in_time("each takes records", || run(at, "produce first", &numbers(base..base + 100)));
    }
    first.fail_disk();
    in_time("two go on", || run(&second, "produce first", &numbers(300..400)));
    let status = in_time("it ends", || first.ended().ok_or_else(|| first.news()));
    assert_eq!(status, 1, "{}", first.news());
    assert!(first.news().contains("counts as failed"), "{}", first.news());
    in_time("they go on", || run(&third, "produce first", &numbers(400..500)));
    // What it had written is there still, and the rest comes from the others.
    let first = cluster.start(1);
    in_time("it takes records again", || run(&first, "produce first", &numbers(500..600)));
    let found = in_time("all is there", || read(&first));
    assert!((0..600).all(|number| found.contains(&number)), "{found:?}");
    for broker in [first, second, third] {
        assert_eq!(broker.stop(), Some(0));
    }
}

/// A segment's header has 4 KiB. Behind it lies a frame that links it to the segment before, of 24 bytes and 80, and then the first entry.
const LINK: u64 = 4096 + 24;
const FIRST_ENTRY: u64 = 4096 + 24 + 80 + 24;

/// Nothing in a log of some entries says how far it is durable, and its first entry was damaged: it was taken for one that had not been
/// written to its end, and all behind it was cut off. What stayed did not say who votes, so the founder did not start.
#[test]
#[expect(clippy::disallowed_methods, reason = "what is durable is noted each ten seconds")]
fn a_founder_bears_that_the_first_entry_of_a_short_log_is_damaged() {
    let cluster = Cluster::found();
    let mut brokers = [1, 2, 3].map(|node| Some(cluster.start(node)));
    let first = brokers[0].take().unwrap();
    in_time("a topic with three copies", || {
        run(&first, "topic create first --partitions 3 --if-not-exists", "")
    });
    in_time("records", || run(&first, "produce first", &numbers(0..100)));
    thread::sleep(Duration::from_secs(12));
    drop(first);
    for (number, at) in [(2, FIRST_ENTRY), (4, FIRST_ENTRY), (6, LINK)] {
        let log = fs::read_dir(cluster.data(1).join(format!("shard-{number}"))).unwrap();
        let mut segments: Vec<_> = log.map(|file| file.unwrap().path()).collect();
        segments.retain(|file| file.extension().is_some_and(|ends| ends == "seg"));
        segments.sort_unstable();
        let file = OpenOptions::new().read(true).write(true).open(&segments[0]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
    let first = cluster.start(1);
    let said = first.news();
    for number in [2, 4] {
        let borne = format!("the disk has lost an entry of shard {number}: the other brokers");
        assert!(said.contains(&borne), "{said}");
    }
    assert!(said.contains("what the disk has of shard 6 cannot be used"), "{said}");
    in_time("it takes records", || run(&first, "produce first", &numbers(100..200)));
    let mut found = in_time("all is there", || read(&first));
    // What was produced once more may be there twice.
    found.dedup();
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}
