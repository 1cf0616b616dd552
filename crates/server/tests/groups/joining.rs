//! How members come to a generation.

use bytes::Bytes;
use plimsoll_server::groups::{Answer, Join, Phase, Refusal, Sync};

use super::shard::{Shard, join, protocol, sync};

#[test]
fn three_that_join_at_once_are_one_generation_with_one_leader() {
    let mut shard = Shard::new();
    let ids: Vec<_> = (0..3).map(|_| shard.id(None)).collect();
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    assert!(joined.iter().all(|one| one.generation == 1 && one.leader == joined[0].member));
    assert_eq!(joined[0].members.len(), 3);
    assert!(joined[1..].iter().all(|one| one.members.is_empty()));

    // Followers wait for the leader; it need not wait for them.
    let second = shard.sync(sync(&joined[1]));
    assert_eq!(shard.answer(second), None);
    let first = shard.sync(sync(&joined[0]));
    assert_eq!(shard.synced(first), joined[0].member.as_bytes());
    assert_eq!(shard.synced(second), joined[1].member.as_bytes());
    assert_eq!(shard.phase(), Phase::Stable);
    let third = shard.sync(sync(&joined[2]));
    assert_eq!(shard.synced(third), joined[2].member.as_bytes());
}

#[test]
fn a_member_without_an_id_is_given_one_first() {
    let mut shard = Shard::new();
    let ticket = shard.join(Join { needs_id: true, ..join("", None) });
    let Some(Answer::TakeId(id)) = shard.answer(ticket) else { panic!("it was given none") };
    assert_eq!(shard.phase(), Phase::Empty);
    // Who never comes back is forgotten, and the group with it.
    shard.pass(10_000);
    assert_eq!(shard.phase(), Phase::Dead);
    let ticket = shard.join(join(&id, None));
    assert_eq!(shard.refused(ticket), Refusal::UnknownMemberId);
    // Before version 4 a member is one at once.
    let ticket = shard.join(join("", None));
    shard.pass(20);
    assert_eq!(shard.joined(ticket).generation, 1);
}

#[test]
fn a_first_rebalance_waits_as_long_as_members_keep_coming() {
    let mut shard = Shard::new();
    let first = shard.join(join("", None));
    shard.pass(9);
    let second = shard.join(join("", None));
    shard.pass(9);
    assert_eq!(shard.answer(first), None);
    let third = shard.join(join("", None));
    shard.pass(12);
    let generations = [first, second, third].map(|ticket| shard.joined(ticket).generation);
    assert_eq!(generations, [1, 1, 1]);
}

#[test]
fn a_rebalance_waits_for_those_who_were_given_an_id() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None]).remove(0);
    let id = shard.id(None);
    let first = shard.join(join(&joined.member, None));
    assert_eq!(shard.answer(first), None);
    shard.join(join(&id, None));
    assert_eq!(shard.joined(first).members.len(), 2);
}

#[test]
fn a_join_that_comes_again_takes_the_place_of_the_one_that_waits() {
    let mut shard = Shard::new();
    let id = shard.id(None);
    let lost = shard.join(join(&id, None));
    let again = shard.join(join(&id, None));
    assert_eq!(shard.refused(lost), Refusal::RebalanceInProgress);
    shard.pass(20);
    let joined = shard.joined(again);
    assert_eq!(joined.members.len(), 1);
    // And once more, as if the answer had not come: it is told the same.
    let again = shard.join(join(&id, None));
    assert_eq!(shard.joined(again), joined);
}

#[test]
fn a_sync_that_comes_again_is_answered_before_and_after_the_leaders() {
    let mut shard = Shard::new();
    let ids = [shard.id(None), shard.id(None)];
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    let lost = shard.sync(sync(&joined[1]));
    let again = shard.sync(sync(&joined[1]));
    assert_eq!(shard.refused(lost), Refusal::RebalanceInProgress);
    // A join with the answer to the sync still out: it is told the same, and goes on waiting.
    let rejoin = shard.join(join(&joined[1].member, None));
    assert_eq!(shard.joined(rejoin), joined[1]);
    shard.assign(&joined[..1]);
    assert_eq!(shard.synced(again), joined[1].member.as_bytes());
    shard.assign(&joined);
}

#[test]
fn a_follower_that_joins_again_unchanged_disturbs_nobody_and_a_leader_does() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None]);
    let ticket = shard.join(join(&joined[1].member, None));
    assert_eq!(shard.joined(ticket), joined[1]);
    assert_eq!(shard.phase(), Phase::Stable);
    let ticket = shard.join(join(&joined[0].member, None));
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
    assert_eq!(shard.answer(ticket), None);
}

#[test]
fn the_protocol_that_most_like_best_of_those_that_all_know_is_chosen() {
    let mut shard = Shard::new();
    let names = [["a", "b", "c"], ["c", "b", "x"], ["b", "c", "y"], ["c", "b", "z"]];
    let likes = |names: [&str; 3]| {
        let protocols = names.iter().map(|name| protocol(name, &[])).collect();
        Join { protocols, ..join("", None) }
    };
    let joined = shard.gather(names.map(likes).to_vec());
    assert!(joined.iter().all(|one| one.protocol == "c"), "{joined:?}");
    let stranger = Join { protocols: vec![protocol("x", &[])], ..join("", None) };
    let other = Join { protocol_type: "connect".into(), ..likes(names[0]) };
    for join in [stranger, other, Join { protocols: Vec::new(), ..join("", None) }] {
        let ticket = shard.join(join);
        assert_eq!(shard.refused(ticket), Refusal::InconsistentGroupProtocol);
    }
}

#[test]
fn what_a_leader_assigns_to_strangers_is_dropped_and_others_get_nothing() {
    let mut shard = Shard::new();
    let ids = [shard.id(None), shard.id(None)];
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    let assignments = vec![("stranger".to_owned(), Bytes::from_static(b"all"))];
    let ticket = shard.sync(Sync { assignments, ..sync(&joined[0]) });
    assert_eq!(shard.synced(ticket), Bytes::new());
    let ticket = shard.sync(sync(&joined[1]));
    assert_eq!(shard.synced(ticket), Bytes::new());

    // What was assigned in the generation before is not assigned any more.
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    shard.assign(&joined);
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    let ticket = shard.sync(Sync { assignments: Vec::new(), ..sync(&joined[0]) });
    assert_eq!(shard.synced(ticket), Bytes::new());
}
