//! [`Source`]: where records are read from.

use std::sync::Arc;

use plimsoll_sync::File;

use super::Live;
use super::shelf::Shelf;
use crate::error::{Error, Result};
use crate::files::list::{Span, Whereabouts};
use crate::options::Ack;
use crate::segment::damage::Damage;
use crate::segment::head::Head;

/// Where records are read from: a log that is open, or files that somebody else may be writing.
#[derive(Debug)]
pub(crate) enum Source {
    Live(Live),
    Files(Arc<Shelf>),
}

impl Source {
    pub(super) fn open(&self, first_index: u64) -> Result<Arc<dyn File>> {
        match self {
            Self::Live(live) => live.files.open(first_index),
            Self::Files(shelf) => shelf.open(first_index),
        }
    }

    pub(super) fn head(&self, first_index: u64) -> Result<std::result::Result<Head, Damage>> {
        Head::read(&*self.open(first_index)?, first_index)
    }

    pub(super) fn span(&self, index: u64) -> Option<Span> {
        match self {
            Self::Live(live) => live.files.segments.span(index),
            Self::Files(shelf) => shelf.span(index),
        }
    }

    /// The same, for whoever is about to read it. A file of somebody else's log is not kept open: another
    /// may have its name by now.
    pub(super) fn find(&self, index: u64) -> Option<Whereabouts> {
        match self {
            Self::Live(live) => live.files.segments.find(index),
            Self::Files(shelf) => {
                let epoch = shelf.epoch();
                let span = shelf.span(index)?;
                Some(Whereabouts { span, opened: None, epoch })
            }
        }
    }

    /// Looks what files there are now, where somebody else may have changed that.
    pub(super) fn refresh(&self) -> Result<()> {
        match self {
            Self::Live(_) => Ok(()),
            Self::Files(shelf) => shelf.refresh(),
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Live(live) => live.files.segments.epoch(),
            Self::Files(shelf) => shelf.epoch(),
        }
    }

    /// How often the log was cut, where that is known.
    pub(super) fn cuts(&self) -> u64 {
        match self {
            Self::Live(live) => live.marks.cuts(),
            Self::Files(_) => 0,
        }
    }

    /// Whether a record was cut off since the log had been cut so often.
    pub(super) fn is_cut_off(&self, index: u64, since: u64) -> bool {
        match self {
            Self::Live(live) => live.marks.is_cut_off(index, since),
            Self::Files(_) => false,
        }
    }

    pub(super) fn first_index(&self) -> u64 {
        match self {
            Self::Live(live) => live.files.first_index(),
            Self::Files(shelf) => shelf.first_index(),
        }
    }

    /// The last record that may be read; of files nobody knows before looking.
    pub(super) fn limit(&self, level: Ack) -> u64 {
        match (self, level) {
            (Self::Live(live), Ack::Durable) => live.marks.durable.get(),
            (Self::Live(live), Ack::Buffered | Ack::Written) => live.marks.written.get(),
            (Self::Files(_), _) => u64::MAX,
        }
    }

    /// Whether a record is there, or is the one that would come next.
    pub(super) fn check_range(&self, index: u64) -> Result<()> {
        if let Self::Files(shelf) = self
            && let Some(wrong) = shelf.lost(index)
        {
            return Err(Error::Corrupt(Box::new(wrong)));
        }
        let first_index = self.first_index();
        let last_index = match self {
            Self::Live(live) => live.marks.appended.get(),
            Self::Files(_) => u64::MAX,
        };
        if index < first_index || index > last_index.saturating_add(1) {
            return Err(Error::OutOfRange { index, first_index, last_index });
        }
        Ok(())
    }
}
