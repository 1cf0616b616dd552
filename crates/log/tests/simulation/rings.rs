//! Rings in files, for openers that see theirs, none, another one, or one that was given up long ago.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_log::{Ack, Log, Options, Ring};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Crash;
use rand::Rng;
use rand_pcg::Pcg64Mcg;

#[derive(Debug)]
pub(crate) struct Rings {
    shm: tempfile::TempDir,
    /// Names rings, so that each crash leaves another.
    number: u64,
    /// The log's ring, which the opener before could not see.
    hidden: Option<PathBuf>,
    /// Rings whose records were given up: they never come back.
    given_up: Vec<PathBuf>,
}

/// What an opener sees.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sees {
    /// The log's ring, or a place for one.
    Its,
    /// No ring: it has one in memory.
    None,
    /// Another path: nothing is there, or a ring that was given up.
    Another,
}

impl Rings {
    pub(crate) fn new() -> Option<Self> {
        let shm = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self { shm, number: 0, hidden: None, given_up: Vec::new() })
    }

    fn path(&self) -> PathBuf {
        self.shm.path().join(format!("ring-{}", self.number))
    }

    /// Where the log's ring is, for the opener that comes.
    pub(crate) fn ring(&self) -> Ring {
        if self.is_hidden() { Ring::Memory } else { Ring::File(self.path()) }
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden.is_some()
    }

    /// A ring has the size that it was made with.
    pub(crate) fn has_any(&self) -> bool {
        fs::read_dir(self.shm.path()).is_ok_and(|mut rings| rings.next().is_some())
    }

    /// Of a ring in a file only a crash of the process leaves anything. What the old log does from here
    /// on goes to the old file.
    pub(crate) fn crash(&mut self, crash: Crash) {
        let old = self.path();
        self.number += 1;
        if crash == Crash::Process {
            fs::copy(&old, self.path()).ok();
        }
        fs::remove_file(old).ok();
    }

    /// For a log that is made anew.
    pub(crate) fn begin_anew(&mut self) {
        self.number += 1;
        self.hidden = None;
        self.given_up.clear();
    }

    /// Draws what the next opener sees.
    pub(crate) fn draw(&mut self, rng: &mut Pcg64Mcg) -> Sees {
        let path = self.path();
        if let Some(hidden) = self.hidden.take() {
            // What only it had was given up.
            put(&hidden, &path);
            return Sees::Its;
        }
        if !path.exists() || !rng.random_ratio(1, 4) {
            return Sees::Its;
        }
        let away = path.with_extension("away");
        put(&path, &away);
        if rng.random() {
            self.hidden = Some(away);
            return Sees::None;
        }
        self.number += 1;
        if rng.random()
            && let Some(old) = self.given_up.pop()
        {
            put(&old, &self.path());
        }
        self.given_up.push(away);
        Sees::Another
    }

    /// A ring that another log needs.
    pub(crate) fn foreign(&self, options: &Options) -> Ring {
        let path = self.shm.path().join("foreign");
        fs::remove_file(&path).ok();
        let ring = Ring::File(path);
        let options = Options { ring: ring.clone(), observer: None, ..options.clone() };
        let (log, _) = Log::open_in(Arc::new(SimDir::new()), options).unwrap();
        log.append_with(b"another log's", Ack::Buffered).unwrap();
        ring
    }

    pub(crate) fn forget_foreign(ring: &Ring) {
        if let Ring::File(path) = ring {
            fs::remove_file(path).ok();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing in /dev/shm outlives the system")]
fn put(from: &Path, to: &Path) {
    // What was given up may never have been made.
    fs::rename(from, to).ok();
}
