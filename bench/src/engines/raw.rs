//! No logs: what the disk and the memory give at best.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use plimsoll_sync::{Access, AlignedBuf, Allocation, Dir, OsDir, SyncMethod};

use crate::engine::{Engine, Setup};

const BLOCK: usize = 4096;
const FILE_BYTES: u64 = 256 << 20;
const COPY_BYTES: usize = 32 << 20;
const GATHER_BYTES: usize = 1 << 20;

/// One write and sync into zero-filled space, over and over.
pub(super) struct Synced {
    file: Arc<dyn plimsoll_sync::File>,
    method: SyncMethod,
    state: Mutex<(AlignedBuf, u64)>,
}

impl Synced {
    pub(super) fn open(setup: &Setup, arm: &str) -> Result<Self> {
        let method = if arm == "raw-dsync" {
            SyncMethod::DirectRwfDsync
        } else {
            SyncMethod::DirectFdatasync
        };
        let dir = OsDir::open(&setup.dir)?;
        drop(dir.create("raw", Access::default())?);
        let file = dir.open("raw", method.access())?;
        file.allocate(0, FILE_BYTES, Allocation::Zeroed)?;
        file.sync(SyncMethod::DirectFdatasync)?;
        Ok(Self { file, method, state: Mutex::new((AlignedBuf::zeroed(8 << 20, BLOCK), 0)) })
    }
}

impl Engine for Synced {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let mut state = self.state.lock().expect("an appender panicked");
        let (buffer, at) = &mut *state;
        let bytes = record.len().next_multiple_of(BLOCK);
        buffer[..record.len()].copy_from_slice(record);
        if *at + bytes as u64 > FILE_BYTES {
            *at = 0;
        }
        self.file.write_sync_at(&buffer[..bytes], *at, self.method)?;
        *at += bytes as u64;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read(&self) -> Result<(u64, u64)> {
        bail!("what was written is not read")
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {}
}

/// A copy into memory.
pub(super) struct Copied(Mutex<(Vec<u8>, usize)>);

impl Copied {
    pub(super) fn new() -> Self {
        Self(Mutex::new((vec![1; COPY_BYTES], 0)))
    }
}

impl Engine for Copied {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let mut state = self.0.lock().expect("an appender panicked");
        let (buffer, at) = &mut *state;
        if *at + record.len() > buffer.len() {
            *at = 0;
        }
        buffer[*at..*at + record.len()].copy_from_slice(record);
        *at += record.len();
        std::hint::black_box(buffer);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read(&self) -> Result<(u64, u64)> {
        bail!("what was copied is not read")
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {}
}

/// Sequential writes to a growing file: each record, or gathered and past the page cache.
pub(super) struct Written {
    path: PathBuf,
    file: File,
    gathered: Option<Mutex<Gathered>>,
    at: Mutex<u64>,
}

struct Gathered {
    buffer: AlignedBuf,
    filled: usize,
}

impl Written {
    pub(super) fn open(setup: &Setup, direct: bool) -> Result<Self> {
        let path = setup.dir.join("raw");
        let flags = if direct { rustix::fs::OFlags::DIRECT.bits() } else { 0 };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .custom_flags(flags.cast_signed())
            .open(&path)?;
        let gathered = direct.then(|| {
            Mutex::new(Gathered { buffer: AlignedBuf::zeroed(GATHER_BYTES, BLOCK), filled: 0 })
        });
        Ok(Self { path, file, gathered, at: Mutex::new(0) })
    }
}

impl Engine for Written {
    fn append(&self, _appender: usize, record: &[u8]) -> Result<()> {
        let mut at = self.at.lock().expect("an appender panicked");
        let Some(gathered) = &self.gathered else {
            self.file.write_all_at(record, *at)?;
            *at += record.len() as u64;
            return Ok(());
        };
        let mut gathered = gathered.lock().expect("an appender panicked");
        let filled = gathered.filled;
        gathered.buffer[filled..filled + record.len()].copy_from_slice(record);
        gathered.filled += record.len();
        if gathered.filled + record.len() > GATHER_BYTES {
            self.file.write_all_at(&gathered.buffer, *at)?;
            *at += GATHER_BYTES as u64;
            gathered.filled = 0;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.file.sync_data()?)
    }

    fn read(&self) -> Result<(u64, u64)> {
        let mut file = File::open(&self.path)?;
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok((bytes / 1024, bytes)),
                n => bytes += n as u64,
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn abandon(self: Box<Self>) {}
}
