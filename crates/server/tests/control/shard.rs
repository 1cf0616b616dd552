//! A shard becomes what the catalog intends, in whatever order things come.

use plimsoll_server::control::{
    Arrival, Catalog, Change, Coming, Left, coming, reconcile, reconcile_topics,
};
use plimsoll_server::shard::{Admission, Batch, Draft, Item, Leading, Opening, Refused, State};

use super::{create, id, settings};

/// The one shard of a cluster, number 1.
struct Shard {
    state: State,
    leading: Leading,
}

impl Shard {
    fn new() -> Self {
        let mut state = State::default();
        state.pass(1, 1).unwrap();
        Self { leading: Leading::new(&state), state }
    }

    /// Does what the catalog wants of it, until nothing is left; says in how many entries.
    fn follow(&mut self, catalog: &Catalog) -> usize {
        for entries in 0.. {
            let items = reconcile(catalog, 1, &self.state, &Left::new());
            if items.is_empty() {
                return entries;
            }
            assert!(entries < 3, "{items:?} is never done");
            self.agree(&items);
        }
        unreachable!()
    }

    fn agree(&mut self, items: &[Item<'_>]) {
        let mut draft = Draft::new();
        items.iter().for_each(|item| draft.push(item));
        let entry = draft.finish(self.leading.stamp_time(7));
        self.leading.proposed();
        let index = self.state.applied() + 1;
        self.state.apply(index, &entry, &mut Vec::new()).unwrap();
        self.leading.applied(index);
    }

    fn produce(&mut self, at: Opening) -> Result<Admission, Refused> {
        let batch = Batch {
            base_offset: 0,
            epoch: -1,
            offsets: 1,
            max_timestamp: 0,
            sequenced: None,
            bytes: 70,
        };
        self.leading.admit(&self.state, at, &batch)
    }
}

fn place(catalog: &Catalog, number: u32) -> Opening {
    catalog.place("orders", number).unwrap().0
}

#[test]
fn a_topic_is_open_where_it_is_to_be_and_nowhere_else() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1, 2, 1])).unwrap();
    assert_eq!(shard.follow(&catalog), 1);
    assert_eq!(shard.follow(&catalog), 0);
    let open: Vec<_> = shard.state.partitions().map(|(at, _)| at.partition.number).collect();
    assert_eq!(open, [0, 2]);
    catalog.apply(&Change::Grow { id: id(1), shards: vec![1] }).unwrap();
    shard.follow(&catalog);
    assert_eq!(shard.state.partitions().count(), 3);
}

#[test]
fn settings_reach_the_partitions_that_they_change() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    shard.follow(&catalog);
    let settings = settings(&[("max.message.bytes", "50"), ("plimsoll.flush", "auto")]);
    catalog.apply(&Change::Alter { id: id(1), settings }).unwrap();
    assert_eq!(shard.follow(&catalog), 1);
    let at = place(&catalog, 0);
    assert_eq!(shard.produce(at), Err(Refused::TooLarge { bytes: 70, max: 50 }));
    // What a shard need not know costs it nothing.
    let elsewhere = super::settings(&[("max.message.bytes", "50"), ("flush.ms", "9")]);
    catalog.apply(&Change::Alter { id: id(1), settings: elsewhere }).unwrap();
    assert_eq!(shard.follow(&catalog), 0);
}

/// A batch names topic id and opening: it cannot go to a namesake that came meanwhile.
#[test]
fn a_batch_on_its_way_never_ends_in_the_topic_that_was_made_again() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    shard.follow(&catalog);
    let before = place(&catalog, 0);
    shard.leading.raise_at_once(&shard.state, before, 10).unwrap();
    shard.agree(&[Item::Ceiling { opening: before, ceiling: Some(10) }]);
    let epoch = 0;
    assert_eq!(shard.produce(before), Ok(Admission::Stamped { base_offset: 0, epoch }));

    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    shard.leading = Leading::new(&shard.state);
    shard.follow(&catalog);
    assert_eq!(shard.state.partitions().count(), 0);
    assert_eq!(shard.produce(before), Err(Refused::NotHere));
    let gone = Change::Gone { id: id(1), epoch };
    catalog.apply(&gone).unwrap();
    catalog.apply(&create(2, "orders", &[1])).unwrap();
    assert_eq!(shard.produce(before), Err(Refused::NotHere));
    // Nor to one that is not open yet.
    let after = place(&catalog, 0);
    assert_eq!(shard.produce(after), Err(Refused::NotHere));
    shard.follow(&catalog);
    assert_eq!(shard.produce(after), Err(Refused::NeedsCeiling(1)));
    assert_eq!(shard.state.partition(after).unwrap().epoch(shard.state.turns()), 1);
}

#[test]
fn a_topic_that_is_deleted_before_it_was_ever_open_leaves_nothing() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    assert_eq!(shard.follow(&catalog), 0);
    assert_eq!(shard.state.partitions().count(), 0);
}

#[test]
fn a_deleted_topic_frees_the_log_that_it_held() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    shard.follow(&catalog);
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    assert_eq!(shard.follow(&catalog), 1);
    assert_eq!(shard.state.needs_from(), shard.state.applied() + 1);
}

/// A leader that had not heard of it would have opened again what was deleted, or set what held before.
#[test]
fn what_is_intended_never_goes_back_to_an_older_catalog() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    catalog.apply(&create(2, "audit", &[1])).unwrap();
    shard.follow(&catalog);
    let before = catalog.clone();
    catalog.apply(&Change::Delete { id: id(1) }).unwrap();
    let settings = settings(&[("max.message.bytes", "50")]);
    catalog.apply(&Change::Alter { id: id(2), settings }).unwrap();
    shard.follow(&catalog);
    assert_eq!(reconcile(&before, 1, &shard.state, &Left::new()), []);
    assert_eq!(reconcile_topics(&[id(1)].into(), &before, 1, &shard.state, &Left::new()), []);
    assert_eq!(reconcile_topics(&[id(2)].into(), &before, 1, &shard.state, &Left::new()), []);
}

/// Nobody had it closed: by the time that the leader heard of it, there was no such topic any more.
#[test]
fn what_was_opened_for_a_topic_that_was_gone_by_then_goes() {
    for is_told_which in [false, true] {
        let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
        catalog.apply(&create(1, "orders", &[1, 1])).unwrap();
        let before = catalog.clone();
        catalog.apply(&Change::Delete { id: id(1) }).unwrap();
        catalog.apply(&Change::Gone { id: id(1), epoch: 0 }).unwrap();
        shard.follow(&before);
        assert_eq!(shard.state.partitions().count(), 2);
        let items = match is_told_which {
            true => reconcile_topics(&[id(1)].into(), &catalog, 1, &shard.state, &Left::new()),
            false => reconcile(&catalog, 1, &shard.state, &Left::new()),
        };
        shard.agree(&items);
        assert_eq!(shard.state.partitions().count(), 0);
    }
}

/// A leader that has not heard of a topic yet would have closed it.
#[test]
fn what_the_catalog_does_not_know_yet_stays() {
    let (mut catalog, mut shard) = (Catalog::default(), Shard::new());
    catalog.apply(&create(1, "audit", &[1])).unwrap();
    let before = catalog.clone();
    catalog.apply(&create(2, "orders", &[1])).unwrap();
    shard.follow(&catalog);
    assert_eq!(reconcile(&before, 1, &shard.state, &Left::new()), []);
    assert_eq!(reconcile_topics(&[id(2)].into(), &before, 1, &shard.state, &Left::new()), []);
}

/// It would have come without what its producers had sent, and stored again what they send again.
#[test]
fn a_partition_comes_to_its_next_shard_with_what_it_left_in_the_last() {
    let (mut catalog, mut first, mut second) = (Catalog::default(), Shard::new(), Shard::new());
    catalog.apply(&create(1, "orders", &[1])).unwrap();
    first.follow(&catalog);
    let at = place(&catalog, 0);
    catalog.apply(&Change::Move { id: id(1), partitions: vec![(0, 2)] }).unwrap();
    first.follow(&catalog);
    assert!(first.state.partition(at).unwrap().is_closed());
    assert_eq!(first.produce(at), Err(Refused::NotHere));
    assert_eq!(reconcile(&catalog, 2, &second.state, &Left::new()), [], "it has not moved yet");
    let start = first.state.partition(at).unwrap().next();
    let arrival = Arrival { partition: 0, shard: 2, opening: 2, base_epoch: 9, start };
    catalog.apply(&Change::Moved { id: id(1), arrivals: vec![arrival] }).unwrap();
    let next = place(&catalog, 0);
    assert_eq!(
        reconcile(&catalog, 2, &second.state, &Left::new()),
        [],
        "what it left is not known"
    );
    let comes = Coming { opening: next, ended: at, from: 1 };
    assert_eq!(coming(None, &catalog, 2, &second.state), [comes]);
    assert_eq!(coming(None, &catalog, 1, &first.state), []);
    let producers = first.state.partition(at).unwrap().producers().clone();
    let left = Left::from([(at, producers)]);
    second.agree(&reconcile(&catalog, 2, &second.state, &left));
    assert_eq!(coming(None, &catalog, 2, &second.state), []);
    assert_eq!(second.produce(next), Err(Refused::NeedsCeiling(1)));
    assert_eq!(second.state.partition(next).unwrap().epoch(second.state.turns()), 9);
    // The first is known until it is let go of, though nothing is in it.
    first.agree(&[Item::Advance]);
    assert_eq!(first.follow(&catalog), 0);
    assert!(first.state.partition(at).is_some());
    catalog.apply(&Change::Shed { id: id(1), partition: 0, start: 0 }).unwrap();
    first.follow(&catalog);
    assert!(first.state.partition(at).is_none());
}
