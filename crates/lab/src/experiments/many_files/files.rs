//! An arm: many small files, written and synced together in one of the ways.
//!
//! The files of a block are created, opened and made durable as empty files before it, and removed
//! after it, so that nothing but writing and syncing them is timed and counted. A block is one
//! sample: the time for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_sync::{
    AlignedBuf, Batch, BatchWrite, Dir, File, OsDir, Promise, SyncMethod, System, risky,
};

use super::values::{TOO_EARLY, median};
use super::way::{DIRECT_BYTES, THREADS, Way};
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::error::Result;
use crate::experiment::Setup;
use crate::layout::{Layout, noise};
use crate::runner::{Arm, Block};
use crate::units;
use crate::verdict::Asked;
use crate::warning::Kind;

/// What is measured.
pub(super) const MEASURE: &str = "time for all files";

/// The files of an arm.
pub(super) struct Files<'a> {
    dir: &'a OsDir,
    way: Way,
    names: Vec<String>,
    payload: AlignedBuf,
    /// Open during a block only: the files of all arms together would be too many.
    open: Opened,
    fsyncs_before_their_write: u64,
    /// Those of the first block, which is thrown away.
    fsyncs_while_warming_up: Option<u64>,
}

enum Opened {
    Nothing,
    Handles(Vec<Arc<dyn File>>),
    Batch(Box<Batch>),
}

impl<'a> Files<'a> {
    /// An arm of so many files of one record each, for a way that must work here.
    pub(super) fn new(
        setup: &Setup<'a>,
        way: Way,
        files: usize,
        record_bytes: usize,
    ) -> Result<Self> {
        let access = way.method().access();
        let (len, alignment) = if access.direct {
            let name = "files-alignment";
            let alignment = setup.dir.create(name, access)?.alignment();
            setup.dir.remove(name)?;
            (DIRECT_BYTES.next_multiple_of(alignment), alignment)
        } else {
            (record_bytes, 1)
        };
        let mut payload = AlignedBuf::zeroed(len, alignment);
        noise(&mut payload, setup.seed);
        Ok(Self {
            dir: setup.dir,
            way,
            names: (0..files).map(|number| format!("files-{number}")).collect(),
            payload,
            open: Opened::Nothing,
            fsyncs_before_their_write: 0,
            fsyncs_while_warming_up: None,
        })
    }

    /// How they are written and synced.
    #[must_use]
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// The names of the files that are created: one for [`Way::OneFile`], all of them otherwise.
    fn created(&self) -> &[String] {
        if self.way == Way::OneFile { &self.names[..1] } else { &self.names }
    }

    fn handles(&self) -> &[Arc<dyn File>] {
        match &self.open {
            Opened::Handles(handles) => handles,
            Opened::Nothing | Opened::Batch(_) => unreachable!("prepared with handles"),
        }
    }

    /// Writes all files once. Returns how long that took, and how many fsyncs came too early.
    fn write_all(&self) -> plimsoll_sync::Result<(Duration, u64)> {
        let method = self.way.method();
        if let (Way::Batch(_), Opened::Batch(batch)) = (self.way, &self.open) {
            let start = Instant::now();
            let bytes: &[u8] = &self.payload;
            let write = |file| BatchWrite { file, bytes, byte_offset: 0 };
            let writes: Vec<_> = (0..self.names.len()).map(write).collect();
            let done = batch.write_sync(&writes, method)?;
            return Ok((start.elapsed(), done.fsyncs_before_their_write as u64));
        }
        if self.way == Way::Pool {
            return self.write_in_a_pool(method).map(|took| (took, 0));
        }
        let files = self.handles();
        let start = Instant::now();
        match self.way {
            Way::Each(method) => {
                for file in files {
                    file.write_sync_at(&self.payload, 0, method)?;
                }
            }
            Way::OneFile => {
                let file = &files[0];
                for record in 0..self.names.len() as u64 {
                    file.write_at(&self.payload, record * self.payload.len() as u64)?;
                }
                file.sync(method)?;
            }
            Way::Write | Way::Then | Way::HintThen | Way::Syncfs => {
                for file in files {
                    file.write_at(&self.payload, 0)?;
                }
            }
            Way::Batch(_) | Way::Pool => unreachable!("done above"),
        }
        if self.way == Way::HintThen {
            for file in files {
                file.start_write_out()?;
            }
        }
        match self.way {
            Way::Then | Way::HintThen => {
                for file in files {
                    file.sync(method)?;
                }
            }
            Way::Syncfs => {
                files[0].sync(method)?;
            }
            _ => {}
        }
        Ok((start.elapsed(), 0))
    }

    /// Threads take file after file. They are ready before the clock starts.
    fn write_in_a_pool(&self, method: SyncMethod) -> plimsoll_sync::Result<Duration> {
        let files = self.handles();
        let payload: &[u8] = &self.payload;
        let next = AtomicUsize::new(0);
        let (ready, go) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        let work = || {
            ready.wait();
            go.wait();
            while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                file.write_sync_at(payload, 0, method)?;
            }
            Ok(Instant::now())
        };
        thread::scope(|scope| {
            let pool: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            ready.wait();
            let start = Instant::now();
            go.wait();
            let mut end = start;
            for thread in pool {
                let ended: plimsoll_sync::Result<Instant> =
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                end = end.max(ended?);
            }
            Ok(end - start)
        })
    }

    /// What the device must have seen. Of the trap nothing can be asked.
    fn asked(&self, samples: u64, promise: Promise) -> Option<Asked> {
        let files = self.names.len() as u64;
        let syncs = self.way.syncs_in_turn(files);
        let bytes = files * self.payload.len() as u64 / syncs;
        let operations = samples * syncs;
        let asked = Asked { syncs: files / syncs, ..Asked::new(promise, operations, bytes) };
        (!self.way.is_trap()).then_some(asked)
    }

    /// The result of its blocks.
    #[must_use]
    pub(super) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let method = self.way.method();
        let promise = method.promise(System::HERE).unwrap_or(Promise::Nothing);
        let identity = Identity {
            name: self.way.name(),
            method,
            layout: Layout::Append,
            promise,
            payload_bytes: self.payload.len() as u64,
            measures: &[MEASURE],
        };
        // A block is one sample, of many operations.
        let samples = blocks.len() as u64;
        let mut arm = identity.result(blocks, |_operations| self.asked(samples, promise), setup);
        // Small files take whole blocks; that is what is measured, and no reason to warn.
        arm.warnings.retain(|warning| warning.kind != Kind::WriteAmplification);
        let mut values = BTreeMap::new();
        if let Some(total) = median(&arm.summaries[0]) {
            let per_file = units::ratio(total, self.names.len() as u64 * 1000);
            values.insert("per_file_us".to_owned(), per_file);
        }
        if self.way.is_trap() {
            let warming_up = self.fsyncs_while_warming_up.unwrap_or(0);
            let counted = self.fsyncs_before_their_write - warming_up;
            values.insert(TOO_EARLY.to_owned(), units::ratio(counted, 1));
        }
        let attribution = arm.attribution.filter(|_| self.way.is_sequential());
        ArmResult { values, attribution, ..arm }
    }
}

impl fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("way", &self.way).finish_non_exhaustive()
    }
}

impl Arm for Files<'_> {
    /// Creates empty files and makes them durable with one sync of the directory.
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        let access = self.way.method().access();
        let create = |name: &String| risky::create(self.dir, name, access);
        let handles: Vec<_> =
            self.created().iter().map(create).collect::<plimsoll_sync::Result<_>>()?;
        self.dir.sync()?;
        self.open = if self.way.needs_uring() {
            drop(handles);
            Opened::Batch(Box::new(self.dir.batch(&self.names)?))
        } else {
            Opened::Handles(handles)
        };
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let (took, too_early) = self.write_all()?;
        self.fsyncs_before_their_write += too_early;
        self.fsyncs_while_warming_up.get_or_insert(too_early);
        block.durable_operations += self.names.len() as u64;
        block.sample(took, Instant::now());
        Ok(())
    }

    /// Removes the files, so that none of their data stays dirty.
    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.open = Opened::Nothing;
        for name in self.created() {
            risky::remove(self.dir, name)?;
        }
        self.dir.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::super::way::WAYS;
    use super::*;

    fn files<'a>(dir: &'a OsDir, way: Way) -> Files<'a> {
        let direct = way.method().access().direct;
        let mut payload = AlignedBuf::zeroed(if direct { 4096 } else { 200 }, 4096);
        noise(&mut payload, 7);
        Files {
            dir,
            way,
            names: (0..5).map(|number| format!("files-{number}")).collect(),
            payload,
            open: Opened::Nothing,
            fsyncs_before_their_write: 0,
            fsyncs_while_warming_up: None,
        }
    }

    #[test]
    fn every_way_writes_each_record_and_leaves_no_file() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        for way in WAYS {
            let mut files = files(&dir, way);
            let written = files.prepare().and_then(|()| files.write_all());
            match written {
                Err(plimsoll_sync::Error::Unsupported { .. }) => {}
                Err(error) => panic!("{way:?}: {error}"),
                Ok(_) => {
                    let record_bytes = files.payload.len() as u64;
                    for name in files.created() {
                        let file = dir.open(name, SyncMethod::None.access()).unwrap();
                        let records = if way == Way::OneFile { 5 } else { 1 };
                        assert_eq!(file.len().unwrap(), records * record_bytes, "{way:?}");
                    }
                }
            }
            files.settle().unwrap();
            assert!(dir.list().unwrap().is_empty(), "{way:?}");
        }
    }
}
