//! Durable writes through `io_uring`, one or many at once, in each of the ways to tie an fsync to
//! its write.
//!
//! Invariant: no call returns while the kernel may still read a caller's buffer. Once requests are
//! submitted, this waits for all of them, whatever happens.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, squeue, types};

use super::requests::{Done, Write};
use crate::method::Chain;

/// A request is known by the number of its write, doubled, plus one for the fsync.
const FSYNC: u64 = 1;

pub(super) struct Ring {
    /// `None` after its requests could not be submitted, until the next use.
    ring: Option<IoUring>,
    /// Most writes at once.
    writes: u32,
}

impl Ring {
    /// A ring for at most so many writes at once, each with its fsync.
    pub(super) fn new(writes: u32) -> io::Result<Self> {
        Ok(Self { ring: Some(IoUring::new(2 * writes)?), writes })
    }

    /// Writes and syncs all of `writes`, submitted together. A short write is an error. Each is
    /// less than 4 GiB.
    pub(super) fn write_sync(&mut self, writes: &[Write<'_>], chain: Chain) -> Done {
        assert!(writes.len() <= self.writes as usize, "the ring holds {} writes", self.writes);
        let ring = self.ring.take().map_or_else(|| IoUring::new(2 * self.writes), Ok);
        let mut ring = match ring {
            Ok(ring) => ring,
            Err(error) => return Done::nothing(writes.len(), &error),
        };
        match run(&mut ring, writes, chain) {
            Ok(done) => {
                self.ring = Some(ring);
                done
            }
            // Nothing was submitted. The requests must not stay queued, because their buffers are
            // about to go: the ring goes before them.
            Err(error) => Done::nothing(writes.len(), &error),
        }
    }
}

/// Fails only if nothing was submitted.
#[expect(unsafe_code, reason = "the kernel reads the callers' buffers while requests run")]
fn run(ring: &mut IoUring, writes: &[Write<'_>], chain: Chain) -> io::Result<Done> {
    let requests: Vec<squeue::Entry> =
        (0..).zip(writes).flat_map(|(number, write)| requests(number, write, chain)).collect();
    // SAFETY: the buffers behind the requests are borrowed by the caller, and all requests are
    // waited for below before that borrow ends.
    let pushed = unsafe { ring.submission().push_multiple(&requests) };
    assert!(pushed.is_ok(), "the queue is empty between calls and holds two requests for a write");
    let mut submitted = false;
    let mut done = Done::of(writes);
    let mut left = requests.len();
    while left > 0 {
        match ring.submit_and_wait(left) {
            Ok(_) => submitted = true,
            Err(error) if !submitted && error.kind() != io::ErrorKind::Interrupted => {
                return Err(error);
            }
            Err(_) => std::thread::yield_now(),
        }
        for completion in ring.completion() {
            left -= 1;
            submitted = true;
            let request = completion.user_data();
            let number = usize::try_from(request / 2).expect("a number that was given out here");
            done.completed(number, request % 2 == FSYNC, completion.result());
        }
    }
    Ok(done)
}

/// The write, and its fsync unless the write syncs itself.
fn requests(number: u64, write: &Write<'_>, chain: Chain) -> impl Iterator<Item = squeue::Entry> {
    let fd = types::Fd(write.file.as_raw_fd());
    let len = u32::try_from(write.buf.len()).expect("the caller keeps to 4 GiB");
    let request = opcode::Write::new(fd, write.buf.as_ptr(), len).offset(write.byte_offset);
    let fsync = opcode::Fsync::new(fd).build().user_data(2 * number + FSYNC);
    let (request, fsync) = match chain {
        Chain::RwfDsync => (request.rw_flags(libc::RWF_DSYNC).build(), None),
        Chain::Unlinked => (request.build(), Some(fsync)),
        Chain::Linked => (request.build().flags(squeue::Flags::IO_LINK), Some(fsync)),
        Chain::Drained => (request.build(), Some(fsync.flags(squeue::Flags::IO_DRAIN))),
    };
    [Some(request.user_data(2 * number)), fsync].into_iter().flatten()
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}
