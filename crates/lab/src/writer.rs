//! A writer that makes record after record durable, in a closed loop: the arm of sync-cost and
//! full-flush, which share it.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_sync::{AlignedBuf, Availability, Dir, Error as SyncError, Promise, SyncMethod};

use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::error::Result;
use crate::experiment::Setup;
use crate::layout::{LaidOut, Layout, noise};
use crate::result::Unavailable;
use crate::runner::{Arm, Block, Size, Watch};
use crate::units;
use crate::verdict::Asked;

/// What a writer measures.
pub(crate) const MEASURE: &str = "time to durable";

/// What a writer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriterSpec {
    /// How each record is made durable.
    pub method: SyncMethod,
    /// How the blocks under it are prepared.
    pub layout: Layout,
    /// Bytes of a record; zero means a sync with nothing to sync.
    pub payload_bytes: u64,
}

/// How long its blocks are, and how long its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// The most that a block holds.
    pub block: Size,
    /// Records in a file: a multiple of a block, so that most blocks need no preparation.
    pub records: u64,
}

impl Shape {
    /// Records in a growing file, which starts empty in each block. Files that grow by turns break
    /// each other's extents into pieces, and the pieces of a long file no longer fit into its
    /// inode.
    const fn records_appended(&self) -> u64 {
        self.block.operations as u64
    }
}

impl WriterSpec {
    /// `fdatasync/append/4KiB`; with nothing to write, `fsync/clean`.
    #[must_use]
    pub(crate) fn name(self) -> String {
        match self.payload_bytes {
            0 => format!("{}/clean", self.method),
            bytes => {
                let bytes = units::bytes(bytes).replace(' ', "");
                format!("{}/{}/{bytes}", self.method, self.layout)
            }
        }
    }
}

/// An arm: one writer, one file.
#[derive(Debug)]
pub(crate) struct Writer {
    spec: WriterSpec,
    shape: Shape,
    promise: Promise,
    file: LaidOut,
    payload: AlignedBuf,
}

impl Writer {
    /// Creates those of `specs` that are wanted and can run here; says why the others cannot.
    pub(crate) fn create_all(
        setup: &Setup<'_>,
        specs: &[WriterSpec],
        shape: Shape,
        watch: &Watch<'_>,
    ) -> Result<(Vec<Self>, Vec<Unavailable>)> {
        let (mut writers, mut unavailable) = (Vec::new(), Vec::new());
        for (number, &spec) in specs.iter().filter(|spec| setup.wants(&spec.name())).enumerate() {
            watch.check()?;
            match Self::create(setup, spec, shape, &format!("writer-{number}")) {
                Ok(writer) => writers.push(writer),
                Err(error) => {
                    unavailable.push(Unavailable { name: spec.name(), reason: cannot(error)? });
                }
            }
        }
        Ok((writers, unavailable))
    }

    /// One, with a file of this name.
    pub(crate) fn create(
        setup: &Setup<'_>,
        spec: WriterSpec,
        shape: Shape,
        name: &str,
    ) -> std::result::Result<Self, SyncError> {
        let (method, layout) = (spec.method, spec.layout);
        let record_bytes = spec.payload_bytes.max(1);
        let records =
            if layout == Layout::Append { shape.records_appended() } else { shape.records };
        let mut file = LaidOut::create(setup.dir, name, method, layout, record_bytes, records)?;
        let len = usize::try_from(spec.payload_bytes).expect("records are small");
        let mut payload = AlignedBuf::zeroed(len, file.file().alignment());
        noise(&mut payload, setup.seed);
        file.prepare(1)?;
        let promise = if len == 0 {
            file.file().sync(method)
        } else {
            let byte_offset = file.advance();
            file.file().write_sync_at(&payload, byte_offset, method)
        };
        // An arm that cannot run leaves no file behind for those that can.
        let promise = promise.or_else(|error| {
            setup.dir.remove(name)?;
            Err(error)
        })?;
        Ok(Self { spec, shape, promise, file, payload })
    }

    /// What the device must have seen, if that can be said. A sync of nothing may do nothing, and
    /// unlinked `io_uring` requests may do anything.
    fn asked(&self, operations: u64) -> Option<Asked> {
        let sure = self.spec.payload_bytes > 0 && self.spec.method != SyncMethod::Uring;
        let WriterSpec { method, payload_bytes: bytes, .. } = self.spec;
        let may_use_fua = method.access().direct && !method.is_call();
        sure.then_some(Asked { may_use_fua, ..Asked::new(self.promise, operations, bytes) })
    }

    /// The result of its blocks.
    #[must_use]
    pub(crate) fn result(&self, blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: self.spec.name(),
            method: self.spec.method,
            layout: self.spec.layout,
            promise: self.promise,
            payload_bytes: self.spec.payload_bytes,
            measures: &[MEASURE],
        };
        identity.result(blocks, |operations| self.asked(operations), setup)
    }
}

impl Arm for Writer {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        self.file.prepare(self.shape.records_appended())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let file = Arc::clone(self.file.file());
        loop {
            let byte_offset = self.file.advance();
            let start = Instant::now();
            if self.payload.is_empty() {
                file.sync(self.spec.method)?;
            } else {
                file.write_sync_at(&self.payload, byte_offset, self.spec.method)?;
            }
            let end = Instant::now();
            block.durable_operations += 1;
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        self.file.file().sync(SyncMethod::ORDINARY).map(|_kept| ())
    }
}

/// The methods that work here.
#[must_use]
pub(crate) fn working(setup: &Setup<'_>) -> Vec<SyncMethod> {
    let works = |(method, availability): &(SyncMethod, Availability)| {
        matches!(availability, Availability::Works(_)).then_some(*method)
    };
    setup.methods.iter().filter_map(works).collect()
}

/// Why an arm cannot be measured here; an error if the disk itself failed.
fn cannot(error: SyncError) -> Result<String> {
    match error {
        SyncError::Unsupported { reason, .. } => Ok(reason),
        SyncError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::Unsupported => {
            Ok(source.to_string())
        }
        error => Err(error.into()),
    }
}
