//! [`Flusher`]: writes what was staged while the writer stages what comes next.
//!
//! Only where more is queued than one write takes: a write that somebody waits for is made by the
//! writer itself, which costs no wake-up. Writes are made one after the other, in the order in which
//! they were begun.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_sync::{AlignedBuf, File};

use crate::clock::Clock;
use crate::error::Result;
use crate::shim::mpsc::{Receiver, Sender, channel};
use crate::shim::thread::{self, JoinHandle};

/// Makes writes, on a thread of its own if there is one and at once if there is none.
#[derive(Debug)]
pub(crate) struct Flusher {
    clock: Clock,
    thread: Option<(Sender<Job>, JoinHandle<()>)>,
}

/// Bytes of a buffer, and where they go.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) file: Arc<dyn File>,
    pub(crate) buf: AlignedBuf,
    pub(crate) range: Range<usize>,
    pub(crate) byte_offset: u64,
}

/// A write that is under way.
#[derive(Debug)]
pub(crate) struct Flight(Receiver<Landed>);

/// A write that was made: its buffer, to be used again, and how it went.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) buf: AlignedBuf,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) result: plimsoll_sync::Result<()>,
}

#[derive(Debug)]
struct Job {
    write: Write,
    landed: Sender<Landed>,
}

impl Flusher {
    /// Makes each write at once.
    pub(crate) fn inline(clock: Clock) -> Self {
        Self { clock, thread: None }
    }

    /// Makes writes on a thread of its own, until it is dropped.
    pub(crate) fn start(clock: Clock) -> Result<Self> {
        let (jobs, to_do) = channel::<Job>();
        let name = "log-flusher";
        let of_thread = clock.clone();
        let run = move || to_do.iter().for_each(|job| job.run(&of_thread));
        let failed = |error| plimsoll_sync::Error::io("start a thread", name, error);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { clock, thread: Some((jobs, thread)) })
    }

    /// Begins a write. [`Flight::land`] says how it went.
    pub(crate) fn begin(&self, write: Write) -> Flight {
        let (landed, flight) = channel();
        let job = Job { write, landed };
        match &self.thread {
            // Where the thread is gone nobody answers, and that is an error when it lands.
            Some((jobs, _)) => drop(jobs.send(job)),
            None => job.run(&self.clock),
        }
        Flight(flight)
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            drop(thread.join());
        }
    }
}

impl Job {
    fn run(self, clock: &Clock) {
        let Write { file, buf, range, byte_offset } = self.write;
        let begun = clock.now();
        let bytes = range.len() as u64;
        let result = file.write_at(&buf[range], byte_offset);
        let took = clock.now().saturating_sub(begun);
        // Nobody waits for it any more if the log has stopped.
        self.landed.send(Landed { buf, bytes, took, result }).ok();
    }
}

impl Flight {
    /// Waits for it to end.
    pub(crate) fn land(self) -> Result<Landed> {
        self.0.recv().map_err(|_gone| {
            let error = std::io::Error::other("the thread that writes is gone");
            plimsoll_sync::Error::io("write", "log-flusher", error).into()
        })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::{Access, Dir};

    use super::*;

    fn write(file: &Arc<dyn File>, byte: u8, byte_offset: u64) -> Write {
        let mut buf = AlignedBuf::zeroed(8, 8);
        buf.fill(byte);
        Write { file: Arc::clone(file), buf, range: 2..6, byte_offset }
    }

    #[test]
    fn writes_are_made_in_the_order_in_which_they_were_begun() {
        let clock = Clock::manual(1);
        for flusher in [Flusher::inline(clock.clone()), Flusher::start(clock).unwrap()] {
            let dir = SimDir::new();
            let file = dir.create("file", Access::default()).unwrap();
            let flights: Vec<_> =
                (1..=100).map(|byte| flusher.begin(write(&file, byte, 0))).collect();
            for flight in flights {
                let landed = flight.land().unwrap();
                assert!(landed.result.is_ok());
                assert_eq!((landed.bytes, landed.buf.len()), (4, 8));
            }
            let mut read = [0; 5];
            assert_eq!(file.read_at(&mut read, 0).unwrap(), 4, "the range and no more");
            assert_eq!(read[..4], [100; 4]);
        }
    }

    #[test]
    fn nothing_is_written_behind_a_write_that_failed() {
        let dir = SimDir::new();
        let file = dir.create("file", Access::default()).unwrap();
        dir.inject(Fault::new(Operation::Write, FaultKind::FailRaw(5)));
        let flusher = Flusher::start(Clock::manual(1)).unwrap();
        let (first, second) =
            (flusher.begin(write(&file, 1, 0)), flusher.begin(write(&file, 2, 4)));
        assert!(first.land().unwrap().result.is_err());
        assert!(second.land().unwrap().result.is_err(), "the latch holds");
        assert_eq!(file.len().unwrap(), 0);
    }
}
