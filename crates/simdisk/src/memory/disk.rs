//! The whole simulated disk: files, names, room and barriers. Pure: no clock, no randomness, no I/O.
//!
//! Invariant: if something that the device got after a barrier is durable, everything that it got
//! before that barrier is.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use super::directory::{DirId, Directory, FileId, Target};
use super::inode::Inode;
use super::options::{DiskOptions, Persistence, Tear};
use super::room::{Claim, Room};
use crate::sparse::{PAGE, pages_of};

/// The longest file, as with every 64-bit offset that is signed.
pub(crate) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

/// The directory that has no name, and all others in it.
pub(crate) const ROOT: DirId = DirId(0);

#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<FileId, Inode>,
    /// [`ROOT`], and those that it leads to.
    pub(crate) directories: BTreeMap<DirId, Directory>,
    /// Barriers so far.
    pub(crate) epoch: u64,
    pub(crate) persistence: Persistence,
    pub(crate) tear: Tear,
    punches: bool,
    pub(crate) room: Room,
    pub(crate) next_order: u64,
    /// Of files and of directories.
    next_id: u64,
}

impl Disk {
    pub(crate) fn new(options: &DiskOptions) -> Self {
        Self {
            files: BTreeMap::new(),
            directories: BTreeMap::from([(ROOT, Directory::default())]),
            epoch: 0,
            persistence: options.persistence,
            tear: options.tear,
            punches: options.punches,
            room: Room::new(options),
            next_order: 0,
            next_id: 0,
        }
    }

    /// The file of this name.
    pub(crate) fn find(&self, dir: DirId, name: &str) -> io::Result<FileId> {
        match self.directories[&dir].live.get(name) {
            Some(Target::File(id)) => Ok(*id),
            Some(Target::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The directory of this name.
    pub(crate) fn find_dir(&self, dir: DirId, name: &str) -> io::Result<DirId> {
        match self.directories[&dir].live.get(name) {
            Some(Target::Dir(id)) => Ok(*id),
            Some(Target::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Panics if the file is gone, which a handle prevents.
    pub(crate) fn file(&mut self, id: FileId) -> &mut Inode {
        self.files.get_mut(&id).expect("a handle or a name keeps its file")
    }

    /// Panics if the directory is gone, which only a crash can do.
    pub(crate) fn directory(&mut self, id: DirId) -> &mut Directory {
        self.directories.get_mut(&id).expect("no directory is ever removed")
    }

    /// A new file, known to fault rules as `known_as`.
    pub(crate) fn create(&mut self, dir: DirId, name: &str, known_as: &str) -> io::Result<FileId> {
        if self.directories[&dir].live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = FileId(self.id());
        let inode = Inode { name: known_as.to_owned(), ..Inode::default() };
        self.files.insert(id, inode);
        let order = self.order();
        self.directory(dir).link(order, name, Target::File(id));
        Ok(id)
    }

    /// The directory of this name, made if there is none.
    pub(crate) fn create_dir(&mut self, dir: DirId, name: &str) -> io::Result<DirId> {
        match self.find_dir(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let id = DirId(self.id());
        self.directories.insert(id, Directory::default());
        let order = self.order();
        self.directory(dir).link(order, name, Target::Dir(id));
        Ok(id)
    }

    /// Gives a file another name, and `known_as` to fault rules.
    pub(crate) fn rename(
        &mut self,
        dir: DirId,
        from: &str,
        to: &str,
        known_as: &str,
    ) -> io::Result<()> {
        let id = self.find(dir, from)?;
        match self.find(dir, to) {
            Ok(found) if found == id => return Ok(()), // as rename(2) does with two names of one file
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(error),
            _ => {}
        }
        let order = self.order();
        self.directory(dir).rename(order, from, to, id);
        known_as.clone_into(&mut self.file(id).name);
        self.forget_unreachable();
        Ok(())
    }

    pub(crate) fn remove(&mut self, dir: DirId, name: &str) -> io::Result<()> {
        self.find(dir, name)?;
        let order = self.order();
        self.directory(dir).unlink(order, name);
        self.forget_unreachable();
        Ok(())
    }

    /// Writes what fits; fails if that is not all.
    pub(crate) fn write(
        &mut self,
        id: FileId,
        buf: &[u8],
        at: u64,
        claim: Claim,
        lost: bool,
    ) -> io::Result<()> {
        let bytes = range(at, buf.len() as u64)?;
        let fitting = self.claim(id, &bytes, claim);
        let order = self.order();
        let take = usize::try_from(fitting.end - at).expect("no more than the buffer");
        self.file(id).write(order, &buf[..take], at, lost);
        full_unless(fitting == bytes)
    }

    /// Writes zeros where they fit; fails if that is not everywhere.
    pub(crate) fn zero(&mut self, id: FileId, at: u64, bytes: u64, claim: Claim) -> io::Result<()> {
        let bytes = range(at, bytes)?;
        let fitting = self.claim(id, &bytes, claim);
        let order = self.order();
        self.file(id).zero(order, fitting.clone());
        full_unless(fitting == bytes)
    }

    /// All of the range, or nothing.
    pub(crate) fn reserve(&mut self, id: FileId, at: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into()); // as fallocate(2)
        }
        let bytes = range(at, bytes)?;
        full_unless(self.fitting(id, &bytes, Claim::Reserve) == bytes)?;
        let order = self.order();
        self.file(id).reserve(order, bytes);
        Ok(())
    }

    /// Gives the blocks of the whole pages of a range back, and says whether the disk can. Zeros are written
    /// into the edges first, which may need room: without it that is where it fails.
    pub(crate) fn punch(&mut self, id: FileId, at: u64, bytes: u64) -> io::Result<bool> {
        let bytes = range(at, bytes)?;
        if bytes.is_empty() || !self.punches {
            return Ok(false);
        }
        let order = self.order();
        for edge in self.file(id).edges(&bytes) {
            // Through the page cache, however the file was opened.
            full_unless(self.claim(id, &edge, Claim::Write) == edge)?;
            self.file(id).zero(order, edge);
        }
        self.file(id).punch(order, &bytes);
        Ok(true)
    }

    pub(crate) fn truncate(&mut self, id: FileId, len: u64) -> io::Result<()> {
        range(len, 0)?;
        let order = self.order();
        self.file(id).truncate(order, len);
        Ok(())
    }

    pub(crate) fn hand_over(&mut self, id: FileId, pages: Option<&Range<u64>>, metadata: bool) {
        let epoch = self.epoch;
        if metadata && self.persistence == Persistence::Journal {
            // As it is committed: for all files at once.
            self.hand_over_names();
        }
        self.file(id).hand_over(pages, metadata, epoch);
    }

    pub(crate) fn hand_over_directory(&mut self, dir: DirId) {
        if self.persistence == Persistence::Journal {
            return self.hand_over_names();
        }
        let epoch = self.epoch;
        self.directory(dir).hand_over(epoch);
    }

    /// What a journal hands over: names and lengths of all files, and what is in blocks that are new.
    fn hand_over_names(&mut self) {
        let epoch = self.epoch;
        self.files.values_mut().for_each(|inode| inode.hand_over_new(epoch));
        self.directories.values_mut().for_each(|directory| directory.hand_over(epoch));
    }

    /// The file goes to the device, and nothing that comes later overtakes it.
    pub(crate) fn barrier(&mut self, id: FileId) {
        self.hand_over(id, None, true);
        self.epoch += 1;
    }

    pub(crate) fn persist(&mut self, id: FileId, pages: Option<&Range<u64>>) {
        if self.persistence == Persistence::Journal && self.file(id).changes_metadata(pages) {
            self.commit();
        }
        self.file(id).persist(pages);
        self.keep_order();
    }

    /// The journal is on the medium: names and lengths of all files, and before them what is in blocks
    /// that are new.
    fn commit(&mut self) {
        self.files.values_mut().for_each(Inode::persist_new);
        self.directories.values_mut().for_each(Directory::persist);
        self.forget_unreachable();
    }

    pub(crate) fn persist_all(&mut self) {
        for inode in self.files.values_mut() {
            inode.persist(None);
        }
        self.directories.values_mut().for_each(Directory::persist);
        self.keep_order();
        self.forget_unreachable();
    }

    pub(crate) fn persist_directory(&mut self, dir: DirId) {
        if self.persistence == Persistence::Journal {
            self.commit();
        }
        self.directory(dir).persist();
        self.keep_order();
        self.forget_unreachable();
    }

    pub(crate) fn close(&mut self, id: FileId) {
        self.file(id).handles -= 1;
        self.forget_unreachable();
    }

    /// Forgets the files that no name leads to and nobody has open, and after a crash the directories
    /// whose names are gone.
    pub(crate) fn forget_unreachable(&mut self) {
        let (mut files, mut dirs) = (BTreeSet::new(), BTreeSet::from([ROOT]));
        let mut open = vec![ROOT];
        while let Some(dir) = open.pop() {
            for target in self.directories[&dir].targets() {
                match target {
                    Target::File(id) => drop(files.insert(id)),
                    Target::Dir(id) => open.extend(dirs.insert(id).then_some(id)),
                }
            }
        }
        self.directories.retain(|id, _| dirs.contains(id));
        self.files.retain(|id, inode| inode.handles > 0 || files.contains(id));
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Something became durable, so everything behind an earlier barrier is.
    fn keep_order(&mut self) {
        if self.epoch > 0 {
            for inode in self.files.values_mut() {
                inode.persist_before(self.epoch);
            }
        }
    }

    /// Asks that the file is overwritten in place, and says whether it will be.
    pub(crate) fn keep_in_place(&mut self, id: FileId) -> bool {
        let room = self.room;
        let inode = self.file(id);
        if inode.live.len > 0 {
            return inode.room.is_in_place();
        }
        room.keep_in_place(&mut inode.room)
    }

    /// Whether a sync of the file, or of all files, finds room for what was written without any.
    pub(crate) fn pays(&self, id: FileId, all: bool) -> bool {
        let syncs = |&(&file, _): &(&FileId, &Inode)| all || file == id;
        let owed: u64 = self.files.iter().filter(syncs).map(|(_, inode)| inode.room.owed()).sum();
        owed == 0 || owed <= self.room.spare(self.taken())
    }

    /// A sync covered these pages of the file (all if `None`), or all files.
    pub(crate) fn settle(&mut self, id: FileId, pages: Option<&Range<u64>>, all: bool) {
        if all {
            self.files.values_mut().for_each(|inode| inode.room.settle(None));
        } else {
            self.file(id).room.settle(pages);
        }
    }

    /// Takes the beginning of a range that there is room for, to be written.
    fn claim(&mut self, id: FileId, bytes: &Range<u64>, claim: Claim) -> Range<u64> {
        let fitting = self.fitting(id, bytes, claim);
        if !fitting.is_empty() {
            let room = self.room;
            let inode = self.file(id);
            room.claim(&mut inode.room, &inode.live.blocks, pages_of(&fitting), claim);
        }
        fitting
    }

    /// The beginning of a range that there is room for.
    fn fitting(&self, id: FileId, bytes: &Range<u64>, claim: Claim) -> Range<u64> {
        if self.room.is_endless() || bytes.is_empty() {
            return bytes.clone();
        }
        let spare = self.room.spare(self.taken());
        let inode = &self.files[&id];
        let blocks = &inode.live.blocks;
        let end = self.room.fitting_end(&inode.room, blocks, &pages_of(bytes), claim, spare);
        bytes.start..end.saturating_mul(PAGE).clamp(bytes.start, bytes.end)
    }

    /// Bytes of blocks that nothing takes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.room.spare(self.taken()).saturating_mul(PAGE)
    }

    /// Blocks that are taken.
    fn taken(&self) -> u64 {
        let files = self.files.values();
        files.map(|inode| self.room.taken(&inode.room, &inode.live.blocks)).sum()
    }
}

fn range(at: u64, bytes: u64) -> io::Result<Range<u64>> {
    match at.checked_add(bytes) {
        Some(end) if end <= MAX_FILE_BYTES => Ok(at..end),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

fn full_unless(all: bool) -> io::Result<()> {
    if all { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}
