//! What is told only when it is agreed on, and outlives a restart.

use plimsoll_server::groups::{Answer, Change, Join, Phase, Refusal, Roster};

use super::shard::{Shard, beat, commit_as, join, protocol, sync};

#[test]
fn nobody_is_told_what_is_not_agreed_on() {
    let mut shard = Shard::new();
    shard.is_quick = false;
    let ticket = shard.join(join("", None));
    shard.pass(20);
    assert_eq!(shard.answer(ticket), None);
    shard.agree(1);
    let joined = shard.joined(ticket);
    let synced = shard.sync(sync(&joined));
    let heart = shard.beat(&beat(&joined));
    assert_eq!((shard.answer(synced), shard.answer(heart)), (None, None));
    shard.agree(1);
    assert_eq!(shard.synced(synced), joined.member.as_bytes());
    assert_eq!(shard.answer(heart), Some(Answer::Done));
    // Heartbeats do not wait for commits.
    let commits = shard.commit(commit_as(&joined, "t", 0, 1));
    let heart = shard.beat(&beat(&joined));
    assert_eq!((shard.answer(commits), shard.answer(heart)), (None, Some(Answer::Done)));
    shard.agree(1);
    assert_eq!(shard.answer(commits), Some(Answer::Each(vec![Ok(())])));
}

#[test]
fn a_restart_is_no_rebalance() {
    let mut shard = Shard::new();
    let ids = [shard.id(None), shard.id(None)];
    let joined = shard.gather(ids.iter().map(|id| join(id, None)).collect());
    // Between join and sync.
    shard.restart();
    assert_eq!(shard.phase(), Phase::CompletingRebalance);
    shard.assign(&joined);
    shard.pass(9_000);
    shard.restart();
    // Each has a whole session again.
    shard.pass(9_000);
    assert_eq!(shard.phase(), Phase::Stable);
    shard.assign(&joined);
    for one in &joined {
        let heart = shard.beat(&beat(one));
        assert_eq!(shard.answer(heart), Some(Answer::Done));
    }
    shard.pass(10_000);
    assert_eq!(shard.phase(), Phase::Empty);
}

#[test]
fn who_does_not_sync_in_time_after_a_restart_is_removed_too() {
    let mut shard = Shard::new();
    let id = shard.id(None);
    let joined = shard.gather(vec![join(&id, None)]).remove(0);
    shard.restart();
    for _ in 0..15 {
        let heart = shard.beat(&beat(&joined));
        assert_eq!(shard.answer(heart), Some(Answer::Done));
        shard.pass(4_000);
    }
    assert_eq!(shard.phase(), Phase::Empty);
}

#[test]
fn a_generation_that_was_told_is_not_told_of_others_after_a_restart() {
    let mut shard = Shard::new();
    let first = shard.stable(&[None]).remove(0);
    let ticket = shard.join(join(&first.member, None));
    let second = shard.joined(ticket);
    assert_eq!(second.generation, 2);
    shard.restart();
    let ticket = shard
        .join(Join { protocols: vec![protocol("range", &["u"])], ..join(&first.member, None) });
    assert_eq!(shard.joined(ticket).generation, 3);
    let late = shard.sync(sync(&second));
    assert_eq!(shard.refused(late), Refusal::IllegalGeneration);
}

#[test]
fn a_group_over_a_bound_that_was_lowered_lets_the_last_go() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None, None]);
    shard.settings.members_max = 2;
    shard.restart();
    assert_eq!(shard.phase(), Phase::PreparingRebalance);
    let tickets: Vec<_> = joined.iter().map(|one| shard.join(join(&one.member, None))).collect();
    assert_eq!(shard.refused(tickets[2]), Refusal::GroupMaxSizeReached);
    assert_eq!(shard.joined(tickets[0]).members.len(), 2);
    assert_eq!(shard.joined(tickets[1]).generation, 2);
}

#[test]
fn a_generation_that_goes_back_is_not_applied() {
    let mut shard = Shard::new();
    shard.stable(&[None]);
    let before = shard.store.clone();
    let roster = before.group("g").unwrap().roster().clone();
    for roster in
        [Roster { is_assigned: false, ..roster.clone() }, Roster { generation: 0, ..roster }]
    {
        let change = Change::Roster { group: "g".into(), roster };
        assert!(shard.store.apply(&change).is_err());
        assert_eq!(shard.store, before);
    }
}
