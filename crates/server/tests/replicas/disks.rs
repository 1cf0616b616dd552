//! Stories of disks: one that fails, one that is full, one that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_log::Ack;
use plimsoll_server::cluster::Unwell;
use plimsoll_simdisk::{Fault, FaultKind, Operation};
use tokio::time::{Instant, sleep, timeout};

use super::world::{End, World, run};

const EIO: i32 = 5;

/// Three that have been well for so long that they are guarded no more, and who leads.
async fn three(seed: u64) -> (World, u64) {
    let mut world = World::new(seed, Ack::Buffered, [1, 2, 3]);
    world.form().await;
    sleep(Duration::from_secs(12)).await;
    let leader = world.leader().await;
    assert!(!world.group(leader).is_guarded());
    (world, leader)
}

/// Has the next of these operations fail on a disk, or all from the next on.
fn fail(world: &World, node: u64, on: Operation, for_good: bool) {
    let fault = Fault::new(on, FaultKind::FailRaw(EIO));
    world.nodes[&node].disk.inject(if for_good { fault.sticky() } else { fault });
}

/// Proposes until the disk of the leader is found to have failed; what was agreed on meanwhile.
async fn until_it_fails(world: &World, leader: u64) -> Vec<String> {
    let mut agreed = Vec::new();
    for number in 0..10_000 {
        let group = world.group(leader);
        if group.why_disk_failed().is_some() {
            return agreed;
        }
        let payload = format!("number {number}");
        let Some(leadership) = group.leadership() else { return agreed };
        if group.propose(leadership, payload.clone().into()).await.is_ok() {
            agreed.push(payload);
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the disk of node {leader} was not asked for anything");
}

/// It said nothing, and the others elected one once they missed it: after a second and a half.
#[test]
fn a_leader_whose_disk_fails_is_replaced_within_half_a_second_and_nothing_is_lost() {
    for (seed, on, for_good) in [(1, Operation::Sync, true), (2, Operation::Write, false)] {
        run(async {
            let (mut world, leader) = three(seed).await;
            fail(&world, leader, on, for_good);
            let mut agreed = until_it_fails(&world, leader).await;
            let failed = Instant::now();
            assert_eq!(world.group(leader).leadership(), None);
            let next = world.leader().await;
            assert_ne!(next, leader);
            let took = failed.elapsed();
            assert!(took < Duration::from_millis(500), "seed {seed}: {took:?}");
            agreed.push("after".to_owned());
            world.agree("after").await;
            // Whoever asks it is told who leads.
            sleep(Duration::from_millis(200)).await;
            assert_eq!(world.group(leader).leader(), Some(next));
            world.end(leader, End::DiskFailed);
            world.start(leader, false).await;
            assert!(world.group(leader).is_dirty(), "it may have forgotten");
            world.group(leader).wait_clean().await;
            let last = world.agree("at the end").await;
            world.settle(last).await;
            for id in [1, 2, 3] {
                let has = world.payloads(id);
                assert!(agreed.iter().all(|payload| has.contains(payload)), "node {id}");
            }
            world.look();
        });
    }
}

#[test]
fn a_follower_whose_disk_fails_acknowledges_nothing_and_votes_for_nobody() {
    run(async {
        let (world, leader) = three(5).await;
        let others: Vec<_> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        let (fails, away) = (others[0], others[1]);
        fail(&world, fails, Operation::Sync, false);
        while world.group(fails).why_disk_failed().is_none() {
            world.agree("before").await;
        }
        world.net.isolate(away, [leader, fails], true);
        let group = world.group(leader);
        let proposed = group.propose(group.leadership().unwrap(), "alone".into());
        assert!(timeout(Duration::from_secs(30), proposed).await.is_err(), "nobody else has it");
        world.net.isolate(away, [leader, fails], false);
        let last = world.agree("with the other").await;
        // With the leader away too nobody is elected by the one whose disk failed.
        world.net.isolate(leader, [fails, away], true);
        sleep(Duration::from_secs(30)).await;
        assert!(others.iter().all(|id| world.group(*id).leadership().is_none()));
        world.net.isolate(leader, [fails, away], false);
        assert!(world.agree("after").await > last);
    });
}

#[test]
fn one_that_votes_alone_goes_on_around_what_failed() {
    run(async {
        let mut world = World::new(6, Ack::Buffered, [1]);
        world.form().await;
        fail(&world, 1, Operation::Sync, false);
        for number in 0..50 {
            let index = world.agree(&format!("number {number}")).await;
            world.group(1).wait_durable(index).await.unwrap();
        }
        assert_eq!(world.group(1).log_stats().failovers, 1);
        assert_eq!(world.group(1).why_disk_failed(), None);
    });
}

/// The engine takes an error of its log for its end, and the shard would have been offline there until a restart.
#[test]
fn a_follower_without_room_counts_no_more_and_catches_up_by_itself_once_there_is_some() {
    run(async {
        let (mut world, leader) = three(7).await;
        let others: Vec<_> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
        let (full, has_room) = (others[0], others[1]);
        let is_full = Arc::new(AtomicBool::new(true));
        world.group(full).refuses_while(Arc::clone(&is_full));
        let mut last = 0;
        for number in 0..20 {
            last = world.agree(&format!("number {number}")).await;
        }
        assert_eq!(world.leader().await, leader, "it has no reason to go");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.group(leader).unwell(), [(full, Unwell::Full)].into());
        assert!(world.group(leader).is_guarded() && !world.group(leader).lacks_room_elsewhere());
        assert!(world.group(full).applied() < Some(last));
        // Two are no majority of those with room.
        world.net.isolate(has_room, [leader, full], true);
        let group = world.group(leader);
        let proposed = group.propose(group.leadership().unwrap(), "alone".into());
        assert!(timeout(Duration::from_secs(5), proposed).await.is_err(), "nobody else has it");
        world.net.isolate(has_room, [leader, full], false);
        is_full.store(false, Ordering::Relaxed);
        last = world.agree("with room").await;
        world.settle(last).await;
        sleep(Duration::from_secs(12)).await;
        let leader = world.leader().await;
        assert!(world.group(leader).unwell().is_empty() && !world.group(leader).is_guarded());
        world.look();
    });
}
