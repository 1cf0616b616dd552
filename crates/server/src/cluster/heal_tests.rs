//! What a disk has lost of a log comes back from other replicas, entry by entry.

use std::sync::atomic::Ordering;

use openraft::entry::RaftEntry;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use openraft::storage::RaftLogStorage;
use plimsoll_simdisk::{Fault, FaultKind, Operation};
use plimsoll_sync::Dir;
use tokio::time::timeout;

use super::*;
use crate::cluster::log_store::LogStore;
use crate::cluster::message::{AskDurable, Fitness, Refusal};
use crate::cluster::trio::{
    ENTRIES, Net, One, PATIENCE, damage, payload, propose, start, start_needing, tell, three,
};
use crate::cluster::types::Vote;

/// A block that rotted in a log was an error for ever, for whoever read it, and for whoever was to be sent it.
#[test]
fn three_replicas_with_different_bad_blocks_in_their_logs_heal_each_other() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        // A byte of a record; a block with the frame's head, of which nothing is left; the other way round.
        nodes[0].damage(first, 500_000, &[0xa5]);
        nodes[1].damage(first + 1, 0, &[0xa5; 4096]);
        nodes[2].damage(first + 2, 0, &[0; 512]);
        nodes[2].damage(first + 4, 70_000, &[0; 512]);
        // One that is asked finds its own damage, and may have healed it before it is read here.
        let heard = std::mem::take(&mut *net.heard());
        for (node, entry) in nodes.iter().zip(first..) {
            assert!(node.read(entry).is_err());
        }
        *net.heard() = heard;
        for (node, entry) in nodes.iter().zip(first..) {
            let read = node.group.read_patiently(entry, 1).await.unwrap();
            let number = entry - first;
            assert_eq!(read, [(entry, Some(payload(number)))]);
        }
        // In another segment, and nobody came to it yet.
        let read = nodes[2].group.read_patiently(first + 4, 1).await.unwrap();
        assert_eq!(read, [(first + 4, Some(payload(4)))]);
        for (node, entries) in nodes.iter().zip([1, 1, 2]) {
            node.until_healed(entries).await;
            assert!(node.is_whole());
            for number in 0..ENTRIES {
                assert_eq!(node.read(first + number).unwrap(), Some(payload(number)));
            }
        }
    });
    net.heard().clear();
}

/// Ends all three in order, has their disks lose this, and starts them again, with or without a snapshot, which covers nothing.
async fn again(nodes: [One; 3], net: &Net, has_snapshot: bool, lost: &[(usize, u64)]) -> [One; 3] {
    again_with(nodes, net, has_snapshot, lost, |_| {}).await
}

/// The same, and what else becomes of their disks.
async fn again_with(
    nodes: [One; 3],
    net: &Net,
    has_snapshot: bool,
    lost: &[(usize, u64)],
    change: impl Fn(&dyn Dir),
) -> [One; 3] {
    let mut ended = Vec::new();
    for (node, one) in (1..).zip(nodes) {
        let snapshot = one.group.snapshot(|_| ()).await.unwrap();
        let place = snapshot.map(|(place, ())| place).filter(|_| has_snapshot);
        ended.push((node, one.close(node, net).await, place));
    }
    for (nth, entry) in lost {
        damage(&ended[*nth].1, *entry, 30, &[0xa5; 4]);
    }
    ended.iter().for_each(|(_, disk, _)| change(&**disk));
    let begun = ended.into_iter().map(|(node, disk, place)| {
        let one = start_needing(disk, node, net, place, None);
        net.heard().insert(node, one.group.receiver());
        one
    });
    begun.collect::<Vec<_>>().try_into().unwrap()
}

async fn leader(nodes: &[One; 3]) -> &One {
    let leads = async {
        loop {
            if let Some(one) = nodes.iter().find(|one| one.group.leadership().is_some()) {
                return one;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, leads).await.expect("one of them leads")
}

/// A start set all of a log aside for one entry before its snapshot, or cut it there. Where two had lost the same, and the third something
/// else, nobody could give all of it (a trial of damage and stops in order).
#[test]
fn three_replicas_that_start_with_bad_blocks_heal_each_other_and_are_in_doubt_of_nothing() {
    for has_snapshot in [false, true] {
        let net = Net::default();
        tell(async {
            let (nodes, first_last) = three(&net).await;
            // Which begins another term.
            let nodes = again(nodes, &net, has_snapshot, &[]).await;
            let last = propose(&leader(&nodes).await.group).await;
            for node in &nodes {
                node.reaches(last).await;
            }
            let first = first_last + 1 - ENTRIES;
            // Each is whole on one.
            let lost = [
                (0, first),
                (1, first),
                (1, last - 3),
                (2, last - 3),
                (2, first + 5),
                (0, first + 5),
            ];
            let nodes = again(nodes, &net, has_snapshot, &lost).await;
            for node in &nodes {
                node.until_healed(2).await;
                assert!(node.is_whole() && !node.group.is_dirty());
            }
            let last = propose(&leader(&nodes).await.group).await;
            for node in &nodes {
                node.reaches(last).await;
                assert_eq!(node.read(first + 5).unwrap(), Some(payload(5)));
                assert!(!node.group.must_open_again());
            }
        });
        net.heard().clear();
    }
}

/// What is kept of terms beside a log.
fn forget_terms(disk: &dyn Dir) {
    disk.remove("terms").unwrap();
}

/// A start cut the log off where a leader had changed among what was lost, and set it aside where the first entry was. Of a small log with
/// nine places damaged on three disks nobody could give all then, for good (a trial).
#[test]
fn what_is_lost_where_a_leader_changed_and_at_the_beginning_is_borne_as_terms_are_kept_beside_the_log()
 {
    for has_snapshot in [false, true] {
        let net = Net::default();
        tell(async {
            let (nodes, _) = three(&net).await;
            let (mut nodes, mut begun) = (nodes, Vec::new());
            for _ in 0..2 {
                let end = nodes[0].group.storage.tail().next_index();
                begun.push(end);
                nodes = again(nodes, &net, has_snapshot, &[]).await;
                let last = propose(&leader(&nodes).await.group).await;
                for node in &nodes {
                    node.reaches(last).await;
                }
            }
            // The last of one leader, with the blank one of the next and what comes behind.
            let around =
                |nth: usize, begun: u64| vec![(nth, begun - 1), (nth, begun), (nth, begun + 1)];
            let first = (0..4).map(|entry| (2, entry)).collect();
            let lost = [around(0, begun[0]), around(1, begun[1]), first];
            let nodes = again(nodes, &net, has_snapshot, &lost.concat()).await;
            for (node, lost) in nodes.iter().zip(lost) {
                assert_eq!(node.group.missed(), lost.len() as u64);
                node.until_healed(lost.len() as u64).await;
                assert!(node.is_whole() && !node.group.is_dirty());
                assert!(!node.group.must_open_again(), "who votes is kept too");
                assert_eq!(node.group.voters(), [1, 2, 3]);
            }
            let last = propose(&leader(&nodes).await.group).await;
            for node in &nodes {
                node.reaches(last).await;
            }
        });
        net.heard().clear();
    }
}

/// What was missing said who votes: the engine would have gone by those who voted before.
#[test]
fn a_replica_that_could_not_read_who_votes_is_to_be_opened_again_and_does_not_lead_before() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        // The newest of those that say so.
        let members = last - ENTRIES;
        let nodes = again(nodes, &net, false, &[(0, members)]).await;
        assert!(!nodes[0].group.must_open_again(), "it is kept beside the log");
        assert_eq!(nodes[0].group.voters(), [1, 2, 3]);
        nodes[0].until_healed(1).await;
        let nodes = again_with(nodes, &net, false, &[(1, members)], forget_terms).await;
        let [one, two, three] = &nodes;
        two.until_healed(1).await;
        assert!(two.group.must_open_again() && !one.group.must_open_again());
        let take_over = |to| {
            let last = two.group.storage.tail().last();
            TransferLeaderRequest::new(Vote::new_committed(1, 1), to, last)
        };
        let refused = two.act(Request::TakeOver(take_over(2))).await;
        assert_eq!(refused.unwrap_err(), Refusal::DoesNotVote);
        assert_eq!(three.group.voters(), [1, 2, 3]);
        let nodes = again(nodes, &net, false, &[]).await;
        assert!(!nodes[1].group.must_open_again());
        assert_eq!(nodes[1].group.voters(), [1, 2, 3]);
    });
    net.heard().clear();
}

/// The engine goes by the one before, once the newest is cut off: that one was missing, nothing was kept of it, and as the newest was there it
/// was taken for read. It led alone (a review).
#[test]
fn who_votes_before_the_newest_that_says_so_is_not_taken_for_read() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let members = last - ENTRIES;
        let nodes = again_with(nodes, &net, false, &[], forget_terms).await;
        let last = propose(&leader(&nodes).await.group).await;
        for node in &nodes {
            node.reaches(last).await;
        }
        let [one, two, three] = nodes;
        net.heard().clear();
        let before = one.group.storage.tail().last();
        let said = one.group.storage.look_up(members).unwrap().unwrap().payload;
        // Node 3 leads, and only node 1 takes this; then that is cut off.
        let append = |term, payload| {
            let entry = Entry::new(crate::cluster::types::log_id(term, last + 1), payload);
            Request::Append(AppendEntriesRequest {
                vote: Vote::new_committed(term, 3),
                prev_log_id: before,
                entries: vec![entry],
                leader_commit: None,
            })
        };
        one.act(append(100, said)).await.unwrap();
        let disk = one.close(1, &net).await;
        for entry in [members - 1, members] {
            damage(&disk, entry, 30, &[0xa5; 4]);
        }
        let one = start_needing(disk, 1, &net, None, None);
        for (number, node) in [(2, &two), (3, &three)] {
            net.heard().insert(number, node.group.receiver());
        }
        one.until_healed(2).await;
        one.act(append(200, openraft::EntryPayload::Blank)).await.unwrap();
        assert!(one.group.must_open_again() && !one.group.storage.is_whole());
    });
    net.heard().clear();
}

/// Those who voted before, by what it could read, were gone, and nobody else was asked.
#[test]
fn what_hides_who_is_left_is_asked_of_whoever_leads() {
    let net = Net::default();
    tell(async {
        let nodes = [1, 2, 3].map(|node| start(node, &net));
        let leader = &nodes[0].group;
        let leadership = leader.wait_to_lead().await.unwrap();
        leader.add(2, "").await.unwrap();
        leader.set_voters([1, 2]).await.unwrap();
        let first = leader.propose(leadership, payload(1)).await.unwrap().index + 1;
        leader.add(3, "").await.unwrap();
        leader.set_voters([1, 3]).await.unwrap();
        let end = leader.propose(leadership, payload(2)).await.unwrap().index;
        let last = propose(leader).await;
        for node in [&nodes[0], &nodes[2]] {
            node.reaches(last).await;
        }
        let [one, _gone, three] = nodes;
        net.heard().remove(&2);
        let disk = one.close(1, &net).await;
        (first..end).for_each(|entry| damage(&disk, entry, 30, &[0xa5; 4]));
        forget_terms(&*disk);
        let one = start_needing(disk, 1, &net, None, None);
        assert_eq!((one.group.missed(), one.group.voters()), (end - first, vec![1, 2]));
        net.heard().insert(1, one.group.receiver());
        one.until_healed(end - first).await;
        assert!(one.group.must_open_again());
        drop(three);
    });
    net.heard().clear();
}

#[test]
fn a_replica_whose_log_is_damaged_votes_and_neither_takes_over_nor_counts_for_d_until_it_is_healed()
{
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let heard = std::mem::take(&mut *net.heard());
        nodes[1].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[1].read(first + 3).is_err());
        let vote = Vote::new(99, 3);
        let last = nodes[1].group.storage.tail().last();
        let ask = || VoteRequest::new(vote, last);
        assert!(nodes[1].act(Request::PreVote(ask())).await.is_ok());
        let take_over = TransferLeaderRequest::new(Vote::new_committed(1, 1), 2, last);
        let refused = nodes[1].act(Request::TakeOver(take_over)).await;
        assert_eq!(refused.unwrap_err(), Refusal::DoesNotVote);
        let tail = nodes[0].group.storage.tail().last().unwrap();
        let leader = Vote::new_committed(tail.leader_id.term, 1);
        let asked = || {
            Request::Durable(AskDurable { vote: leader, last: tail, durable: None, syncs: false })
        };
        let answer = nodes[1].act(asked()).await.unwrap();
        assert!(
            matches!(answer, Answer::Durable(None, Fitness { votes: false, .. })),
            "{answer:?}"
        );
        *net.heard() = heard;
        nodes[1].until_healed(1).await;
        let answer = nodes[1].act(asked()).await.unwrap();
        assert!(
            matches!(answer, Answer::Durable(Some(_), Fitness { votes: true, .. })),
            "{answer:?}"
        );
    });
    net.heard().clear();
}

/// The entry behind what is damaged was named as proof: who has all but that gave nothing. Where all others had let go of it, and who
/// lacked what comes behind could not be sent that, nothing was agreed on any more (seed 532 of the simulated replicas).
#[test]
fn a_damaged_record_is_given_by_one_that_has_nothing_behind_it() {
    let net = Net::default();
    tell(async {
        let ([one, two, three], shared) = three(&net).await;
        let away = net.heard().remove(&2).unwrap();
        let last = propose(&one.group).await;
        for node in [&one, &three] {
            node.reaches(last).await;
        }
        one.purges(shared).await.unwrap();
        // Who leads can send it nothing.
        net.2.store(1, Ordering::Relaxed);
        net.heard().insert(2, away);
        three.damage(shared, 500_000, &[0xa5]);
        assert!(three.read(shared).is_err());
        three.until_healed(1).await;
        assert_eq!(two.group.storage.tail().last().map(|last| last.index), Some(shared));
    });
    net.heard().clear();
}

/// The newest entries are in memory: nobody is asked for those, and nobody need be there.
#[test]
fn what_is_damaged_on_the_disk_and_is_in_memory_is_healed_from_there() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        net.heard().clear();
        let node = &nodes[1];
        node.damage(last - 1, 500_000, &[0xa5]);
        assert!(node.read(last - 1).is_ok(), "it is not read from the disk");
        // Files say what was durable some records later only, so who looks from outside may take it for torn.
        let damaged = || node.group.storage.log.find_damage(to_log(last - 1)).unwrap();
        assert_eq!(damaged(), [to_log(last - 1)..=to_log(last - 1)]);
        node.group.storage.wounds.note(last - 1);
        node.until_healed(1).await;
        assert_eq!(damaged(), []);
    });
    net.heard().clear();
}

/// What is asked for is given only where the log is the same: by what comes behind it.
#[test]
fn entries_are_given_only_to_whoever_has_what_follows_them() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let known = nodes[0].group.storage.look_up(first + 3).unwrap().unwrap().log_id;
        let ask = |proof| Request::Give(AskEntries { first, end: first + 2, proof });
        let Answer::Given(entries) = nodes[1].act(ask(known)).await.unwrap() else { panic!() };
        assert_eq!(entries.len(), 2);
        let other = crate::cluster::types::log_id(known.leader_id.term + 1, known.index);
        let Answer::Given(entries) = nodes[1].act(ask(other)).await.unwrap() else { panic!() };
        assert_eq!(entries.len(), 0);
    });
    net.heard().clear();
}

/// It was said to be healed, with no records.
#[test]
fn what_goes_with_its_segment_before_it_is_healed_is_let_go_of_and_not_healed() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        let heard = std::mem::take(&mut *net.heard());
        nodes[1].damage(first, 500_000, &[0xa5]);
        assert!(nodes[1].read(first).is_err());
        assert_eq!((nodes[1].group.healed(), nodes[1].group.gone_damaged()), ((0, 1), 0));
        let group = Arc::clone(&nodes[1].group);
        tokio::task::spawn_blocking(move || group.purge(first + 5)).await.unwrap().unwrap();
        *net.heard() = heard;
        nodes[1].until_healed(0).await;
        assert_eq!(nodes[1].group.gone_damaged(), 1);
    });
    net.heard().clear();
}

/// It was tried again every two seconds for ever.
#[test]
fn a_disk_that_fails_while_a_segment_is_healed_counts_as_failed() {
    const EIO: i32 = 5;
    for on in [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename] {
        let net = Net::default();
        tell(async {
            let (nodes, last) = three(&net).await;
            let first = last + 1 - ENTRIES;
            nodes[1].damage(first + 3, 500_000, &[0xa5]);
            nodes[1].dir.inject(Fault::new(on, FaultKind::FailRaw(EIO)).sticky());
            assert!(nodes[1].read(first + 3).is_err());
            let fails = nodes[1].group.until_disk_fails();
            let why = timeout(PATIENCE, fails).await.expect("it counts as failed");
            assert_eq!(Some(why), nodes[1].group.why_disk_failed());
        });
        net.heard().clear();
    }
}

/// A disk that lost a record for good is one from which others take over; what it cannot read it may still be given.
#[test]
fn a_read_that_fails_while_a_segment_is_healed_is_no_disk_that_fails() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let first = last + 1 - ENTRIES;
        nodes[1].damage(first + 3, 500_000, &[0xa5]);
        assert!(nodes[1].read(first + 3).is_err());
        nodes[1].dir.inject(Fault::new(Operation::Read, FaultKind::FailRaw(5)).times(3));
        nodes[1].until_healed(1).await;
        assert_eq!(nodes[1].group.why_disk_failed(), None);
    });
    net.heard().clear();
}

/// It ended the engine, and nobody was asked for the record.
#[test]
fn what_is_found_damaged_where_entries_are_cut_off_is_healed_and_then_they_are() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let kept = last + 4 - ENTRIES;
        let storage = &nodes[1].group.storage;
        let id = storage.look_up(kept).unwrap().unwrap().log_id;
        nodes[1].damage(kept, 500_000, &[0xa5]);
        // As its engine does for another leader.
        let mut store = LogStore::new(Arc::clone(storage));
        let cut = timeout(PATIENCE, store.truncate_after(Some(id))).await;
        cut.expect("it is healed").unwrap();
        nodes[1].until_healed(1).await;
        assert_eq!(storage.log.last_index(), to_log(kept));
        assert_eq!(nodes[1].read(kept).unwrap(), Some(payload(3)));
    });
    net.heard().clear();
}

/// It was asked for with what is cut off, which was refused, for ever; and the replica was not seeded either.
#[test]
fn where_the_damage_goes_on_behind_the_cut_the_replica_is_seeded() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let kept = last + 3 - ENTRIES;
        let storage = &nodes[1].group.storage;
        let id = storage.look_up(kept).unwrap().unwrap().log_id;
        for entry in [kept, kept + 1] {
            nodes[1].damage(entry, 0, &[0xa5; 4096]);
        }
        let mut store = LogStore::new(Arc::clone(storage));
        let lacks = async {
            while nodes[1].group.needed().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            cut = store.truncate_after(Some(id)) => panic!("where it ends is damaged: {cut:?}"),
            lacks = timeout(PATIENCE, lacks) => lacks.expect("it is to be seeded"),
        }
    });
    net.heard().clear();
}

/// The engine waited for the record, and who was to heal it for the engine, which was to say what others have to prove.
#[test]
fn an_engine_that_waits_to_cut_off_at_a_damaged_record_is_not_asked_what_it_knows() {
    let net = Net::default();
    tell(async {
        let (nodes, last) = three(&net).await;
        let group = &nodes[0].group;
        let agreed = group.storage.look_up(last).unwrap().unwrap().log_id;
        let leadership = group.wait_to_lead().await.unwrap();
        // Nobody else hears of these, and what was agreed is in no memory any more.
        let heard = std::mem::take(&mut *net.heard());
        for number in 0..ENTRIES {
            drop(group.submit(leadership, payload(number)).await.unwrap());
        }
        while group.synced() <= last + ENTRIES {
            sleep(Duration::from_millis(5)).await;
        }
        nodes[0].damage(last, 500_000, &[0xa5]);
        *net.heard() = heard;
        let id = crate::cluster::types::log_id(100, last + 1);
        let append = Request::Append(AppendEntriesRequest {
            vote: Vote::new_committed(100, 3),
            prev_log_id: Some(agreed),
            entries: vec![Entry::new_blank(id)],
            leader_commit: None,
        });
        let appended = timeout(PATIENCE, nodes[0].act(append)).await.expect("it cuts them off");
        appended.unwrap();
        nodes[0].until_healed(1).await;
    });
    net.heard().clear();
}

/// The engine waits with it, and must not keep a broker that is asked to stop from stopping.
#[test]
fn a_replica_that_waits_for_room_to_cut_entries_off_says_so_and_can_be_closed() {
    let net = Net::default();
    tell(async {
        let ([leader, ..], last) = three(&net).await;
        let group = &leader.group;
        let agreed = group.storage.look_up(last).unwrap().unwrap().log_id;
        let leadership = group.wait_to_lead().await.unwrap();
        net.heard().clear();
        // Nobody else hears of this one.
        let alone = group.propose(leadership, payload(0));
        assert!(timeout(Duration::from_millis(100), alone).await.is_err());
        let full = FaultKind::Fail(std::io::ErrorKind::StorageFull);
        leader.dir.inject(Fault::new(Operation::Create, full).sticky());
        // The first finds a file that is ready; each cuts off what the one before it sent.
        let waits = async {
            for term in 100.. {
                let id = crate::cluster::types::log_id(term, last + 1);
                let request = AppendEntriesRequest {
                    vote: Vote::new_committed(term, 3),
                    prev_log_id: Some(agreed),
                    entries: vec![Entry::new_blank(id)],
                    leader_commit: None,
                };
                leader.act(Request::Append(request)).await.unwrap();
            }
        };
        let lacks = async {
            while group.lacks_room().is_none() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = waits => {}
            told = timeout(PATIENCE, lacks) => told.expect("it waits, and says so"),
        }
        let group = Arc::into_inner(leader.group).expect("nobody else has it");
        let closed = tokio::task::spawn_blocking(|| group.close());
        timeout(PATIENCE, closed).await.expect("it closes").unwrap().ok();
    });
}

#[test]
fn alone_a_damaged_record_stays_an_error_that_names_it() {
    let net = Net::default();
    tell(async {
        let one = start(1, &net);
        let last = propose(&one.group).await;
        one.reaches(last).await;
        one.damage(last + 1 - ENTRIES, 500_000, &[0xa5]);
        let read = one.group.read_patiently(last + 1 - ENTRIES, 1).await.unwrap_err();
        assert_eq!(read.damaged_from(), Some(last + 1 - ENTRIES));
    });
    net.heard().clear();
}
