//! [`Ahead`]: reads a segment in pieces and checks their frames, on two threads: whoever reads the records
//! takes part, and a thread of its own does what the reader does not. So a long read takes both CPUs, and
//! a piece is checked where it was copied to.
//!
//! A piece begins where a frame does, which the segment's sparse index tells. The index need not be
//! right: a piece is only used by a reader who arrives at its first byte frame by frame. Nor does
//! anything go wrong here: where a piece cannot be read or a frame is not valid, it ends before that, and
//! the reader meets what is there at its own place.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, File};

use super::format::{BLOCK, Decoded, Frame};
use super::header::Header;
use crate::shim::{Condvar, Mutex, lock, thread, wait};

/// The most that a piece has, so that it stays in a CPU's own cache while it is checked.
pub(crate) const PIECE_BYTES: u64 = if cfg!(shuttle) { 64 << 10 } else { 256 << 10 };
/// Pieces that are read and not used yet, at most.
const PIECES: usize = 3;

#[derive(Debug)]
pub(crate) struct Ahead {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: Arc<dyn File>,
    header: Header,
    /// Where the pieces are, in order.
    plan: Vec<Range<u64>>,
    work: Mutex<Work>,
    /// There is a piece for the reader, or room for the thread.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    /// Of the plan: the first piece that was not used yet.
    first: usize,
    /// That one and those behind it, as far as somebody reads them or has.
    pieces: VecDeque<Option<Piece>>,
    /// Buffers that nobody uses.
    idle: Vec<AlignedBuf>,
    /// Who waits is woken; nobody else needs it.
    waits: bool,
    is_over: bool,
}

/// Bytes of a file from where a frame begins.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) buf: AlignedBuf,
    /// Where in the buffer they are, and how many.
    pub(crate) from: usize,
    pub(crate) held: usize,
    /// All frames before this byte offset of the file are valid.
    pub(crate) checked_to: u64,
}

impl Ahead {
    /// `None` where no thread can be had.
    pub(crate) fn start(
        file: Arc<dyn File>,
        header: Header,
        plan: Vec<Range<u64>>,
    ) -> Option<Self> {
        let (work, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { file, header, plan, work, changed });
        let helper = Arc::clone(&shared);
        // It ends when we are dropped, after the piece that is under way.
        thread::Builder::new().name("log-reader".to_owned()).spawn(move || helper.help()).ok()?;
        Some(Self { shared })
    }

    /// Where the next piece behind `at` begins.
    pub(crate) fn next_after(&self, at: u64) -> Option<u64> {
        let plan = &self.shared.plan;
        plan.get(plan.partition_point(|piece| piece.start <= at)).map(|piece| piece.start)
    }

    /// The piece that begins here, if one does: what the thread has read, or is waited for while it
    /// does, or is read here, as are those behind it that nobody has begun.
    pub(crate) fn take(&self, at: u64) -> Option<Piece> {
        let shared = &*self.shared;
        let wanted = shared.plan.binary_search_by_key(&at, |piece| piece.start).ok()?;
        let mut work = lock(&shared.work);
        if wanted < work.first {
            return None;
        }
        while work.first < wanted {
            if let Some(Some(passed)) = work.pieces.pop_front() {
                work.idle.push(passed.buf);
            }
            work.first += 1;
        }
        loop {
            if let Some(ready) = work.pieces.front_mut().and_then(Option::take) {
                work.pieces.pop_front();
                work.first += 1;
                shared.wake(&mut work);
                return Some(ready);
            }
            if let Some((number, buf)) = shared.claim(&mut work) {
                drop(work);
                let piece = shared.read(number, buf);
                work = lock(&shared.work);
                work.put(number, piece);
            } else if work.is_over {
                return None;
            } else {
                work.waits = true;
                work = wait(&shared.changed, work);
            }
        }
    }

    /// A buffer that is not needed any more.
    pub(crate) fn give_back(&self, buf: AlignedBuf) {
        let mut work = lock(&self.shared.work);
        if buf.len() == buf_bytes() && work.idle.len() < PIECES {
            work.idle.push(buf);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn help(&self) {
        // Also if it panics: nobody shall wait for it.
        let _end = OnDrop(self);
        let mut work = lock(&self.work);
        while !work.is_over {
            if let Some((number, buf)) = self.claim(&mut work) {
                drop(work);
                let piece = self.read(number, buf);
                work = lock(&self.work);
                work.put(number, piece);
                self.wake(&mut work);
            } else {
                work.waits = true;
                work = wait(&self.changed, work);
            }
        }
    }

    /// The next piece that nobody has begun, if there is room for one.
    fn claim(&self, work: &mut Work) -> Option<(usize, AlignedBuf)> {
        let number = work.first + work.pieces.len();
        if work.pieces.len() == PIECES || number >= self.plan.len() {
            return None;
        }
        work.pieces.push_back(None);
        let fresh = || AlignedBuf::zeroed(buf_bytes(), BLOCK);
        Some((number, work.idle.pop().unwrap_or_else(fresh)))
    }

    fn read(&self, number: usize, mut buf: AlignedBuf) -> Piece {
        let Range { start, end } = self.plan[number].clone();
        let bytes = usize::try_from((end - start).min(PIECE_BYTES)).expect("a few");
        // Pages are copied to whole pages.
        let from = usize::try_from(start % BLOCK as u64).expect("less than a block");
        let place = &mut buf[from..from + bytes];
        let held = self.file.read_at(place, start).unwrap_or(0);
        let checked_to = start + check(&place[..held], start, self.header) as u64;
        Piece { buf, from, held, checked_to }
    }

    fn wake(&self, work: &mut Work) {
        if std::mem::take(&mut work.waits) {
            self.changed.notify_one();
        }
    }

    fn end(&self) {
        lock(&self.work).is_over = true;
        self.changed.notify_all();
    }
}

struct OnDrop<'a>(&'a Shared);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Work {
    /// Somebody has read a piece. The reader may have passed it meanwhile.
    fn put(&mut self, number: usize, piece: Piece) {
        match number.checked_sub(self.first) {
            Some(at) => self.pieces[at] = Some(piece),
            None => self.idle.push(piece.buf),
        }
    }
}

/// A piece, wherever in a block it begins.
fn buf_bytes() -> usize {
    usize::try_from(PIECE_BYTES).expect("a few") + BLOCK
}

/// How many bytes from the beginning, which is at `start` in the file, are valid frames.
fn check(bytes: &[u8], start: u64, header: Header) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Decoded::Frame(frame) =
            Frame::decode(rest, header.salt, start + at as u64, header.segment_bytes)
    {
        at += frame.bytes();
    }
    at
}
