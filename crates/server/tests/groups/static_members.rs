//! Members that say which instance they are, and come back as it.

use bytes::Bytes;
use plimsoll_server::groups::{Answer, Beat, Commit, Join, Phase, Refusal, Sync};

use super::shard::{Shard, beat, commit_as, join, leaver, protocol, sync};

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_its_old_self_is_fenced() {
    let mut shard = Shard::new();
    let before = shard.stable(&[Some("one"), Some("two")]);
    let ticket = shard.join(join("", Some(shard.instance_of(&before[1]).as_str())));
    let after = shard.joined(ticket);
    assert_eq!(shard.phase(), Phase::Stable);
    assert_eq!((after.generation, &after.leader), (1, &before[0].member));
    assert_ne!(after.member, before[1].member);
    // What was assigned to it is its own again.
    let ticket = shard.sync(sync(&after));
    assert_eq!(shard.synced(ticket), before[1].member.as_bytes());

    let instance = Some(shard.instance_of(&after));
    let old = shard.beat(&Beat { instance: instance.clone(), ..beat(&before[1]) });
    assert_eq!(shard.refused(old), Refusal::FencedInstanceId);
    let old = shard.sync(Sync { instance: instance.clone(), ..sync(&before[1]) });
    assert_eq!(shard.refused(old), Refusal::FencedInstanceId);
    let old = shard.join(join(&before[1].member, instance.as_deref()));
    assert_eq!(shard.refused(old), Refusal::FencedInstanceId);
    let old =
        shard.commit(Commit { instance: instance.clone(), ..commit_as(&before[1], "t", 0, 1) });
    assert_eq!(shard.refused(old), Refusal::FencedInstanceId);
    let old = shard.leave(vec![leaver(&before[1].member, instance.as_deref())]);
    assert_eq!(shard.answer(old), Some(Answer::Each(vec![Err(Refusal::FencedInstanceId)])));
}

#[test]
fn a_static_leader_that_comes_back_is_not_told_that_it_leads() {
    let mut shard = Shard::new();
    let before = shard.stable(&[Some("one"), Some("two")]);
    let instance = shard.instance_of(&before[0]);
    let ticket = shard.join(join("", Some(&instance)));
    let after = shard.joined(ticket);
    assert_eq!((&after.leader, after.members.len()), (&before[0].member, 0));
    // It does: when it joins with its id, all rebalance.
    shard.join(join(&after.member, Some(&instance)));
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
}

#[test]
fn a_static_member_that_comes_back_for_other_topics_starts_a_rebalance() {
    let mut shard = Shard::new();
    let before = shard.stable(&[Some("one"), Some("two")]);
    let instance = shard.instance_of(&before[1]);
    let protocols = vec![protocol("range", &["t", "u"])];
    shard.join(Join { protocols, ..join("", Some(&instance)) });
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
}

#[test]
fn two_that_come_under_one_instance_are_never_members_together() {
    let mut shard = Shard::new();
    let first = shard.join(join("", Some("one")));
    let second = shard.join(join("", Some("one")));
    assert_eq!(shard.refused(first), Refusal::FencedInstanceId);
    shard.pass(20);
    assert_eq!(shard.joined(second).members.len(), 1);
    // Between joining and syncing all come again: the leader knows the old id only.
    shard.join(join("", Some("one")));
    assert_eq!(shard.groups.describe("g").members.len(), 1);
}

#[test]
fn a_static_member_that_restarts_is_waited_for_as_long_as_its_session() {
    let mut shard = Shard::new();
    let before = shard.stable(&[Some("one"), None]);
    let (fixed, other) = if before[0].member < before[1].member { (0, 1) } else { (1, 0) };
    let is_fixed = |at: usize| shard.instance_of(&before[at]) == "one";
    let (fixed, other) = if is_fixed(fixed) { (fixed, other) } else { (other, fixed) };
    let mut slow = join(&before[other].member, None);
    slow.protocols = vec![protocol("range", &["u"])];
    let ticket = shard.join(slow);
    assert_eq!(shard.answer(ticket), None);
    shard.pass(10_000);
    let joined = shard.joined(ticket);
    assert_eq!((joined.generation, joined.members.len()), (2, 1));
    let ticket = shard.beat(&beat(&before[fixed]));
    assert_eq!(shard.refused(ticket), Refusal::UnknownMemberId);
}

#[test]
fn a_static_member_that_does_not_come_to_a_rebalance_stays_until_its_session_ends() {
    let mut shard = Shard::new();
    let short = |id: &str, instance| Join { rebalance_ms: 3_000, ..join(id, instance) };
    let id = shard.id(None);
    let before = shard.gather(vec![short("", Some("one")), short(&id, None)]);
    shard.assign(&before);
    let other = shard.id(None);
    let tickets = [short(&other, None), short(&id, None)].map(|join| shard.join(join));
    shard.pass(3_000);
    let joined = tickets.map(|ticket| shard.joined(ticket));
    assert!(joined.iter().all(|one| one.generation == 2));
    let leader = joined.iter().find(|one| one.member == one.leader).unwrap();
    shard.sync(Sync { assignments: Vec::new(), ..sync(leader) });
    let there = shard.groups.describe("g").members;
    let one = there.iter().find(|member| member.instance.is_some()).unwrap();
    // Nor does it keep what it had.
    assert_eq!(one.assignment, Bytes::new());
}

#[test]
fn a_static_member_that_comes_back_and_changes_the_protocol_starts_a_rebalance() {
    let mut shard = Shard::new();
    let both = vec![protocol("a", &["t"]), protocol("b", &["t"])];
    let joins =
        ["one", "two"].map(|instance| Join { protocols: both.clone(), ..join("", Some(instance)) });
    let before = shard.gather(joins.to_vec());
    assert_eq!(before[0].protocol, "a");
    shard.assign(&before);
    shard.join(Join { protocols: both.iter().rev().cloned().collect(), ..join("", Some("one")) });
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
}
