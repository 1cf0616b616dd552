//! [`Mirror`]: the runs of a shelf, copied into another directory: those that it lacks.
//!
//! A run is told by what it is, not by where it lies: its opening, its chapter, its hash, and when it was compacted first.
//! So what was copied once is not copied again, though the shelf has merged its files since. Bytes are copied, and
//! verified as they are: never linked. A broker gives the blocks of runs that are deleted back in place, and a file that
//! has a second name would lose them there too. A filesystem that can share blocks shares them between whole files only,
//! and those hold what is deleted.
//!
//! Files that are made stay when something fails later: the manifest that names them is written after each, in the
//! directory of the next generation, so that what was copied is found by whoever begins again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use plimsoll_sync::{Dir, SyncMethod};

use super::error::Error;
use super::format::Run;
use super::manifest::{Manifest, Named, Settled, name_of};
use super::merge::merge_while;
use super::ranges::Ranges;
use super::reader::Chapter;
use super::survey::{Opened, Survey};
use crate::shard::{Opening, State};

/// A file that is made has about so many bytes of batches: what is lost where its making is stopped.
const FILE_BYTES: u64 = 256 << 20;
/// Files with fewer are put together once there are so many.
const SMALL_BYTES: u64 = 8 << 20;
const SMALL_FILES: usize = 16;

/// What a run is, wherever it lies.
type Key = (Opening, u64, u64, u64);

fn key(run: &Run) -> Key {
    (run.opening, run.chapter, run.hash, run.compacted)
}

/// The runs that are to be there, and where they can be read.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) settled: Settled,
    runs: BTreeMap<(Opening, u64), (Arc<Chapter>, Run)>,
}

impl Wanted {
    /// What lives on a shelf that was looked at: of what its manifest names all that is not gone, nor deleted by this
    /// state, which is durable and older.
    ///
    /// # Errors
    /// A file does not say what it holds, or is missing.
    pub(crate) fn of(survey: Survey, state: Option<&State>) -> Result<Self, Error> {
        let mut wanted = Self { settled: survey.manifest.settled, runs: BTreeMap::new() };
        for found in survey.files {
            let opened = found.opened?;
            let is_live = |run: &&Run| !opened.is_deleted(run, state);
            let live: Vec<Run> = opened.runs.iter().filter(is_live).copied().collect();
            let chapter = Arc::new(opened.chapter);
            for run in live {
                // One that is in two files is read in the later.
                wanted.runs.insert(run.key(), (Arc::clone(&chapter), run));
            }
        }
        Ok(wanted)
    }

    /// Reads runs that are on this shelf too, and good there, there.
    pub(crate) fn prefer(&mut self, survey: Survey) {
        for opened in survey.files.into_iter().filter_map(|found| found.opened.ok()) {
            let runs = opened.runs.iter().filter(|run| !opened.is_deleted(run, None));
            let runs: Vec<Run> = runs.copied().collect();
            let chapter = Arc::new(opened.chapter);
            for run in runs {
                let same =
                    self.runs.get_mut(&run.key()).filter(|(_, there)| key(there) == key(&run));
                if let Some(same) = same.filter(|_| chapter.verify(&run).is_ok()) {
                    *same = (Arc::clone(&chapter), run);
                }
            }
        }
    }

    /// Whether it has this very run, in the file of this name.
    pub(crate) fn has(&self, file: &str, opening: Opening, from: i64) -> bool {
        let of_opening = self.runs.range((opening, 0)..=(opening, u64::MAX));
        let holds = |run: &Run| (run.base_offset..run.end_offset).contains(&from);
        of_opening.into_iter().any(|(_, (chapter, run))| chapter.name() == file && holds(run))
    }
}

/// Files of runs in a directory, as generations of manifests name them.
#[derive(Debug)]
pub(crate) struct Mirror {
    dir: Arc<dyn Dir>,
    shard: u32,
    next_file: u64,
    files: BTreeMap<u64, Held>,
    /// What there was when it was opened.
    before: HashSet<Key>,
}

/// A file that is there.
#[derive(Debug)]
struct Held {
    named: Named,
    chapter: Arc<Chapter>,
    runs: Vec<Run>,
    /// The finished generation names it: what is gone of it may have been given back.
    was_gone: Ranges,
}

/// What of the runs that are wanted was there, and what was not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// Runs that were there before.
    pub kept_runs: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Runs that were copied.
    pub copied_runs: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Runs that were there, and are not wanted any more.
    pub dropped_runs: u64,
}

impl Mirror {
    /// What a directory has: by the manifest of the generation that is finished, and by that of one which is not. A file
    /// that does not say what it holds is not counted: what was in it is copied again. Names that nobody names are
    /// taken away.
    ///
    /// # Errors
    /// The disk.
    pub(crate) fn open(
        dir: Arc<dyn Dir>,
        shard: u32,
        finished: &Manifest,
        begun: &Manifest,
    ) -> Result<Self, Error> {
        let next_file = finished.next_file.max(begun.next_file);
        let (files, before) = (BTreeMap::new(), HashSet::new());
        let mut mirror = Self { dir, shard, next_file, files, before };
        let all = begun.files.iter().chain(&finished.files);
        let all = all.map(|named| (named, named.gone.clone()));
        for (named, was_gone) in all {
            match Opened::of(&*mirror.dir, &named.name()) {
                Ok(opened) => {
                    let footer = opened.chapter.footer();
                    let found = (footer.checksum(), footer.file_bytes);
                    if found == (named.checksum, named.bytes) && opened.chapter.shard() == shard {
                        let (chapter, runs) = (Arc::new(opened.chapter), opened.runs);
                        let held = Held { named: named.clone(), chapter, runs, was_gone };
                        mirror.files.insert(named.number, held);
                    }
                }
                Err(why @ Error::Disk(_)) => return Err(why),
                Err(_damaged) => {}
            }
        }
        let named: BTreeSet<u64> =
            finished.files.iter().chain(&begun.files).map(|named| named.number).collect();
        let named: BTreeSet<String> = named.into_iter().map(name_of).collect();
        for name in mirror.dir.list()? {
            if name.ends_with(".chapter") && !named.contains(&name) {
                mirror.dir.remove(&name)?;
            }
        }
        mirror.before = mirror.places().into_keys().collect();
        Ok(mirror)
    }

    /// Copies what of these runs is not there, each verified. Every file that is made is durable, and in a manifest that
    /// `note` is given; `goes_on` is told of bytes that were read to be copied.
    ///
    /// # Errors
    /// [`Error::Run`]: one is damaged where it is read, or was given back meanwhile. [`Error::Stopped`]. What was copied
    /// before stays.
    pub(crate) fn fill(
        &mut self,
        wanted: &Wanted,
        note: &mut dyn FnMut(&Manifest) -> Result<(), Error>,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let there = self.places();
        let (mut lacking, mut kept) = (Vec::new(), BTreeSet::new());
        for found in wanted.runs.values() {
            match there.get(&key(&found.1)) {
                Some(place) => drop(kept.insert(*place)),
                None => lacking.push(found.clone()),
            }
        }
        lacking.extend(self.to_move(&kept, wanted));
        lacking.sort_by_key(|(_, run)| run.key());
        let mut rest = &lacking[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|(_, run)| {
                // One that is larger has a file of its own.
                let is_first = bytes == 0;
                bytes += run.bytes;
                is_first || bytes <= FILE_BYTES
            });
            let (some, behind) = rest.split_at(fit.count());
            self.make(some, goes_on)?;
            note(&self.manifest_of(None))?;
            rest = behind;
        }
        Ok(())
    }

    /// Bytes of these runs that are not there.
    pub(crate) fn lacks(&self, wanted: &Wanted) -> u64 {
        let there = self.places();
        let lacking = wanted.runs.values().filter(|(_, run)| !there.contains_key(&key(run)));
        lacking.map(|(_, run)| run.bytes).sum()
    }

    /// What of these was there when it was opened, and what was not.
    pub(crate) fn filled(&self, wanted: &Wanted) -> Filled {
        let mut filled = Filled::default();
        for (_, run) in wanted.runs.values() {
            let was_there = self.before.contains(&key(run));
            filled.kept_runs += u64::from(was_there);
            filled.copied_runs += u64::from(!was_there);
            *if was_there { &mut filled.kept_bytes } else { &mut filled.copied_bytes } += run.bytes;
        }
        filled.dropped_runs = self.before.len() as u64 - filled.kept_runs;
        filled
    }

    /// The manifest that names these runs, and nothing else. They are there.
    pub(crate) fn manifest(&self, wanted: &Wanted) -> Manifest {
        self.manifest_of(Some(wanted))
    }

    /// What a manifest does not name is not read any more: files go, and blocks are given back where the filesystem can.
    /// It is durable, and in force.
    ///
    /// # Errors
    /// The disk. What was not freed is freed another time.
    pub(crate) fn free(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let named: BTreeMap<u64, &Named> =
            manifest.files.iter().map(|named| (named.number, named)).collect();
        for (number, held) in &self.files {
            let Some(named) = named.get(number) else {
                self.dir.remove(&name_of(*number))?;
                continue;
            };
            let numbers = (0..).take(held.runs.len());
            let went = numbers.filter(|n| named.gone.has(*n) && !held.was_gone.has(*n));
            held.chapter.punch(&went.collect())?;
        }
        self.files.retain(|number, _| named.contains_key(number));
        Ok(())
    }

    /// Where each run is that can be read.
    fn places(&self) -> HashMap<Key, (u64, u32)> {
        let mut places = HashMap::new();
        for (file, held) in &self.files {
            for (number, run) in (0..).zip(&held.runs) {
                if !held.was_gone.has(number) {
                    places.insert(key(run), (*file, number));
                }
            }
        }
        places
    }

    /// Runs that stay, in files of which less than half does, or in small ones where there are many: they are put
    /// together with those that come. One that is damaged here is read where it came from.
    fn to_move(&self, kept: &BTreeSet<(u64, u32)>, wanted: &Wanted) -> Vec<(Arc<Chapter>, Run)> {
        let of_file = |file: u64| kept.range((file, 0)..=(file, u32::MAX));
        let live_bytes = |file: u64, held: &Held| -> u64 {
            of_file(file).map(|(_, number)| held.runs[*number as usize].bytes).sum()
        };
        let live = self.files.iter().map(|(file, held)| (*file, held, live_bytes(*file, held)));
        let live: Vec<(u64, &Held, u64)> = live.filter(|(.., bytes)| *bytes > 0).collect();
        let all_bytes = |held: &Held| held.chapter.footer().batches_bytes();
        let is_small = |held: &Held| all_bytes(held) < SMALL_BYTES;
        let small = live.iter().filter(|(_, held, _)| is_small(held)).count();
        let moves = live.into_iter().filter(|(_, held, bytes)| {
            2 * bytes < all_bytes(held) || (small >= SMALL_FILES && is_small(held))
        });
        let mut moved = Vec::new();
        for (file, held, _) in moves {
            for (_, number) in of_file(file) {
                let run = held.runs[*number as usize];
                let is_good = held.chapter.verify(&run).is_ok();
                let here = (Arc::clone(&held.chapter), run);
                moved.push(if is_good { here } else { wanted.runs[&run.key()].clone() });
            }
        }
        moved
    }

    /// Makes a file of these runs, durably.
    fn make(
        &mut self,
        runs: &[(Arc<Chapter>, Run)],
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), Error> {
        let number = self.next_file;
        let name = name_of(number);
        let file = self.dir.create(&name, SyncMethod::ORDINARY.access())?;
        self.next_file += 1;
        let made = merge_while(&file, self.shard, runs, goes_on).and_then(|footer| {
            let chapter = Chapter::open(&name, Arc::clone(&file))?;
            let runs = chapter.runs()?;
            let (bytes, checksum) = (footer.file_bytes, footer.checksum());
            let named = Named { number, bytes, checksum, gone: Ranges::default() };
            let was_gone = Ranges::default();
            Ok(Held { named, chapter: Arc::new(chapter), runs, was_gone })
        });
        if made.is_err() {
            // What cannot be removed now is removed by the next who opens it.
            self.dir.remove(&name).ok();
        }
        self.files.insert(number, made?);
        Ok(())
    }

    /// With the newest place of each of these runs; or with all that is there, while it is not known what stays.
    fn manifest_of(&self, wanted: Option<&Wanted>) -> Manifest {
        let places = self.places();
        let stays: Option<BTreeSet<(u64, u32)>> = wanted.map(|wanted| {
            let place = |found: &(Arc<Chapter>, Run)| places.get(&key(&found.1)).copied();
            let stays: BTreeSet<_> = wanted.runs.values().filter_map(place).collect();
            assert_eq!(stays.len(), wanted.runs.len(), "what is named is there");
            stays
        });
        let mut files = Vec::new();
        for (file, held) in &self.files {
            let mut named = Named { gone: held.was_gone.clone(), ..held.named.clone() };
            if let Some(stays) = &stays {
                let numbers = (0..).take(held.runs.len());
                let gone: Vec<u32> = numbers.filter(|n| !stays.contains(&(*file, *n))).collect();
                if gone.len() == held.runs.len() {
                    continue;
                }
                named.gone = Ranges::default();
                named.gone.add(&gone.into_iter().collect());
            }
            files.push((held.chapter.footer().first_chapter, named));
        }
        files.sort_by_key(|(first_chapter, named)| (*first_chapter, named.number));
        let settled = wanted.map(|wanted| wanted.settled).unwrap_or_default();
        let files = files.into_iter().map(|(_, named)| named).collect();
        Manifest { next_file: self.next_file, settled, files }
    }
}
