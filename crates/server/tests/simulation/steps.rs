//! What clients do in a life of a broker, a step at a time, and what the model is told of it.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use plimsoll_server::kafka::batch::Producer;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use rand::Rng;

use crate::broker::{Broker, Cleanup, Produced, Wanted, timestamp};
use crate::model::{Gone, Partition, Shown};
use crate::world::{Faulty, World};

const PARTITIONS_MAX: usize = 5;
const GROUPS: u32 = 2;
const RETENTION_BYTES: Range<u64> = 300..3_000;

impl World {
    /// One thing that a client does.
    #[expect(
        clippy::disallowed_methods,
        reason = "time passes, of which nothing depends on how much"
    )]
    pub(crate) fn step(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        if self.model.topics.values().all(|topic| topic.counts.iter().all(|count| *count == 0)) {
            return self.create(broker);
        }
        let from = match (self.has_changes, self.has_trims) {
            (true, _) => 0,
            (false, true) => 5,
            (false, false) => 7,
        };
        match self.rng.random_range(from..47) {
            0..=1 => self.create(broker),
            2 => self.grow(broker),
            3 => self.delete(broker),
            4 => self.alter(broker),
            5..=6 => self.trim(broker),
            7..=28 => self.produce(broker),
            29..=31 => self.send_again(broker),
            32..=35 => self.look(broker),
            36..=37 => self.look_from(broker),
            38..=39 => self.at_time(broker),
            40..=43 => self.commit(broker),
            44..=45 => self.committed(broker),
            _ => {
                // Syncs in the background have their time.
                thread::sleep(Duration::from_millis(self.rng.random_range(0..8)));
                Ok(())
            }
        }
    }

    fn create(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((name, _)) = self.draw_topic(|count| count == 0) else { return Ok(()) };
        let wanted = Wanted {
            partitions: self.rng.random_range(1..=3),
            is_durable: self.rng.random_ratio(1, 3),
            cleanup: self.cleanup(),
        };
        self.model.allow(&name, wanted.cleanup);
        self.model.change(&name, wanted.partitions);
        let topic = self.model.topics.get_mut(&name).expect("it was drawn");
        topic.is_durable = wanted.is_durable;
        let is_done = broker.create(&name, wanted);
        self.unless_faulty(is_done.then_some(()), "a creation")?;
        self.model.is(&name, wanted.partitions);
        self.model.set(&name, wanted.cleanup);
        Ok(())
    }

    fn cleanup(&mut self) -> Cleanup {
        let policies = ["delete", "delete", "compact", "compact", "compact,delete"];
        let policy = policies[self.rng.random_range(0..policies.len())];
        let delete_retention_ms = [0, 20, 3_600_000][self.rng.random_range(0..3)];
        let has_bytes = self.rng.random_ratio(1, 3);
        let retention_bytes = has_bytes.then(|| self.rng.random_range(RETENTION_BYTES));
        Cleanup { policy, delete_retention_ms, retention_bytes }
    }

    /// Another policy from here on. What was allowed before may have been done.
    fn alter(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((name, _)) = self.draw_topic(|count| count > 0) else { return Ok(()) };
        let cleanup = self.cleanup();
        self.model.allow(&name, cleanup);
        let is_done = broker.alter(&name, cleanup);
        self.unless_faulty(is_done.then_some(()), "other settings")?;
        self.model.set(&name, cleanup);
        self.saw("settings changed");
        Ok(())
    }

    fn grow(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((name, count)) = self.draw_topic(|n| (1..PARTITIONS_MAX).contains(&n)) else {
            return Ok(());
        };
        self.model.change(&name, count + 1);
        let is_done = broker.grow(&name, count + 1);
        self.unless_faulty(is_done.then_some(()), "a growth")?;
        self.model.is(&name, count + 1);
        Ok(())
    }

    fn delete(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((name, _)) = self.draw_topic(|count| count > 0) else { return Ok(()) };
        if self.rng.random() {
            self.produce(broker)?;
        }
        let mut chapters = broker.node().shards().into_iter().filter_map(|shard| shard.chapters);
        if chapters.any(|chapters| chapters.waiting > 0) {
            self.saw("a topic deleted while chapters wait");
        }
        self.model.change(&name, 0);
        let is_done = broker.delete(&name);
        self.unless_faulty(is_done.then_some(()), "a deletion")?;
        self.model.is(&name, 0);
        self.forget(&name);
        Ok(())
    }

    /// Batches for some partitions, in one request.
    pub(crate) fn produce(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        self.turn += 1;
        let mut all: Vec<Produced> = Vec::new();
        for _ in 0..self.rng.random_range(1..=3) {
            let Some((topic, partition)) = self.draw_partition() else { continue };
            if all.iter().any(|one| (&one.topic, one.partition) == (&topic, partition)) {
                continue;
            }
            let producer = match self.rng.random_ratio(1, 2) {
                true => Some(self.producer(broker, &topic, partition)?),
                false => None,
            };
            let first = self.turn * 100 + 10 * all.len() as u64;
            let records = (first..first + self.rng.random_range(1..=3)).collect();
            let compression = match self.rng.random_ratio(1, 3) {
                true => Compression::ALL[self.rng.random_range(1..Compression::ALL.len())],
                false => Compression::None,
            };
            all.push(Produced { topic, partition, records, producer, compression });
        }
        if all.is_empty() { Ok(()) } else { self.send(broker, &all, false) }
    }

    /// A producer that heard nothing sends again; and so does one that did.
    fn send_again(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let sure = self.last_sent.values().filter(|one| self.is_sure(&one.topic));
        let sure: Vec<_> = sure.cloned().collect();
        if sure.is_empty() {
            return Ok(());
        }
        let one = sure[self.rng.random_range(0..sure.len())].clone();
        self.saw("a batch sent again");
        self.send(broker, &[one], true)
    }

    fn send(&mut self, broker: &mut Broker, all: &[Produced], again: bool) -> Result<(), Faulty> {
        let mut before = Vec::new();
        for one in all {
            let turn = self.turn;
            let partition = self.known(&one.topic, one.partition);
            before.push(partition.clone());
            one.records.iter().for_each(|record| partition.send(*record, turn));
            if one.producer.is_some() {
                self.last_sent.insert((one.topic.clone(), one.partition), one.clone());
            }
        }
        let told = broker.produce(all);
        let told = self.unless_faulty(told, "a batch")?;
        for ((one, told), before) in all.iter().zip(told).zip(before) {
            let place = (one.topic.clone(), one.partition);
            let is_refused = told == Err(ErrorCode::InvalidRecord);
            if is_refused || told.is_ok() {
                let may = self.model.topics[&one.topic].may_answer(&one.records, is_refused);
                assert!(may, "{one:?}: {told:?}, and it has its keys or is not compacted");
            }
            if is_refused {
                *self.known(&one.topic, one.partition) = before;
                self.last_sent.remove(&place);
                self.saw("a record without a key refused");
                continue;
            }
            // What came before it was lost.
            if again && told == Err(ErrorCode::OutOfOrderSequenceNumber) {
                self.saw("a batch out of order");
                continue;
            }
            let Ok(base_offset) = told else {
                self.producers.remove(&place);
                self.unless_faulty(None::<()>, &format!("{one:?}: {told:?}")).ok();
                continue;
            };
            let partition = self.known(&one.topic, one.partition);
            for (offset, record) in (base_offset..).zip(&one.records) {
                partition.acknowledge(*record, offset);
            }
            let producer = self.producers.get_mut(&place);
            if let Some(producer) = producer.filter(|_| one.producer.is_some() && !again) {
                producer.base_sequence += i32::try_from(one.records.len()).expect("few");
            }
        }
        Ok(())
    }

    /// A producer of this partition, and the number of its next record.
    fn producer(
        &mut self,
        broker: &mut Broker,
        topic: &str,
        partition: usize,
    ) -> Result<Producer, Faulty> {
        let place = (topic.to_owned(), partition);
        if let Some(producer) = self.producers.get(&place) {
            return Ok(*producer);
        }
        let id = broker.producer();
        let id = self.unless_faulty(id, "an id")?;
        assert!(self.ids.insert(id), "two producers have the id {id}");
        let producer = Producer { id, epoch: 0, base_sequence: 0 };
        self.producers.insert(place, producer);
        Ok(producer)
    }

    /// Deletes records from the front of a partition.
    pub(crate) fn trim(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let end = self.known(&topic, number).end();
        // At times beyond what anybody knows of.
        let beyond = i64::from(self.rng.random_ratio(1, 8));
        let offset = self.rng.random_range(0..=end + beyond);
        let before = self.known(&topic, number).clone();
        self.known(&topic, number).trim(offset, false);
        let told = broker.delete_records(&topic, number, offset);
        if told == Some(Err(ErrorCode::PolicyViolation)) {
            assert!(before.has_been_compacted(), "{topic} is not only compacted");
            *self.known(&topic, number) = before;
            self.saw("a deletion of compacted records refused");
            return Ok(());
        }
        if offset > end && told == Some(Err(ErrorCode::OffsetOutOfRange)) {
            return Ok(());
        }
        let start = self.unless_faulty(told.and_then(Result::ok), "a deletion of records")?;
        assert!(start >= offset, "{topic}-{number} begins at {start}, below {offset}");
        self.known(&topic, number).trim(offset, true);
        self.saw("records deleted");
        Ok(())
    }

    fn look(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let shown = broker.look(&topic, number);
        let shown = self.unless_faulty(shown, "a look")?;
        self.seen(&topic, number, &shown);
        Ok(())
    }

    fn look_from(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let end = self.known(&topic, number).end();
        let (from, nth) = (self.rng.random_range(0..=end), self.rng.random_range(0..3));
        let shown = broker.look_from(&topic, number, from, [1, 500, 1 << 20][nth]);
        let shown = self.unless_faulty(shown, "a look from the middle")?;
        self.saw(if shown.from == from { "a look from the middle" } else { "a look too early" });
        self.seen(&topic, number, &shown);
        Ok(())
    }

    /// Asks for the first record of a time, and looks what it is.
    fn at_time(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let at = timestamp(100 * self.rng.random_range(0..=self.turn + 1));
        let told = broker.at_time(&topic, number, at);
        let told = self.unless_faulty(told, "an offset by time")?;
        let shown = broker.look(&topic, number);
        let shown = self.unless_faulty(shown, "a look")?;
        self.known(&topic, number).at_time(at, told, &shown);
        self.saw(if told.is_some() { "an offset by time" } else { "no offset of a time" });
        self.seen(&topic, number, &shown);
        Ok(())
    }

    /// What is shown is held against the model.
    pub(crate) fn seen(&mut self, topic: &str, number: usize, shown: &Shown) {
        let gone = self.known(topic, number).look(shown);
        self.saw_gone(gone);
        if shown.is_settled && !shown.records.is_empty() {
            self.saw("read from a chapter");
        }
    }

    /// What is gone, and was not deleted.
    pub(crate) fn saw_gone(&mut self, gone: Gone) {
        for (what, count) in [
            ("retention.bytes deleted", gone.expired),
            ("a record compacted", gone.compacted),
            ("a tombstone gone", gone.tombstones),
        ] {
            if count > 0 {
                self.saw(what);
            }
        }
    }

    fn commit(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let (group, offset) = (self.rng.random_range(0..GROUPS), self.rng.random_range(0..1_000));
        let at = (group, topic.clone(), number);
        self.model.commit(at.clone(), offset, false);
        let is_done = broker.commit(group, &topic, number, offset);
        self.unless_faulty(is_done.then_some(()), "a commit")?;
        self.model.commit(at, offset, true);
        Ok(())
    }

    fn committed(&mut self, broker: &mut Broker) -> Result<(), Faulty> {
        let Some((topic, number)) = self.draw_partition() else { return Ok(()) };
        let group = self.rng.random_range(0..GROUPS);
        let told = broker.committed(group, &topic, number);
        let offset = self.unless_faulty(told, "an offset")?;
        self.model.committed(&(group, topic, number), offset, false);
        Ok(())
    }

    /// A disk that works does what is asked.
    pub(crate) fn unless_faulty<T>(&mut self, told: Option<T>, what: &str) -> Result<T, Faulty> {
        assert!(told.is_some() || self.is_faulty, "{what} is refused, and the disk is good");
        self.saw(if told.is_some() { "requests done" } else { "requests not done" });
        told.ok_or(Faulty)
    }

    /// A topic of which it is known how many partitions it has: so many.
    fn draw_topic(&mut self, fits: impl Fn(usize) -> bool) -> Option<(String, usize)> {
        let counts = self.model.topics.iter().filter_map(|(name, topic)| {
            let count = *topic.counts.first().filter(|_| topic.counts.len() == 1)?;
            fits(count).then(|| (name.clone(), count))
        });
        let fitting: Vec<_> = counts.collect();
        (!fitting.is_empty()).then(|| fitting[self.rng.random_range(0..fitting.len())].clone())
    }

    fn draw_partition(&mut self) -> Option<(String, usize)> {
        let (topic, count) = self.draw_topic(|count| count > 0)?;
        Some((topic, self.rng.random_range(0..count)))
    }

    pub(crate) fn known(&mut self, topic: &str, number: usize) -> &mut Partition {
        let topic = self.model.topics.get_mut(topic).expect("it was drawn");
        topic.partitions.get_mut(&number).expect("it was drawn")
    }

    fn is_sure(&self, topic: &str) -> bool {
        self.model.topics[topic].counts.len() == 1
    }

    /// Nobody sends again to a topic that is gone.
    pub(crate) fn forget(&mut self, topic: &str) {
        self.producers.retain(|(name, _), _| name != topic);
        self.last_sent.retain(|(name, _), _| name != topic);
    }
}
