//! What is refused, and what is bounded.

use plimsoll_server::groups::{Answer, Join, Joined, Phase, Refusal, Settings};

use super::shard::{Shard, beat, commit, commit_as, join, protocol, sync};

#[test]
fn requests_of_another_generation_or_of_strangers_are_refused() {
    let mut shard = Shard::new();
    let joined = shard.stable(&[None]).remove(0);
    let next = Joined { generation: 2, ..joined.clone() };
    let ticket = shard.beat(&beat(&next));
    assert_eq!(shard.refused(ticket), Refusal::IllegalGeneration);
    let ticket = shard.sync(sync(&next));
    assert_eq!(shard.refused(ticket), Refusal::IllegalGeneration);
    let ticket = shard.commit(commit_as(&next, "t", 0, 1));
    assert_eq!(shard.refused(ticket), Refusal::IllegalGeneration);
    let stranger = Joined { member: "x".into(), ..joined };
    let ticket = shard.beat(&beat(&stranger));
    assert_eq!(shard.refused(ticket), Refusal::UnknownMemberId);
    let ticket = shard.commit(commit("t", 0, 1));
    assert_eq!(shard.refused(ticket), Refusal::UnknownMemberId);
    for (session_ms, group, why) in [
        (5_999, "g", Refusal::InvalidSessionTimeout),
        (1_800_001, "g", Refusal::InvalidSessionTimeout),
        (-1, "g", Refusal::InvalidSessionTimeout),
        (6_000, "", Refusal::InvalidGroupId),
    ] {
        let ticket = shard.join(Join { session_ms, group: group.into(), ..join("", None) });
        assert_eq!(shard.refused(ticket), why);
    }
}

#[test]
fn groups_and_what_is_in_them_are_bounded() {
    let settings = Settings {
        initial_delay_ms: 10,
        members_max: 2,
        group_bytes_max: 1_000,
        groups_max: 2,
        offsets_max: 2,
        offset_metadata_bytes_max: 4,
        ..Settings::default()
    };
    let mut shard = Shard::with(settings);
    let before = shard.stable(&[Some("one"), None]);
    let member = before.iter().find(|one| shard.instance_of(one).is_empty()).unwrap();
    let ticket = shard.join(join("", None));
    assert_eq!(shard.refused(ticket), Refusal::GroupMaxSizeReached);
    // One that comes back is not one more.
    let ticket = shard.join(join("", Some("one")));
    assert_eq!(shard.joined(ticket).generation, 1);
    let large = Join { protocols: vec![protocol("range", &["t"; 100])], ..join("", Some("one")) };
    let ticket = shard.join(Join { group: "h".into(), ..large });
    assert_eq!(shard.answer(ticket), None);
    let larger = Join { protocols: vec![protocol("range", &["topic"; 200])], ..join("", None) };
    let ticket = shard.join(Join { group: "h".into(), ..larger });
    assert_eq!(shard.refused(ticket), Refusal::GroupMaxSizeReached);
    let ticket = shard.join(Join { group: "i".into(), ..join("", None) });
    assert_eq!(shard.refused(ticket), Refusal::PolicyViolation);
    // One that is refused does not take the place of its old self.
    let larger = Join { protocols: vec![protocol("range", &["topic"; 200])], ..join("", None) };
    let ticket = shard.join(Join { instance: Some("one".into()), ..larger });
    assert_eq!(shard.refused(ticket), Refusal::GroupMaxSizeReached);
    assert_eq!(shard.phase(), Phase::Stable);
    let ticket =
        shard.join(Join { protocols: vec![protocol("p", &[]); 33], ..join("", Some("one")) });
    assert_eq!(shard.refused(ticket), Refusal::PolicyViolation);

    for partition in 0..2 {
        let ticket = shard.commit(commit_as(member, "t", partition, 5));
        assert_eq!(shard.answer(ticket), Some(Answer::Each(vec![Ok(())])));
    }
    let ticket = shard.commit(commit_as(member, "t", 2, 5));
    assert_eq!(shard.refused(ticket), Refusal::PolicyViolation);
    let mut wordy = commit_as(member, "t", 1, 6);
    wordy.offsets[0].1.metadata = Some("12345".into());
    let ticket = shard.commit(wordy);
    let outcome = vec![Err(Refusal::OffsetMetadataTooLarge)];
    assert_eq!(shard.answer(ticket), Some(Answer::Each(outcome)));
    assert_eq!(shard.store.committed("g", "t", 1).unwrap().offset, 5);
}
