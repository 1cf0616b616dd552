//! [`Aside`]: files beside others, which get their names later: a directory in which each is called so, and [`ASIDE`].

use std::sync::Arc;

use plimsoll_sync::{Access, Dir, File, Lock, Result};

use crate::broker::seeded::ASIDE;

/// The files of a directory that are aside.
#[derive(Debug)]
pub(super) struct Aside(pub(super) Arc<dyn Dir>);

fn aside(name: &str) -> String {
    format!("{name}{ASIDE}")
}

impl Dir for Aside {
    fn list(&self) -> Result<Vec<String>> {
        let names = self.0.list()?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(ASIDE)).map(str::to_owned).collect())
    }

    fn create(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.0.create(&aside(name), access)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.0.open(&aside(name), access)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(&aside(from), &aside(to))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.0.remove(&aside(name))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        self.0.lock(&aside(name))
    }
}
