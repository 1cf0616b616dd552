//! What the workload says it is about to acknowledge, put in order with what the disk does.
//!
//! A mark is a line. It comes over a socket with a name (`PLIMSOLL_MARK_SOCKET`), or over one that the
//! workload inherits (`PLIMSOLL_MARK_FD`), and is answered with `ok`. It is recorded when it is heard:
//! so it is said after the sync that the acknowledgement rests on has returned, and the answer is
//! waited for before anybody is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::error::{Error, Result};
use super::namespace::BASE;
use super::serve::Shared;

/// No line of marks is longer than this.
const LINE_BYTES_MAX: u64 = 4096;

/// Listens for marks until it is stopped.
#[derive(Debug)]
pub(super) struct Marks {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Marks {
    pub(super) fn listen(shared: &Arc<Shared>) -> Result<Self> {
        let path = Path::new(BASE).join("marks.sock");
        if path.exists() {
            std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        let socket = UnixListener::bind(&path).map_err(Error::io("listen at", &path))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, heard) = (Arc::clone(&is_over), Arc::clone(shared));
        let listener = std::thread::spawn(move || {
            for stream in socket.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let heard = Arc::clone(&heard);
                if let Ok(stream) = stream {
                    // Ends when the other side closes, at the latest when it dies.
                    std::thread::spawn(move || answer(&stream, &heard));
                }
            }
        });
        Ok(Self { path, is_over, listener: Some(listener), shared: Arc::clone(shared) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The end of a socket that a child inherits; drop it when the child has been started. Its number
    /// is what the child knows it by.
    pub(super) fn inherited(&self) -> Result<(OwnedFd, i32)> {
        let failed = |errno: nix::Error| Error::io("make a socket at", BASE)(errno.into());
        // Without CLOEXEC, on purpose.
        let kind = (AddressFamily::Unix, SockType::Stream);
        let (theirs, ours) = socketpair(kind.0, kind.1, None, SockFlag::empty()).map_err(failed)?;
        nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
            .map_err(failed)?;
        let (stream, heard) = (UnixStream::from(ours), Arc::clone(&self.shared));
        std::thread::spawn(move || answer(&stream, &heard));
        let number = theirs.as_raw_fd();
        Ok((theirs, number))
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the listener.
        drop(UnixStream::connect(&self.path));
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

fn answer(stream: &UnixStream, shared: &Shared) {
    let mut lines = BufReader::new(stream);
    let mut answers = stream;
    loop {
        let mut line = Vec::new();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return;
        }
        let marked = match std::str::from_utf8(&line) {
            Ok(text) => shared.device().mark(text.trim_end_matches(['\n', '\r'])),
            Err(_) => Err("a mark is text".to_owned()),
        };
        let said = match marked {
            Ok(()) => "ok\n".to_owned(),
            Err(wrong) => format!("error: {wrong}\n"),
        };
        if answers.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}
