//! [`Ahead`]: reads the next piece of a file, on a thread of its own, while the one before it is
//! checked. So a long read takes as long as the slower of the two, not as both.
//!
//! It is a help only: where a piece cannot be read, the cursor reads it again and meets the error at its
//! own place.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use plimsoll_sync::{AlignedBuf, File};

use crate::format::BLOCK;

/// How much is read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Room before a piece, for the end of the one before it: frames do not end where pieces do.
pub(crate) const HEADROOM: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct Ahead {
    asks: SyncSender<(Arc<dyn File>, Piece)>,
    /// Nobody else has it: so that a reader may be shared.
    answers: Mutex<Receiver<Piece>>,
    /// Where the piece begins that was asked for.
    under_way: Option<u64>,
    /// A buffer that nobody uses.
    idle: Option<AlignedBuf>,
}

/// Bytes of a file from `start` on, behind the headroom.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) buf: AlignedBuf,
    /// How many there are; `None` if they could not be read.
    pub(crate) held: Option<usize>,
}

impl Ahead {
    /// `None` where no thread can be had.
    pub(crate) fn start() -> Option<Self> {
        let (asks, asked) = sync_channel::<(Arc<dyn File>, Piece)>(1);
        let (answer, answers) = sync_channel(1);
        let body = move || {
            while let Ok((file, mut piece)) = asked.recv() {
                piece.held = read(&*file, &mut piece);
                drop(file);
                if answer.send(piece).is_err() {
                    return;
                }
            }
        };
        // It ends when we are dropped, after the read that is under way.
        thread::Builder::new().name("log-reader".to_owned()).spawn(body).ok()?;
        Some(Self { asks, answers: Mutex::new(answers), under_way: None, idle: None })
    }

    /// Begins to read from here.
    pub(crate) fn ask(&mut self, file: &Arc<dyn File>, start: u64) {
        self.forget();
        let fresh = || AlignedBuf::zeroed(HEADROOM + PIECE_BYTES, BLOCK);
        let buf = self.idle.take().unwrap_or_else(fresh);
        let asked = self.asks.send((Arc::clone(file), Piece { start, buf, held: None }));
        self.under_way = asked.is_ok().then_some(start);
    }

    /// Whether the piece from here on was asked for.
    pub(crate) fn is_under_way(&self, start: u64) -> bool {
        self.under_way == Some(start)
    }

    /// The piece that was asked for; waits until it has been read.
    pub(crate) fn take(&mut self) -> Option<Piece> {
        self.under_way.take()?;
        self.answers.get_mut().ok()?.recv().ok()
    }

    /// What was asked for may be older than what is wanted now.
    pub(crate) fn forget(&mut self) {
        if let Some(piece) = self.take() {
            self.give_back(piece.buf);
        }
    }

    /// A buffer that is not needed any more.
    pub(crate) fn give_back(&mut self, buf: AlignedBuf) {
        if buf.len() == HEADROOM + PIECE_BYTES {
            self.idle = Some(buf);
        }
    }
}

fn read(file: &dyn File, piece: &mut Piece) -> Option<usize> {
    let buf = &mut piece.buf[HEADROOM..];
    let mut held = 0;
    while held < buf.len() {
        let read = file.read_at(&mut buf[held..], piece.start + held as u64).ok()?;
        held += read;
        if read == 0 || !held.is_multiple_of(BLOCK) {
            break;
        }
    }
    Some(held)
}
