//! [`Gate`]: a data directory in which no file of a chapter is made while it is shut.

use std::sync::{Arc, Condvar, Mutex};

use plimsoll_sync::{Access, Dir, File, Lock, Overwrite, Result, Space};

/// A data directory, or one in it.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    dir: Arc<dyn Dir>,
    /// It is a directory of chapters.
    has_chapters: bool,
    is_shut: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    /// One that is shut.
    pub(crate) fn shut(dir: Arc<dyn Dir>) -> Self {
        Self { dir, has_chapters: false, is_shut: Arc::new((Mutex::new(true), Condvar::new())) }
    }

    pub(crate) fn open(&self) {
        *self.is_shut.0.lock().unwrap() = false;
        self.is_shut.1.notify_all();
    }

    fn within(&self, name: &str, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        let has_chapters = name.starts_with("chapters-");
        Arc::new(Self { dir, has_chapters, is_shut: Arc::clone(&self.is_shut) })
    }
}

impl Dir for Gate {
    fn list(&self) -> Result<Vec<String>> {
        self.dir.list()
    }

    fn refuse_strangers(&self, is_ours: &dyn Fn(&str) -> bool) -> Result<()> {
        self.dir.refuse_strangers(is_ours)
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        if self.has_chapters && name.ends_with(".chapter") {
            let is_shut = self.is_shut.0.lock().unwrap();
            drop(self.is_shut.1.wait_while(is_shut, |is_shut| *is_shut).unwrap());
        }
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
        Ok(self.within(name, self.dir.create_dir(name)?))
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        Ok(self.within(name, self.dir.open_dir(name)?))
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
        self.dir.lock(name)
    }
}
