//! Who is removed from a group, and when.

use plimsoll_server::groups::{Answer, Join, Phase, Refusal};

use super::shard::{Shard, beat, join, leaver, protocol, sync};

#[test]
fn who_does_not_come_to_a_rebalance_is_removed() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None]);
    let newcomer = shard.id(None);
    let new = shard.join(join(&newcomer, None));
    // The second says that it is alive, and does not come.
    for _ in 0..14 {
        for one in &joined {
            let heart = shard.beat(&beat(one));
            assert_eq!(shard.refused(heart), Refusal::RebalanceInProgress);
        }
        shard.pass(4_000);
    }
    let first = shard.join(join(&joined[0].member, None));
    shard.beat(&beat(&joined[1]));
    assert_eq!(shard.answer(new), None);
    shard.pass(4_000);
    let first = shard.joined(first);
    assert_eq!((first.generation, first.members.len()), (2, 2));
    assert_eq!(shard.joined(new).leader, first.member);
    let heart = shard.beat(&beat(&joined[1]));
    assert_eq!(shard.refused(heart), Refusal::UnknownMemberId);
}

#[test]
fn who_is_silent_for_a_session_is_removed_and_the_others_rebalance() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None]);
    shard.pass(6_000);
    let heart = shard.beat(&beat(&joined[1]));
    assert_eq!(shard.answer(heart), Some(Answer::Done));
    shard.pass(5_000);
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
    let heart = shard.beat(&beat(&joined[1]));
    assert_eq!(shard.refused(heart), Refusal::RebalanceInProgress);
    let ticket = shard.join(join(&joined[1].member, None));
    let joined = shard.joined(ticket);
    assert_eq!((joined.generation, joined.members.len()), (2, 1));
}

#[test]
fn who_waits_for_an_answer_is_not_silent() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None]);
    // One comes and waits; the other lives and does not come, for longer than a session.
    let waits = shard
        .join(Join { protocols: vec![protocol("range", &["u"])], ..join(&joined[1].member, None) });
    for _ in 0..14 {
        shard.pass(4_000);
        shard.beat(&beat(&joined[0]));
    }
    assert_eq!(shard.answer(waits), None);
    let other = shard.join(join(&joined[0].member, None));
    assert_eq!(shard.joined(waits).generation, 2);
    assert_eq!(shard.joined(other).members.len(), 2);
}

#[test]
fn who_does_not_sync_in_time_is_removed() {
    let mut shard = Shard::new();
    let ids = [shard.id(None), shard.id(None)];
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    let waits = shard.sync(sync(&joined[1]));
    // The leader lives, and does not assign.
    for _ in 0..16 {
        shard.beat(&beat(&joined[0]));
        shard.pass(4_000);
    }
    assert_eq!(shard.refused(waits), Refusal::RebalanceInProgress);
    let heart = shard.beat(&beat(&joined[0]));
    assert_eq!(shard.refused(heart), Refusal::UnknownMemberId);
    let ticket = shard.join(join(&joined[1].member, None));
    assert_eq!(shard.joined(ticket).leader, joined[1].member);
}

#[test]
fn who_is_removed_while_it_waits_is_told_so() {
    let mut shard = Shard::new();
    let ids = [shard.id(None), shard.id(None)];
    let tickets = ids.clone().map(|id| shard.join(join(&id, None)));
    shard.leave(vec![leaver(&ids[0], None)]);
    assert_eq!(shard.refused(tickets[0]), Refusal::UnknownMemberId);
    shard.pass(20);
    let joined = shard.joined(tickets[1]);
    assert_eq!((&joined.leader, joined.members.len()), (&joined.member, 1));
}
