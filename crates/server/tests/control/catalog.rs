//! What a change does to the topics.

use plimsoll_server::control::{Arrival, Catalog, Change, Impossible, InvalidName, check_name};

use super::{create, id, settings};

#[test]
fn a_name_is_taken_until_its_topic_has_gone_from_all_shards() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[1, 2])).unwrap();
    let again = create(2, "orders", &[1]);
    assert_eq!(catalog.apply(&again), Err(Impossible::Exists("orders".into())));
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    assert!(catalog.find("orders").is_none());
    assert!(catalog.place("orders", 0).is_none());
    assert_eq!(catalog.apply(&again), Err(Impossible::Exists("orders".into())));
    catalog.apply(&Change::Gone { id: id(1), epoch: 8 }).unwrap();
    catalog.apply(&again).unwrap();
    assert_eq!(catalog.find("orders").unwrap().0, id(2));
}

/// Clients that know a topic by its name ignore a leader epoch below one that they have seen.
#[test]
fn a_topic_that_is_made_again_begins_above_all_epochs_of_the_one_before() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    assert_eq!(catalog.place("orders", 0).unwrap().1.base_epoch, 0);
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    catalog.apply(&Change::Gone { id: id(1), epoch: 57 }).unwrap();
    catalog.apply(&create(2, "orders", &[3])).unwrap();
    assert_eq!(catalog.place("orders", 0).unwrap().1.base_epoch, 58);
}

#[test]
fn a_topic_grows_at_its_end_and_never_once_it_is_deleted() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    catalog.apply(&Change::Grow { id: id(1), shards: vec![2, 3] }).unwrap();
    let shard = |number| catalog.place("orders", number).map(|(_, extent)| extent.shard);
    assert_eq!([shard(0), shard(1), shard(2), shard(3)], [Some(1), Some(2), Some(3), None]);
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    let deleted = Err(Impossible::Deleted("orders".into()));
    assert_eq!(catalog.apply(&Change::Grow { id: id(1), shards: vec![1] }), deleted);
    assert_eq!(catalog.apply(&Change::Delete { id: id(1) }), deleted);
    let altered = Change::Alter { id: id(1), settings: settings(&[]) };
    assert_eq!(catalog.apply(&altered), deleted);
}

fn arrival(partition: u32, opening: u32, shard: u32, start: i64) -> Arrival {
    let base_epoch = 1000 * i32::try_from(opening).unwrap();
    Arrival { partition, shard, opening, base_epoch, start }
}

fn moved(arrivals: Vec<Arrival>) -> Change {
    Change::Moved { id: id(1), arrivals }
}

/// Shard and first offset of each stay.
fn stays(catalog: &Catalog) -> Vec<(u32, i64)> {
    let (_, extents) = catalog.stays("orders", 0).unwrap();
    extents.iter().map(|extent| (extent.shard, extent.start)).collect()
}

#[test]
fn a_partition_is_where_it_was_until_it_has_moved() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[2, 2])).unwrap();
    let to = |shard| Change::Move { id: id(1), partitions: vec![(0, shard)] };
    let moving = |catalog: &Catalog| catalog.topic(id(1)).unwrap().moving.clone();
    catalog.apply(&to(2)).unwrap();
    assert!(moving(&catalog).is_empty(), "it is there");
    catalog.apply(&to(4)).unwrap();
    assert_eq!((stays(&catalog), moving(&catalog)), (vec![(2, 0)], [(0, 4)].into()));
    // It may have ended its stay by now: so it goes on there in another.
    catalog.apply(&to(2)).unwrap();
    assert_eq!(moving(&catalog), [(0, 2)].into());
    catalog.apply(&moved(vec![arrival(0, 2, 4, 7)])).unwrap();
    assert_eq!((stays(&catalog), moving(&catalog)), (vec![(2, 0), (4, 7)], [].into()));
    assert_eq!([catalog.load(2), catalog.load(4)], [1, 1]);
    // Another controller had seen the same stay end.
    let again = moved(vec![arrival(0, 2, 4, 7)]);
    assert_eq!(catalog.apply(&again), Err(Impossible::HasMoved(0)));
    let (opening, last) = catalog.place("orders", 0).unwrap();
    assert_eq!((opening.number, last.shard, last.base_epoch), (2, 4, 2000));
}

#[test]
fn what_is_shed_is_of_earlier_stays_and_never_of_the_last() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[2])).unwrap();
    for (opening, shard, start) in [(2, 4, 10), (3, 6, 10), (4, 2, 30)] {
        catalog.apply(&moved(vec![arrival(0, opening, shard, start)])).unwrap();
    }
    let shed = |start| Change::Shed { id: id(1), partition: 0, start };
    catalog.apply(&shed(4)).unwrap();
    assert_eq!(stays(&catalog), [(2, 4), (4, 10), (6, 10), (2, 30)]);
    catalog.apply(&shed(2)).unwrap();
    assert_eq!(stays(&catalog), [(2, 4), (4, 10), (6, 10), (2, 30)], "it does not come back");
    catalog.apply(&shed(10)).unwrap();
    assert_eq!(stays(&catalog), [(6, 10), (2, 30)]);
    catalog.apply(&shed(12)).unwrap();
    assert_eq!(stays(&catalog), [(6, 12), (2, 30)]);
    catalog.apply(&shed(i64::MAX)).unwrap();
    assert_eq!(stays(&catalog), [(2, 30)]);
}

#[test]
fn a_change_that_cannot_be_changes_nothing() {
    let mut catalog = Catalog::default();
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    let before = catalog.clone();
    for change in [
        create(1, "other", &[1]),
        Change::Gone { id: id(1), epoch: 0 },
        Change::Delete { id: id(9) },
        Change::Grow { id: id(1), shards: vec![0; 1_000_000] },
        Change::Feature(0),
        Change::Move { id: id(1), partitions: vec![(0, 2), (1, 2)] },
        Change::Shed { id: id(1), partition: 1, start: 0 },
        moved(vec![arrival(0, 2, 2, 5), arrival(1, 2, 2, 5)]),
        moved(vec![arrival(0, 2, 2, 5), arrival(0, 2, 3, 5)]),
        moved(vec![arrival(0, 1, 2, 5)]),
        moved(vec![arrival(0, 3, 2, 5)]),
        moved(vec![Arrival { start: -1, ..arrival(0, 2, 2, 5) }]),
        moved(vec![Arrival { base_epoch: 0, ..arrival(0, 2, 2, 5) }]),
    ] {
        catalog.apply(&change).unwrap_err();
        assert_eq!(catalog, before);
    }
}

#[test]
fn a_topic_may_be_called_as_in_kafka() {
    let long = "x".repeat(250);
    for (name, result) in [
        ("orders.v1_a-B", Ok(())),
        (&long[1..], Ok(())),
        (&long, Err(InvalidName::TooLong(250))),
        ("", Err(InvalidName::Reserved)),
        ("..", Err(InvalidName::Reserved)),
        ("a/b", Err(InvalidName::Character('/'))),
        ("bücher", Err(InvalidName::Character('ü'))),
    ] {
        assert_eq!(check_name(name), result, "{name}");
    }
}
