//! What the workload says it is about to acknowledge, put in order with what the disk does.
//!
//! A mark is a line. It comes over a socket with a name (`PLIMSOLL_MARK_SOCKET`), or over one that the
//! workload inherits (`PLIMSOLL_MARK_FD`), and is answered with `ok`. It is recorded when it is heard:
//! so it is said after the sync that the acknowledgement rests on has returned, and the answer is
//! waited for before anybody is told.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, Shutdown, SockFlag, SockType, shutdown, socketpair};

use super::error::{Error, Result};
use super::namespace::BASE;
use super::serve::Shared;

/// No line of marks is longer than this.
const LINE_BYTES_MAX: u64 = 4096;

const PAUSE: Duration = Duration::from_millis(10);

/// Listens for marks until it is stopped.
#[derive(Debug)]
pub(super) struct Marks {
    path: PathBuf,
    socket: UnixListener,
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
        let listening = socket.try_clone().map_err(Error::io("listen at", &path))?;
        let listener = std::thread::spawn(move || {
            for stream in listening.incoming() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                let heard = Arc::clone(&heard);
                match stream {
                    // Ends when the other side closes, at the latest when it dies.
                    Ok(stream) => drop(std::thread::spawn(move || answer(&stream, &heard))),
                    // Such as too many open files; later there may be fewer.
                    Err(_) => std::thread::park_timeout(PAUSE),
                }
            }
        });
        Ok(Self { path, socket, is_over, listener: Some(listener), shared: Arc::clone(shared) })
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
        // Wakes the listener, also where somebody has removed the socket's name.
        let _unheard = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
        if let Some(listener) = self.listener.take() {
            drop(listener.join());
        }
    }
}

fn answer(stream: &UnixStream, shared: &Shared) {
    let mut lines = BufReader::new(stream);
    let mut answers = stream;
    while let Ok(Some(line)) = next_line(&mut lines) {
        let marked = line.and_then(|text| shared.device().mark(&text));
        let said = match marked {
            Ok(()) => "ok\n".to_owned(),
            Err(wrong) => format!("error: {wrong}\n"),
        };
        if answers.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

/// What a mark says, or what is wrong with it.
type Line = std::result::Result<String, String>;

/// The next line, or what is wrong with it; `None` at the end. What is too long is refused as a whole, and so is
/// what ends without a newline: who said it died, or was cut off, and a part of a mark is another mark.
fn next_line(lines: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    if lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        let mut rest = line.len() as u64 == LINE_BYTES_MAX;
        while rest {
            let mut more = Vec::new();
            let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut more)?;
            rest = read > 0 && !more.ends_with(b"\n");
            line.clear();
        }
        let wrong =
            if line.is_empty() { "a mark is too long" } else { "a mark ends with a newline" };
        return Ok(Some(Err(wrong.to_owned())));
    }
    let text = String::from_utf8(line).map_err(|_not| "a mark is text".to_owned());
    Ok(Some(text.map(|text| text.trim_end_matches('\r').to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<Line> {
        let mut input = BufReader::with_capacity(100, text);
        std::iter::from_fn(|| next_line(&mut input).unwrap()).collect()
    }

    #[test]
    fn a_part_of_a_mark_is_not_a_mark() {
        let long = [b"x".repeat(9000), b"12\n34\n".to_vec()].concat();
        let found = lines(&long);
        assert!(found[0].as_ref().unwrap_err().contains("too long"), "{found:?}");
        assert_eq!(found[1..], [Ok("34".to_owned())], "and its end is none either");
        let cut = lines(b"12\n3");
        assert_eq!(cut[0], Ok("12".to_owned()));
        assert!(cut[1].as_ref().unwrap_err().contains("newline"), "{cut:?}");
        assert_eq!(cut.len(), 2);
    }

    #[test]
    fn lines_are_marks() {
        assert_eq!(lines(b"a b\r\n\n"), [Ok("a b".to_owned()), Ok(String::new())]);
        assert!(lines(b"\xff\n")[0].is_err());
        assert_eq!(lines(&b"x".repeat(4096)).len(), 1);
        let most = [b"x".repeat(4095), b"\n".to_vec()].concat();
        assert_eq!(lines(&most)[0].as_ref().unwrap().len(), 4095);
    }
}
