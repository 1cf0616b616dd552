//! What administrators ask of a group.

use plimsoll_server::groups::{Answer, Phase, Refusal};

use super::shard::{Shard, commit, join, leaver, protocol};

#[test]
fn members_leave_by_id_and_administrators_remove_them_by_instance() {
    let mut shard = Shard::new();
    let before = shard.stable(&[Some("one"), Some("two"), None]);
    let dynamic = before.iter().find(|one| shard.instance_of(one).is_empty()).unwrap();
    let leavers = vec![leaver(&dynamic.member, None), leaver("", Some("two")), leaver("x", None)];
    let ticket = shard.leave(leavers);
    let outcome = vec![Ok(()), Ok(()), Err(Refusal::UnknownMemberId)];
    assert_eq!(shard.answer(ticket), Some(Answer::Each(outcome)));
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
    shard.leave(vec![leaver("", Some("one"))]);
    assert_eq!(shard.phase(), Phase::Empty);
    assert_eq!(shard.store.group("g").unwrap().roster().generation, 2);
}

#[test]
fn a_group_with_members_is_not_deleted() {
    let mut shard = Shard::new();
    let ticket = shard.delete("g");
    assert_eq!(shard.refused(ticket), Refusal::GroupIdNotFound);
    shard.commit(commit("t", 0, 1));
    let joined = shard.stable(&[None]).remove(0);
    let ticket = shard.delete("g");
    assert_eq!(shard.refused(ticket), Refusal::NonEmptyGroup);
    shard.leave(vec![leaver(&joined.member, None)]);
    let ticket = shard.delete("g");
    assert_eq!(shard.answer(ticket), Some(Answer::Done));
    assert_eq!(shard.store.groups().count(), 0);
    assert_eq!(shard.phase(), Phase::Dead);
}

#[test]
fn a_stable_group_is_described_with_what_is_assigned() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[Some("one")]).remove(0);
    let described = shard.groups.describe("g");
    assert_eq!((described.phase, described.protocol.as_str()), (Phase::Stable, "range"));
    let member = &described.members[0];
    assert_eq!((&member.member, member.instance.as_deref()), (&joined.member, Some("one")));
    assert_eq!(member.metadata, protocol("range", &["t"]).metadata);
    assert_eq!(member.assignment, joined.member.as_bytes());
    shard.join(join(&joined.member, Some("one")));
    let listed: Vec<_> = shard.groups.list().collect();
    assert_eq!((listed[0].group.as_str(), listed[0].protocol_type.as_str()), ("g", "consumer"));
}
