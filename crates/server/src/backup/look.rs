//! [`Look`]: a backup looked at. Nothing is changed.

use std::sync::Arc;

use plimsoll_sync::Dir;

use super::error::Error;
use super::head::{Head, OfShard, Slot};
use crate::broker::layout;
use crate::chapter::Survey;
use crate::{chapter, cluster};

/// A backup, and the generation of it that is whole.
#[derive(Debug)]
pub struct Look {
    dir: Arc<dyn Dir>,
    rest: Arc<dyn Dir>,
    pub(super) head: Head,
}

impl Look {
    /// Looks at the backup in a directory.
    ///
    /// # Errors
    /// [`Error::NotABackup`], [`Error::Unfinished`], [`Error::Damaged`].
    pub fn open(dir: &Arc<dyn Dir>) -> Result<Self, Error> {
        let head = Head::look(&**dir)?.ok_or(Error::NotABackup)?;
        let slot = head.slot.map(Slot::name).ok_or(Error::Unfinished)?;
        Ok(Self { dir: Arc::clone(dir), rest: dir.open_dir(&slot)?, head })
    }

    /// Where its snapshots and logs are, as in the directory of a broker.
    #[must_use]
    pub fn rest(&self) -> &Arc<dyn Dir> {
        &self.rest
    }

    /// The chapters of a shard of records.
    ///
    /// # Errors
    /// As of [`Survey::of`].
    pub fn survey(&self, number: u32) -> Result<Survey, chapter::Error> {
        let name = layout::chapters(number);
        let (manifests, files) = (self.rest.open_dir(&name)?, self.dir.open_dir(&name)?);
        Survey::beside(&*manifests, &*files, number)
    }
}

impl OfShard {
    /// What is in a generation of a shard, of whose log this was copied.
    pub(super) fn of(rest: &dyn Dir, number: u32, log: cluster::Copied) -> Result<Self, Error> {
        let in_dir = |dir: String, name: &str| match rest.open_dir(&dir) {
            Ok(dir) => hash_of(&*dir, name),
            Err(why) if why.kind() == Some(std::io::ErrorKind::NotFound) => Ok(0),
            Err(why) => Err(why.into()),
        };
        Ok(Self {
            number,
            first: log.first,
            last: log.last,
            log: log.hash,
            identity: in_dir(layout::shard(number), cluster::IDENTITY)?,
            state: hash_of(rest, &layout::state(number))?,
            manifest: in_dir(layout::chapters(number), chapter::MANIFEST)?,
        })
    }
}

/// The hash of a file; 0 if there is none.
fn hash_of(dir: &dyn Dir, name: &str) -> Result<u64, Error> {
    use std::hash::Hasher;

    use plimsoll_sync::SyncMethod;

    let file = match dir.open(name, SyncMethod::ORDINARY.access()) {
        Ok(file) => file,
        Err(why) if why.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(0),
        Err(why) => return Err(why.into()),
    };
    let (mut hash, mut at) = (twox_hash::XxHash3_64::new(), 0);
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = file.read_at(&mut piece, at)?;
        hash.write(&piece[..read]);
        at += read as u64;
        if read < piece.len() {
            // None is said with a zero.
            return Ok(hash.finish().max(1));
        }
    }
}
