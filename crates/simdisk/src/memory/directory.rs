//! The names of one directory: what the kernel has, what the medium has, and what is on its way.
//!
//! Each entry persists by itself. Of a rename the new name comes first: after a crash a renamed
//! file has its old name, both or the new one, and is never without any. With a journal a rename is
//! whole.

use std::collections::BTreeMap;

use super::inode::Stage;

/// Which file, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u64);

/// Which directory. None has two names, or another one than it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirId(pub(crate) u64);

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    File(FileId),
    Dir(DirId),
}

pub(crate) type Entries = BTreeMap<String, Target>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    pub(crate) live: Entries,
    pub(crate) durable: Entries,
    pub(crate) pending: Vec<EntryChange>,
}

/// A name leads somewhere else, or nowhere.
#[derive(Debug, Clone)]
pub(crate) struct EntryChange {
    /// Changes of one operation share a number.
    pub(crate) order: u64,
    pub(crate) stage: Stage,
    pub(crate) name: String,
    pub(crate) to: Option<Target>,
    /// It cannot persist unless the change before it did.
    pub(crate) follows: bool,
}

impl Directory {
    pub(crate) fn link(&mut self, order: u64, name: &str, to: Target) {
        self.change(order, name, Some(to), false);
    }

    pub(crate) fn unlink(&mut self, order: u64, name: &str) {
        self.change(order, name, None, false);
    }

    pub(crate) fn rename(&mut self, order: u64, from: &str, to: &str, id: FileId) {
        self.change(order, to, Some(Target::File(id)), false);
        self.change(order, from, None, true);
    }

    pub(crate) fn hand_over(&mut self, epoch: u64) {
        for change in &mut self.pending {
            if change.stage == Stage::Kernel {
                change.stage = Stage::Device { epoch };
            }
        }
    }

    pub(crate) fn persist(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// The process that was told of a failed sync is gone. To the next one the entries that it sees are
    /// changes like any other: its own sync of the directory makes them durable, or fails again.
    pub(crate) fn forgive(&mut self, order: u64) {
        let mut expected = self.durable.clone();
        for change in &self.pending {
            change.apply(&mut expected);
        }
        let live = self.live.clone();
        for (name, to) in &live {
            if expected.get(name) != Some(to) {
                self.change(order, name, Some(*to), false);
            }
        }
        for name in expected.keys().filter(|name| !live.contains_key(*name)) {
            self.change(order, name, None, false);
        }
    }

    /// Where names lead, or may lead after a crash.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let names = self.live.values().chain(self.durable.values());
        names.chain(self.pending.iter().filter_map(|change| change.to.as_ref())).copied()
    }

    fn change(&mut self, order: u64, name: &str, to: Option<Target>, follows: bool) {
        let name = name.to_owned();
        let change = EntryChange { order, stage: Stage::Kernel, name, to, follows };
        change.apply(&mut self.live);
        self.pending.push(change);
    }
}

impl EntryChange {
    pub(crate) fn apply(&self, entries: &mut Entries) {
        match self.to {
            Some(to) => entries.insert(self.name.clone(), to),
            None => entries.remove(&self.name),
        };
    }
}
