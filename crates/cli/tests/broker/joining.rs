//! Brokers as processes: one comes in the place of another that was lost, and those that are there need no other settings.

use std::fs;
use std::thread;

use serde_json::Value;

use super::cluster::{Cluster, copy_all, free_ports, in_time, numbers, read, run};
use super::serving::{Broker, plimsoll, text};

fn asked(broker: &Broker, line: &str) -> (Option<i32>, String, String) {
    let words: Vec<_> = line.split(' ').collect();
    let mut asking = plimsoll(&["cluster"]);
    let output = asking.args(words).args(["--http", &broker.http]).output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Who votes in each shard, once all of them are led.
fn voters(broker: &Broker) -> Result<Vec<Value>, String> {
    let (code, said, why) = asked(broker, "status --json");
    if code != Some(0) {
        return Err(said + &why);
    }
    let rolls: Vec<Value> = serde_json::from_str(&said).map_err(|why| why.to_string())?;
    Ok(rolls.into_iter().map(|roll| roll["voters"].clone()).collect())
}

pub(crate) fn until_these_vote(broker: &Broker, expected: &[u64]) {
    until_as_said(broker, &[expected; 6]);
}

/// Once these vote, in the order of the shards.
fn until_as_said(broker: &Broker, expected: &[&[u64]]) {
    let expected: Vec<_> = expected.iter().map(|voters| serde_json::json!(voters)).collect();
    in_time("these vote", || {
        let found = voters(broker)?;
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn a_broker_comes_in_the_place_of_one_that_lost_its_disk() {
    let cluster = Cluster::found();
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    until_these_vote(brokers[0].as_ref().unwrap(), &[1, 2, 3]);
    in_time("a topic", || {
        run(brokers[0].as_ref().unwrap(), "topic create first --partitions 2 --if-not-exists", "")
    });
    in_time("records", || run(brokers[0].as_ref().unwrap(), "produce first", &numbers(0..100)));
    drop(brokers[2].take());
    fs::remove_dir_all(cluster.data(3)).unwrap();
    let first = brokers[0].take().unwrap();

    // Of the two that are left each must be there.
    let (code, _, why) = asked(&first, "remove --node 2");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("[3] do not answer") || why.contains("may lead"), "{why}");
    let (code, _, why) = asked(&first, "remove --node 9");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("there is no node 9; these are: [1, 2, 3]"), "{why}");
    let port = free_ports(1)[0];
    let taken = format!("join --node 3 --address 127.0.0.1:{port}");
    let (code, _, why) = asked(&first, &taken);
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("node 3 is found at"), "{why}");

    let join = format!("join --address 127.0.0.1:{port}");
    let settings = in_time("it may come", || match asked(&first, &join) {
        (Some(0), said, _) => Ok(said),
        (_, _, why) => Err(why),
    });
    assert!(
        settings.contains("node = 4") && settings.contains(&format!("4=127.0.0.1:{port}")),
        "{settings}"
    );
    let (_, again, _) = asked(&first, &join);
    assert_eq!(again, settings, "asked again it is the same");
    let fourth = cluster.start_with(4, &settings);
    // While the third is away nobody takes its vote.
    let (all, three) = (&[1, 2, 3, 4][..], &[1, 2, 3][..]);
    until_as_said(&first, &[all, three, three, three, three, three]);
    let (code, _, why) = asked(&first, "remove --node 3");
    assert_eq!(code, Some(0), "{why}");
    assert!(why.contains("node 3 votes nowhere"), "{why}");
    until_these_vote(&first, &[1, 2, 4]);
    in_time("records", || run(&first, "produce first", &numbers(100..200)));

    // The new one counts: two of the three go on.
    drop(first);
    in_time("two go on", || {
        let said = |why: String| why + &fourth.news() + &brokers[1].as_ref().unwrap().news();
        run(&fourth, "produce first", &numbers(200..300)).map_err(said)
    });
    let found = in_time("all is there", || read(&fourth));
    assert_eq!(found, (0..300).collect::<Vec<_>>());

    // Those that were there know it without other settings, and do not hear who was let go.
    let first = cluster.start(1);
    until_these_vote(&first, &[1, 2, 4]);
    // With it in doubt one that is sure would be left of three, and nobody be elected.
    in_time("it is sure again", || match asked(&first, "status") {
        (_, said, _) if said.contains("in doubt") => Err(said),
        _ => Ok(()),
    });
    drop(brokers[1].take());
    in_time("two go on", || run(&first, "produce first", &numbers(300..400)));
    let found = in_time("all is there", || read(&first));
    assert_eq!(found, (0..400).collect::<Vec<_>>());
}

#[test]
fn of_four_brokers_three_vote_and_who_does_not_takes_the_place_of_one_that_goes() {
    let cluster = Cluster::found();
    let mut brokers: Vec<_> = (1..=3).map(|node| Some(cluster.start(node))).collect();
    let first = brokers[0].take().unwrap();
    until_these_vote(&first, &[1, 2, 3]);
    let create = "topic create first --partitions 6 --if-not-exists";
    in_time("a topic", || run(&first, create, ""));
    in_time("records", || run(&first, "produce first", &numbers(0..100)));
    let join = format!("join --address 127.0.0.1:{}", free_ports(1)[0]);
    let settings = in_time("it may come", || match asked(&first, &join) {
        (Some(0), said, _) => Ok(said),
        (_, _, why) => Err(why),
    });
    let fourth = cluster.start_with(4, &settings);
    // Control, groups, the first of records, what waits for disks, and the others of records.
    let all = &[1, 2, 3, 4][..];
    until_as_said(&first, &[all, all_but(4), all_but(1), all_but(4), all_but(2), all_but(3)]);
    let (_, said, _) = asked(&first, "status");
    assert!(said.contains("nodes 2, 3, 4 vote; no vote: 1"), "{said}");
    in_time("each leads some", || {
        let (_, said, _) = asked(&fourth, "status --json");
        let rolls: Vec<Value> = serde_json::from_str(&said).map_err(|why| why.to_string())?;
        let leaders: Vec<_> = rolls.iter().map(|roll| roll["leader"].as_u64()).collect();
        let expected = [1, 1, 2, 1, 3, 4].map(Some);
        if leaders == expected { Ok(()) } else { Err(format!("{leaders:?}")) }
    });
    in_time("records", || run(&fourth, "produce first", &numbers(100..200)));
    let moved =
        in_time("a partition moves", || run(&first, "topic move first --partition 0 --to 4", ""));
    assert!(moved.contains("partition 0 of first is led by broker 4"), "{moved}");
    let why = run(&first, "topic move first --partition 0 --to 1", "").unwrap_err();
    assert!(
        why.contains("the first leads where all is well: [2, 3, 4], [3, 4, 1], [4, 1, 2]"),
        "{why}"
    );

    // Two are lost, one after the other. Of the shard in which both voted one replica that votes is left, and one that comes to.
    let second = brokers[1].take().unwrap();
    in_time("it hands over", || match asked(&second, "drain") {
        (Some(0), ..) => Ok(()),
        (_, said, why) => Err(said + &why),
    });
    let (code, _, why) = asked(&first, "remove --node 2");
    assert_eq!(code, Some(0), "{why}");
    drop(second);
    until_these_vote(&first, &[1, 3, 4]);
    in_time("records", || run(&first, "produce first", &numbers(200..300)));
    drop(brokers[2].take());
    in_time("two go on", || run(&first, "produce first", &numbers(300..400)));
    let found = in_time("all is there", || read(&fourth));
    assert_eq!(found, (0..400).collect::<Vec<_>>());
}

/// The other three of four.
fn all_but(node: u64) -> &'static [u64] {
    [&[2, 3, 4][..], &[1, 3, 4], &[1, 2, 4], &[1, 2, 3]][usize::try_from(node).unwrap() - 1]
}

#[test]
fn a_broker_that_is_there_hands_over_before_it_goes() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    until_these_vote(&brokers[0], &[1, 2, 3]);
    let (code, _, why) = asked(&brokers[0], "remove --node 3");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("plimsoll cluster drain"), "{why}");
    in_time("it hands over", || match asked(&brokers[2], "drain") {
        (Some(0), ..) => Ok(()),
        (_, said, why) => Err(said + &why),
    });
    // On a busy machine another may have begun to lead the control shard just now.
    in_time("it goes", || match asked(&brokers[0], "remove --node 3") {
        (Some(0), ..) => Ok(()),
        (_, said, why) => Err(said + &why),
    });
    until_these_vote(&brokers[1], &[1, 2]);
    // Its directory is there, and what it voted: another with its number could vote again.
    let (code, _, why) = asked(&brokers[0], "join --node 3 --address 127.0.0.1:1");
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("node 3 may have been there before") && why.contains("take 4"), "{why}");
    in_time("a topic", || run(&brokers[0], "topic create first --if-not-exists", ""));
    in_time("records", || run(&brokers[1], "produce first", &numbers(0..10)));
}

/// They got one number, and of two that went at once the second had the first back.
#[test]
fn those_that_come_at_once_get_a_number_each_and_those_that_go_at_once_go() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    until_these_vote(&brokers[0], &[1, 2, 3]);
    let ports = free_ports(6);
    let told: Vec<_> = thread::scope(|scope| {
        let comes = |(asked_of, port): (usize, &u16)| {
            let broker = &brokers[asked_of % 3];
            let line = format!("join --address 127.0.0.1:{port} --json");
            scope.spawn(move || {
                in_time("it may come", || match asked(broker, &line) {
                    (Some(0), said, _) => Ok(said),
                    (_, _, why) => Err(why),
                })
            })
        };
        let coming: Vec<_> = ports.iter().enumerate().map(comes).collect();
        coming.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let number = |said: &String| serde_json::from_str::<Value>(said).unwrap()["node"].as_u64();
    let mut numbers: Vec<_> = told.iter().map(|said| number(said).unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9]);

    in_time("it hands over", || match asked(&brokers[1], "drain") {
        (Some(0), ..) => Ok(()),
        (_, said, why) => Err(said + &why),
    });
    // It leads nothing, and is told that it would be missed if it was only stopped.
    in_time("the other hands over", || match asked(&brokers[2], "drain") {
        (Some(1), said, _) if said.contains("node 2 is about to be stopped as well") => Ok(()),
        (code, said, why) => Err(format!("{code:?}: {said}{why}")),
    });
    thread::scope(|scope| {
        for node in [2, 3] {
            let (first, line) = (&brokers[0], format!("remove --node {node}"));
            scope.spawn(move || {
                in_time("it goes", || match asked(first, &line) {
                    (Some(0), ..) => Ok(()),
                    (_, said, why) => Err(said + &why),
                });
            });
        }
    });
    until_these_vote(&brokers[0], &[1]);
}

/// All were about to be stopped, so one went on leading, as nobody else could: it was taken for one that leads nothing, and let go. It did not
/// hear that it was to hand over, and what it led nobody could change any more.
#[test]
fn a_broker_that_drains_and_leads_all_the_same_is_not_let_go() {
    let cluster = Cluster::found();
    let brokers: Vec<_> = (1..=3).map(|node| cluster.start(node)).collect();
    until_these_vote(&brokers[0], &[1, 2, 3]);
    let drained = |broker: &Broker| {
        in_time("it is drained, or cannot be", || match asked(broker, "drain") {
            (Some(0 | 1), ..) => Ok(()),
            (_, said, why) => Err(said + &why),
        });
    };
    brokers.iter().for_each(drained);
    // The last leads all of it. Another that may lead again for a moment, and is given the register, hands it back to nobody; it may be
    // given all else in that moment too.
    let mut numbers = [2, 3, 1].into_iter().cycle();
    let leaders = in_time("two lead", || {
        let number = numbers.next().unwrap();
        let broker = &brokers[number - 1];
        let does = |what: &str| match asked(broker, what) {
            (Some(0), ..) => Ok(()),
            (_, said, why) => Err(said + &why),
        };
        let moved =
            does("drain --undo").and_then(|()| does(&format!("move --shard 0 --to {number}")));
        drained(broker);
        moved?;
        let (_, said, _) = asked(broker, "status --json");
        let rolls: Vec<Value> = serde_json::from_str(&said).map_err(|why| why.to_string())?;
        let leaders: Option<Vec<_>> = rolls.iter().map(|roll| roll["leader"].as_u64()).collect();
        let leaders = leaders.filter(|all| all.iter().any(|leader| *leader != all[0]));
        leaders.ok_or(said)
    });
    let goes = leaders[1..].iter().find(|leader| **leader != leaders[0]).expect("two lead");
    let asks = &brokers[usize::try_from(leaders[0]).unwrap() - 1];
    let (code, said, why) = asked(asks, &format!("remove --node {goes}"));
    assert_eq!(code, Some(2), "{said}{why}");
    assert!(why.contains(&format!("node {goes} leads shard")), "{said}{why}");
    assert!(why.contains("drain --undo"), "{why}");
}

/// What `join` printed for the second of two was refused by the broker that was started with it.
#[test]
fn a_broker_that_is_alone_becomes_three_one_after_the_other() {
    let cluster = Cluster::founded_by(|dir, members| {
        let only = members.split(',').next().unwrap();
        let founded = plimsoll(&["cluster", "init", "--members", only, "--dir"])
            .arg(dir.join("data-1"))
            .output()
            .unwrap();
        assert!(founded.status.success(), "{}", text(&founded.stderr));
        text(&founded.stdout)
    });
    let first = cluster.start(1);
    until_these_vote(&first, &[1]);
    in_time("a topic", || run(&first, "topic create first --if-not-exists", ""));
    in_time("records", || run(&first, "produce first", &numbers(0..100)));
    let ports = free_ports(2);
    let mut others = Vec::new();
    for node in [2, 3] {
        let join = format!("join --address 127.0.0.1:{}", ports[node - 2]);
        let settings = in_time("it may come", || match asked(&first, &join) {
            (Some(0), said, _) => Ok(said),
            (_, _, why) => Err(why),
        });
        others.push(cluster.start_with(node, &settings));
        in_time("it is there", || match asked(&first, "status --json").1 {
            said if said.contains(&format!("\"node\": {node},")) => Ok(()),
            said => Err(said + &others.last().unwrap().news()),
        });
    }
    until_these_vote(&first, &[1, 2, 3]);
    drop(first);
    in_time("two go on", || run(&others[0], "produce first", &numbers(100..200)));
    let found = in_time("all is there", || read(&others[1]));
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}

/// Those that had met the empty directory under the founder's number refused the founder ever after.
#[test]
fn a_founder_that_was_started_in_a_mistyped_directory_first_founds_all_the_same() {
    let cluster = Cluster::found();
    let (data, founded) = (cluster.data(1), cluster.data(1).with_extension("founded"));
    copy_all(&data, &founded);
    fs::remove_dir_all(&data).unwrap();
    let mistyped = cluster.start(1);
    let (second, _third) = (cluster.start(2), cluster.start(3));
    in_time("all three are there", || {
        let (code, said, why) = asked(&second, "status");
        assert_eq!(code, Some(1), "{said}");
        let are_there = said.contains("no vote: 1, 2, 3")
            && said.contains("in whose directory `plimsoll cluster init`");
        if are_there { Ok(()) } else { Err(said + &why) }
    });
    assert_eq!(mistyped.stop(), Some(0));
    fs::remove_dir_all(&data).unwrap();
    copy_all(&founded, &data);
    let first = cluster.start(1);
    until_these_vote(&first, &[1, 2, 3]);
    in_time("a topic", || run(&first, "topic create first --if-not-exists", ""));
    in_time("records", || run(&second, "produce first", &numbers(0..10)));
}

/// It was refused by its right directory ever after, and that kept it.
#[test]
fn one_that_was_started_twice_in_a_mistyped_directory_comes_once_the_others_are_started_again() {
    let cluster = Cluster::found();
    let first = cluster.start(1);
    for times in 1..=2 {
        let mistyped = cluster.start(3);
        in_time("it is there", || match first.news() {
            news if news.matches("another broker is here node=3").count() == times => Ok(()),
            news => Err(news),
        });
        assert_eq!(mistyped.stop(), Some(0));
        in_time("it is gone", || match first.news() {
            news if news.matches("another broker is away node=3").count() == times => Ok(()),
            news => Err(news),
        });
    }
    fs::remove_dir_all(cluster.data(3)).unwrap();
    let mut refused = cluster.start(3);
    in_time("it ends", || {
        refused.ended().ok_or_else(|| refused.news()).map(|code| assert_eq!(code, 2))
    });
    in_time("it says what to do", || match refused.news() {
        news if news.contains("start the others again as well") => Ok(()),
        news => Err(news),
    });
    assert_eq!(first.stop(), Some(0));
    let (first, _second, third) = (cluster.start(1), cluster.start(2), cluster.start(3));
    until_these_vote(&first, &[1, 2, 3]);
    in_time("a topic", || run(&third, "topic create first --if-not-exists", ""));
}
