//! All of a shelf is read again, so that a disk that forgets is found out.

use plimsoll_sync::SyncMethod;

use super::error::Error;
use super::format::FENCED_RUNS;
use super::reader::Chapter;
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
        let name = chapter.name();
        let direct = self.dir.open(name, SyncMethod::Direct.access());
        let buffered = |_refused| self.dir.open(name, SyncMethod::ORDINARY.access());
        // It may be merged meanwhile.
        let Ok(opened) = direct.or_else(buffered) else { return Ok(None) };
        let chapter = Chapter::open(name, opened)?;
        let mut bytes = 0;
        for page in from / FENCED_RUNS..chapter.pages() {
            let page = match chapter.page(page) {
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
                if let Err(why @ Error::Disk(_)) = &read {
                    let (shard, opening) = (self.shard, run.opening);
                    tracing::error!(shard, %opening, file = name, %why, "a run cannot be read");
                }
                // What the disk gives an error for is damaged too.
                let (from, last) = (run.base_offset, run.end_offset - 1);
                let damaged =
                    || Error::Run { file: name.to_owned(), opening: run.opening, from, last };
                let read =
                    read.map_err(|why| if matches!(why, Error::Disk(_)) { damaged() } else { why });
                bytes += self.note(run.opening, read).unwrap_or(0);
            }
        }
        Ok(None)
    }
}
