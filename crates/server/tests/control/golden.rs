//! What was written stays readable, byte for byte.

use plimsoll_server::control::{Arrival, Change};

use super::testdata::golden;
use super::{id, settings};

#[test]
fn changes_are_written_and_read_as_ever() {
    let set = settings(&[("retention.ms", "60000"), ("cleanup.policy", "compact")]);
    let (name, shards) = ("orders".to_owned(), vec![3, 4]);
    let arrival = Arrival { partition: 7, shard: 6, opening: 2, base_epoch: 1003, start: 4000 };
    let changes = [
        ("create", Change::Create { id: id(1), name, shards, settings: set.clone() }),
        ("grow", Change::Grow { id: id(1), shards: vec![5] }),
        ("alter", Change::Alter { id: id(1), settings: set }),
        ("delete", Change::Delete { id: id(1) }),
        ("gone", Change::Gone { id: id(1), epoch: 12 }),
        ("feature", Change::Feature(2)),
        ("producers", Change::Producers(1000)),
        ("move", Change::Move { id: id(1), partitions: vec![(0, 4), (7, 6)] }),
        ("moved", Change::Moved { id: id(1), arrivals: vec![arrival] }),
        ("shed", Change::Shed { id: id(1), partition: 7, start: 4096 }),
    ];
    for (name, change) in changes {
        let golden = golden(&format!("control/testdata/{name}.v1"), &change.encode());
        assert_eq!(change.encode(), golden, "{name}");
        assert_eq!(Change::decode(&golden), Ok(change), "{name}");
    }
}
