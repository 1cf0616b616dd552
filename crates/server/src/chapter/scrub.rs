//! [`Scrub`]: the files of a shard one after the other, past the page cache, whether a node has them open or not.
//!
//! A scrub is slow, and a node goes on: it frees runs and files, and writes what is left of them elsewhere. So one file is
//! open at a time, whose room a node cannot have back for as long, and what is gone by the time that it reads as damaged is
//! no alarm. Files that took the place of others meanwhile are read once those that there were have been.

use std::collections::{BTreeSet, VecDeque};

use plimsoll_sync::Dir;

use super::error::Error;
use super::format::Run;
use super::manifest::{Manifest, Named};
use super::survey::{Found, Opened};
use crate::shard::State;

/// A broker that writes all of it again so often leaves nothing that is old.
const LOOKS_MAX: u32 = 100;

/// The files that are still to be read.
#[derive(Debug)]
pub struct Scrub<'a> {
    dir: &'a dyn Dir,
    shard: u32,
    /// The last chapter that was settled when it began: what is newer is left to the next one.
    last_chapter: u64,
    due: VecDeque<Named>,
    /// Files that were given out, or are due.
    known: BTreeSet<u64>,
    /// How often files that took the place of others were looked for.
    looks: u32,
}

impl<'a> Scrub<'a> {
    /// Of the chapters of a shard, in their directory.
    ///
    /// # Errors
    /// [`Error::File`]: the manifest is damaged.
    pub fn of(dir: &'a dyn Dir, shard: u32) -> Result<Self, Error> {
        let manifest = Manifest::look(dir, shard)?;
        let known = manifest.files.iter().map(|named| named.number).collect();
        let last_chapter = manifest.settled.chapter;
        Ok(Self { dir, shard, last_chapter, due: manifest.files.into(), known, looks: 0 })
    }

    /// The last chapter that was settled when it began.
    #[must_use]
    pub fn last_chapter(&self) -> u64 {
        self.last_chapter
    }

    /// Bytes of the files that are due, as far as it is known.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.due.iter().map(|named| named.bytes).sum()
    }

    /// The next file, opened past the page cache where there is a way. One that was freed meanwhile is passed over.
    ///
    /// # Errors
    /// [`Error::File`]: the manifest is damaged.
    pub fn next_file(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let Some(named) = self.due.pop_front() else {
                let newer = Manifest::look(self.dir, self.shard)?.files;
                self.due.extend(newer.into_iter().filter(|named| self.known.insert(named.number)));
                self.looks += 1;
                if self.due.is_empty() || self.looks > LOOKS_MAX {
                    return Ok(None);
                }
                continue;
            };
            let Some(named) = self.named(&named)? else { continue };
            let found = Found::past_cache(self.dir, self.shard, named);
            let is_newer =
                |opened: &Opened| opened.chapter.footer().first_chapter > self.last_chapter;
            match &found.opened {
                Ok(opened) if self.looks > 0 && is_newer(opened) => {}
                Err(_) if self.named(&found.named)?.is_none() => {}
                _ => return Ok(Some(found)),
            }
        }
    }

    /// Whether nobody reads a run any more, or it was written again elsewhere, by now: then what it reads as is no damage.
    /// The state is the newest that is durable.
    ///
    /// # Errors
    /// [`Error::File`]: the manifest is damaged.
    pub fn is_gone(&self, found: &Found, run: &Run, state: Option<&State>) -> Result<bool, Error> {
        let Some(named) = self.named(&found.named)? else { return Ok(true) };
        let Ok(opened) = &found.opened else { return Ok(false) };
        Ok(opened.is_gone(run, &named.gone) || opened.is_deleted(run, state))
    }

    /// As the manifest names a file now.
    fn named(&self, named: &Named) -> Result<Option<Named>, Error> {
        let files = Manifest::look(self.dir, self.shard)?.files;
        Ok(files
            .into_iter()
            .find(|now| (now.number, now.checksum) == (named.number, named.checksum)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::{Access, File, Lock};

    use super::*;
    use crate::chapter::Survey;
    use crate::chapter::survey::tests::{SHARD, batch, flip, settle};
    use crate::chapter::{Damage, Why};

    /// What is in memory, and what is on the disk under it.
    #[derive(Debug)]
    struct Machine {
        memory: Arc<SimDir>,
        disk: Option<Arc<SimDir>>,
    }

    impl Dir for Machine {
        fn open(&self, name: &str, access: Access) -> plimsoll_sync::Result<Arc<dyn File>> {
            let unsupported = || plimsoll_sync::Error::Unsupported {
                method: access.method(),
                path: name.into(),
                reason: "there is no way past the cache".to_owned(),
            };
            match (access.direct, &self.disk) {
                (true, Some(disk)) => disk.open(name, access),
                (true, None) => Err(unsupported()),
                (false, _) => self.memory.open(name, access),
            }
        }

        fn list(&self) -> plimsoll_sync::Result<Vec<String>> {
            self.memory.list()
        }

        fn create(&self, name: &str, _: Access) -> plimsoll_sync::Result<Arc<dyn File>> {
            panic!("a scrub makes {name}")
        }

        fn rename(&self, from: &str, _: &str) -> plimsoll_sync::Result<()> {
            panic!("a scrub renames {from}")
        }

        fn remove(&self, name: &str) -> plimsoll_sync::Result<()> {
            panic!("a scrub removes {name}")
        }

        fn sync(&self) -> plimsoll_sync::Result<()> {
            panic!("a scrub syncs")
        }

        fn lock(&self, _: &str) -> plimsoll_sync::Result<Lock> {
            panic!("a scrub locks")
        }
    }

    fn settled(chapters: u64) -> Arc<SimDir> {
        let dir = Arc::new(SimDir::new());
        (1..=chapters).for_each(|chapter| settle(&dir, chapter, &[batch(1), batch(2)]));
        dir
    }

    fn names(scrub: &mut Scrub<'_>) -> Vec<u64> {
        let mut names = Vec::new();
        while let Some(found) = scrub.next_file().unwrap() {
            names.push(found.named.number);
        }
        names
    }

    fn first_damage(found: &Found) -> Vec<Damage> {
        let opened = found.opened.as_ref().unwrap();
        opened.examine(&opened.runs[0], |_| true).unwrap()
    }

    #[test]
    fn what_is_in_memory_hides_nothing_of_what_is_on_the_disk() {
        let (memory, disk) = (settled(1), settled(1));
        flip(&disk, 100);
        let machine = Machine { memory, disk: Some(disk) };
        let survey = Survey::of(&machine, SHARD).unwrap();
        assert_eq!(first_damage(&survey.files[0]), [], "that goes through the cache");
        let found = Scrub::of(&machine, SHARD).unwrap().next_file().unwrap().unwrap();
        assert!(found.opened.as_ref().unwrap().is_past_cache);
        assert_eq!(first_damage(&found), [Damage { from: 2, last: 3, why: Why::Block }]);
    }

    #[test]
    fn where_there_is_no_way_past_the_cache_it_says_so() {
        let machine = Machine { memory: settled(1), disk: None };
        let found = Scrub::of(&machine, SHARD).unwrap().next_file().unwrap().unwrap();
        assert!(!found.opened.as_ref().unwrap().is_past_cache);
        assert_eq!(first_damage(&found), []);
    }

    #[test]
    fn what_is_freed_while_it_is_read_is_no_alarm() {
        let dir = settled(3);
        let mut scrub = Scrub::of(&*dir, SHARD).unwrap();
        let found = scrub.next_file().unwrap().unwrap();
        let run = found.opened.as_ref().unwrap().runs[0];
        assert!(!scrub.is_gone(&found, &run, None).unwrap());
        // The second file goes, and the run of the first.
        let mut manifest = Manifest::look(&*dir, SHARD).unwrap();
        manifest.files.remove(1);
        manifest.files[0].gone.insert(0);
        manifest.write(&*dir, SHARD).unwrap();
        dir.remove("00000001.chapter").unwrap();
        assert!(scrub.is_gone(&found, &run, None).unwrap());
        assert_eq!(names(&mut scrub), [2]);
        // Then the first file too.
        manifest.files.remove(0);
        manifest.write(&*dir, SHARD).unwrap();
        assert!(scrub.is_gone(&found, &run, None).unwrap());
        // One that is gone, and still named, is missing.
        let mut scrub = Scrub::of(&*dir, SHARD).unwrap();
        dir.remove("00000002.chapter").unwrap();
        let found = scrub.next_file().unwrap().unwrap();
        assert!(matches!(found.opened, Err(Error::Missing { .. })));
    }

    #[test]
    fn a_file_that_took_the_place_of_others_is_read_and_newer_chapters_are_left_to_the_next_scrub()
    {
        let dir = settled(2);
        let mut scrub = Scrub::of(&*dir, SHARD).unwrap();
        assert_eq!(scrub.next_file().unwrap().unwrap().named.number, 0);
        settle(&dir, 3, &[batch(3)]);
        // As a merge leaves it: the same bytes under another number.
        let mut manifest = Manifest::look(&*dir, SHARD).unwrap();
        dir.rename("00000001.chapter", "00000009.chapter").unwrap();
        (manifest.files[1].number, manifest.next_file) = (9, 10);
        manifest.write(&*dir, SHARD).unwrap();
        assert_eq!(names(&mut scrub), [9]);
    }
}
