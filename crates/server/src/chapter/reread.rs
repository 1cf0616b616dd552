//! All of a shelf is read again, so that a disk that forgets is found out.

use std::io::ErrorKind;

use super::error::Error;
use super::format::FENCED_RUNS;
use super::shelf::Shelf;

impl Shelf {
    /// Reads runs of a file from this number on that somebody could read, until they have so many bytes; past the
    /// page cache where that is possible: what is only in memory is not on the disk. Returns the number of the next,
    /// if there is one.
    ///
    /// # Errors
    /// The file cannot be opened. What is damaged is noted ([`Shelf::damaged`]), what the disk gives an error for is said, and
    /// others are read on.
    pub fn scrub(&self, file: u64, from: u32, bytes_max: u64) -> Result<Option<u32>, Error> {
        let Some(chapter) = self.files_now().get(&file).map(|book| book.chapter.clone()) else {
            return Ok(None);
        };
        let chapter = match self.past_cache(&chapter) {
            // It was merged meanwhile.
            Err(Error::Disk(why)) if why.kind() == Some(ErrorKind::NotFound) => return Ok(None),
            chapter => chapter?,
        };
        let name = chapter.name();
        let mut bytes = 0;
        for nth in from / FENCED_RUNS..chapter.pages() {
            let page = match chapter.page(nth) {
                Ok(page) => page,
                Err(why) => {
                    tracing::error!(shard = self.shard, file = name, %why, "a chapter cannot be read");
                    continue;
                }
            };
            if let Some((why, number)) = page.damage()
                && number >= from
                && self.read_books().has(file, number)
            {
                tracing::error!(shard = self.shard, file = name, %why, "a chapter is damaged");
                self.note_rows(file, &chapter, nth, &chapter.damaged(why));
            }
            for (number, run) in page.runs().filter(|(number, _)| *number >= from) {
                if bytes >= bytes_max {
                    return Ok(Some(number));
                }
                if !self.read_books().has(file, number) {
                    continue;
                }
                let read = chapter.verify(&run);
                // What is gone by now was given back while it was read.
                if read.is_err() && !self.read_books().has(file, number) {
                    continue;
                }
                let read = read.map_err(|why| chapter.unreadable(&run, why));
                bytes += self.note(run.opening, read).unwrap_or(0);
            }
        }
        Ok(None)
    }
}
