//! What a shard does in the turns that matter, each told once.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_server::chapter::Plan;
use plimsoll_server::shard::{
    Admission, Batch, Draft, Entry, Fence, Gap, Held, IDLE_MS, Item, Leading, Mismatch, Misplaced,
    Open, Opening, Outcome, Producers, Proposer, Refused, Sequenced, Settings, State, Submission,
    Unfit, Why, fetch, let_go,
};

use super::batch::{batch, opening};

const SETTINGS: Settings = Settings {
    retention_ms: Some(1000),
    retention_bytes: None,
    batch_bytes_max: 1 << 20,
    append_timestamps: false,
    compaction: None,
};

/// A leader of one: what it proposes is agreed on when it says so.
#[derive(Default)]
struct Leader {
    state: State,
    leading: Leading,
    draft: Option<Draft>,
    proposed: Vec<Vec<u8>>,
    agreed: Vec<Vec<u8>>,
    clock: u64,
    term: u64,
}

impl Leader {
    fn new() -> Self {
        let mut leader = Self::default();
        leader.lead();
        leader
    }

    fn lead(&mut self) {
        self.term += 1;
        self.state.pass(self.state.applied() + 1, self.term).unwrap();
        self.leading = Leading::new(&self.state);
        self.draft = None;
        self.proposed.clear();
    }

    fn with(opening: Opening, ceiling: i64) -> Self {
        let mut leader = Self::new();
        leader.open(opening, 5);
        leader.raise(opening, ceiling);
        leader
    }

    fn act(&mut self, item: &Item<'_>) {
        self.draft.get_or_insert_with(Draft::new).push(item);
    }

    fn open(&mut self, opening: Opening, base_epoch: i32) {
        let (settings, producers) = (SETTINGS, Producers::default());
        self.act(&Item::Open(Open { opening, base_epoch, start: 0, settings, producers }));
        self.agree();
    }

    fn raise(&mut self, opening: Opening, to: i64) {
        self.leading.raise_at_once(&self.state, opening, to).unwrap();
        self.act(&Item::Ceiling { opening, ceiling: Some(to) });
        self.agree();
    }

    /// Puts a batch into the draft.
    fn take(&mut self, opening: Opening, bytes: &Bytes) -> Result<Admission, Refused> {
        let batch = Batch::read(bytes).unwrap();
        let admission = self.leading.admit(&self.state, opening, &batch)?;
        if let Admission::Stamped { base_offset, epoch } = admission {
            let draft = self.draft.get_or_insert_with(Draft::new);
            draft.push_batch(opening, base_offset, epoch, bytes);
        }
        Ok(admission)
    }

    fn propose(&mut self) {
        let Some(draft) = self.draft.take() else { return };
        let time = self.leading.stamp_time(self.clock);
        self.proposed.push(draft.finish(time).to_vec());
        self.leading.proposed();
    }

    /// Everything that was proposed is agreed on.
    fn agree(&mut self) -> Vec<Outcome> {
        self.propose();
        let mut outcomes = Vec::new();
        for entry in std::mem::take(&mut self.proposed) {
            let index = self.state.applied() + 1;
            self.state.apply(index, &entry, &mut outcomes).unwrap();
            self.leading.applied(index);
            self.agreed.push(entry);
        }
        outcomes
    }

    fn fence(&mut self) {
        let (guaranteed, given) = (self.state.applied(), None);
        self.act(&Item::Fence(Fence { why: Why::UncleanStart, guaranteed, given, since: 17 }));
        self.agree();
    }
}

fn stamped(base_offset: i64, epoch: i32) -> Result<Admission, Refused> {
    Ok(Admission::Stamped { base_offset, epoch })
}

fn sequenced(producer: i64, epoch: i16, first: i32) -> Option<Sequenced> {
    Some(Sequenced { producer, epoch, first })
}

#[test]
fn batches_of_entries_in_flight_follow_each_other() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    assert_eq!(leader.take(at, &batch(3, None, 0)), stamped(0, 5));
    assert_eq!(leader.take(at, &batch(2, None, 0)), stamped(3, 5));
    leader.propose();
    assert_eq!(leader.take(at, &batch(1, None, 0)), stamped(5, 5));
    let appended = |base_offset, end| Outcome::Appended { opening: at, base_offset, end };
    assert_eq!(leader.agree(), [appended(0, 3), appended(3, 5), appended(5, 6)]);
    assert_eq!(leader.leading.in_flight(), 0);
    assert_eq!(leader.state.partition(at).unwrap().next(), 6);
}

#[test]
fn no_offset_beyond_the_ceiling_is_given_away() {
    let at = opening(0, 1);
    let mut leader = Leader::new();
    leader.open(at, 0);
    assert_eq!(leader.take(at, &batch(1, None, 0)), Err(Refused::NeedsCeiling(1)));
    leader.raise(at, 4);
    assert_eq!(leader.take(at, &batch(3, None, 0)), stamped(0, 0));
    assert_eq!(leader.take(at, &batch(2, None, 0)), Err(Refused::NeedsCeiling(5)));
    assert_eq!(leader.take(at, &batch(1, None, 0)), stamped(3, 0));
    leader.agree();
}

/// A consumer that took nothing held megabytes of others for each of its few bytes.
#[test]
fn what_a_slow_consumer_of_few_bytes_has_not_taken_holds_no_entry() {
    let (thin, thick) = (opening(0, 1), opening(1, 1));
    let mut leader = Leader::with(thin, 100);
    leader.open(thick, 0);
    leader.raise(thick, 10_000);
    leader.take(thin, &batch(2, None, 0)).unwrap();
    leader.take(thick, &batch(900, None, 0)).unwrap();
    leader.take(thin, &batch(3, None, 0)).unwrap();
    leader.propose();
    let entry = Arc::new(leader.proposed[0].clone());
    leader.agree();
    for (at, is_held) in [(thin, false), (thick, true)] {
        let held = Held::new(Bytes::from_owner(Shared(Arc::clone(&entry)))).unwrap();
        let mut read = fetch(&leader.state, at, 0, 10_000, 1 << 20, |_| Some(&held));
        drop(held);
        for batches in read.thin {
            let_go(&mut read.batches[batches]);
        }
        assert_eq!(Arc::strong_count(&entry) > 1, is_held);
        let ends: Vec<_> = read.batches.iter().map(|b| Batch::read(b).unwrap().end()).collect();
        assert_eq!(ends, if is_held { vec![Some(900)] } else { vec![Some(2), Some(5)] });
    }
}

struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The offsets that an entry which was lost had given are not given again.
#[test]
fn an_offset_never_names_two_records_though_a_tail_was_lost() {
    let (at, closed) = (opening(0, 1), opening(1, 1));
    let mut leader = Leader::with(at, 100);
    leader.open(closed, 9);
    leader.take(at, &batch(3, None, 0)).unwrap();
    leader.agree();
    // It acknowledges five more from memory, and the power goes.
    assert_eq!(leader.take(at, &batch(5, None, 0)), stamped(3, 5));
    leader.propose();
    leader.lead();
    leader.fence();

    let partition = leader.state.partition(at).unwrap();
    assert_eq!(partition.next(), 100);
    assert_eq!(partition.gaps().collect::<Vec<_>>(), [Gap { from: 3, to: 100 }]);
    // A consumer that saw offset 7 in epoch 5 learns that the epoch ended at 3.
    assert_eq!(partition.end_of_epoch(5), Some((5, 3)));
    assert_eq!(leader.take(at, &batch(1, None, 0)), Err(Refused::NeedsCeiling(101)));
    leader.raise(at, 200);
    assert_eq!(leader.take(at, &batch(1, None, 0)), stamped(100, 7));

    let untouched = leader.state.partition(closed).unwrap();
    assert_eq!((untouched.next(), untouched.gaps().count()), (0, 0));
}

#[test]
fn a_leader_epoch_never_goes_back_and_ends_where_the_next_began() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    leader.take(at, &batch(2, None, 0)).unwrap();
    leader.agree();
    leader.lead();
    leader.lead(); // and never appends anything
    leader.lead();
    assert_eq!(leader.take(at, &batch(2, None, 0)), stamped(2, 8));
    leader.agree();
    let partition = leader.state.partition(at).unwrap();
    assert_eq!(partition.end_of_epoch(4), None);
    assert_eq!(partition.end_of_epoch(5), Some((5, 2)));
    assert_eq!(partition.end_of_epoch(7), Some((5, 2)));
    assert_eq!(partition.end_of_epoch(8), Some((8, 4)));
}

#[test]
fn a_batch_that_comes_again_has_the_offset_that_it_had() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    let send = |first| batch(2, sequenced(40, 0, first), 0);
    let repeated = |base_offset| Ok(Admission::Repeated { base_offset });
    for number in 0..7 {
        assert_eq!(leader.take(at, &send(2 * number)), stamped(2 * i64::from(number), 5));
    }
    // While they are in flight, and once they are agreed on.
    for _ in 0..2 {
        assert_eq!(leader.take(at, &send(12)), repeated(12));
        assert_eq!(leader.take(at, &send(4)), repeated(4));
        let too_old = Misplaced::OutOfOrder { producer: 40, expected: 14, found: 2 };
        assert_eq!(leader.take(at, &send(2)), Err(too_old.into()));
        let gap = Misplaced::OutOfOrder { producer: 40, expected: 14, found: 16 };
        assert_eq!(leader.take(at, &send(16)), Err(gap.into()));
        leader.agree();
    }
    let anew = batch(1, sequenced(40, 1, 0), 0);
    assert_eq!(leader.take(at, &anew), stamped(14, 5));
    let fenced = Misplaced::Fenced { producer: 40, current: 1, found: 0 };
    assert_eq!(leader.take(at, &send(14)), Err(fenced.into()));
}

#[test]
fn sequences_go_on_at_0_behind_the_largest() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    leader.take(at, &batch(4, sequenced(1, 0, i32::MAX - 1), 0)).unwrap();
    leader.agree();
    assert_eq!(leader.take(at, &batch(1, sequenced(1, 0, 2), 0)), stamped(4, 5));
    leader.agree();
}

/// Close and batches have one order, the log's.
#[test]
fn what_comes_behind_a_close_is_refused_and_what_was_before_it_stays() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    leader.take(at, &batch(2, sequenced(3, 0, 0), 0)).unwrap();
    leader.leading.close(&leader.state, at).unwrap();
    leader.act(&Item::Close { opening: at });
    assert_eq!(leader.take(at, &batch(1, None, 0)), Err(Refused::NotHere));
    let outcomes = leader.agree();
    let Some(Outcome::Closed { next: 2, producers, .. }) = outcomes.last() else {
        panic!("{outcomes:?}")
    };
    assert_eq!(leader.take(at, &batch(1, None, 0)), Err(Refused::NotHere));

    // It comes back with what its producers sent, under a higher epoch.
    let again = opening(0, 2);
    leader.act(&Item::Open(Open {
        opening: again,
        base_epoch: 6,
        start: 2,
        settings: SETTINGS,
        producers: producers.clone(),
    }));
    leader.agree();
    leader.raise(again, 100);
    let known = leader.take(again, &batch(2, sequenced(3, 0, 0), 0));
    assert_eq!(known, Ok(Admission::Repeated { base_offset: 0 }));
    assert_eq!(leader.take(again, &batch(1, sequenced(3, 0, 2), 0)), stamped(2, 6));
    // What it has from before is read here until it expires. Where its stay ended is known until it is told to go.
    assert_eq!(leader.state.partition(at).unwrap().next(), 2);
    leader.clock = 10_000;
    leader.act(&Item::Advance);
    leader.agree();
    let ended = leader.state.partition(at).unwrap();
    assert!(ended.is_closed() && (ended.start(), ended.next()) == (2, 2));
    leader.act(&Item::Trim { opening: at, start: i64::MAX });
    leader.agree();
    assert!(leader.state.partition(at).is_none());
}

#[test]
fn what_is_past_its_retention_expires_by_the_time_of_entries() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    for (time, timestamp) in [(100, 50), (600, 900), (1200, 10)] {
        leader.clock = time;
        leader.take(at, &batch(1, None, timestamp)).unwrap();
        leader.agree();
    }
    let needed = leader.state.needs_from();
    leader.clock = 1400;
    leader.act(&Item::Advance);
    leader.agree();
    let partition = leader.state.partition(at).unwrap();
    assert_eq!((partition.start(), partition.next()), (1, 3));
    assert_eq!(leader.state.needs_from(), needed + 1);
    // Timestamps out of order: the first record at or after 10 is that of 900.
    assert_eq!(partition.point_at_time(10).unwrap().base_offset, 1);
    assert_eq!(partition.point_at_time(901), None);
    // A clock that goes back moves nothing.
    leader.clock = 5;
    leader.take(at, &batch(1, None, 0)).unwrap();
    leader.agree();
    assert_eq!(leader.state.time(), 1400);
}

/// A chapter is settled sooner on one replica than on another, and holds the same on both.
#[test]
fn what_is_deleted_while_a_chapter_waits_is_in_it() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    for _ in 0..3 {
        leader.take(at, &batch(1, None, 0)).unwrap();
        leader.agree();
    }
    leader.act(&Item::ChapterEnd(1));
    leader.agree();
    let ended = *leader.state.ended().next().unwrap();
    let planned = Plan::of(&leader.state, ended, 1);
    for item in [Item::Trim { opening: at, start: 1 }, Item::Expire { opening: at, start: 2 }] {
        leader.act(&item);
        leader.agree();
        assert_eq!(Plan::of(&leader.state, ended, 1), planned, "{item:?}");
    }
    assert_eq!(planned.bytes(), 3 * batch(1, None, 0).len() as u64);
}

/// What has expired is told from chapters, and comes into the log behind whatever was asked for meanwhile.
#[test]
fn what_was_deleted_stays_so_though_less_expires_later() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    leader.take(at, &batch(9, None, 0)).unwrap();
    leader.agree();
    for (item, start) in [
        (Item::Trim { opening: at, start: 5 }, 5),
        (Item::Expire { opening: at, start: 3 }, 5),
        (Item::Expire { opening: at, start: 7 }, 7),
        (Item::Trim { opening: at, start: 6 }, 7),
        (Item::Expire { opening: opening(1, 1), start: 1 }, 7),
    ] {
        leader.act(&item);
        leader.agree();
        assert_eq!(leader.state.partition(at).unwrap().start(), start, "{item:?}");
    }
}

/// A replica that was started from a snapshot took what the snapshot had of an open chapter for settled, as it had
/// settled that chapter before: what was to expire was told from the rest, and was more or less than elsewhere.
#[test]
fn what_a_replica_settled_before_its_snapshot_expires_there_as_elsewhere() {
    let at = opening(0, 1);
    let mut leader = Leader::with(at, 100);
    let bytes = u64::from(Batch::read(&batch(1, None, 0)).unwrap().bytes);
    let kept = Some(3 * bytes);
    let settings = Settings { retention_ms: None, retention_bytes: kept, ..SETTINGS };
    leader.act(&Item::Configure { opening: at, settings });
    leader.agree();
    let append = |leader: &mut Leader| {
        leader.take(at, &batch(1, None, 0)).unwrap();
        leader.agree();
    };
    (0..4).for_each(|_| append(&mut leader));
    let (snapshot, known) = (leader.state.encode(), leader.agreed.len());
    (0..2).for_each(|_| append(&mut leader));
    leader.act(&Item::ChapterEnd(1));
    leader.agree();
    let end = leader.state.applied();
    assert_eq!(leader.state.partition(at).unwrap().start(), 3);

    let mut again = State::decode(&snapshot).unwrap();
    again.settle(end);
    for entry in &leader.agreed[known..] {
        again.apply(again.applied() + 1, entry, &mut Vec::new()).unwrap();
    }
    assert_eq!(again, leader.state);
    again.settle(end);
    let partition = again.partition(at).unwrap();
    assert_eq!((partition.start(), partition.unsettled(), partition.bytes()), (3, 6, 0));
}

#[test]
fn a_shard_stops_at_an_entry_that_does_not_follow() {
    let at = opening(0, 1);
    let entry = |base_offset, epoch| {
        let mut draft = Draft::new();
        draft.push_batch(at, base_offset, epoch, &batch(2, None, 0));
        draft.finish(0).to_vec()
    };
    let why = |bytes: &[u8]| {
        let mut state = Leader::with(at, 10).state;
        let index = state.applied() + 1;
        state.apply(index, bytes, &mut Vec::new()).unwrap_err().why
    };
    let unfit = |unfit| Mismatch::Unfit(at, unfit);
    assert_eq!(why(&entry(1, 5)), unfit(Unfit::Offset { expected: 0, found: 1 }));
    assert_eq!(why(&entry(0, 4)), unfit(Unfit::Epoch { expected: 5, found: 4 }));
    let mut beyond = Draft::new();
    beyond.push_batch(at, 0, 5, &batch(11, None, 0));
    assert_eq!(why(&beyond.finish(0)), unfit(Unfit::Ceiling(Some(10))));
    let mut elsewhere = Draft::new();
    elsewhere.push_batch(opening(0, 2), 0, 5, &batch(1, None, 0));
    assert_eq!(why(&elsewhere.finish(0)), Mismatch::NotHere(opening(0, 2)));

    let mut state = Leader::with(at, 10).state;
    let skipped = state.applied() + 2;
    let error = state.apply(skipped, &entry(0, 5), &mut Vec::new()).unwrap_err();
    assert_eq!(error.why, Mismatch::Index(skipped - 1));
}

/// Only records and the passing of time may be lost with the power after they were acknowledged.
#[test]
fn an_entry_that_acts_on_a_partition_must_be_durable() {
    let at = opening(0, 1);
    let must = |item: Option<Item<'_>>| {
        let mut draft = Draft::new();
        draft.push_batch(at, 0, 0, &batch(1, None, 0));
        item.iter().for_each(|item| draft.push(item));
        let bytes = draft.finish(0);
        Entry::decode(&bytes).unwrap().must_be_durable
    };
    assert!(!must(None));
    assert!(!must(Some(Item::Advance)));
    assert!(must(Some(Item::Close { opening: at })));
    // Who deletes is told that it is done; what has expired may expire once more.
    assert!(must(Some(Item::Trim { opening: at, start: 1 })));
    assert!(!must(Some(Item::Expire { opening: at, start: 1 })));
    // It is settled once it is durable.
    assert!(!must(Some(Item::ChapterEnd(1))));
    // Of a ceiling the leader knows whether it needs it at once.
    assert!(!must(Some(Item::Ceiling { opening: at, ceiling: Some(9) })));
    assert!(must(Some(Item::Feature(1))));
}

/// A partition that is idle by the clock may still have something on its way.
#[test]
fn only_what_is_idle_and_has_nothing_on_its_way_is_closed() {
    let at = opening(0, 1);
    let state = Leader::with(at, 100).state;
    let mut proposer = Proposer::new(&state, 0);
    let batch = batch(1, None, 0);
    proposer.submit(Submission { ticket: 1, connection: 1, opening: at, batch });
    proposer.draft(&state, 0, &mut Vec::new()).unwrap();
    assert!(proposer.close_idle(&state, IDLE_MS).is_none());
    let untouched = Proposer::new(&state, 0).close_idle(&state, IDLE_MS).unwrap().bytes;
    let closed = Item::Ceiling { opening: at, ceiling: None };
    assert_eq!(Entry::decode(&untouched).unwrap().items().next(), Some(Ok(closed)));
    assert!(Proposer::new(&state, 0).close_idle(&state, IDLE_MS - 1).is_none());
}

/// Sends batches of 400 records, each agreed on at once, until an offset is given away that was beyond
/// the ceiling which was durable in the beginning; says which of the entries had to be durable.
fn entries_that_wait(each_is_durable: bool) -> Vec<bool> {
    let at = opening(0, 1);
    let mut state = Leader::with(at, 1024).state;
    let mut proposer = Proposer::new(&state, 0);
    let mut waits = Vec::new();
    while state.partition(at).unwrap().next() <= 1024 {
        let batch = batch(400, None, 0);
        proposer.submit(Submission { ticket: 0, connection: 1, opening: at, batch });
        let proposal = proposer.draft(&state, 0, &mut Vec::new()).unwrap();
        waits.push(proposal.must_be_durable);
        let index = state.applied() + 1;
        state.apply(index, &proposal.bytes, &mut Vec::new()).unwrap();
        proposer.applied(index, &mut Vec::new());
        if each_is_durable {
            proposer.durable(index);
        }
    }
    waits
}

#[test]
fn a_ceiling_that_is_raised_in_good_time_holds_once_it_is_durable() {
    assert_eq!(entries_that_wait(true), [false, false, false]);
    // The second raised it; as that is not durable, the third has to.
    assert_eq!(entries_that_wait(false), [false, false, true]);
}

/// 20,000 records a second in a partition that is new, entries each 5 ms, and a sync that begins each second
/// and takes 300 ms: the milliseconds at which an entry waited for one.
fn waits_of_a_busy_partition(per_second: u64) -> Vec<u64> {
    let at = opening(0, 1);
    let records = u32::try_from(per_second / 200).unwrap();
    let mut state = Leader::with(at, 1024).state;
    let mut proposer = Proposer::new(&state, 0);
    let mut waits = Vec::new();
    let mut syncing = state.applied();
    for now in (0..20_000).step_by(5) {
        match now % 1000 {
            0 => syncing = state.applied(),
            300 => proposer.durable(syncing),
            _ => {}
        }
        let batch = batch(records, None, 0);
        proposer.submit(Submission { ticket: 0, connection: 1, opening: at, batch });
        let proposal = proposer.draft(&state, now, &mut Vec::new()).unwrap();
        let index = state.applied() + 1;
        state.apply(index, &proposal.bytes, &mut Vec::new()).unwrap();
        proposer.applied(index, &mut Vec::new());
        if proposal.must_be_durable {
            waits.push(now);
            proposer.durable(index);
        }
    }
    waits
}

/// The steps of ceilings lasted a second, half of which was left when the next was raised; so each sync
/// that took long was waited for.
#[test]
fn a_busy_partition_waits_for_no_sync_but_in_its_first_moments() {
    for per_second in [1_000, 20_000, 200_000, 1_000_000] {
        let waits = waits_of_a_busy_partition(per_second);
        assert!(waits.len() < 6 && waits.iter().all(|ms| *ms < 2_000), "{per_second}: {waits:?}");
    }
}

/// A raise that was overtaken does not lend its place in the log to the next one.
#[test]
fn a_ceiling_that_is_on_its_way_is_not_taken_for_an_earlier_one() {
    let at = opening(0, 1);
    let mut state = Leader::with(at, 10).state;
    let mut leading = Leading::new(&state);
    assert_eq!(leading.raise_ahead(&state, at, 20), Ok(true));
    leading.proposed();
    leading.raise_at_once(&state, at, 30).unwrap();
    leading.proposed();
    assert_eq!(leading.raise_ahead(&state, at, 40), Ok(true));
    leading.proposed();
    let first = state.applied() + 1;
    for (index, (to, holds)) in (first..).zip([(20, 30), (30, 30), (40, 40)]) {
        let mut draft = Draft::new();
        draft.push(&Item::Ceiling { opening: at, ceiling: Some(to) });
        state.apply(index, &draft.finish(0), &mut Vec::new()).unwrap();
        leading.applied(index);
        leading.durable(index);
        let partition = state.partition(at).unwrap();
        assert_eq!(leading.ceiling(partition, at), Some(holds), "durable up to {index}");
    }
}

/// A fast partition raises by much; if it then was slow for a while, by less. The lower one was proposed,
/// and the shard stopped.
#[test]
fn a_ceiling_that_is_needed_at_once_is_not_below_one_that_is_on_its_way() {
    let at = opening(0, 1);
    let mut state = Leader::with(at, 10).state;
    let mut leading = Leading::new(&state);
    assert_eq!(leading.raise_ahead(&state, at, 5000), Ok(true));
    leading.proposed();
    let ceiling = leading.raise_at_once(&state, at, 30).unwrap();
    let first = state.applied() + 1;
    for (index, to) in (first..).zip([5000, ceiling]) {
        let mut draft = Draft::new();
        draft.push(&Item::Ceiling { opening: at, ceiling: Some(to) });
        state.apply(index, &draft.finish(0), &mut Vec::new()).unwrap();
    }
    assert_eq!(leading.ceiling(state.partition(at).unwrap(), at), Some(5000));
}

/// The leader before had raised it in good time, and said nothing of it yet: a loss could have taken it, and offsets below
/// it would have named other records.
#[test]
fn a_leader_believes_no_ceiling_that_a_loss_could_take() {
    let at = opening(1, 1);
    let state = Leader::with(at, 1000).state;
    let applied = state.applied();
    let first = |durable_then: u64, durable_now: u64| {
        let mut proposer = Proposer::new(&state, 0);
        proposer.doubt(&state, durable_then);
        proposer.durable(durable_now);
        let batch = batch(1, None, 0);
        proposer.submit(Submission { ticket: 1, connection: 1, opening: at, batch });
        proposer.draft(&state, 0, &mut Vec::new()).unwrap().must_be_durable
    };
    assert!(!first(applied, applied), "all of it was durable");
    assert!(first(applied - 1, applied - 1));
    assert!(!first(applied - 1, applied), "it is by now");
}
