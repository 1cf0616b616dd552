//! All of a shelf is read again, so that a disk that forgets is found out.

use std::io::ErrorKind;

use super::error::Error;
use super::format::FENCED_RUNS;
use super::manifest::Manifest;
use super::shelf::Shelf;
use crate::shard::Opening;

/// What was read again of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reread {
    /// The number of the run to go on with, if there is one.
    pub next: Option<u32>,
    /// Runs and pages of the table that were found damaged.
    pub damaged: u64,
    /// Pages of the table that the disk gives an error for: their runs were not read.
    pub unread: u64,
}

impl Shelf {
    /// Reads the manifest again, past the page cache where that is possible. One that is damaged, or not there, is written anew, as it is
    /// known here: whether it was.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn check_manifest(&self) -> Result<bool, Error> {
        let known = self.turn();
        if *known == Manifest::default() {
            return Ok(false);
        }
        let why = match Manifest::past_cache(&*self.dir, self.shard) {
            Ok(found) if found.checksum(self.shard) == known.checksum(self.shard) => {
                return Ok(false);
            }
            Ok(_) => "it is another, or is not there".to_owned(),
            Err(Error::Disk(why)) if !why.is_of_the_device() => return Err(why.into()),
            Err(why) => why.to_string(),
        };
        tracing::error!(shard = self.shard, %why, "the manifest of chapters is written anew");
        known.write(&*self.dir, self.shard).map(|()| true)
    }

    /// Reads runs of a file from this number on that somebody could read, until they have so many bytes; past the
    /// page cache where that is possible: what is only in memory is not on the disk. `goes_on` is told how many bytes each
    /// piece had that was read and is whole, and says whether to read the next.
    ///
    /// # Errors
    /// The file cannot be opened; or [`Error::Stopped`]: `goes_on` said no. What is damaged is noted
    /// ([`Shelf::damaged`]), what the disk gives an error for is said, and others are read on.
    pub fn scrub(
        &self,
        file: u64,
        from: u32,
        bytes_max: u64,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Reread, Error> {
        let mut reread = Reread::default();
        let Some(chapter) = self.files_now().get(&file).map(|book| book.chapter.clone()) else {
            return Ok(reread);
        };
        let chapter = match self.past_cache(&chapter) {
            // It was merged meanwhile.
            Err(Error::Disk(why)) if why.kind() == Some(ErrorKind::NotFound) => return Ok(reread),
            chapter => chapter?,
        };
        let name = chapter.name();
        let mut bytes = 0;
        for nth in from / FENCED_RUNS..chapter.pages() {
            let page = match chapter.page(nth) {
                Ok(page) => page,
                Err(why) => {
                    tracing::error!(shard = self.shard, file = name, %why, "a chapter cannot be read");
                    reread.unread += 1;
                    continue;
                }
            };
            if let Some((why, number)) = page.damage()
                && number >= from
                && self.read_books().has(file, number)
            {
                tracing::error!(shard = self.shard, file = name, %why, "a chapter is damaged");
                self.note_rows(file, &chapter, nth, &chapter.damaged(why));
                reread.damaged += 1;
            }
            for (number, run) in page.runs().filter(|(number, _)| *number >= from) {
                if bytes >= bytes_max {
                    reread.next = Some(number);
                    return Ok(reread);
                }
                if !self.read_books().has(file, number) {
                    continue;
                }
                let read = chapter.verify_while(&run, goes_on);
                if matches!(read, Err(Error::Stopped)) {
                    return Err(Error::Stopped);
                }
                // What is gone by now was given back while it was read.
                if read.is_err() && !self.read_books().has(file, number) {
                    continue;
                }
                let read = read.map_err(|why| chapter.unreadable(&run, why));
                reread.damaged += u64::from(read.is_err());
                bytes += self.note(run.opening, read).unwrap_or(0);
            }
        }
        Ok(reread)
    }

    /// Whose records are damaged, and what is wrong with them.
    #[must_use]
    pub(crate) fn wounds(&self) -> Vec<(Opening, Error)> {
        let damaged = self.lock_damaged();
        damaged.iter().map(|((_, opening), why)| (*opening, why.clone())).collect()
    }
}
