//! [`Files`]: the files of a log in its directory. They know nothing of records in memory, nor who
//! writes.
//!
//! * [`place`]: the directory, and how records are best made durable in it.
//! * [`list`]: which segments there are; [`opened`]: those that readers had open last.
//! * [`stale`]: segments that were replaced and may still be there; [`spares`]: files made ready.
//! * [`notes`]: small files that each say one thing; [`retain`]: what of the oldest end is kept.
//!
//! Its words: a *place* has a *method* (how bytes become durable) and a *layout* (how a file is made ready).
//! A *spare* is a file that is ready, and the *stock* has one; a *segment* that is not the log's any more is
//! *stale* until it is *swept*. A *note* says one thing. *Retention* takes the oldest away. What is *opened*
//! stays so for a while, and a *span* says which records a segment has.

pub(crate) mod list;
pub(crate) mod notes;
pub(crate) mod opened;
pub(crate) mod place;
pub(crate) mod retain;
pub(crate) mod spares;
pub(crate) mod stale;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use plimsoll_sync::{Access, Dir, File};

use self::list::Segments;
use self::place::Place;
use self::spares::Stock;
use self::stale::Stale;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::segment::damage::Damage;
use crate::segment::head::{Head, segment_name};
use crate::shim::{AtomicBool, Rank, Ranked, RankedGuard};

#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) place: Arc<Place>,
    pub(crate) log_id: u128,
    pub(crate) clock: Clock,
    pub(crate) segments: Segments,
    pub(crate) stock: Stock,
    pub(crate) stale: Stale,
    /// Held while segments are taken away, so that they go in order.
    retention: Ranked<()>,
    /// There may be a note of a cut.
    is_cut_noted: AtomicBool,
    /// Held from the note of a cut until it is known which files are stale by it.
    cutting: Ranked<()>,
}

impl Files {
    pub(crate) fn new(
        place: Arc<Place>,
        log_id: u128,
        clock: Clock,
        segments: Segments,
        stock: Stock,
    ) -> Self {
        Self {
            place,
            log_id,
            clock,
            segments,
            stock,
            stale: Stale::default(),
            is_cut_noted: AtomicBool::new(false),
            retention: Ranked::new(Rank::Retention, ()),
            cutting: Ranked::new(Rank::Cutting, ()),
        }
    }

    pub(crate) fn dir(&self) -> &dyn Dir {
        &*self.place.dir
    }

    /// A segment, to be read.
    pub(crate) fn open(&self, first_index: u64) -> Result<Arc<dyn File>> {
        Ok(self.dir().open(&segment_name(first_index), Access::default())?)
    }

    /// What a segment says of itself.
    pub(crate) fn head(&self, first_index: u64) -> Result<std::result::Result<Head, Damage>> {
        Head::read(&*self.open(first_index)?, first_index)
    }

    /// The oldest record, or the next one if there is none.
    pub(crate) fn first_index(&self) -> u64 {
        self.segments.first_index().unwrap_or(1)
    }

    /// The turn of whoever takes segments away.
    pub(crate) fn retention_turn(&self) -> RankedGuard<'_, ()> {
        self.retention.lock()
    }

    /// Whether every segment has its name still.
    pub(crate) fn check_names(&self) -> Result<()> {
        let _retention = self.retention_turn();
        let names = self.dir().list()?;
        let lost = self.segments.all().into_iter().map(segment_name);
        let lost = lost.filter(|name| names.binary_search(name).is_err()).min();
        lost.map_or(Ok(()), |name| {
            let gone = std::io::Error::new(ErrorKind::NotFound, "somebody took its name away");
            Err(plimsoll_sync::Error::io("find", name, gone).into())
        })
    }

    /// Removes what a cut or a failure left, and the note of it. In the turn of retention.
    pub(crate) fn sweep(&self) -> Result<()> {
        if self.stale.is_empty() && !self.is_cut_noted.load(SeqCst) {
            return Ok(());
        }
        self.stale.sweep(|first_index| match self.stock.give_back(&segment_name(first_index)) {
            Err(Error::Disk(error)) if error.kind() == Some(ErrorKind::NotFound) => Ok(()),
            given => given,
        })?;
        let _cutting = self.cutting.lock();
        if self.stale.is_empty() {
            notes::end_cut(self.dir())?;
            self.is_cut_noted.store(false, SeqCst);
        }
        Ok(())
    }

    /// Notes that segments that are no part of the log any more may be there from here on. Durable on return; it stays
    /// until they are swept, which nobody does in the turn of retention or while `cutting` is held.
    pub(crate) fn note_cut(&self) -> Result<()> {
        self.is_cut_noted.store(true, SeqCst);
        notes::begin_cut(self.dir())
    }

    /// Gives the file that is ready under `spare_name` its name as a segment, durably, and opens it by
    /// that. It takes the place of all that came at or after its first index. A cut is noted before: the
    /// files that it replaces stay until they are [swept](Files::sweep).
    ///
    /// Where that fails the file may have got its name all the same: then it is stale. `None` where no
    /// descriptor is left to open it with: whoever has it open goes on with that.
    pub(crate) fn enter(
        &self,
        spare_name: &str,
        first_index: u64,
        is_cut: bool,
    ) -> Result<Option<Arc<dyn File>>> {
        let cutting = is_cut.then(|| self.cutting.lock());
        if is_cut {
            self.note_cut()?;
        }
        self.stale.claim(first_index);
        let name = segment_name(first_index);
        let renamed = self.dir().rename(spare_name, &name);
        let open = || match self.dir().open(&name, self.place.method.access) {
            Err(error) if error.is_out_of_descriptors() => Ok(None),
            opened => opened.map(Some),
        };
        let entered = renamed.and_then(|()| open());
        if entered.is_err() {
            // Of a name that the list has the file is the log's, or is written anew.
            if !self.segments.has(first_index) {
                self.stale.push(first_index);
            }
        } else if !is_cut && self.segments.newest().is_none_or(|newest| newest < first_index) {
            self.segments.push(first_index);
        } else {
            let replaced = self.segments.replace(first_index);
            assert!(is_cut || replaced == [first_index], "only a cut replaces what has records");
            let stale = replaced.into_iter().filter(|&old| old != first_index);
            stale.for_each(|old| self.stale.push(old));
        }
        drop(cutting);
        Ok(entered?)
    }
}
