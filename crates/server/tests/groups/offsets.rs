//! Offsets: who commits them, and how long they are kept.

use plimsoll_server::groups::{Answer, Commit, Committed, Committing, Phase, Refusal};

use super::shard::{Shard, at, commit, commit_as, join, leaver};

#[test]
fn a_commit_comes_back_as_it_went_in() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None]).remove(0);
    for metadata in [None, Some(String::new()), Some("x\0ü".to_owned())] {
        let committing =
            Committing { offset: 7, epoch: 4, metadata: metadata.clone(), retention_ms: None };
        let offsets = vec![(at("t", 1), committing)];
        let ticket = shard.commit(Commit { offsets, ..commit_as(&joined, "t", 1, 7) });
        assert_eq!(shard.answer(ticket), Some(Answer::Each(vec![Ok(())])));
        let found = Committed { offset: 7, epoch: 4, time: shard.now, kept_until: None, metadata };
        shard.restart();
        assert_eq!(shard.store.committed("g", "t", 1), Some(&found));
    }
}

#[test]
fn members_commit_while_they_are_called_to_a_rebalance_and_not_between_join_and_sync() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None, None]);
    let ticket = shard.join(join(&joined[0].member, None));
    let commits = shard.commit(commit_as(&joined[1], "t", 0, 9));
    assert_eq!(shard.answer(commits), Some(Answer::Each(vec![Ok(())])));
    shard.join(join(&joined[1].member, None));
    let joined = shard.joined(ticket);
    let commits = shard.commit(commit_as(&joined, "t", 0, 10));
    assert_eq!(shard.refused(commits), Refusal::RebalanceInProgress);
}

#[test]
fn anybody_commits_for_a_group_without_members() {
    let mut shard = Shard::new();
    let ticket = shard.commit(Commit { generation: 1, ..commit("t", 0, 3) });
    assert_eq!(shard.refused(ticket), Refusal::IllegalGeneration);
    let ticket = shard.commit(commit("t", 0, 3));
    assert_eq!(shard.answer(ticket), Some(Answer::Each(vec![Ok(())])));
    assert_eq!(shard.phase(), Phase::Empty);
    assert_eq!(shard.groups.list().count(), 1);
}

#[test]
fn offsets_are_kept_as_long_as_there_are_members_and_the_retention_after() {
    let mut shard = Shard::new();
    let retention = shard.settings.offsets_retention_ms;
    let joined = shard.stable(&[Some("one")]).remove(0);
    shard.commit(commit_as(&joined, "t", 0, 3));
    shard.now += retention * 2;
    shard.expire();
    assert!(shard.store.committed("g", "t", 0).is_some());
    shard.leave(vec![leaver("", Some("one"))]);
    shard.now += retention - 1;
    shard.expire();
    assert!(shard.store.committed("g", "t", 0).is_some());
    shard.now += 1;
    shard.expire();
    assert_eq!(shard.store.group("g"), None);
    assert_eq!(shard.phase(), Phase::Dead);

    // Without members it counts from the commit; a version that said how long is heard.
    shard.commit(commit("t", 0, 3));
    let mut short = commit("t", 1, 3);
    short.offsets[0].1.retention_ms = Some(5);
    shard.commit(short);
    shard.now += 5;
    shard.expire();
    assert!(shard.store.committed("g", "t", 0).is_some());
    assert_eq!(shard.store.committed("g", "t", 1), None);
    shard.now += retention;
    // What is committed now and not applied yet is not lost with the rest.
    shard.is_quick = false;
    shard.commit(commit("t", 2, 8));
    shard.expire();
    shard.agree(9);
    assert!(shard.store.committed("g", "t", 2).is_some());
    assert_eq!(shard.phase(), Phase::Empty);
}

#[test]
fn offsets_are_forgotten_where_no_member_reads() {
    let mut shard = Shard::new();
    let ticket = shard.forget(&[at("t", 0)]);
    assert_eq!(shard.refused(ticket), Refusal::GroupIdNotFound);
    shard.commit(commit("t", 0, 1));
    shard.commit(commit("u", 0, 1));
    shard.stable(&[None]);
    let ticket = shard.forget(&[at("t", 0), at("u", 0)]);
    let outcome = vec![Err(Refusal::GroupSubscribedToTopic), Ok(())];
    assert_eq!(shard.answer(ticket), Some(Answer::Each(outcome)));
    assert!(shard.store.committed("g", "t", 0).is_some());
    assert_eq!(shard.store.committed("g", "u", 0), None);
    shard.topic_is_gone("t");
    assert_eq!(shard.store.committed("g", "t", 0), None);
}

/// Its name was free, and another of that name had them, before it was agreed on that they go.
#[test]
fn a_topic_is_gone_once_that_is_agreed_on() {
    let mut shard = Shard::new();
    shard.commit(commit("t", 0, 1));
    shard.is_quick = false;
    let ticket = shard.topic_is_gone("t");
    assert_eq!(shard.answer(ticket), None);
    shard.agree(usize::MAX);
    assert_eq!(shard.answer(ticket), Some(Answer::Done));
}
