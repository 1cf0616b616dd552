//! What a ring is asked for, and what it answers: writes, and the syncs that belong to them.

use std::fs;
use std::io;

/// A write, and the sync that belongs to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write<'a> {
    pub(super) file: &'a fs::File,
    pub(super) buf: &'a [u8],
    pub(super) byte_offset: u64,
}

/// How writes and their syncs ended.
#[derive(Debug)]
pub(super) struct Done {
    /// One for each write, in their order.
    pub(super) outcomes: Vec<io::Result<()>>,
    /// Fsyncs whose completion arrived before that of their write.
    pub(super) overtaken: usize,
    lens: Vec<usize>,
    written: Vec<bool>,
}

impl Done {
    /// None of `writes` has completed.
    pub(super) fn of(writes: &[Write<'_>]) -> Self {
        Self {
            outcomes: writes.iter().map(|_| Ok(())).collect(),
            overtaken: 0,
            lens: writes.iter().map(|write| write.buf.len()).collect(),
            written: vec![false; writes.len()],
        }
    }

    /// None of so many writes was submitted.
    pub(super) fn nothing(writes: usize, error: &io::Error) -> Self {
        let again = || match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => error.kind().into(),
        };
        Self { outcomes: (0..writes).map(|_| Err(again())).collect(), ..Self::of(&[]) }
    }

    /// The `number`-th write, or its fsync, completed with `result`. The first failure is kept.
    pub(super) fn completed(&mut self, number: usize, fsync: bool, result: i32) {
        if fsync && !self.written[number] {
            self.overtaken += 1;
        }
        self.written[number] |= !fsync;
        if self.outcomes[number].is_ok() {
            self.outcomes[number] = judge(fsync, result, self.lens[number]);
        }
    }
}

/// What a completion says of its request.
fn judge(fsync: bool, result: i32, len: usize) -> io::Result<()> {
    match usize::try_from(result) {
        Err(_negative) => Err(io::Error::from_raw_os_error(-result)),
        Ok(written) if !fsync && written != len => Err(io::Error::new(
            io::ErrorKind::WriteZero,
            format!("short write of {written} of {len} bytes"),
        )),
        Ok(_) => Ok(()),
    }
}
