//! What was written stays readable, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use plimsoll_server::groups::{Change, Committed, Roster, Seat, Store};

use super::shard::{at, protocol};
use super::testdata::golden;

/// Every kind of change, with every field, in an order that can be applied.
pub(crate) fn changes() -> Vec<Change> {
    let group = || "g".to_owned();
    let seat = Seat {
        instance: None,
        client: "client".into(),
        host: "/127.0.0.1".into(),
        session_ms: 10_000,
        rebalance_ms: 60_000,
        protocols: vec![protocol("range", &["t"]), protocol("sticky", &[])],
        assignment: Bytes::from_static(b"t/0"),
    };
    let fixed = Seat { instance: Some("one".into()), ..seat.clone() };
    let roster = Roster {
        generation: 7,
        is_assigned: true,
        since: 1_000_000,
        protocol_type: Some("consumer".into()),
        protocol: Some("range".into()),
        leader: Some("b".into()),
        members: BTreeMap::from([("a".to_owned(), seat), ("b".to_owned(), fixed)]),
    };
    let committed = Committed {
        offset: 12,
        epoch: 3,
        time: 1_000_001,
        kept_until: Some(1_000_009),
        metadata: Some("ü".into()),
    };
    let other = Committed { epoch: -1, kept_until: None, metadata: None, ..committed };
    let offsets = [(at("t", 0), committed.clone()), (at("t", 1), other.clone())];
    let simple = BTreeMap::from([(at("t", 1), committed), (at("u", 0), other)]);
    vec![
        Change::Roster { group: group(), roster },
        Change::Commit { group: group(), offsets: BTreeMap::from(offsets) },
        Change::Commit { group: "simple".into(), offsets: simple },
        Change::Forget { group: group(), partitions: BTreeSet::from([at("t", 0)]) },
        Change::Expire { group: "simple".into(), now: 1_000_009, committed_by: 0 },
        Change::Delete { group: "none".into() },
        Change::NoTopic { topic: "none".into() },
    ]
}

/// What they make.
pub(crate) fn store() -> Store {
    let mut store = Store::default();
    for change in changes() {
        store.apply(&change).unwrap();
    }
    store
}

#[test]
fn changes_are_written_and_read_as_ever() {
    let mut all = Vec::new();
    for change in changes() {
        let bytes = change.encode();
        assert_eq!(Change::decode(&bytes), Ok(change));
        all.extend(bytes);
    }
    assert_eq!(all, golden("groups/testdata/changes.v1", &all));
}

#[test]
fn a_snapshot_is_written_and_read_as_ever() {
    let bytes = store().encode();
    assert_eq!(bytes, golden("groups/testdata/store.v1", &bytes));
    assert_eq!(Store::decode(&bytes), Ok(store()));
}
