//! How the blocks of a file are prepared before a write lands in them.
//!
//! The layout decides how much metadata a durable write has to commit with its data, which on most
//! filesystems matters more than the sync method: a growing file commits a new size, a reserved one
//! commits that a block is now written, an overwritten one commits nothing but a timestamp.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use plimsoll_sync::{Access, AlignedBuf, Allocation, Dir, File, Result, SyncMethod, Through};

/// How the blocks under a write were prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Layout {
    /// No blocks were prepared: each write makes the file longer.
    Append,
    /// Reserved with fallocate(2): the size is final, the blocks are marked unwritten.
    Fallocated,
    /// Written once with zeros and synced; then each block is overwritten once.
    ZeroFilled,
    /// Written with data and synced; the same blocks are overwritten again and again.
    Overwritten,
}

impl Layout {
    /// Every layout, in the order in which reports print them.
    pub(crate) const ALL: [Self; 4] =
        [Self::Append, Self::Fallocated, Self::ZeroFilled, Self::Overwritten];

    /// The name that results print.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Fallocated => "fallocated",
            Self::ZeroFilled => "zero-filled",
            Self::Overwritten => "overwritten",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|layout| layout.name() == name)
            .ok_or_else(|| format!("unknown layout '{name}'"))
    }
}

/// A file of one layout, written record after record.
#[derive(Debug)]
pub(crate) struct LaidOut {
    file: Arc<dyn File>,
    /// A handle to prepare the file with. It does not sync every write, as preparing is not
    /// measured. It is direct if the file is, so that no page of it stays in the page cache.
    preparing: Arc<dyn File>,
    layout: Layout,
    record_bytes: u64,
    records: u64,
    next: u64,
    ready: bool,
}

impl LaidOut {
    /// Creates a file for `records` records and opens it for `method`. It is not laid out yet.
    pub(crate) fn create(
        dir: &dyn Dir,
        name: &str,
        method: SyncMethod,
        layout: Layout,
        record_bytes: u64,
        records: u64,
    ) -> Result<Self> {
        let file = dir.create(name, method.access())?;
        let access = Access { direct: method.access().direct, through: Through::No };
        let preparing =
            if access == method.access() { Arc::clone(&file) } else { dir.open(name, access)? };
        Ok(Self { file, preparing, layout, record_bytes, records, next: 0, ready: false })
    }

    /// The file.
    #[must_use]
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Makes room for `records` more records, prepared as the layout says. When this returns,
    /// nothing of the preparation remains to be written.
    pub(crate) fn prepare(&mut self, records: u64) -> Result<()> {
        assert!(records <= self.records, "{records} records never fit into {}", self.records);
        let full = self.next + records > self.records;
        if self.ready && !full {
            return Ok(());
        }
        self.next = 0;
        let bytes = self.bytes();
        match self.layout {
            Layout::Append => self.preparing.truncate(0)?,
            Layout::Fallocated => {
                self.preparing.truncate(0)?;
                self.preparing.allocate(0, bytes, Allocation::Reserved)?;
            }
            Layout::ZeroFilled => self.preparing.allocate(0, bytes, Allocation::Zeroed)?,
            Layout::Overwritten if self.ready => return Ok(()),
            Layout::Overwritten => self.fill(bytes)?,
        }
        self.ready = true;
        self.preparing.sync(SyncMethod::ORDINARY).map(|_kept| ())
    }

    /// The offset of the next record; moves on to the one after it.
    pub(crate) fn advance(&mut self) -> u64 {
        let byte_offset = self.next * self.record_bytes;
        self.next += 1;
        byte_offset
    }

    fn bytes(&self) -> u64 {
        let alignment = self.file.alignment() as u64;
        (self.records * self.record_bytes).next_multiple_of(alignment)
    }

    /// Writes data that neither compresses nor reads as zeros, in pieces of 4 KiB, as a database
    /// would. Bigger pieces would make bigger folios, and an msync writes whole folios.
    fn fill(&self, bytes: u64) -> Result<()> {
        let mut piece = AlignedBuf::zeroed(4096, self.file.alignment());
        let mut byte_offset = 0;
        while byte_offset < bytes {
            let len = usize::try_from(bytes - byte_offset).map_or(piece.len(), |l| l.min(4096));
            noise(&mut piece, byte_offset);
            self.preparing.write_at(&piece[..len], byte_offset)?;
            byte_offset += len as u64;
        }
        Ok(())
    }
}

/// Fills `bytes` with data that does not compress.
pub(crate) fn noise(bytes: &mut [u8], seed: u64) {
    use rand::{RngCore, SeedableRng};
    rand_pcg::Pcg64Mcg::seed_from_u64(seed).fill_bytes(bytes);
}

#[cfg(test)]
mod tests {
    use plimsoll_sync::OsDir;

    use super::*;

    fn laid_out(layout: Layout, records: u64) -> (tempfile::TempDir, LaidOut) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = OsDir::open(tmp.path()).unwrap();
        let method = SyncMethod::None;
        (tmp, LaidOut::create(&dir, "f", method, layout, 1000, records).unwrap())
    }

    #[test]
    fn only_append_starts_empty() {
        for layout in Layout::ALL {
            let (_tmp, mut laid_out) = laid_out(layout, 8);
            laid_out.prepare(4).unwrap();
            let expected = if layout == Layout::Append { 0 } else { 8000 };
            assert_eq!(laid_out.file().len().unwrap(), expected, "{layout}");
        }
    }

    #[test]
    fn records_follow_each_other_and_start_over_when_the_file_is_full() {
        for layout in Layout::ALL {
            let (_tmp, mut laid_out) = laid_out(layout, 8);
            laid_out.prepare(6).unwrap();
            let offsets: Vec<_> = (0..6).map(|_| laid_out.advance()).collect();
            assert_eq!(offsets, [0, 1000, 2000, 3000, 4000, 5000], "{layout}");
            laid_out.prepare(2).unwrap();
            assert_eq!(laid_out.advance(), 6000, "{layout}");
            laid_out.prepare(3).unwrap();
            assert_eq!(laid_out.advance(), 0, "{layout}");
        }
    }

    #[test]
    fn a_fallocated_file_is_reserved_afresh_when_it_is_full() {
        let (_tmp, mut laid_out) = laid_out(Layout::Fallocated, 4);
        laid_out.prepare(4).unwrap();
        laid_out.file().write_at(&[1; 4000], 0).unwrap();
        assert_eq!((0..4).map(|_| laid_out.advance()).max(), Some(3000));
        laid_out.prepare(4).unwrap();
        let mut content = vec![1; 4000];
        laid_out.file().read_at(&mut content, 0).unwrap();
        assert_eq!(content, vec![0; 4000], "unwritten blocks read as zeros");
    }
}
