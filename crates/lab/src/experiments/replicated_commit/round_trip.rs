//! An arm: bytes to another thread and back, over loopback. What an acknowledgement takes at least on this
//! network, whatever is done for it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_sync::{Error as SyncError, Promise, SyncMethod};

use super::plan::{MEASURE, RECORD_BYTES, ROUND_TRIP};
use crate::arm::Identity;
use crate::arm_result::ArmResult;
use crate::experiment::Setup;
use crate::layout::Layout;
use crate::runner::{Arm, Block};

/// About as many as a request to produce one record, and its answer.
const REQUEST_BYTES: usize = RECORD_BYTES + 150;
const ANSWER_BYTES: usize = 64;
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to a thread that answers.
#[derive(Debug)]
pub(super) struct RoundTrip {
    stream: TcpStream,
    answering: Option<JoinHandle<()>>,
}

impl RoundTrip {
    pub(super) fn create() -> plimsoll_sync::Result<Self> {
        Self::connect().map_err(broken)
    }

    fn connect() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (answers, _) = listener.accept()?;
        for end in [&stream, &answers] {
            end.set_nodelay(true)?;
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        let answering = thread::spawn(move || {
            // It ends with the connection.
            answer(answers).ok();
        });
        Ok(Self { stream, answering: Some(answering) })
    }

    pub(super) fn result(blocks: &[Block], setup: &Setup<'_>) -> ArmResult {
        let identity = Identity {
            name: ROUND_TRIP.to_owned(),
            method: SyncMethod::None,
            layout: Layout::Append,
            promise: Promise::Nothing,
            payload_bytes: REQUEST_BYTES as u64,
            measures: &[MEASURE],
        };
        // Two threads take turns.
        ArmResult { attribution: None, ..identity.result(blocks, |_| None, setup) }
    }
}

impl Arm for RoundTrip {
    fn prepare(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }

    fn run(&mut self, block: &mut Block) -> plimsoll_sync::Result<()> {
        let (request, mut answer) = ([7; REQUEST_BYTES], [0; ANSWER_BYTES]);
        loop {
            let start = Instant::now();
            self.stream.write_all(&request).map_err(broken)?;
            self.stream.read_exact(&mut answer).map_err(broken)?;
            let end = Instant::now();
            block.durable_operations += 1;
            if !block.sample(end - start, end) {
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> plimsoll_sync::Result<()> {
        Ok(())
    }
}

impl Drop for RoundTrip {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both).ok();
        if let Some(answering) = self.answering.take() {
            answering.join().ok();
        }
    }
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&[9; ANSWER_BYTES])?;
    }
}

fn broken(error: io::Error) -> SyncError {
    SyncError::io("go over", "loopback", error)
}
