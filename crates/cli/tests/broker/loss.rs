//! Three brokers as processes, all of which may have forgotten what they acknowledged: the shard is fenced, says what is
//! guaranteed, left and in doubt, and goes on once somebody who was shown that says so.
//!
//! They are killed, and have no memory that outlives a process: nothing proves that they forgot nothing.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::cluster::{Cluster, in_time, numbers, read, run};
use super::seeding::{SMALL, settle};
use super::serving::{Broker, plimsoll, text};

/// The shards of records that are acknowledged before they are durable. The topic has a partition in each of the first two.
const SHARDS: [u64; 3] = [2, 4, 6];

/// The shard of records that are durable before they are acknowledged.
const DURABLE: u64 = 3;

/// What `cluster status` says of some shards.
fn status_of(broker: &Broker, numbers: &[u64]) -> Result<Vec<Value>, String> {
    let output = plimsoll(&["cluster", "status", "--json", "--http"]).arg(&broker.http).output();
    let said = text(&output.unwrap().stdout);
    let shards: Value = serde_json::from_str(&said).map_err(|why| why.to_string())?;
    let shards = shards.as_array().cloned().unwrap_or_default().into_iter();
    let is_one = |shard: &Value| numbers.iter().any(|number| shard["shard"] == *number);
    let shards: Vec<Value> = shards.filter(is_one).collect();
    if shards.len() == numbers.len() { Ok(shards) } else { Err(said) }
}

fn status(broker: &Broker) -> Result<Vec<Value>, String> {
    status_of(broker, &SHARDS)
}

/// Waits until this holds of each of them, as a broker says.
fn until_each(broker: &Broker, what: &str, holds: impl Fn(&Value) -> bool) -> Vec<Value> {
    in_time(what, || {
        let now = status(broker)?;
        if now.iter().all(&holds) { Ok(now) } else { Err(format!("{now:?}")) }
    })
}

/// Waits until they are fenced, and as many answer: their statuses.
fn fenced(broker: &Broker, nodes: usize) -> Vec<Value> {
    until_each(broker, "all are fenced", |now| {
        let is_all = now["rows"].as_array().map(Vec::len) == Some(nodes);
        now["condition"] == "fenced" && is_all
    })
}

fn recover(broker: &Broker, digests: &[&str], more: &[&str]) -> (Option<i32>, String) {
    let mut recover = plimsoll(&["cluster", "recover", "--http", &broker.http]);
    recover.args(digests.iter().flat_map(|digest| ["--digest", digest]));
    let output = recover.args(more).output().unwrap();
    (output.status.code(), text(&output.stderr))
}

fn begun(cluster: &Cluster) -> Vec<Broker> {
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("a topic with three copies", || {
        run(&brokers[0], "topic create first --partitions 2 --if-not-exists", "")?;
        run(&brokers[0], "topic list", "")
    });
    until_each(&brokers[0], "all vote", |now| now["voters"] == serde_json::json!([1, 2, 3]));
    in_time("records", || run(&brokers[0], "produce first", &numbers(0..100)));
    // All of it is durable on a majority, and known to be.
    until_each(&brokers[0], "all is durable", |now| now["guaranteed"] == now["committed"]);
    brokers
}

#[test]
fn three_that_may_have_forgotten_stand_still_until_an_operator_who_was_shown_what_is_left_says_so()
{
    let cluster = Cluster::found();
    drop(begun(&cluster));
    let (first, second) = (cluster.start(1), cluster.start(2));
    let shown = fenced(&first, 2);
    assert!(shown.iter().all(|shard| shard["missing"] == serde_json::json!([3])), "{shown:?}");
    assert!(run(&first, "produce first", "7\n").is_err(), "nobody takes it");
    let said = plimsoll(&["cluster", "status", "--http"]).arg(&second.http).output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = text(&said.stdout);
    let digests: Vec<&str> = shown.iter().map(|shard| shard["digest"].as_str().unwrap()).collect();
    let typed = format!("cluster recover --digest {}", digests.join(" --digest "));
    for part in ["shard 2: FENCED", "no answer of node 3", "in doubt", &typed] {
        assert!(said.contains(part), "{part}:\n{said}");
    }
    let (code, why) = recover(&first, &[digests[0], &"0".repeat(32)], &[]);
    assert_eq!(code, Some(2), "{why}");
    assert!(digests.iter().all(|digest| why.contains(digest)), "{why}");
    let (code, why) = recover(&first, &digests, &["--dry-run"]);
    assert_eq!(code, Some(0), "{why}");
    assert!(fenced(&first, 2).iter().all(|shard| shard["generation"] == 0), "it was said only");
    let (code, why) = recover(&first, &digests, &[]);
    assert_eq!(code, Some(0), "{why}");
    for shard in SHARDS {
        let goes_on = format!("shard {shard} goes on in generation 1, with the logs of nodes 1, 2");
        assert!(why.contains(&goes_on), "{goes_on}:\n{why}");
    }
    in_time("records again", || run(&second, "produce first", &numbers(100..200)));
    let found = in_time("all is there", || read(&first));
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    // Who was away hears of it.
    let third = cluster.start(3);
    until_each(&third, "it goes on too", |now| {
        let rows = now["rows"].as_array().cloned().unwrap_or_default();
        let is_well = |row: &Value| row["generation"] == 1 && row["is_in_doubt"] == false;
        rows.len() == 3 && rows.iter().all(is_well)
    });
    drop(first);
    in_time("without the first", || run(&third, "produce first", &numbers(200..300)));
    let found = in_time("all is there", || read(&third));
    assert_eq!(found, (0..300).collect::<Vec<_>>());
}

#[test]
fn three_that_may_have_forgotten_go_on_by_themselves_where_that_was_declared() {
    let cluster = Cluster::found().with(&["--on-majority-dirty", "auto-fence"]);
    drop(begun(&cluster));
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    in_time("records again", || run(&brokers[2], "produce first", &numbers(100..200)));
    let found = in_time("all is there", || read(&brokers[1]));
    assert_eq!(found, (0..200).collect::<Vec<_>>());
    // It may just be opening again.
    until_each(&brokers[0], "they go on too", |now| now["generation"] == 1);
}

/// A decision that only some files had stayed there, and lifted the doubt of a later loss.
#[test]
fn a_decision_that_cannot_be_written_down_whole_leaves_nothing_for_a_later_loss() {
    let cluster = Cluster::found();
    drop(begun(&cluster));
    let (first, second) = (cluster.start(1), cluster.start(2));
    let shown = fenced(&first, 2);
    let digests: Vec<&str> = shown.iter().map(|shard| shard["digest"].as_str().unwrap()).collect();
    let in_the_way = |node| cluster.data(node).join("loss-6.new");
    [1, 2].into_iter().for_each(|node| fs::create_dir(in_the_way(node)).unwrap());
    let (code, why) = recover(&first, &digests, &[]);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("of shard 6 it cannot"), "{why}");
    [1, 2].into_iter().for_each(|node| fs::remove_dir(in_the_way(node)).unwrap());
    in_time("what was written is done", || {
        let files = [1, 2].into_iter().flat_map(|node| [2, 4].map(|shard| (node, shard)));
        for (node, shard) in files {
            let path = cluster.data(node).join(format!("loss-{shard}"));
            match fs::read(&path) {
                // Its flag, which says that a doubt is lifted.
                Ok(bytes) if bytes[56] == 1 => return Err(path.display().to_string()),
                _ => {}
            }
        }
        Ok(())
    });
    // Of one replica a doubt is lifted, which is no majority: all is decided anew.
    in_time("all go on", || {
        let now = fenced(&first, 2);
        let digests: Vec<&str> = now.iter().map(|of| of["digest"].as_str().unwrap()).collect();
        // The other may open again meanwhile.
        let (code, why) = recover(&second, &digests, &[]);
        if code == Some(0) { Ok(()) } else { Err(why) }
    });
    in_time("records again", || run(&second, "produce first", &numbers(100..200)));
    assert_eq!(in_time("all is there", || read(&first)), (0..200).collect::<Vec<_>>());
}

/// Ten seconds after a start what was known before was noted anew, from a snapshot that knows of no D: what had been shown as
/// guaranteed was not any more, and had another digest.
#[test]
#[expect(clippy::disallowed_methods, reason = "nothing must happen meanwhile")]
fn what_is_guaranteed_stays_so_however_long_nobody_decides() {
    let cluster = Cluster::found().with(&SMALL);
    let brokers = begun(&cluster);
    settle(&cluster, 1, &brokers[0], 0);
    let known = until_each(&brokers[0], "all is durable", |now| {
        now["shard"] != 2 || now["guaranteed"] == now["committed"]
    });
    // What is known is noted every ten seconds.
    thread::sleep(Duration::from_secs(12));
    drop(brokers);
    let (first, _second) = (cluster.start(1), cluster.start(2));
    let shown = fenced(&first, 2);
    assert!(shown[0]["guaranteed"].as_u64() >= known[0]["guaranteed"].as_u64(), "{shown:?}");
    thread::sleep(Duration::from_secs(12));
    let now = fenced(&first, 2);
    assert_eq!(now[0]["guaranteed"], shown[0]["guaranteed"]);
    assert_eq!(now[0]["digest"], shown[0]["digest"]);
}

/// Stands in a record of its own, and nowhere else.
const MARK: &str = "1234567890";

/// As a disk that has lost a bit of the entry with that record, and one of each of so many before it.
fn damage(cluster: &Cluster, node: usize, before: usize) {
    let shards = [2, 3, 4, 6].map(|number| cluster.data(node).join(format!("shard-{number}")));
    let files = shards.iter().flat_map(|dir| fs::read_dir(dir).unwrap());
    let found = files.into_iter().find_map(|file| {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).ok()?;
        let at = bytes.windows(MARK.len()).position(|window| window == MARK.as_bytes())?;
        Some((path, bytes, at))
    });
    let (path, mut bytes, at) = found.expect("it is in a log");
    let frames = frames(&bytes);
    let with_it = frames.iter().rposition(|frame| *frame < at).unwrap();
    for frame in &frames[with_it - before..=with_it] {
        bytes[frame + FRAME_HEADER] ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

/// Where frames lie in a segment: behind its header, each with a header of its own and padded to 8 bytes.
fn frames(segment: &[u8]) -> Vec<usize> {
    let (mut at, mut frames) = (4096, Vec::new());
    while let Some(header) = segment.get(at..at + FRAME_HEADER) {
        let payload = u32::from_le_bytes(*header[16..].first_chunk().unwrap());
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        frames.push(at);
        at += FRAME_HEADER + payload.next_multiple_of(8) as usize;
    }
    frames
}

const FRAME_HEADER: usize = 24;

/// Two with shorter logs elected one of themselves, and the third, which had all, was cut back to that.
#[test]
fn a_shard_goes_on_with_the_longest_log_of_those_that_take_part() {
    let cluster = Cluster::found();
    // At the end of a run it is noted who votes.
    for broker in begun(&cluster) {
        assert_eq!(broker.stop(), Some(0));
    }
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    for lines in [numbers(100..150), format!("{MARK}\n"), numbers(150..200)] {
        in_time("records", || run(&brokers[0], "produce first --partition 0", &lines));
    }
    until_each(&brokers[0], "all is durable", |now| now["guaranteed"] == now["committed"]);
    drop(brokers);
    [1, 2].into_iter().for_each(|node| damage(&cluster, node, 0));
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    let shown = fenced(&brokers[2], 3);
    let digests: Vec<&str> = shown.iter().map(|shard| shard["digest"].as_str().unwrap()).collect();
    let (code, said) = recover(&brokers[2], &digests, &[]);
    assert_eq!(code, Some(0), "{said}");
    in_time("all is there", || {
        let mut expected: Vec<u32> = (0..200).chain([MARK.parse().unwrap()]).collect();
        expected.sort_unstable();
        let found = read(&brokers[2])?;
        if found == expected { Ok(()) } else { Err(format!("{} of them", found.len())) }
    });
}

/// Three that have ended, two of whose disks have lost the only record of a topic that waits for disks, and so many entries before it.
#[expect(clippy::disallowed_methods, reason = "what is durable is noted every second")]
fn two_have_lost_the_last(before: usize, more: &[&str]) -> Cluster {
    // Who leads writes an entry first: nobody is to take over in between.
    let cluster = Cluster::found().with(&[more, &["--keep-leaders"]].concat());
    let brokers = begun(&cluster);
    let topic = "topic create paid --config flush.messages=1 --if-not-exists";
    in_time("a topic that waits for disks", || run(&brokers[0], topic, ""));
    in_time("a record", || run(&brokers[0], "produce paid", &format!("{MARK}\n")));
    thread::sleep(Duration::from_secs(3));
    drop(brokers);
    [1, 2].into_iter().for_each(|node| damage(&cluster, node, before));
    cluster
}

/// A partition's first records went, on two disks of three, with the entry that says how far offsets were given: the next ones got
/// the same offsets. And it was declared that such a loss is decided by the clock, though the third, which had all, was only away.
#[test]
#[expect(clippy::disallowed_methods, reason = "nothing must happen meanwhile")]
fn what_two_disks_have_lost_is_not_given_up_by_the_clock_nor_its_offsets_given_again() {
    let cluster = two_have_lost_the_last(0, &["--on-majority-dirty", "auto-fence"]);
    let (first, second) = (cluster.start(1), cluster.start(2));
    let fenced = || {
        let now = status_of(&first, &[DURABLE])?.remove(0);
        let is_shown = now["condition"] == "fenced" && now["rows"].as_array().unwrap().len() == 2;
        if is_shown { Ok(now) } else { Err(now.to_string()) }
    };
    let shown = in_time("it is fenced", fenced);
    assert!(shown["durable"].as_u64() > shown["guaranteed"].as_u64(), "{shown}");
    let status = plimsoll(&["cluster", "status", "--http", &first.http]).output().unwrap();
    let said = text(&status.stdout);
    let lost =
        "no log that can be gone on with has them: their disks have lost them, or node 3 has them";
    assert!(said.contains(lost), "{said}");
    thread::sleep(Duration::from_secs(12));
    // The others went on by it, and each node was opened again for that.
    let shown = in_time("it is fenced still", fenced);
    assert_eq!(shown["generation"], 0, "nobody decided");
    in_time("it goes on", || {
        let (code, said) = recover(&first, &[fenced()?["digest"].as_str().unwrap()], &[]);
        if code == Some(0) { Ok(()) } else { Err(said) }
    });
    in_time("a record again", || run(&second, "produce paid", "again\n"));
    has_only_what_came_again(&[&first, &cluster.start(3)]);
}

/// The leader ended first, and the next one had begun its term: what the second disk had lost was within its log, which was longer so than
/// the one that was gone on with, and neither was elected (CI, once).
#[test]
#[expect(clippy::disallowed_methods, reason = "what is durable is noted every second")]
fn what_two_disks_have_lost_is_gone_on_without_though_one_has_something_behind_it() {
    let cluster = Cluster::found().with(&["--keep-leaders"]);
    let mut brokers = begun(&cluster);
    let topic = "topic create paid --config flush.messages=1 --if-not-exists";
    in_time("a topic that waits for disks", || run(&brokers[0], topic, ""));
    in_time("a record", || run(&brokers[0], "produce paid", &format!("{MARK}\n")));
    let shown = in_time("it is led", || {
        let now = status_of(&brokers[1], &[DURABLE])?.remove(0);
        if now["leader"] == 1 && now["guaranteed"] == now["committed"] {
            Ok(now)
        } else {
            Err(now.to_string())
        }
    });
    // The other has it by now.
    drop(brokers.remove(0));
    in_time("another leads, and has begun its term", || {
        let now = status_of(&brokers[0], &[DURABLE])?.remove(0);
        let is_durable = now["leader"].is_u64() && now["guaranteed"] == now["committed"];
        let is_more = now["guaranteed"].as_u64() > shown["guaranteed"].as_u64();
        if is_durable && is_more { Ok(()) } else { Err(now.to_string()) }
    });
    thread::sleep(Duration::from_secs(3));
    drop(brokers);
    [1, 2].into_iter().for_each(|node| damage(&cluster, node, 0));
    let (first, second) = (cluster.start(1), cluster.start(2));
    let digest = in_time("it is fenced", || {
        let now = status_of(&first, &[DURABLE])?.remove(0);
        let is_shown = now["condition"] == "fenced" && now["rows"].as_array().unwrap().len() == 2;
        let is_longer = now["rows"][1]["last_term"].as_u64() > now["best_tail"][0].as_u64();
        let is_shown = is_shown && is_longer;
        if is_shown { Ok(now["digest"].clone()) } else { Err(now.to_string()) }
    });
    let (code, said) = recover(&first, &[digest.as_str().unwrap()], &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("not used: what node 2,"), "{said}");
    in_time("a record again", || run(&second, "produce paid", "again\n"));
    has_only_what_came_again(&[&first, &cluster.start(3)]);
}

/// With what another had, which had lost more, it was led so far.
#[expect(clippy::disallowed_methods, reason = "what is durable is noted now and then")]
fn goes_on_with_what_lies_before_the_damage(config: &str) {
    let cluster = Cluster::found().with(&["--keep-leaders"]);
    let mut brokers = begun(&cluster);
    let topic = format!("topic create paid {config} --if-not-exists");
    in_time("a topic", || run(&brokers[0], &topic, ""));
    for line in ["first", "second", MARK] {
        in_time("a record", || run(&brokers[0], "produce paid", &format!("{line}\n")));
    }
    let all = [SHARDS[0], DURABLE, SHARDS[1], SHARDS[2]];
    let durable = |broker: &Broker| {
        in_time("all is led and durable", || {
            let now = status_of(broker, &all)?;
            let is_it = |of: &Value| of["leader"].is_u64() && of["guaranteed"] == of["committed"];
            if now.iter().all(is_it) { Ok(()) } else { Err(format!("{now:?}")) }
        });
    };
    durable(&brokers[0]);
    // Whoever leads then begins its term, which is behind what is damaged.
    drop(brokers.remove(0));
    durable(&brokers[0]);
    // How far it is so is noted every second, or every ten.
    thread::sleep(Duration::from_secs(12));
    drop(brokers);
    damage(&cluster, 1, 2);
    damage(&cluster, 2, 0);
    let (first, second) = (cluster.start(1), cluster.start(2));
    let shown = in_time("it is fenced, and one has more that can be read", || {
        let now = status_of(&first, &all)?;
        let is_more = |of: &Value| of["best_tail"] == of["rows"][1]["whole"];
        let is_whole = now.iter().any(is_more);
        if is_whole { Ok(now) } else { Err(format!("{now:?}")) }
    });
    let fenced = shown.iter().filter(|of| of["condition"] == "fenced");
    let digests: Vec<&str> = fenced.map(|of| of["digest"].as_str().unwrap()).collect();
    let (code, said) = recover(&first, &digests, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        second.news().contains("its log is cut off there, as was decided"),
        "{}",
        second.news()
    );
    let has = |broker: &Broker, what: &str| {
        in_time("it is there", || {
            let there = run(broker, "consume paid", "")?;
            if there == what { Ok(()) } else { Err(there) }
        });
    };
    has(&second, "first\nsecond\n");
    in_time("a record again", || run(&second, "produce paid", "again\n"));
    // What it gave up its next start does not miss.
    for broker in [first, second] {
        assert_eq!(broker.stop(), Some(0));
    }
    let (first, second) = (cluster.start(1), cluster.start(2));
    has(&first, "first\nsecond\nagain\n");
    assert!(!second.news().contains("in doubt"), "{}", second.news());
    has(&cluster.start(3), "first\nsecond\nagain\n");
}

#[test]
fn what_lies_before_the_damage_of_the_longest_log_is_gone_on_with_of_records_that_wait_for_disks() {
    goes_on_with_what_lies_before_the_damage("--config flush.messages=1");
}

#[test]
fn what_lies_before_the_damage_of_the_longest_log_is_gone_on_with() {
    goes_on_with_what_lies_before_the_damage("--partitions 1");
}

/// It has them in a snapshot, which nothing is cut off of: what it was sent in their place it took for what it had, and its shard stopped (a review).
#[test]
#[expect(clippy::disallowed_methods, reason = "what is durable is noted every second")]
fn what_two_disks_have_lost_and_the_third_has_in_its_snapshot_goes_there_too() {
    let cluster = Cluster::found().with(&["--keep-leaders"]);
    let mut brokers = begun(&cluster);
    let topic = "topic create paid --config flush.messages=1 --if-not-exists";
    in_time("a topic that waits for disks", || run(&brokers[0], topic, ""));
    in_time("a record", || run(&brokers[0], "produce paid", &format!("{MARK}\n")));
    in_time("it is there", || {
        let now = status_of(&brokers[0], &[DURABLE])?.remove(0);
        let rows = now["rows"].as_array().unwrap();
        let is_even = rows.iter().all(|row| row["committed"] == rows[0]["last"]);
        if is_even && rows.len() == 3 { Ok(()) } else { Err(now.to_string()) }
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(brokers.pop().and_then(Broker::stop), Some(0));
    drop(brokers);
    [1, 2].into_iter().for_each(|node| damage(&cluster, node, 0));
    let (first, second) = (cluster.start(1), cluster.start(2));
    in_time("it goes on", || {
        let now = status_of(&first, &[DURABLE])?.remove(0);
        let (code, said) = recover(&first, &[now["digest"].as_str().unwrap()], &[]);
        if code == Some(0) { Ok(()) } else { Err(said) }
    });
    in_time("records again", || run(&second, "produce paid", "again\n"));
    let third = cluster.start(3);
    in_time("it has what the others have", || {
        let now = status_of(&third, &[DURABLE])?.remove(0);
        let rows = now["rows"].as_array().unwrap();
        let is_even = rows.iter().all(|row| row["last"] == rows[0]["last"]);
        let is_sure = rows.iter().all(|row| row["is_in_doubt"] == false);
        if is_even && is_sure && rows.len() == 3 { Ok(()) } else { Err(now.to_string()) }
    });
    // It leads, with what it has itself.
    drop(first);
    let move_it = |to: &Broker| {
        let moved = ["cluster", "move", "--shard", "3", "--to", "3", "--http", &to.http];
        let moved = plimsoll(&moved).output().unwrap();
        if moved.status.success() { Ok(()) } else { Err(text(&moved.stderr)) }
    };
    in_time("it leads", || move_it(&second));
    has_only_what_came_again(&[&third]);
}

/// It is decided that all shards of records go on with the logs of these.
fn goes_on(brokers: &[&Broker]) {
    let all = [SHARDS[0], DURABLE, SHARDS[1], SHARDS[2]];
    in_time("all go on", || {
        let now = status_of(brokers[0], &all)?;
        let is_shown = |shard: &Value| {
            let rows = shard["rows"].as_array().map(Vec::len);
            shard["condition"] == "fenced" && rows == Some(brokers.len())
        };
        if !now.iter().all(is_shown) {
            return Err(format!("{now:?}"));
        }
        let digests: Vec<&str> = now.iter().map(|of| of["digest"].as_str().unwrap()).collect();
        let (code, why) = recover(brokers[1], &digests, &[]);
        if code == Some(0) { Ok(()) } else { Err(why) }
    });
}

/// Far above what was given before.
fn has_only_what_came_again(brokers: &[&Broker]) {
    for broker in brokers {
        let there = in_time("it is there", || {
            let there = run(broker, "consume paid --json", "")?;
            if there.is_empty() { Err(there) } else { Ok(there) }
        });
        for line in there.lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["value"], "again", "{there}");
            assert!(record["offset"].as_u64() >= Some(1 << 36), "{there}");
        }
    }
}

/// With the records that opened it and bounded its offsets a partition was opened anew, with the offset of its first.
#[test]
fn a_partition_whose_opening_two_disks_have_lost_does_not_give_its_offsets_again() {
    let cluster = two_have_lost_the_last(1, &[]);
    let (first, second) = (cluster.start(1), cluster.start(2));
    goes_on(&[&first, &second]);
    in_time("a record again", || run(&second, "produce paid", "again\n"));
    has_only_what_came_again(&[&first, &cluster.start(3)]);
}

/// The decision lifted the doubt of those with less, and each doubted anew at the start that it brought, as it missed what it had noted:
/// the shard did not go on, however often it was decided, though the third had all (an attacker, 3 of 3).
#[test]
fn what_two_disks_have_lost_is_had_from_the_third_by_a_decision_with_it() {
    let cluster = two_have_lost_the_last(0, &[]);
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    goes_on(&brokers.iter().collect::<Vec<_>>());
    for broker in &brokers {
        in_time("it is there", || {
            let there = run(broker, "consume paid", "")?;
            if there == format!("{MARK}\n") { Ok(()) } else { Err(there) }
        });
    }
}

/// With the note of how far it had been durable the disk lost the last record, which looked like a write that was not finished: its broker
/// had one elected that lacked it, and offsets were given again (an attacker, 3 of 3).
#[test]
#[expect(clippy::disallowed_methods, reason = "what is durable is noted every second")]
fn a_disk_that_lost_the_note_of_what_it_had_does_not_count_for_it() {
    let cluster = Cluster::found().with(&["--keep-leaders"]);
    let mut brokers = begun(&cluster);
    let topic = "topic create paid --config flush.messages=1 --if-not-exists";
    in_time("a topic that waits for disks", || run(&brokers[0], topic, ""));
    in_time("a record", || run(&brokers[0], "produce paid", "before\n"));
    thread::sleep(Duration::from_secs(2));
    drop(brokers.pop());
    in_time("a record of two", || run(&brokers[0], "produce paid", &format!("{MARK}\n")));
    thread::sleep(Duration::from_secs(2));
    drop(brokers);
    damage(&cluster, 1, 0);
    // Nor is it known by the others of its kind, which are gone as well, that it was there (an attacker, 3 of 3).
    for number in [0, 1, DURABLE] {
        fs::remove_file(cluster.data(1).join(format!("known-{number}"))).unwrap();
    }
    let (first, _third) = (cluster.start(1), cluster.start(3));
    assert!(
        first.news().contains("nothing says whether the end of shard 3 is there"),
        "{}",
        first.news()
    );
    in_time("it is fenced", || {
        let now = status_of(&first, &[DURABLE])?.remove(0);
        let is_shown = now["condition"] == "fenced" && now["rows"].as_array().unwrap().len() == 2;
        if is_shown { Ok(()) } else { Err(now.to_string()) }
    });
    let second = cluster.start(2);
    in_time("it is there", || {
        let there = run(&second, "consume paid", "")?;
        if there == format!("before\n{MARK}\n") { Ok(()) } else { Err(there) }
    });
}
