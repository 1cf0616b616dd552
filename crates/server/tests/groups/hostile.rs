//! Bytes that are no change and no snapshot: an error, never a panic, and no memory for what they
//! claim. And requests that no client would send.

use plimsoll_server::groups::{
    Answer, Beat, Change, Commit, Join, Roster, Settings, Store, Sync, Ticket,
};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use twox_hash::XxHash3_64;

use super::golden::{changes, store};
use super::shard::{Shard, at, commit, join, leaver, protocol};

#[test]
fn a_change_that_is_cut_short_or_has_more_behind_it_is_none() {
    for change in changes() {
        let whole = change.encode();
        for end in 0..whole.len() {
            let mut short = whole[..end].to_vec();
            assert!(Change::decode(&short).is_err(), "{end} bytes of {change:?}");
            // Nor is one that says so itself.
            claim_length(&mut short);
            assert!(Change::decode(&short).is_err(), "{end} bytes of {change:?}");
        }
        let mut more = whole;
        more.push(0);
        assert!(Change::decode(&more).is_err());
        claim_length(&mut more);
        assert!(Change::decode(&more).is_err());
    }
}

#[test]
fn a_snapshot_with_any_byte_changed_is_none() {
    let whole = store().encode();
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 0x10;
        assert!(Store::decode(&changed).is_err(), "byte {place}");
        assert!(Store::decode(&whole[..place]).is_err(), "{place} bytes");
    }
}

#[test]
fn a_consumers_metadata_may_be_anything() {
    let whole = protocol("range", &["t", "u"]);
    for end in 0..whole.metadata.len() {
        let mut shard = Shard::new();
        shard.commit(commit("x", 0, 1));
        let mut join = join("", None);
        join.protocols[0].metadata = whole.metadata.slice(..end);
        shard.join(join);
        // What a member reads that does not say so, nobody knows: its offsets stay.
        shard.forget(&[at("x", 0)]);
        assert!(shard.store.committed("g", "x", 0).is_some(), "{end} bytes");
    }
}

/// Requests of clients that keep no rule, with names of each other: nothing panics, whoever waits
/// is answered, and once they are silent for long enough nothing of them is left.
#[test]
fn clients_that_keep_no_rule_harm_nobody() {
    let (mut joined, mut synced) = (0, 0);
    for seed in 0..60 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let settings = Settings {
            members_max: 3,
            groups_max: 2,
            group_bytes_max: 400,
            offsets_max: 4,
            session_ms_min: 0,
            initial_delay_ms: random.random_range(0..2) * 100,
            ..Settings::default()
        };
        let mut shard = Shard::with(settings);
        let mut tickets = Vec::new();
        for _ in 0..400 {
            shard.is_quick = random.random_bool(0.8);
            tickets.push(ask_anything(&mut shard, &mut random));
            match random.random_range(0..40) {
                0 => shard.restart(),
                1 => shard.expire(),
                2..6 => shard.pass(random.random_range(0..5_000)),
                _ => {}
            }
        }
        shard.is_quick = true;
        shard.agree(usize::MAX);
        shard.pass(3_600_000);
        for ticket in tickets {
            match shard.answer(ticket).expect("whoever waits is answered") {
                Answer::Joined(_) => joined += 1,
                Answer::Synced(_) => synced += 1,
                _ => {}
            }
        }
        shard.now += shard.settings.offsets_retention_ms;
        shard.expire();
        assert_eq!(shard.groups.list().count(), 0, "seed {seed}");
        assert_eq!(shard.store, Store::default(), "seed {seed}");
        assert_eq!(shard.groups.next_deadline(), None, "seed {seed}");
    }
    println!("joined {joined}, synced {synced}");
    assert!(joined > 0 && synced > 0);
}

fn ask_anything(shard: &mut Shard, random: &mut Pcg64Mcg) -> Ticket {
    let group = ["g", "g", "g", "h", "i", ""][random.random_range(0..6)].to_owned();
    let there = shard.groups.describe(&group).members;
    let member = match random.random_range(0..10) {
        0..2 => String::new(),
        2 => "nobody".into(),
        // One of the ids that were given last, and perhaps forgotten.
        3..5 => shard.recent_id(random.random_range(0..12)),
        _ if there.is_empty() => String::new(),
        _ => there[random.random_range(0..there.len())].member.clone(),
    };
    let instance = [None, None, Some("one"), Some("two")][random.random_range(0..4)];
    let instance = instance.map(str::to_owned);
    let stored = shard.store.group(&group).map_or(0, |stored| stored.roster().generation);
    let generation = [stored, stored, stored, stored + 1, 1, -1][random.random_range(0..6)];
    match random.random_range(0..100) {
        0..50 => {
            let names = ["a", "b", "a", "b"];
            let offered = (0..random.random_range(0..4)).map(|at| protocol(names[at], &["t"]));
            let mut join = Join {
                group,
                session_ms: [10_000, 10_000, 10_000, 0, -1, i32::MAX][random.random_range(0..6)],
                rebalance_ms: [20_000, 20_000, 20_000, 0, 1, i32::MIN][random.random_range(0..6)],
                needs_id: random.random_bool(0.4),
                protocols: offered.collect(),
                ..join(&member, instance.as_deref())
            };
            if random.random_bool(0.1) {
                join.protocol_type = String::new();
            }
            shard.join(join)
        }
        50..70 => {
            let assignments = vec![(member.clone(), vec![1; random.random_range(0..500)].into())];
            shard.sync(Sync { group, generation, member, instance, assignments })
        }
        70..80 => shard.beat(&Beat { group, generation, member, instance }),
        80..88 => shard.leave(vec![leaver(&member, instance.as_deref()), leaver(&member, None)]),
        88..95 => {
            let partition = random.random_range(-1..4);
            let commit = commit("t", partition, random.random_range(-2..9));
            shard.commit(Commit { group, generation, member, instance, ..commit })
        }
        95..98 => shard.forget(&[at("t", 0), at("t", 0), at("u", -1)]),
        _ => shard.delete(&group),
    }
}

fn claim_length(bytes: &mut [u8]) {
    let length = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    if let Some(field) = bytes.get_mut(4..8) {
        field.copy_from_slice(&length);
    }
}

/// The next one would have gone back, below all that members know.
#[test]
fn a_generation_that_none_could_follow_is_no_change() {
    let Change::Roster { group, roster } = changes().swap_remove(0) else { panic!("its first") };
    let bytes = |generation| {
        let roster = Roster { generation, ..roster.clone() };
        Change::Roster { group: group.clone(), roster }.encode()
    };
    Change::decode(&bytes(i32::MAX - 1)).unwrap();
    Change::decode(&bytes(i32::MAX)).unwrap_err();
}

proptest! {
    #[test]
    fn no_bytes_make_a_change_or_a_snapshot_panic(
        which in 0_usize..7, place: usize, value: u8,
        more in prop::collection::vec(any::<u8>(), 0..64)
    ) {
        let mut bytes = changes()[which].encode();
        let at = place % bytes.len();
        bytes[at] = value;
        if let Ok(change) = Change::decode(&bytes) {
            prop_assert_eq!(change.encode(), bytes.clone());
        }
        bytes.truncate(at);
        bytes.extend(&more);
        claim_length(&mut bytes);
        drop(Change::decode(&bytes));

        // A snapshot whose checksum is right all the same.
        let mut bytes = store().encode();
        bytes.truncate(bytes.len() - 8);
        let at = place % bytes.len();
        bytes[at] = value;
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.extend(checksum.to_le_bytes());
        if let Ok(store) = Store::decode(&bytes) {
            prop_assert_eq!(store.encode(), bytes);
        }
    }
}
