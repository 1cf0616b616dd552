//! [`SimDir`]: the directory of a simulated disk.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use plimsoll_sync::latch::{Latch, Latched, Latches};
use plimsoll_sync::{Access, Crash, Dir, Error, File, Lock, Overwrite, Result, Space};

use super::crash;
use super::directory::{DirId, Target};
use super::disk::{Disk, ROOT};
use super::failure;
use super::fault::{Fault, Operation};
use super::file::SimFile;
use super::history::{History, Step};
use super::machine::{Machine, Shared, Twist};
use super::options::DiskOptions;

/// A directory on a simulated disk.
///
/// All handles of its files, and the `SimDir` itself, are one machine behind one lock. A crash does
/// not stop it: [`SimDir::crash`] returns what would be found, as another `SimDir`.
#[derive(Debug)]
pub struct SimDir {
    pub(super) machine: Shared,
    pub(super) options: DiskOptions,
    id: DirId,
    path: PathBuf,
    /// What the names of its files begin with to fault rules and in the history: the directories that
    /// it is in.
    prefix: String,
    /// Closed when the directory itself could not be synced.
    latch: Latch,
    latches: Latches,
}

impl SimDir {
    /// An empty directory on a good disk without end.
    #[must_use]
    pub fn new() -> Self {
        Self::with(DiskOptions::default())
    }

    /// An empty directory on a disk of this kind.
    ///
    /// # Panics
    /// If the alignment for direct access is not a power of two.
    #[must_use]
    pub fn with(options: DiskOptions) -> Self {
        Self::on(Disk::new(&options), options)
    }

    pub(crate) fn on(disk: Disk, options: DiskOptions) -> Self {
        let alignment = options.direct_alignment;
        assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
        Self {
            machine: Shared::new(Machine::new(disk, History::new(options.history_steps))),
            options,
            id: ROOT,
            path: PathBuf::from("simdisk"),
            prefix: String::new(),
            latch: Latch::default(),
            latches: Latches::default(),
        }
    }

    /// One possible state of the disk after `crash`, now: a disk of the same kind, healthy, with no
    /// file open, no lock held, no fault and no history. This one goes on as if nothing happened.
    ///
    /// The same operations and the same seed give the same state, on every machine. A process crash
    /// loses nothing, so that what was not synced can still be lost by a power cut that follows; so
    /// can what a system crash left in the device's cache.
    #[must_use]
    pub fn crash(&self, crash: Crash, seed: u64) -> Self {
        let machine = self.machine.lock();
        let disk = crash::crash(&machine.disk, crash, seed);
        Self::on(disk, self.options)
    }

    /// One possible state of the disk after a power cut, now. See [`SimDir::crash`].
    #[must_use]
    pub fn power_cut(&self, seed: u64) -> Self {
        self.crash(Crash::PowerCut, seed)
    }

    /// From now on this fault may happen. Of two that are due at once the older happens, and
    /// the other to what it matches next.
    ///
    /// # Panics
    /// If the operation cannot suffer such a fault, or `nth` or a count is 0: it would never happen.
    pub fn inject(&self, fault: Fault) {
        self.machine.lock().faults.add(fault);
    }

    /// The machine goes down before operation `number` and does nothing from there on: every call
    /// fails. [`SimDir::crash`] then returns what that moment could leave. Going through all numbers
    /// up to [`SimDir::operations`] of a run that was not stopped visits every moment between two
    /// operations, also inside `create`, `rename` and `remove`, whose entry has changed but is not
    /// yet synced.
    pub fn stop_at(&self, number: u64) {
        self.machine.lock().stop_at = Some(number);
    }

    /// Whether the machine went down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.machine.lock().is_down
    }

    /// How many operations there were, which is the number of the next one.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.machine.lock().operations
    }

    /// The latest operations, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<Step> {
        self.machine.lock().history.steps()
    }

    fn file_path(&self, name: &str) -> Result<PathBuf> {
        let mut components = Path::new(name).components();
        match (components.next(), components.next()) {
            (Some(Component::Normal(only)), None) if only == name => Ok(self.path.join(name)),
            _ => Err(Error::Name { name: name.to_owned() }),
        }
    }

    /// One numbered operation on the directory.
    fn step<T>(
        &self,
        operation: Operation,
        name: &str,
        detail: impl fmt::Display,
        act: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> Result<T> {
        let mut machine = self.machine.lock();
        let done = check_name(name)
            .and_then(|()| machine.plain_step(operation, &self.known_as(name), detail, act));
        done.map_err(|error| {
            let path = self.path.join(name);
            match error.kind() {
                // What would open it as a file, on a real disk too.
                io::ErrorKind::IsADirectory
                    if matches!(operation, Operation::Open | Operation::Lock) =>
                {
                    Error::NotAFile { path, found: "a directory" }
                }
                _ => Error::io(operation.name(), path, error),
            }
        })
    }

    /// The name of a file as fault rules and the history have it.
    fn known_as<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.prefix.is_empty() {
            Cow::Borrowed(name)
        } else {
            Cow::Owned(format!("{}{name}", self.prefix))
        }
    }

    /// The name of the directory itself, likewise.
    fn known_self(&self) -> &str {
        self.prefix.trim_end_matches('/')
    }

    /// A directory in this one.
    fn inner(&self, id: DirId, name: &str) -> Arc<dyn Dir> {
        Arc::new(Self {
            machine: self.machine.clone(),
            options: self.options,
            id,
            path: self.path.join(name),
            prefix: format!("{}{name}/", self.prefix),
            latch: Latch::default(),
            latches: Latches::default(),
        })
    }

    /// A handle without a latch. A new file's entry is not durable yet.
    pub(crate) fn handle(&self, name: &str, access: Access, create: bool) -> Result<SimFile> {
        let path = self.file_path(name)?;
        let method = access.method();
        if method.promise(self.options.system).is_none() {
            let reason = "no such access on this system".to_owned();
            return Err(Error::Unsupported { method, path, reason });
        }
        let operation = if create { Operation::Create } else { Operation::Open };
        let id = self.step(operation, name, "", |disk| {
            let id = if create {
                disk.create(self.id, name, &self.known_as(name))?
            } else {
                disk.find(self.id, name)?
            };
            disk.file(id).handles += 1;
            Ok(id)
        })?;
        Ok(SimFile {
            machine: self.machine.clone(),
            id,
            path,
            access,
            alignment: self.options.direct_alignment,
            system: self.options.system,
        })
    }

    fn latched(&self, file: SimFile, name: &str) -> Arc<dyn File> {
        let (path, access) = (file.path.clone(), file.access);
        Arc::new(Latched::new(file, path, access, self.latches.of(name)))
    }

    /// The sync of the directory, whatever its latch says.
    pub(crate) fn sync_entries(&self) -> Result<()> {
        let mut machine = self.machine.lock();
        let synced = machine.step(Operation::SyncDir, self.known_self(), "", |disk, twist| {
            match twist {
                Twist::Fail { error, seed } => {
                    failure::sync_directory(disk, self.id, seed);
                    return Err(error);
                }
                Twist::Lie => disk.hand_over_directory(self.id),
                Twist::None | Twist::Short(_) => disk.persist_directory(self.id),
            }
            Ok(())
        });
        synced.map_err(|e| Error::io("sync directory", &self.path, e))
    }
}

impl Dir for SimDir {
    fn list(&self) -> Result<Vec<String>> {
        let names = |disk: &mut Disk| {
            let entries = disk.directory(self.id).live.iter();
            let files = entries.filter(|(_, target)| matches!(target, Target::File(_)));
            Ok(files.map(|(name, _)| name.clone()).collect())
        };
        let mut machine = self.machine.lock();
        let listed = machine.plain_step(Operation::List, self.known_self(), "", names);
        listed.map_err(|e| Error::io("list", &self.path, e))
    }

    /// Directories. No operation of its own: a list comes with it.
    fn refuse_strangers(&self, is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        let mut machine = self.machine.lock();
        machine.check_up().map_err(|e| Error::io("list", &self.path, e))?;
        for (name, target) in &machine.disk.directory(self.id).live {
            if matches!(target, Target::Dir(_)) && is_ours(name) {
                let path = self.path.join(name);
                return Err(Error::NotAFile { path, found: "a directory" });
            }
        }
        Ok(())
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.latch.check(&self.path)?;
        let file = self.handle(name, access, true)?;
        // Whatever had this name and failed is another file.
        self.latches.remove(name);
        self.sync()?;
        Ok(self.latched(file, name))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let file = self.handle(name, access, false)?;
        Ok(self.latched(file, name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.file_path(from)?;
        let to_path = self.file_path(to)?;
        check_name(to).map_err(|e| Error::io("rename", to_path, e))?;
        self.latch.check(&self.path)?;
        let detail = format_args!("to {to}");
        self.step(Operation::Rename, from, detail, |disk| {
            disk.rename(self.id, from, to, &self.known_as(to))
        })?;
        self.latches.rename(from, to);
        self.sync()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.file_path(name)?;
        self.latch.check(&self.path)?;
        self.step(Operation::Remove, name, "", |disk| disk.remove(self.id, name))?;
        self.latches.remove(name);
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.latch.guard(&self.path, || self.sync_entries())
    }

    fn space(&self) -> Option<Space> {
        let total_bytes = self.options.capacity_bytes?;
        Some(Space { total_bytes, free_bytes: self.machine.lock().disk.free_bytes() })
    }

    fn overwrite(&self) -> Overwrite {
        self.options.overwriting.said()
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.file_path(name)?;
        self.latch.check(&self.path)?;
        let create = |disk: &mut Disk| disk.create_dir(self.id, name);
        let id = self.step(Operation::CreateDir, name, "", create)?;
        self.sync()?;
        Ok(self.inner(id, name))
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        self.file_path(name)?;
        let find = |disk: &mut Disk| disk.find_dir(self.id, name);
        let id = self.step(Operation::OpenDir, name, "", find)?;
        Ok(self.inner(id, name))
    }

    /// As on a real disk the directory itself is locked, and there is a file, empty here, whose entry
    /// nobody syncs.
    fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.file_path(name)?;
        self.step(Operation::Lock, name, "", |disk| match disk.find(self.id, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk.create(self.id, name, &self.known_as(name))
            }
            found => found,
        })?;
        if !self.machine.lock().locks.insert(self.id) {
            let holder = Some(std::process::id());
            return Err(Error::Locked { path, holder });
        }
        Ok(Lock::new(Held { machine: self.machine.clone(), id: self.id }))
    }
}

/// A lock that is held.
#[derive(Debug)]
struct Held {
    machine: Shared,
    id: DirId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.machine.lock().locks.remove(&self.id);
    }
}

/// What real filesystems refuse although it has no separators.
fn check_name(name: &str) -> io::Result<()> {
    if name.len() > 255 {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    if name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(())
}
