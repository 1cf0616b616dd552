//! A bit of a chapter's file is another one after the last life: whoever reads that run gets an error, whoever reads
//! another gets all of it, and where nobody can tell whose it is the broker does not start, and names the file.

use std::error::Error;
use std::thread;
use std::time::Duration;

use plimsoll_server::broker::{Failed, Options};
use plimsoll_server::chapter::{Chapter, Manifest};
use plimsoll_sync::{Access, Dir};
use rand::Rng;

use crate::broker::{Broker, Damage};
use crate::world::World;

/// Bytes that a file has for each block of a run, for each run, and at its end.
const BLOCK_BYTES: u64 = 56;
const ROW_BYTES: u64 = 128;
const FOOTER_BYTES: u64 = 128;
/// Starts after a flip: what it found in chapters the first may write again.
const STARTS: u32 = 2;

/// What a flipped bit is of.
enum Flipped {
    /// Nothing that anybody reads.
    Nothing,
    Run(Damage),
    /// What says where all else is, of the file of this name.
    Head(String),
}

impl World {
    /// Ends in order once more, and flips a bit of what is there.
    pub(crate) fn flip(&mut self) {
        let options = self.options();
        (self.is_faulty, self.has_failures) = (false, false);
        self.knowledge.opens(options.memory.is_some());
        let mut broker = Broker::start(&self.disk, options.clone()).unwrap();
        assert!(self.start(&mut broker).is_ok());
        for _ in 0..self.rng.random_range(0..20) {
            assert!(self.produce(&mut broker).is_ok());
        }
        self.rest();
        broker.stop().close().unwrap();
        let flipped = self.flip_bit();
        self.saw(match &flipped {
            Flipped::Nothing => "a flip that nobody notices",
            Flipped::Run(_) => "a run that is damaged",
            Flipped::Head(_) => "a file that is damaged",
        });
        for _ in 0..STARTS {
            self.start_damaged(&options, &flipped);
        }
    }

    /// What goes on in the background goes on, at times.
    #[expect(
        clippy::disallowed_methods,
        reason = "time passes, of which nothing depends on how much"
    )]
    fn rest(&mut self) {
        if self.rng.random() {
            thread::sleep(Duration::from_millis(self.rng.random_range(0..400)));
        }
    }

    /// Of one of the files, where there is one.
    fn flip_bit(&mut self) -> Flipped {
        let mut files = Vec::new();
        for shard in 2..=3 {
            let dir = self.disk.open_dir(&format!("chapters-{shard}")).unwrap();
            let named = Manifest::read(&*dir, shard).unwrap().files;
            files.extend(named.into_iter().map(|named| (shard, named)));
        }
        if files.is_empty() {
            return Flipped::Nothing;
        }
        let (shard, named) = files.swap_remove(self.rng.random_range(0..files.len()));
        let dir = self.disk.open_dir(&format!("chapters-{shard}")).unwrap();
        let file = dir.open(&named.name(), Access::default()).unwrap();
        let chapter = Chapter::open(&named.name(), file.clone()).unwrap();
        let runs: Vec<_> = (0..).zip(chapter.runs().unwrap()).collect();
        let (blocks_at, runs_at) = (chapter.footer().blocks_at, chapter.footer().runs_at);
        let length = file.len().unwrap();
        let at = match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..length),
            1 => self.rng.random_range(runs_at..length),
            2 => self.rng.random_range(blocks_at..runs_at),
            // Of a run, however small it is.
            _ => {
                let (_, run) = runs[self.rng.random_range(0..runs.len())];
                self.rng.random_range(run.place..run.place + run.bytes)
            }
        };
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ (1 << self.rng.random_range(0..8))], at).unwrap();

        let of = runs.iter().find(|(number, run)| {
            let row = runs_at + u64::from(*number) * ROW_BYTES;
            let blocks = blocks_at + run.first_block * BLOCK_BYTES;
            let blocks = blocks..blocks + u64::from(run.blocks) * BLOCK_BYTES;
            let places = [run.place..run.place + run.bytes, blocks, row..row + ROW_BYTES];
            places.iter().any(|place| place.contains(&at))
        });
        // The table says what fences do.
        let fences_at = runs_at + runs.len() as u64 * ROW_BYTES;
        match of {
            Some((number, _)) if named.gone.has(*number) => Flipped::Nothing,
            Some((_, run)) => Flipped::Run(Damage {
                shard,
                partition: run.opening.partition.number as usize,
                offsets: run.base_offset..run.end_offset,
                is_endless: at >= runs_at,
                topics: [].into(),
            }),
            None if (fences_at..length - FOOTER_BYTES).contains(&at) => Flipped::Nothing,
            None => Flipped::Head(named.name()),
        }
    }

    fn start_damaged(&mut self, options: &Options, flipped: &Flipped) {
        let broker = Broker::start(&self.disk, options.clone());
        let damage = match flipped {
            Flipped::Nothing => None,
            Flipped::Run(damage) => Some(damage.clone()),
            Flipped::Head(name) => {
                let why =
                    broker.err().map(|why| said(&why)).expect("which run it is of nobody knows");
                return assert!(why.contains(name), "{name} is not named: {why}");
            }
        };
        let mut broker = broker.unwrap();
        broker.damage = damage;
        self.look_at_all(&mut broker);
        self.rest();
        self.look_at_all(&mut broker);
        if let Some(damage) = broker.damage.take() {
            // It may have expired, and of those that begin as it does one alone is damaged.
            assert!(damage.topics.len() <= 1, "{damage:?}");
            self.saw(if damage.topics.is_empty() { "damage that is gone" } else { "damage met" });
        }
        broker.stop().close().unwrap();
    }

    /// All that can be read is what was written; of what cannot it is taken that it would be.
    fn look_at_all(&mut self, broker: &mut Broker) {
        for topic in broker.node().topics() {
            for number in 0..topic.partitions {
                let name = &topic.name;
                let mut shown = broker.look(name, number).expect("all that is good can be read");
                let partition = self.known(name, number);
                if let Some(damage) = broker.damage.as_ref().filter(|it| it.topics.contains(name))
                    && damage.partition == number
                {
                    partition.assume(damage.offsets.clone(), &mut shown);
                }
                partition.look(&shown);
            }
        }
    }
}

/// An error and why, as they are told.
fn said(why: &Failed) -> String {
    let mut said = why.to_string();
    let mut source = why.source();
    while let Some(why) = source {
        said = format!("{said}: {why}");
        source = why.source();
    }
    said
}
