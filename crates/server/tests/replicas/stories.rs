//! One story each. What the engine's defaults make of some of them is in `src/cluster/defaults_tests.rs`.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_log::Ack;
use tokio::time::{Instant, sleep};

use super::net::Weather;
use super::world::{End, World, run};

#[test]
fn one_becomes_three_and_each_applies_the_same() {
    run(async {
        let mut world = World::new(1, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        let mut last = 0;
        for number in 0..50 {
            last = world.agree(&format!("number {number}")).await;
        }
        world.settle(last).await;
        let expected: Vec<_> = (0..50).map(|number| format!("number {number}")).collect();
        for id in [1, 2, 3] {
            assert_eq!(world.payloads(id), expected, "node {id}");
        }
        sleep(Duration::from_secs(5)).await;
        for id in [1, 2, 3] {
            assert_eq!(world.group(id).durable(), Some(last), "D at node {id}");
        }
    });
}

#[test]
fn a_leader_that_loses_its_power_takes_nothing_that_was_acknowledged_along() {
    run(async {
        let mut world = World::new(2, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        // Until it is guarded no more.
        sleep(Duration::from_secs(12)).await;
        let leader = world.leader().await;
        assert!(!world.group(leader).is_guarded());
        for number in 0..50 {
            world.agree(&format!("number {number}")).await;
        }
        world.end(leader, End::PowerCut);
        let last = world.agree("after").await;
        world.start(leader, false).await;
        assert!(world.group(leader).is_dirty());
        world.settle(last).await;
        world.group(leader).wait_clean().await;
        assert_eq!(world.payloads(leader).len(), 51);
    });
}

/// The engine alone waits until nobody has heard the leader for a second and more.
#[test]
fn a_leader_whose_process_is_seen_to_be_gone_is_replaced_at_once() {
    run(async {
        let mut world = World::new(12, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        world.agree("before").await;
        let leader = world.leader().await;
        world.end(leader, End::Killed);
        let ended = Instant::now();
        for id in world.up() {
            world.net.sees_gone(id, leader);
        }
        world.agree("after").await;
        assert!(ended.elapsed() < Duration::from_millis(300), "{:?}", ended.elapsed());
    });
}

#[test]
fn a_leader_that_one_takes_for_gone_goes_on_in_its_term() {
    run(async {
        let mut world = World::new(13, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        let leader = world.leader().await;
        let leadership = world.group(leader).leadership();
        let doubter = world.up().into_iter().find(|id| *id != leader).unwrap();
        world.net.sees_gone(doubter, leader);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.group(leader).leadership(), leadership);
    });
}

/// Whoever opens a group knows where the voters stand, and what one failure takes.
#[test]
fn a_leader_whose_majority_fails_together_acknowledges_only_what_is_durable() {
    run(async {
        let mut world = World::new(12, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        sleep(Duration::from_secs(12)).await;
        let leader = world.leader().await;
        let last = world.agree("from memory").await;
        assert!(world.group(leader).durable() < Some(last), "nothing had it synced");
        world.group(leader).expose(true);
        assert!(world.group(leader).is_guarded() && !world.group(leader).is_thin());
        let last = world.agree("from disks").await;
        assert!(world.group(leader).durable() >= Some(last));
        world.group(leader).expose(false);
        let last = world.agree("from memory again").await;
        assert!(world.group(leader).durable() < Some(last));
    });
}

#[test]
fn who_is_away_or_in_doubt_is_not_read_from_and_is_no_copy() {
    run(async {
        let mut world = World::new(13, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        let leader = world.leader().await;
        let first = world.agree("first").await;
        world.settle(first).await;
        sleep(Duration::from_secs(5)).await;
        let others: Vec<_> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        let (stays, goes) = (others[0], others[1]);
        let group = |world: &World, id| Arc::clone(world.group(id));
        let lead = group(&world, leader);
        assert_eq!(lead.in_sync(), 3);
        assert!(others.iter().all(|id| lead.is_level(*id) && world.group(*id).follows_closely()));
        assert!(!lead.follows_closely() && group(&world, stays).in_sync() == 0);
        assert!(lead.is_above_majority(3) && !lead.is_above_majority(2));
        world.net.isolate(goes, [leader, stays], true);
        let second = world.agree("second").await;
        sleep(Duration::from_secs(3)).await;
        assert!(lead.is_level(stays) && !lead.is_level(goes) && lead.in_sync() == 2);
        assert!(group(&world, stays).follows_closely());
        assert!(!group(&world, goes).follows_closely(), "it hears no leader");
        assert_eq!(lead.copied(2), Some(second));
        assert!(lead.copied(3) < Some(second));
        let all_have_it = lead.watch_copied(3, second.checked_sub(1));
        world.net.isolate(goes, [leader, stays], false);
        all_have_it.await;
        assert!(lead.copied(3) >= Some(second));
        // What it forgot it does not give.
        world.end(goes, End::PowerCut);
        world.start(goes, false).await;
        assert!(world.group(goes).is_dirty() && !world.group(goes).follows_closely());
        world.group(goes).wait_clean().await;
        sleep(Duration::from_secs(5)).await;
        let lead = group(&world, world.leader().await);
        assert_eq!(lead.in_sync(), 3);
    });
}

/// The engine by itself elects the stale follower with the vote of the one that forgot, and what both had
/// acknowledged is overwritten on all three.
#[test]
fn one_that_forgot_elects_nobody_while_the_only_whole_copy_is_away() {
    run(async {
        let mut world = World::new(3, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        sleep(Duration::from_secs(12)).await;
        let leader = world.leader().await;
        let others: Vec<_> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        let (stale, forgets) = (others[0], others[1]);
        // One lags, so that the leader and the other are the quorum of what follows.
        world.net.isolate(stale, [leader, forgets], true);
        for number in 0..50 {
            let leadership = world.group(leader).leadership().unwrap();
            let payload = format!("number {number}").into();
            let proposed = world.group(leader).submit(leadership, payload).await.unwrap();
            drop(proposed);
        }
        sleep(Duration::from_millis(300)).await;
        let committed = world.group(leader).committed();
        world.end(forgets, End::PowerCut);
        world.start(forgets, false).await;
        world.net.isolate(stale, [leader, forgets], false);
        world.net.isolate(leader, others.clone(), true);
        sleep(Duration::from_secs(60)).await;
        for id in &others {
            assert_eq!(world.group(*id).leadership(), None, "node {id} was elected");
        }
        world.net.isolate(leader, others, false);
        let last = world.agree("after").await;
        assert!(Some(last) > committed);
        world.settle(last).await;
        let mut expected: Vec<_> = (0..50).map(|number| format!("number {number}")).collect();
        expected.push("after".to_owned());
        for id in [1, 2, 3] {
            assert_eq!(world.payloads(id), expected, "node {id}");
        }
    });
}

#[test]
fn two_of_three_that_forgot_come_back_while_their_leader_lives() {
    run(async {
        let mut world = World::new(4, Ack::Buffered, [1, 2, 3]);
        world.form().await;
        sleep(Duration::from_secs(12)).await;
        let leader = world.leader().await;
        world.net.becomes(Weather { delay_ms: 1, ..Weather::FAIR });
        for number in 0..50 {
            world.agree(&format!("number {number}")).await;
        }
        let term = world.group(leader).leadership().unwrap().term;
        for id in [1, 2, 3].into_iter().filter(|id| *id != leader) {
            world.end(id, End::PowerCut);
            world.start(id, false).await;
        }
        let last = world.agree("after").await;
        world.settle(last).await;
        for id in [1, 2, 3] {
            world.group(id).wait_clean().await;
            assert_eq!(world.payloads(id).len(), 51, "node {id}");
        }
        assert_eq!(world.group(leader).leadership().map(|now| now.term), Some(term));
    });
}

#[test]
fn all_processes_at_once_lose_nothing_that_the_kernel_had() {
    run(async {
        let mut world = World::new(5, Ack::Written, [1, 2, 3]);
        world.form().await;
        let mut expected = Vec::new();
        for round in 0..5 {
            for number in 0..10 {
                let payload = format!("number {number} of round {round}");
                world.agree(&payload).await;
                expected.push(payload);
            }
            for id in [1, 2, 3] {
                world.end(id, End::Killed);
            }
            for id in [1, 2, 3] {
                world.start(id, false).await;
                assert!(!world.group(id).is_dirty(), "node {id} in round {round}");
            }
        }
        let last = world.agree("after").await;
        expected.push("after".to_owned());
        world.settle(last).await;
        assert_eq!(world.payloads(2), expected);
    });
}

/// It did: once others were to vote too, what the sole voter's disk had was forgotten until D was found anew.
#[test]
fn d_does_not_go_back_when_a_sole_voter_gets_company() {
    run(async {
        let mut world = World::new(6, Ack::Buffered, [1, 2, 3]);
        for id in [1, 2, 3] {
            world.start(id, id == 1).await;
        }
        let first = Arc::clone(world.group(1));
        first.wait_to_lead().await.unwrap();
        for number in 0..50 {
            world.agree(&format!("number {number}")).await;
        }
        let others = Arc::clone(&first);
        let grows = tokio::spawn(async move {
            for id in [2, 3] {
                others.add(id, "").await.unwrap();
            }
            others.set_voters([1, 2, 3]).await.unwrap();
        });
        while !grows.is_finished() {
            let leadership = first.leadership().unwrap();
            drop(first.submit(leadership, "more".into()).await.unwrap());
            sleep(Duration::from_millis(1)).await;
            world.look();
        }
        grows.await.unwrap();
        assert_eq!(first.voters(), [1, 2, 3]);
    });
}
