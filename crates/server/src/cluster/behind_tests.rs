//! What of a log is let go of, and who is seeded because nobody has it any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use plimsoll_log::View;
use plimsoll_sync::{Access, Dir};
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::cluster::heal::GOES_WITHIN;
use crate::cluster::record::to_log;
use crate::cluster::trio::{
    ENTRIES, Net, PATIENCE, damage, payload, propose, start, start_on, tell, three,
};

/// A leader that let go of its log while it ran did not know it: whoever lacked that was sent other entries than it
/// needed, or nothing for ever.
#[test]
fn who_lacks_what_the_leader_has_let_go_of_is_told_and_others_go_on() {
    let net = Net::default();
    tell(async {
        let ([leader, other, away], shared) = three(&net).await;
        let heard = net.heard().remove(&3).unwrap();
        let last = propose(&leader.group).await;
        other.reaches(last).await;
        // Where the machine is busy the other leads by now.
        for node in [&leader, &other] {
            node.purges(last - 5).await.unwrap();
        }
        net.heard().insert(3, heard);
        let told = async {
            while away.group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let is_told = timeout(PATIENCE, told).await;
        let said = || [&leader, &other, &away].map(|one| one.group.outline());
        is_told.unwrap_or_else(|_| panic!("it is told: {:#?}", said()));
        let gone = last - 5;
        let lack = away.group.lack().unwrap();
        assert!([1, 2].contains(&lack.leader) && lack.through == gone, "{lack:?}");
        let leads = [&leader, &other].into_iter().find(|one| one.group.leadership().is_some());
        let last = propose(&leads.unwrap_or(&leader).group).await;
        for node in [&leader, &other] {
            node.reaches(last).await;
        }
        assert!((Some(shared)..Some(gone)).contains(&away.group.applied()), "it has what it had");
        assert!(away.group.leader().is_some(), "it hears its leader all the same");
        assert_eq!((leader.group.lack(), other.group.lack()), (None, None));
        assert_eq!(other.group.lack(), None);
    });
    net.heard().clear();
}

#[test]
fn the_log_of_a_leader_is_known_to_be_lacked_by_who_is_there_only() {
    let net = Net::default();
    tell(async {
        let [leader, other] = [1, 2].map(|node| start(node, &net));
        let last = propose(&leader.group).await;
        assert!(!leader.group.is_lacking(last), "it is alone");
        leader.group.add(2, "").await.unwrap();
        other.reaches(last).await;
        // Its answer comes a moment later.
        let knows = async {
            while !leader.group.is_lacking(1000) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, knows).await.expect("it is there, and lacks it");
        assert!(!other.group.is_lacking(1000));
        let heard = net.heard().remove(&2).unwrap();
        let forgets = async {
            while leader.group.is_lacking(1000) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, forgets).await.expect("it is away");
        drop(heard);
    });
    net.heard().clear();
}

/// A snapshot covers it, and the others have let go of it: it was to be seeded, and two of three that had lost the same record
/// were no majority that votes.
#[test]
fn what_is_damaged_and_covered_by_a_snapshot_is_let_go_of_and_nobody_is_seeded() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let sound = Arc::clone(&nodes[2].group);
        tokio::task::spawn_blocking(move || sound.purge(first + 5)).await.unwrap().unwrap();
        let heard = std::mem::take(&mut *net.heard());
        for node in &nodes[..2] {
            node.group.cover(first + 5);
            node.damage(first + 3, 500_000, &[0xa5]);
            node.damage(first + 5, 500_000, &[0xa5]);
            assert!(node.read(first + 3).is_err());
            assert!(node.read(first + 5).is_err());
        }
        *net.heard() = heard;
        for node in &nodes[..2] {
            let let_go = async {
                while node.group.gone_damaged() == 0 {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(PATIENCE, let_go).await.expect("it is let go of");
            node.until_healed(0).await;
            assert_eq!((node.group.gone_damaged(), node.group.lack()), (2, None));
            // What was behind it is there.
            assert_eq!(node.read(first + 7).unwrap(), Some(payload(7)));
            // Who reads the file finds it again, as the segment stays.
            let group = Arc::clone(&node.group);
            tokio::task::spawn_blocking(move || group.purge(first + 6)).await.unwrap().unwrap();
            assert!(!node.group.storage.log.find_damage(to_log(first + 5)).unwrap().is_empty());
            node.group.storage.wounds.note(first + 5);
            node.until_healed(0).await;
        }
        // Where the machine is busy another may lead by now: they did not hear each other for a while.
        let leads = async {
            loop {
                if let Some(leads) = nodes.iter().find(|node| node.group.leadership().is_some()) {
                    return leads;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let leads = timeout(PATIENCE, leads).await.expect("somebody leads");
        let leadership = leads.group.wait_to_lead().await.unwrap();
        let next = leads.group.propose(leadership, payload(99)).await.unwrap().index;
        for node in &nodes {
            node.reaches(next).await;
        }
    });
    net.heard().clear();
}

/// Two of three had lost a record that the third had let go of, and one of them was away: nobody was elected.
#[test]
fn who_has_a_whole_log_is_elected_by_the_vote_of_one_that_has_not() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let sound = Arc::clone(&three.group);
        tokio::task::spawn_blocking(move || sound.purge(first + 5)).await.unwrap().unwrap();
        let mut heard = std::mem::take(&mut *net.heard());
        two.damage(first + 3, 500_000, &[0xa5]);
        assert!(two.read(first + 3).is_err());
        heard.remove(&1);
        drop(one);
        *net.heard() = heard;
        // Which gives it all again, though the first may have what is missing: it does not count for D before.
        let lacks = async {
            while two.group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
        assert_eq!(two.group.lack(), Some(Lack { leader: 3, through: first + 5 }));
        assert_eq!((two.group.leader(), two.group.healed()), (Some(3), (0, 1)));
    });
    net.heard().clear();
}

#[test]
fn what_all_others_have_let_go_of_is_not_healed_and_the_replica_says_that_it_must_be_seeded() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in [&nodes[0], &nodes[2]] {
            let group = Arc::clone(&node.group);
            tokio::task::spawn_blocking(move || group.purge(first + 5)).await.unwrap().unwrap();
        }
        nodes[1].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[1].read(first + 3).is_err());
        let lacks = async {
            while nodes[1].group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it says so");
        assert_eq!(nodes[1].group.lack().map(|lack| lack.through), Some(first + 5));
    });
    net.heard().clear();
}

/// Who heals waited until the engine knew of it, the engine for the state, and the state for the other record.
#[test]
fn what_is_covered_is_let_go_of_though_the_state_waits_for_another_damaged_record() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], covered) = three(&net).await;
        let (place, ()) = two.group.snapshot(|_| ()).await.unwrap().unwrap();
        let last = propose(&one.group).await;
        for node in [&one, &two, &three] {
            node.reaches(last).await;
        }
        let disk = two.close(2, &net).await;
        net.2.store(2, Ordering::Relaxed);
        let two = start_on(disk, 2, &net, Some(place));
        two.damage(covered + 4, 500_000, &[0xa5]);
        net.heard().insert(2, two.group.receiver());
        while !two.group.storage.wounds.watch().borrow().open.contains(&(covered + 4)) {
            sleep(Duration::from_millis(5)).await;
        }
        two.damage(covered, 500_000, &[0xa5]);
        two.group.storage.wounds.note(covered);
        while two.group.gone_damaged() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        net.2.store(0, Ordering::Relaxed);
        two.reaches(last).await;
        two.until_healed(1).await;
        drop((one, three));
    });
    net.heard().clear();
}

/// One of them was told that the log had a gap, and an engine that was asked twice at once answered one, and the other waited.
#[test]
fn two_that_let_go_at_once_both_do_and_the_engine_comes_to_know() {
    let net = Net::default();
    tell(async {
        let one = start(1, &net);
        let leadership = one.group.wait_to_lead().await.unwrap();
        let mut last = 0;
        for _ in 0..400 {
            let small = Bytes::from_static(b"small");
            last = one.group.propose(leadership, small).await.unwrap().index;
        }
        one.reaches(last).await;
        for through in (1..last).step_by(2) {
            let (first, second) = tokio::join!(one.purges(through), one.purges(through + 1));
            assert!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
        }
        let known = async {
            let metrics = one.group.engine.metrics();
            while metrics.borrow_watched().purged.map(|gone| gone.index) < Some(last - 1) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, known).await.expect("it knows");
    });
    net.heard().clear();
}

/// Its engine reads the first entry behind what was let go of, and where terms change, and no start went on.
#[test]
fn what_is_damaged_before_the_snapshot_is_let_go_of_at_a_start() {
    // The first; one in the midst; all but the first, so that nothing that can be read is behind them.
    for damaged in [0..1, 5..6, 1..ENTRIES - 3] {
        for starts in [1, 2] {
            let net = Net::default();
            tell(async {
                let mut one = start(1, &net);
                let end = propose(&one.group).await;
                one.purges(end - ENTRIES + 3).await.unwrap();
                let first = end - ENTRIES + 4;
                let (place, ()) = one.group.snapshot(|_| ()).await.unwrap().unwrap();
                assert_eq!(place.index(), end);
                one.reaches(propose(&one.group).await).await;
                for _ in 1..starts {
                    // Which begins another term.
                    one = start_on(one.close(1, &net).await, 1, &net, Some(place.clone()));
                    one.reaches(propose(&one.group).await).await;
                }
                let disk = one.close(1, &net).await;
                damaged.clone().for_each(|at| damage(&disk, first + at, 500_000, &[0xa5]));
                let one = start_on(disk, 1, &net, Some(place));
                let next = propose(&one.group).await;
                assert_eq!(one.read(next).unwrap(), Some(payload(ENTRIES - 1)));
            });
            net.heard().clear();
        }
    }
}

/// All that is damaged in a segment was asked for, and of some of it nobody had anything any more: the replica was to be seeded.
#[test]
fn what_others_have_is_healed_beside_what_all_have_let_go_of() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in &nodes {
            node.purges(first + 5).await.unwrap();
        }
        nodes[1].damage(first + 5, 500_000, &[0xa5]);
        nodes[1].damage(first + 7, 500_000, &[0xa5]);
        let found = nodes[1].group.storage.log.find_damage(to_log(first + 7)).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        nodes[1].group.storage.wounds.note(first + 7);
        nodes[1].until_healed(1).await;
        assert_eq!(nodes[1].read(first + 7).unwrap(), Some(payload(7)));
        assert_eq!(nodes[1].group.lack(), None);
    });
    net.heard().clear();
}

/// It was to be seeded by one that had less, and its own log with what nobody else had was to go.
#[test]
fn while_nobody_leads_nobody_is_seeded() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        three.purges(first + 5).await.unwrap();
        let leadership = one.group.wait_to_lead().await.unwrap();
        let third = net.heard().remove(&3).unwrap();
        let newest = one.group.propose(leadership, payload(7)).await.unwrap().index;
        one.group.wait_durable(newest).await.unwrap();
        let away = net.heard().remove(&1).unwrap();
        net.2.store(1, Ordering::Relaxed);
        two.damage(first + 3, 500_000, &[0xa5]);
        // Where a segment begins: it cannot be healed by entry at all.
        let view = View::of(Arc::clone(&two.dir) as Arc<dyn Dir>).unwrap();
        let name = view.outline().unwrap().remove(0).segment;
        two.dir.open(&name, Access::default()).unwrap().write_at(&[0xa5; 64], 4096).unwrap();
        assert!(two.read(first + 3).is_err());
        net.heard().insert(3, third);
        let begun = Instant::now();
        while begun.elapsed() < GOES_WITHIN * 2 {
            assert_eq!((two.group.lack(), two.group.needed()), (None, None));
            sleep(Duration::from_millis(5)).await;
        }
        net.heard().insert(1, away);
        net.2.store(0, Ordering::Relaxed);
        let lacks = async {
            while two.group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
        let (needed, end) = (two.group.needed().unwrap(), two.group.storage.tail().last().unwrap());
        assert_eq!(needed.ends, (end.leader_id.term, end.index + 1));
        assert!(end.index >= newest, "who has less gives nothing");
    });
    net.heard().clear();
}

/// It stayed so for ever: what it cannot read nobody else can send it, and it is not seeded while it leads.
#[test]
fn a_leader_that_cannot_be_healed_is_one_that_had_better_hand_over_and_is_seeded_then() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in &nodes[1..] {
            node.purges(first + 5).await.unwrap();
        }
        nodes[0].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[0].read(first + 3).is_err());
        assert!(!nodes[0].group.is_damaged());
        let damaged = async {
            while !nodes[0].group.is_damaged() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, damaged).await.expect("it says so");
        assert_eq!((nodes[0].group.lack(), nodes[0].group.needed()), (None, None));
        nodes[0].group.hand_over(3).await.unwrap();
        let lacks = async {
            while nodes[0].group.needed().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it is to be seeded");
    });
    net.heard().clear();
}

/// It was seeded all the same, and by then may have been what led.
#[test]
fn what_is_healed_after_all_is_not_lacking_any_more() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        for node in [&nodes[0], &nodes[2]] {
            node.purges(first + 5).await.unwrap();
        }
        let node = &nodes[1];
        node.damage(first + 3, 500_000, &[0xa5]);
        assert!(node.read(first + 3).is_err());
        while node.group.lack().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_ne!(node.group.needed(), None);
        node.group.cover(first + 5);
        node.until_healed(0).await;
        assert_eq!((node.group.lack(), node.group.needed()), (None, None::<Needed>));
    });
    net.heard().clear();
}

/// Any other was named as the leader, be it there or not: whoever seeds asks the one that is named first.
#[test]
fn where_a_segment_cannot_be_healed_the_replica_is_seeded_by_who_leads() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        nodes[0].group.hand_over(3).await.unwrap();
        while nodes[1].group.leader() != Some(3) {
            sleep(Duration::from_millis(5)).await;
        }
        let away = net.heard().remove(&1);
        // What a segment follows no other node knows.
        let view = View::of(Arc::clone(&nodes[1].dir) as Arc<dyn Dir>).unwrap();
        let name = view.outline().unwrap().remove(0).segment;
        let segment = nodes[1].dir.open(&name, Access::default()).unwrap();
        segment.write_at(&[0xa5; 64], 4096).unwrap();
        nodes[1].damage(first, 500_000, &[0xa5]);
        assert!(nodes[1].read(first).is_err());
        let lacks = async {
            while nodes[1].group.lack().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, lacks).await.expect("it says so");
        assert_eq!(nodes[1].group.lack(), Some(Lack { leader: 3, through: first }));
        drop(away);
    });
    net.heard().clear();
}
