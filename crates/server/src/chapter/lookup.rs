//! [`Lookup`]: finds runs by their names, in the files of a moment.

use std::collections::HashMap;
use std::sync::Arc;

use super::books::Files;
use super::error::Error;
use super::format::Run;
use super::manifest;
use super::reader::Chapter;
use super::table::Page;
use crate::cursor::Malformed;
use crate::shard::Opening;

/// Finds runs. Of each file the page that was looked at last stays, so that who asks in the order of partitions reads
/// each page once.
#[derive(Debug)]
pub(super) struct Lookup {
    files: Arc<Files>,
    /// Files that may have runs of a chapter.
    of_chapters: HashMap<u32, Vec<u64>>,
    pages: HashMap<u64, (u32, Page)>,
}

/// A run, and where it is.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) chapter: Arc<Chapter>,
    pub(super) file: u64,
    pub(super) number: u32,
    pub(super) run: Run,
}

impl Lookup {
    pub(super) fn of(files: Arc<Files>) -> Self {
        Self { files, of_chapters: HashMap::new(), pages: HashMap::new() }
    }

    /// The run of a partition in a chapter, which it has. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Disk`]: no file has it, or the table of one that may have cannot be read there.
    pub(super) fn find(&mut self, opening: Opening, chapter: u32) -> Result<Placed, Error> {
        let key = (opening, u64::from(chapter));
        let files = &self.files;
        let may_have = self.of_chapters.entry(chapter).or_insert_with(|| {
            let has = |chapter: &Chapter| {
                let footer = chapter.footer();
                (footer.first_chapter..=footer.last_chapter).contains(&key.1)
            };
            files.iter().filter(|(_, book)| has(&book.chapter)).map(|(number, _)| *number).collect()
        });
        let mut damage = None;
        for file in may_have {
            let book = &files[file];
            let Some(number) = book.chapter.fences().page(key) else { continue };
            if self.pages.get(file).is_none_or(|(last, _)| *last != number) {
                match book.chapter.page(number) {
                    Ok(page) => drop(self.pages.insert(*file, (number, page))),
                    // Another file may have it.
                    Err(why) => {
                        damage = damage.or(Some(why));
                        continue;
                    }
                }
            }
            let page = &self.pages[file].1;
            match page.find(key).filter(|(number, _)| !book.gone.has(*number)) {
                Some((number, run)) => {
                    let chapter = Arc::clone(&book.chapter);
                    return Ok(Placed { chapter, file: *file, number, run });
                }
                None => damage = damage.or(page.damage().map(|(why, _)| book.chapter.damaged(why))),
            }
        }
        let why = Malformed::Field("a chapter of which no file has the run", key.1);
        Err(damage.unwrap_or(Error::File { file: manifest::NAME.to_owned(), why }))
    }
}
