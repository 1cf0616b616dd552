//! [`OsDir`]: a directory of the real filesystem.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::{Batch, Member};
use super::entry::{Entry, Found};
use super::file::OsFile;
use super::regular::{regular, stranger};
use super::{How, create_all, lock, sys};
use crate::latch::{Latch, Latched, Latches};
use crate::{Access, Dir, Error, File, Lock, Overwrite, Result, Space};

/// A directory of the real filesystem: the one that was opened, whatever becomes of its path, and of the
/// process's own. (On Windows a directory that is open cannot be renamed.)
///
/// Latches are kept per `OsDir`: open a directory once per process and share it.
#[derive(Debug)]
pub struct OsDir {
    path: PathBuf,
    /// Open for as long as entries change: an error of writing them back is reported to whoever
    /// had the directory open by then.
    handle: fs::File,
    /// One at a time: of two that sync together only one would be told of an error, and a handle
    /// must get the latch of its own file, whatever becomes of the name meanwhile.
    turn: Mutex<()>,
    /// Closed when the directory itself could not be synced.
    latch: Latch,
    latches: Latches,
}

/// Unfinished files of one name that are stepped over before it is an error.
const UNFINISHED_MAX: u32 = 1000;

/// What follows the change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The directory is synced.
    Sync,
    /// Nothing, so that nothing is promised.
    Return,
}

impl OsDir {
    /// A directory that exists. Changes nothing.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let metadata = fs::metadata(&path).map_err(|e| Error::io("open", &path, e))?;
        if !metadata.is_dir() {
            return Err(Error::io("open", &path, io::ErrorKind::NotADirectory.into()));
        }
        let handle = sys::open_dir(&path).map_err(|e| Error::io("open", &path, e))?;
        Ok(Self::of(handle, path))
    }

    /// A directory, made with all its parents where they are missing. On return the name of every
    /// directory that was made here is durable. Of one that was there already its own name is made
    /// durable too, as whoever made it may not have synced it, where its parent may be opened and synced;
    /// of its parents nothing is promised. A path is followed wherever it leads.
    pub fn create_all(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        create_all::create_all(&path)?;
        Self::open(path)
    }

    fn of(handle: fs::File, path: PathBuf) -> Self {
        let (turn, latch, latches) = (Mutex::default(), Latch::default(), Latches::default());
        Self { path, handle, turn, latch, latches }
    }

    /// A new, empty file beside `name`, under a name that nothing had, which is returned too: to be
    /// filled, synced, and renamed to `name`. Its entry is durable on return. Not even a file that
    /// somebody left behind is written over.
    pub fn create_unfinished(&self, name: &str, access: Access) -> Result<(String, Arc<dyn File>)> {
        let process = std::process::id();
        let mut number = 0;
        loop {
            // In a process namespace of their own many are process 1.
            let unfinished = format!(".{name}.{process}-{number}");
            match self.create(&unfinished, access) {
                Ok(file) => return Ok((unfinished, file)),
                Err(Error::Io { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && number < UNFINISHED_MAX =>
                {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of these names, to be written and synced together through `io_uring`. Changes
    /// nothing. Unsupported where there is none.
    pub fn batch(&self, names: &[String]) -> Result<Batch> {
        let _turn = self.turn();
        let member = |name: &String| {
            let path = self.file_path(name)?;
            Ok(Member {
                file: open(self.entry(name, &path), Access::default())?,
                path,
                latch: self.latches.of(name),
            })
        };
        let files = names.iter().map(member).collect::<Result<_>>()?;
        Batch::new(files, self.path.clone())
    }

    /// Says whether somebody holds the lock: [`Error::Locked`] names them. Nothing is made or changed. It
    /// looks by taking the lock for a moment, shared with others who look.
    pub fn check_unlocked(&self, name: &str) -> Result<()> {
        lock::check_free(self.entry(name, &self.file_path(name)?))
    }

    /// Where a file of this name is, or was when the directory was opened: for errors.
    fn file_path(&self, name: &str) -> Result<PathBuf> {
        let mut components = Path::new(name).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(only)), None) if only == name => Ok(self.path.join(name)),
            _ => Err(Error::Name { name: name.to_owned() }),
        }
    }

    fn entry<'a>(&'a self, name: &'a str, path: &'a Path) -> Entry<'a> {
        Entry { dir: &self.handle, name, path }
    }

    fn entries(&self) -> Result<Vec<Found>> {
        sys::entries(&self.handle, &self.path).map_err(|e| Error::io("list", &self.path, e))
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        // A panic while it was held leaves nothing half-done here.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes an entry, unless an earlier sync of the directory failed.
    fn change<T>(&self, then: Then, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let _turn = self.turn();
        self.latch.check(&self.path)?;
        let changed = change()?;
        if then == Then::Sync {
            self.sync_in_turn()?;
        }
        Ok(changed)
    }

    /// Creates, for [`Dir::create`] and [`crate::risky`].
    pub(crate) fn create_then(
        &self,
        name: &str,
        access: Access,
        then: Then,
    ) -> Result<Arc<dyn File>> {
        let path = self.file_path(name)?;
        self.change(then, || {
            let plain = Access::default();
            let entry = self.entry(name, &path);
            let created = sys::open(entry, plain, How::Create);
            let mut file = created.map_err(|e| Error::io("create", &path, e))?;
            if access != plain {
                // Apart, because some filesystems refuse the flags after they made the file.
                file = open(entry, access).inspect_err(|_| {
                    sys::remove(entry).ok();
                })?;
            }
            // Whatever had this name and failed is another file.
            self.latches.remove(name);
            Ok(self.handle(file, name, path.clone(), access))
        })
    }

    /// Renames, for [`Dir::rename`] and [`crate::risky`].
    pub(crate) fn rename_then(&self, from: &str, to: &str, then: Then) -> Result<()> {
        let (from_path, to_path) = (self.file_path(from)?, self.file_path(to)?);
        self.change(then, || {
            let renamed = sys::rename(self.entry(from, &from_path), self.entry(to, &to_path));
            renamed.map_err(|e| Error::io("rename", &from_path, e))?;
            self.latches.rename(from, to);
            Ok(())
        })
    }

    /// Takes a name away, for [`Dir::remove`] and [`crate::risky`].
    pub(crate) fn remove_then(&self, name: &str, then: Then) -> Result<()> {
        let path = self.file_path(name)?;
        self.change(then, || {
            sys::remove(self.entry(name, &path)).map_err(|e| Error::io("remove", &path, e))?;
            self.latches.remove(name);
            Ok(())
        })
    }

    fn sync_in_turn(&self) -> Result<()> {
        self.latch.guard(&self.path, || {
            sys::sync_dir(&self.handle).map_err(|e| Error::io("sync directory", &self.path, e))
        })
    }

    /// For tests of what a failure closes.
    #[cfg(test)]
    pub(crate) fn latch_of(&self, name: &str) -> Arc<Latch> {
        self.latches.of(name)
    }

    fn handle(&self, file: fs::File, name: &str, path: PathBuf, access: Access) -> Arc<dyn File> {
        let inner = OsFile::new(file, path.clone(), access);
        Arc::new(Latched::new(inner, path, access, self.latches.of(name)))
    }
}

impl Dir for OsDir {
    fn list(&self) -> Result<Vec<String>> {
        let regular = self.entries()?.into_iter().filter(|(_, stranger)| stranger.is_none());
        // Names that are not text are not ours.
        let mut names: Vec<_> = regular.filter_map(|(name, _)| name.into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn refuse_strangers(&self, is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        for (name, found) in self.entries()? {
            if let Some(found) = found
                && name.to_str().is_some_and(is_ours)
            {
                return Err(stranger(&self.path.join(name), found));
            }
        }
        Ok(())
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.create_then(name, access, Then::Sync)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let path = self.file_path(name)?;
        let _turn = self.turn();
        let file = open(self.entry(name, &path), access)?;
        Ok(self.handle(file, name, path, access))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_then(from, to, Then::Sync)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.remove_then(name, Then::Sync)
    }

    fn sync(&self) -> Result<()> {
        let _turn = self.turn();
        self.sync_in_turn()
    }

    #[cfg(unix)]
    fn device(&self) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        self.handle.metadata().ok().map(|metadata| metadata.dev())
    }

    fn space(&self) -> Option<Space> {
        super::place::space_of(&self.handle).ok()
    }

    fn overwrite(&self) -> Overwrite {
        super::place::overwrite(&self.handle)
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let path = self.file_path(name)?;
        let entry = self.entry(name, &path);
        self.change(Then::Sync, || match sys::create_dir(entry) {
            // Of a file or a link, opening it says so.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                sys::open_own_dir(entry).map(|_| ()).map_err(|e| Error::io("open", &path, e))
            }
            made => made.map_err(|e| Error::io("create directory", &path, e)),
        })?;
        self.open_dir(name)
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let path = self.file_path(name)?;
        let opened = sys::open_own_dir(self.entry(name, &path));
        let handle = opened.map_err(|e| Error::io("open", &path, e))?;
        Ok(Arc::new(Self::of(handle, path)))
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        lock::take(self.entry(name, &self.file_path(name)?)).map(Lock::new)
    }
}

fn open(entry: Entry<'_>, access: Access) -> Result<fs::File> {
    let opened = match sys::open(entry, access, How::Write) {
        Err(error) if refuses_writes(&error) => sys::open(entry, access, How::Read),
        opened => opened,
    };
    regular(entry.path, opened, || sys::stranger(entry)).map_err(|error| match error {
        Error::Io { source, .. } if access != Access::default() && refuses_flags(&source) => {
            unsupported_access(entry.path, access, &source)
        }
        error => error,
    })
}

/// Whether open(2) failed because the file was to be written. What is only read can be read then.
fn refuses_writes(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Whether open(2) failed because of its flags rather than because of the file.
fn refuses_flags(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

fn unsupported_access(path: &Path, access: Access, error: &io::Error) -> Error {
    let reason = format!("open(2) refuses its flags: {error}");
    Error::Unsupported { method: access.method(), path: path.to_owned(), reason }
}
