//! [`Aside`]: files beside others, which get their names later: a directory in which each is called so, and `.seed`. And
//! [`Given`], the directory of what a node is given of a shard, in which the log lies so beside its own.

use std::sync::Arc;

use plimsoll_sync::{Access, Dir, File, Lock, Overwrite, Result, Space};

use super::layout;

/// What stands behind the name of a file that is given.
pub(crate) const ASIDE: &str = ".seed";

/// The files of a directory that are aside.
#[derive(Debug)]
pub(crate) struct Aside {
    dir: Arc<dyn Dir>,
    /// Locked in its place: whoever has the files that are not aside has locked it.
    locked: Arc<dyn Dir>,
}

impl Aside {
    pub(crate) fn of(dir: Arc<dyn Dir>, locked: Arc<dyn Dir>) -> Self {
        Self { dir, locked }
    }
}

fn aside(name: &str) -> String {
    format!("{name}{ASIDE}")
}

impl Dir for Aside {
    fn list(&self) -> Result<Vec<String>> {
        let names = self.dir.list()?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(ASIDE)).map(str::to_owned).collect())
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.dir.create(&aside(name), access)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.dir.open(&aside(name), access)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(&aside(from), &aside(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(&aside(name))
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn device(&self) -> Option<u64> {
        self.dir.device()
    }

    fn space(&self) -> Option<Space> {
        self.dir.space()
    }

    fn overwrite(&self) -> Overwrite {
        self.dir.overwrite()
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.locked.lock(name)
    }
}

/// What a node is being given of a shard: a directory as a backup has one, whose log lies aside where it is to be.
#[derive(Debug)]
pub(crate) struct Given {
    dir: Arc<dyn Dir>,
    number: u32,
    log: Arc<dyn Dir>,
}

impl Given {
    /// In the directory of a node; made if it is not there.
    pub(crate) fn create(root: &dyn Dir, number: u32) -> Result<Arc<dyn Dir>> {
        let dir = root.create_dir(&layout::seed(number))?;
        let log = root.create_dir(&layout::shard(number))?;
        let log = Arc::new(Aside::of(log, Arc::clone(&dir)));
        Ok(Arc::new(Self { dir, number, log }))
    }
}

impl Dir for Given {
    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.dir.create(name, access)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.dir.open(name, access)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.dir.remove(name)
    }

    fn sync(&self) -> Result<()> {
        self.dir.sync()
    }

    fn create_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        match name == layout::shard(self.number) {
            true => Ok(Arc::clone(&self.log)),
            false => self.dir.create_dir(name),
        }
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        match name == layout::shard(self.number) {
            true => Ok(Arc::clone(&self.log)),
            false => self.dir.open_dir(name),
        }
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.dir.lock(name)
    }
}
