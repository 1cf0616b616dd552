//! What a change does to the topics.

use plimsoll_server::control::{Catalog, Change, Impossible, InvalidName, check_name};

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
