//! [`Survey`]: the chapters of a shard looked at from outside, whether a node has them open or not. Nothing is changed.
//!
//! A node that runs may replace the manifest meanwhile, and take files away: then it is read again. What was opened
//! can be read for as long.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use bytes::Bytes;
use plimsoll_sync::{Dir, SyncMethod};

use super::error::Error;
use super::format::{Block, Run};
use super::manifest::{Manifest, Named};
use super::ranges::Ranges;
use super::reader::Chapter;
use crate::kafka::batch;
use crate::shard::{Batch, Partition, State};

/// How often a manifest that changes is read, before what it names is missing.
const READS_MAX: u32 = 100;
/// Blocks of a run whose fields are read at once.
const BLOCKS: u32 = 1024;
/// Bytes of batches that are read at once; where some of them are not what was written, block by block.
const PIECE_BYTES: u64 = 1 << 20;

/// The chapters of a shard, as they lie on the disk.
#[derive(Debug, Default)]
pub struct Survey {
    /// Which files are to be there.
    pub manifest: Manifest,
    /// These, in the order of their chapters.
    pub files: Vec<Found>,
    /// Files of chapters that the manifest does not name: of one that is being written, was not settled, or was freed.
    pub strays: Vec<String>,
}

/// What there is of a file that the manifest names.
#[derive(Debug)]
pub struct Found {
    /// As it is named.
    pub named: Named,
    /// The file, or why it is not what is named.
    pub opened: Result<Opened, Error>,
}

/// A file that says what it holds.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub chapter: Chapter,
    /// Its runs, in their order.
    pub runs: Vec<Run>,
    /// Whether it is read past the page cache.
    pub is_past_cache: bool,
    /// Their numbers in the file.
    numbers: Vec<u32>,
    /// Which of them are not read any more, as the manifest says.
    gone: Ranges,
}

/// Offsets of a run that are not what they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// The first.
    pub from: i64,
    /// The last.
    pub last: i64,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The hash of a block.
    #[error("other bytes than were written")]
    Block,
    /// The disk gave an error in place of bytes.
    #[error("the disk cannot read it")]
    Unreadable,
    /// A block has its hash, and a batch in it not its own checksum, or no sense.
    #[error("a batch that was damaged before it was written there: {0}")]
    Batch(batch::Wrong),
    /// A batch has offsets that were before, or lie outside of the run.
    #[error("offsets that do not follow")]
    Offsets,
    /// Each block has its hash, and together they are not the run.
    #[error("blocks that are not the run's")]
    Blocks,
}

impl Survey {
    /// Looks at the chapters of a shard in their directory.
    ///
    /// # Errors
    /// [`Error::File`]: the manifest is damaged. What is wrong with a file stands at that.
    pub fn of(dir: &dyn Dir, shard: u32) -> Result<Self, Error> {
        Self::beside(dir, dir, shard)
    }

    /// Looks at all files that say what they hold, whatever the manifest says: runs of them may be gone, which shows when they are
    /// verified.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub(crate) fn of_files(dir: &dyn Dir) -> Result<Self, Error> {
        let files = dir.list()?.into_iter().filter_map(|name| {
            let number = name.strip_suffix(".chapter")?.parse().ok()?;
            let opened = Opened::of(dir, &name).ok()?;
            let footer = opened.chapter.footer();
            let (bytes, checksum) = (footer.file_bytes, footer.checksum());
            let named = Named { number, bytes, checksum, gone: Ranges::default() };
            Some(Found { named, opened: Ok(opened) })
        });
        Ok(Self { manifest: Manifest::default(), files: files.collect(), strays: Vec::new() })
    }

    /// The same, where the manifest is in a directory of its own, as in a backup.
    ///
    /// # Errors
    /// As [`Survey::of`].
    pub fn beside(manifests: &dyn Dir, dir: &dyn Dir, shard: u32) -> Result<Self, Error> {
        let mut manifest = Manifest::look(manifests, shard)?;
        for reads_left in (0..READS_MAX).rev() {
            let files = manifest.files.iter().map(|named| Found::of(dir, shard, named.clone()));
            let files: Vec<Found> = files.collect::<Result<_, _>>()?;
            let names = dir.list()?;
            let newer = Manifest::look(manifests, shard)?;
            let is_missing =
                files.iter().any(|found| matches!(found.opened, Err(Error::Missing { .. })));
            if is_missing && newer != manifest && reads_left > 0 {
                manifest = newer;
                continue;
            }
            let named: BTreeSet<String> =
                manifest.files.iter().chain(&newer.files).map(Named::name).collect();
            let is_stray = |name: &String| name.ends_with(".chapter") && !named.contains(name);
            let strays = names.into_iter().filter(is_stray).collect();
            return Ok(Self { manifest, files, strays });
        }
        unreachable!("the last time is not tried again")
    }
}

impl Found {
    fn of(dir: &dyn Dir, shard: u32, named: Named) -> Result<Self, Error> {
        let opened = Opened::by(dir, &named.name(), SyncMethod::ORDINARY, &named.gone);
        match Self::from(opened, shard, named) {
            Self { opened: Err(error @ Error::Disk(_)), .. } => Err(error),
            found => Ok(found),
        }
    }

    /// The same, read past the page cache; what the disk cannot read is wrong with the file too.
    pub(super) fn past_cache(dir: &dyn Dir, shard: u32, named: Named) -> Self {
        Self::from(Opened::past_cache(dir, &named), shard, named)
    }

    fn from(opened: Result<Opened, Error>, shard: u32, named: Named) -> Self {
        let opened = opened.and_then(|opened| {
            let footer = opened.chapter.footer();
            let is_it = (footer.checksum(), footer.file_bytes) == (named.checksum, named.bytes)
                && opened.chapter.shard() == shard;
            let missing = Error::Missing { file: named.name() };
            if is_it { Ok(opened) } else { Err(missing) }
        });
        Self { named, opened }
    }
}

impl Opened {
    /// The file of this name, if it says what it holds.
    ///
    /// # Errors
    /// [`Error::Missing`]: there is none. [`Error::File`]: it is no chapter, or does not say what it holds.
    pub fn of(dir: &dyn Dir, name: &str) -> Result<Self, Error> {
        Self::by(dir, name, SyncMethod::ORDINARY, &Ranges::default())
    }

    /// The same, read past the page cache where its filesystem has a way: what is in memory may be good, and what is on
    /// the disk not.
    fn past_cache(dir: &dyn Dir, named: &Named) -> Result<Self, Error> {
        let by = |method| Self::by(dir, &named.name(), method, &named.gone);
        match by(SyncMethod::Direct) {
            // Whatever the reason was: it shows again, or there is no such way.
            Err(Error::Disk(_)) => by(SyncMethod::ORDINARY),
            opened => opened.map(|opened| Self { is_past_cache: true, ..opened }),
        }
    }

    fn by(dir: &dyn Dir, name: &str, method: SyncMethod, gone: &Ranges) -> Result<Self, Error> {
        let file = dir.open(name, method.access()).map_err(|error| {
            let is_missing = error.kind() == Some(ErrorKind::NotFound);
            if is_missing { Error::Missing { file: name.to_owned() } } else { error.into() }
        })?;
        let chapter = Chapter::open(name, file)?;
        let (numbers, runs) = match chapter.runs() {
            Ok(runs) => ((0..chapter.footer().runs).collect(), runs),
            // One that was healed elsewhere may be what is damaged.
            Err(_) if gone.count() > 0 => chapter.living(gone)?.into_iter().unzip(),
            Err(why) => return Err(why),
        };
        Ok(Self { chapter, runs, numbers, is_past_cache: false, gone: gone.clone() })
    }

    /// Whether a run of it is gone, or deleted by this state, which is durable: a node frees it then, and nobody reads it.
    /// What the state does not know yet is not.
    #[must_use]
    pub fn is_deleted(&self, run: &Run, state: Option<&State>) -> bool {
        if self.is_gone(run, &self.gone) {
            return true;
        }
        let Some(state) = state else { return false };
        let start = state.partition(run.opening).map_or(i64::MAX, Partition::start);
        self.chapter.footer().last_index <= state.applied() && run.end_offset <= start
    }

    /// Whether a run of it is among these.
    pub(super) fn is_gone(&self, run: &Run, gone: &Ranges) -> bool {
        let place = self.runs.binary_search_by_key(&run.key(), Run::key).ok();
        place.is_some_and(|place| gone.has(self.numbers[place]))
    }

    /// Reads all of a run, and holds each batch against its own checksum too, as a second witness. What is damaged, in
    /// order; nothing if all of it is as it was written. `goes_on` is told how many bytes were read, piece by piece.
    ///
    /// # Errors
    /// [`Error::Stopped`], as `goes_on` said no.
    pub fn examine(
        &self,
        run: &Run,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<Vec<Damage>, Error> {
        let mut examined = Examined { run, next: run.base_offset, damage: Vec::new() };
        let mut all: Vec<Block> = Vec::new();
        while all.len() < run.blocks as usize {
            let number = u32::try_from(all.len()).expect("a run counts its blocks in 32 bits");
            // With the one behind them, which says where the last of them ends.
            let Ok(mut blocks) = self.chapter.blocks(run, number, BLOCKS + 1) else {
                examined.miss(run.end_offset, Why::Unreadable);
                return Ok(examined.damage);
            };
            let of_these = blocks.len().min(BLOCKS as usize);
            let mut from = 0;
            while from < of_these {
                let some = within(&blocks[from..of_these], PIECE_BYTES);
                let piece = &blocks[from..from + some];
                match self.chapter.verified(run, &blocks[from..], some) {
                    Ok(batches) => examined.take(&batches),
                    Err(_some_of_it) => self.examine_each(&mut examined, &blocks[from..], some),
                }
                let bytes: u64 = piece.iter().map(|block| u64::from(block.bytes)).sum();
                if !goes_on(bytes.min(run.bytes)) {
                    return Err(Error::Stopped);
                }
                from += some;
            }
            blocks.truncate(of_these);
            all.extend(blocks);
        }
        if examined.damage.is_empty() && !is_run(run, &all) {
            examined.note(run.base_offset, run.end_offset, Why::Blocks);
        }
        Ok(examined.damage)
    }

    /// The same of the first of these blocks, each by itself.
    fn examine_each(&self, examined: &mut Examined<'_>, blocks: &[Block], some: usize) {
        let run = examined.run;
        for (nth, block) in blocks[..some].iter().enumerate() {
            let end = blocks.get(nth + 1).map_or(run.end_offset, |next| next.base_offset);
            // One that cannot be read whole: nothing of the others is asked for.
            match self.chapter.verified(run, &[*block], 1) {
                Ok(batches) => examined.take(&batches),
                Err(Error::Disk(_)) => examined.miss(end, Why::Unreadable),
                Err(_other_bytes) => examined.miss(end, Why::Block),
            }
        }
    }
}

/// A run that is read.
struct Examined<'a> {
    run: &'a Run,
    /// The offset behind what was read.
    next: i64,
    damage: Vec<Damage>,
}

impl Examined<'_> {
    /// Takes the batches of a block that is what was written.
    fn take(&mut self, batches: &[Bytes]) {
        for bytes in batches {
            let read = Batch::read(bytes).expect("it was verified");
            let end = read.end().unwrap_or(i64::MAX);
            match batch::Batch::take(&mut bytes.clone()) {
                _ if read.base_offset < self.next || end > self.run.end_offset => {
                    self.miss(end, Why::Offsets);
                }
                Ok(_) => self.next = end,
                Err(wrong) => {
                    self.next = read.base_offset;
                    self.miss(end, Why::Batch(wrong));
                }
            }
        }
    }

    /// Notes what is not as it was written, up to this offset: a block ends where the next one says that it begins.
    fn miss(&mut self, end: i64, why: Why) {
        // What the index says of offsets may be what is damaged.
        let from = self.next.min(self.run.end_offset - 1);
        let end = end.clamp(from + 1, self.run.end_offset);
        self.note(from, end, why);
        self.next = end;
    }

    fn note(&mut self, from: i64, end: i64, why: Why) {
        match self.damage.last_mut() {
            Some(last) if last.why == why && last.last + 1 == from => last.last = end - 1,
            _ => self.damage.push(Damage { from, last: end - 1, why }),
        }
    }
}

/// How many of these blocks, the first, have so many bytes at most: at least one.
fn within(blocks: &[Block], bytes_max: u64) -> usize {
    let bytes = blocks.iter().scan(0_u64, |bytes, block| {
        *bytes += u64::from(block.bytes);
        Some(*bytes)
    });
    bytes.take_while(|bytes| *bytes <= bytes_max).count().max(1)
}

/// Whether these blocks, each of which has its hash, are all of a run.
fn is_run(run: &Run, blocks: &[Block]) -> bool {
    let mut end = 0;
    let follow = blocks.iter().all(|block| {
        let follows = block.place == end;
        end += u64::from(block.bytes);
        follows
    });
    follow && end == run.bytes && Run::hash_of(blocks) == run.hash
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::{Access, File, Lock};

    use super::*;
    use crate::chapter::{MANIFEST, Plan, Shelf};
    use crate::kafka::compression::Compression;
    use crate::kafka::records;
    use crate::shard::{Draft, Ended, Opening, PartitionId, Point, TopicId};

    pub(in crate::chapter) const SHARD: u32 = 2;

    fn opening() -> Opening {
        Opening { partition: PartitionId { topic: TopicId([7; 16]), number: 3 }, number: 1 }
    }

    /// A batch of two records, larger than half a block.
    pub(in crate::chapter) fn batch(fill: u8) -> Vec<u8> {
        let mut draft = records::Draft::default();
        for _ in 0..2 {
            draft.push(1000, None, Some(&[fill; 10 << 10]), &[]);
        }
        draft.batch(Compression::None, None).pieces().concat()
    }

    /// Settles a chapter of these batches, one an entry.
    pub(in crate::chapter) fn settle(dir: &Arc<SimDir>, chapter: u64, batches: &[Vec<u8>]) {
        let shelf = Shelf::open(Arc::clone(dir) as _, SHARD).unwrap();
        let first_index = shelf.settled().end + 1;
        let index = |number: usize| first_index + number as u64;
        let base_offset = |number: usize| i64::try_from(2 * index(number)).unwrap();
        let points = batches.iter().enumerate().map(|(number, batch)| Point {
            base_offset: base_offset(number),
            max_timestamp: 1000,
            time: 1,
            index: index(number),
            bytes: batch.len().try_into().unwrap(),
            item: 0,
        });
        let ended = Ended { chapter, end: index(batches.len()), time: 5 };
        let plan = Plan { ended, first_index, runs: vec![(opening(), points.collect())] };
        let written = shelf.settle(plan, |mut writer| {
            for (number, batch) in batches.iter().enumerate() {
                let mut entry = Draft::new();
                entry.push_batch(opening(), base_offset(number), 0, batch);
                writer.take(index(number), &entry.finish(1))?;
            }
            writer.finish()
        });
        written.unwrap();
    }

    fn only(dir: &SimDir) -> Opened {
        Survey::of(dir, SHARD).unwrap().files.remove(0).opened.unwrap()
    }

    fn damage(opened: &Opened) -> Vec<Damage> {
        opened.examine(&opened.runs[0], |_| true).unwrap()
    }

    pub(in crate::chapter) fn flip(dir: &SimDir, at: u64) {
        let file = dir.open("00000000.chapter", Access::default()).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1], at).unwrap();
    }

    #[test]
    fn each_flipped_byte_of_a_run_is_found_where_it_is() {
        let dir = Arc::new(SimDir::new());
        let batches: Vec<_> = (0..4).map(batch).collect();
        settle(&dir, 1, &batches);
        let opened = only(&dir);
        assert_eq!(damage(&opened), []);
        let (run, bytes) = (opened.runs[0], batches[0].len() as u64);
        assert_eq!((run.blocks, run.base_offset, run.end_offset), (4, 2, 10));
        for at in (0..run.bytes).step_by(997) {
            flip(&dir, run.place + at);
            let from = 2 + 2 * i64::try_from(at / bytes).unwrap();
            assert_eq!(damage(&opened), [Damage { from, last: from + 1, why: Why::Block }]);
            flip(&dir, run.place + at);
        }
        let blocks_at = opened.chapter.footer().blocks_at;
        for at in blocks_at..opened.chapter.footer().runs_at {
            flip(&dir, at);
            let found = damage(&opened);
            // That the next one begins elsewhere is said of that one.
            let of = 2 + 2 * i64::try_from((at - blocks_at) / 56).unwrap();
            let is_of = |damage: &Damage| damage.from <= of + 1 && damage.last >= of;
            assert!(found.iter().any(is_of), "byte {at}: {found:?}");
            flip(&dir, at);
        }
        assert_eq!(damage(&opened), []);
    }

    /// The hash of a block says that it is what was read from the log, and no more.
    #[test]
    fn a_batch_that_was_damaged_before_it_was_settled_is_found_by_its_own_checksum() {
        let dir = Arc::new(SimDir::new());
        let mut batches: Vec<_> = (0..3).map(batch).collect();
        *batches[1].last_mut().unwrap() ^= 1;
        settle(&dir, 1, &batches);
        let found = damage(&only(&dir));
        let [Damage { from: 4, last: 5, why: Why::Batch(batch::Wrong::Checksum { .. }) }] =
            found[..]
        else {
            panic!("{found:?}");
        };
    }

    #[test]
    fn what_the_disk_cannot_read_is_named_and_the_rest_is_read_on() {
        let dir = Arc::new(SimDir::new());
        settle(&dir, 1, &(0..4).map(batch).collect::<Vec<_>>());
        let opened = only(&dir);
        // Its blocks' fields, all of it at once, then each block.
        for nth in [2, 4] {
            dir.inject(Fault::new(Operation::Read, FaultKind::FailRaw(5)).nth(nth));
        }
        assert_eq!(damage(&opened), [Damage { from: 4, last: 5, why: Why::Unreadable }]);
        dir.inject(Fault::new(Operation::Read, FaultKind::FailRaw(5)));
        assert_eq!(damage(&opened), [Damage { from: 2, last: 9, why: Why::Unreadable }]);
    }

    #[test]
    fn who_is_told_to_stop_stops() {
        let dir = Arc::new(SimDir::new());
        settle(&dir, 1, &[batch(1), batch(2)]);
        let opened = only(&dir);
        let mut read = 0;
        let stopped = opened.examine(&opened.runs[0], |_| {
            read += 1;
            false
        });
        assert!(matches!(stopped, Err(Error::Stopped)));
        assert_eq!(read, 1);
    }

    #[test]
    fn a_look_changes_nothing_and_says_what_is_missing_and_what_is_astray() {
        let dir = Arc::new(SimDir::new());
        assert_eq!(Survey::of(&*dir, SHARD).unwrap().files.len(), 0, "no manifest, no file");
        settle(&dir, 1, &[batch(1)]);
        settle(&dir, 2, &[batch(2)]);
        for other in ["00000007.chapter", "manifest.new"] {
            dir.create(other, Access::default()).unwrap();
        }
        dir.remove("00000000.chapter").unwrap();
        let names = dir.list().unwrap();
        let survey = Survey::of(&*dir, SHARD).unwrap();
        assert_eq!(survey.manifest.settled.chapter, 2);
        assert!(matches!(&survey.files[0].opened, Err(Error::Missing { .. })));
        assert_eq!(survey.files[1].opened.as_ref().unwrap().runs.len(), 1);
        assert_eq!(survey.strays, ["00000007.chapter"]);
        assert_eq!(dir.list().unwrap(), names);
        // A file of another has the name.
        dir.rename("00000001.chapter", "00000000.chapter").unwrap();
        let survey = Survey::of(&*dir, SHARD).unwrap();
        let missing = |found: &Found| matches!(&found.opened, Err(Error::Missing { file }) if *file == found.named.name());
        assert!(survey.files.iter().all(missing));
    }

    /// A directory in which a node has merged files once somebody opens the first.
    #[derive(Debug)]
    struct Merging {
        before: Arc<SimDir>,
        manifest: Vec<u8>,
    }

    impl Dir for Merging {
        fn open(&self, name: &str, access: Access) -> plimsoll_sync::Result<Arc<dyn File>> {
            let is_there = self.list()?.iter().any(|name| name == "00000000.chapter");
            if name == "00000000.chapter" && is_there {
                let manifest = self.before.create("merged", Access::default())?;
                manifest.write_at(&self.manifest, 0)?;
                self.before.rename("merged", MANIFEST)?;
                self.before.remove(name)?;
            }
            self.before.open(name, access)
        }

        fn list(&self) -> plimsoll_sync::Result<Vec<String>> {
            self.before.list()
        }

        fn create(&self, name: &str, _: Access) -> plimsoll_sync::Result<Arc<dyn File>> {
            panic!("a look makes {name}")
        }

        fn rename(&self, from: &str, _: &str) -> plimsoll_sync::Result<()> {
            panic!("a look renames {from}")
        }

        fn remove(&self, name: &str) -> plimsoll_sync::Result<()> {
            panic!("a look removes {name}")
        }

        fn sync(&self) -> plimsoll_sync::Result<()> {
            panic!("a look syncs")
        }

        fn lock(&self, _: &str) -> plimsoll_sync::Result<Lock> {
            panic!("a look locks")
        }
    }

    #[test]
    fn a_manifest_that_is_replaced_meanwhile_is_read_again() {
        let before = Arc::new(SimDir::new());
        settle(&before, 1, &[batch(1)]);
        settle(&before, 2, &[batch(2)]);
        let mut manifest = Survey::of(&*before, SHARD).unwrap().manifest;
        manifest.files.remove(0);
        let dir = Merging { before, manifest: manifest.encode(SHARD) };
        let survey = Survey::of(&dir, SHARD).unwrap();
        assert_eq!(survey.manifest, manifest);
        let [Found { opened: Ok(opened), .. }] = &survey.files[..] else { panic!("{survey:?}") };
        assert_eq!(opened.chapter.footer().first_chapter, 2);
        assert_eq!(survey.strays, [""; 0]);
    }
}
