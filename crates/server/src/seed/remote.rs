//! [`Remote`]: the directory of another node, as a directory that is only read.
//!
//! Each call is a question that is waited for. A file is looked up by its name with each: what another took the place of
//! meanwhile is read in parts of both, which their checksums tell.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_sync::{Access, Allocation, Dir, Error, File, Lock, Promise, Result, SyncMethod};

use super::message::{Answer, BYTES_MAX, Request};

/// So many pieces of a file are on their way at once, beside the one that is waited for.
const AHEAD_MAX: usize = 3;

/// What reads less looks at something, and does not read a file from one end to the other.
const STREAM_BYTES: usize = 64 << 10;

/// So much of a piece is held when the next comes.
const BACK_BYTES: usize = 64 << 10;

/// Waits for an answer.
pub(super) type Pending = Box<dyn FnOnce() -> io::Result<Answer> + Send>;

/// Asks a node.
pub(super) trait Ask: Debug + Send + Sync {
    /// Asks, and does not wait.
    fn ask(&self, request: &Request) -> Pending;
}

/// A directory of another node. Of the file in it that is read from one end to the other what comes next is asked for already.
#[derive(Debug)]
pub(super) struct Remote {
    node: Arc<dyn Ask>,
    dir: String,
    stream: Arc<Mutex<Stream>>,
}

/// A file of another node.
#[derive(Debug)]
struct RemoteFile {
    node: Arc<dyn Ask>,
    dir: String,
    file: String,
    /// Which of those that were opened it is: what was asked for before is not what is there by now.
    number: u64,
    stream: Arc<Mutex<Stream>>,
}

/// What is read of a file, one piece after the other.
#[derive(Default)]
struct Stream {
    /// How many files were opened.
    opened: u64,
    /// Of which of them it is.
    of: u64,
    /// Where what was read last begins, and what that is.
    held: (u64, Vec<u8>),
    /// What was asked for from there on, and where each begins.
    coming: VecDeque<(u64, Pending)>,
}

impl Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("of", &self.of).finish_non_exhaustive()
    }
}

impl Remote {
    /// That of a node.
    pub(super) fn of(node: Arc<dyn Ask>) -> Self {
        Self { node, dir: String::new(), stream: Arc::default() }
    }
}

fn path(dir: &str, file: &str) -> String {
    if dir.is_empty() { file.to_owned() } else { format!("{dir}/{file}") }
}

fn ask(node: &dyn Ask, what: &'static str, path: &str, request: &Request) -> Result<Answer> {
    let failed = |why: io::Error| Error::io(what, path, why);
    answered(node.ask(request), failed)
}

fn answered(pending: Pending, failed: impl Fn(io::Error) -> Error) -> Result<Answer> {
    match pending().map_err(&failed)? {
        Answer::NotThere => Err(failed(ErrorKind::NotFound.into())),
        Answer::NotGiven => Err(failed(ErrorKind::PermissionDenied.into())),
        Answer::Failed => Err(failed(io::Error::other("the other node could not read it"))),
        answer => Ok(answer),
    }
}

fn other(what: &'static str, path: String) -> Error {
    Error::io(what, path, io::Error::other("the other node answered something else"))
}

fn only_read<T>(what: &'static str, path: &str) -> Result<T> {
    Err(Error::io(what, path, ErrorKind::Unsupported.into()))
}

impl Dir for Remote {
    fn list(&self) -> Result<Vec<String>> {
        let request = Request::List { dir: self.dir.clone() };
        match ask(&*self.node, "list", &self.dir, &request)? {
            Answer::List(names) => Ok(names),
            _ => Err(other("list", self.dir.clone())),
        }
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        if access.direct {
            return only_read("open past the cache", &path(&self.dir, name));
        }
        let (node, dir, file) = (Arc::clone(&self.node), self.dir.clone(), name.to_owned());
        let stream = Arc::clone(&self.stream);
        let number = {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            stream.opened += 1;
            stream.opened
        };
        let file = RemoteFile { node, dir, file, number, stream };
        // It is there.
        file.len()?;
        Ok(Arc::new(file))
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let (node, stream) = (Arc::clone(&self.node), Arc::clone(&self.stream));
        let dir = Self { node, dir: path(&self.dir, name), stream };
        dir.list()?;
        Ok(Arc::new(dir))
    }

    fn create(&self, name: &str, _: Access) -> Result<Arc<dyn File>> {
        only_read("create", name)
    }

    fn rename(&self, from: &str, _: &str) -> Result<()> {
        only_read("rename", from)
    }

    fn remove(&self, name: &str) -> Result<()> {
        only_read("remove", name)
    }

    fn sync(&self) -> Result<()> {
        only_read("sync", &self.dir)
    }

    fn lock(&self, name: &str) -> Result<Lock> {
        only_read("lock", name)
    }
}

impl Stream {
    /// What is held from here on; `None` if this is not where it goes on, or a little before that.
    fn from(&self, at: u64) -> Option<&[u8]> {
        let (begin, bytes) = &self.held;
        let skipped = at.checked_sub(*begin).and_then(|skipped| usize::try_from(skipped).ok());
        skipped.and_then(|skipped| bytes.get(skipped..))
    }

    /// Holds what was found, and of what lies before it a little: whoever looks for where a frame begins reads that again.
    fn hold(&mut self, at: u64, found: &[u8]) {
        let (begin, bytes) = &mut self.held;
        let is_next = *begin + bytes.len() as u64 == at;
        let before = if is_next { bytes.len().min(BACK_BYTES) } else { 0 };
        let mut held = bytes.split_off(bytes.len() - before);
        held.extend_from_slice(found);
        self.held = (at - before as u64, held);
    }
}

impl RemoteFile {
    fn ask(&self, at: u64, bytes: usize) -> Pending {
        let (dir, file) = (self.dir.clone(), self.file.clone());
        self.node.ask(&Request::Read { dir, file, at, bytes })
    }

    fn found(&self, pending: Pending) -> Result<Vec<u8>> {
        let path = path(&self.dir, &self.file);
        match answered(pending, |why| Error::io("read", &path, why))? {
            Answer::Read(found) if found.len() <= BYTES_MAX => Ok(found),
            _ => Err(other("read", path)),
        }
    }
}

impl File for RemoteFile {
    fn len(&self) -> Result<u64> {
        let (dir, file) = (self.dir.clone(), self.file.clone());
        let path = path(&dir, &file);
        match ask(&*self.node, "open", &path, &Request::Length { dir, file })? {
            Answer::Length(length) => Ok(length),
            _ => Err(other("open", path)),
        }
    }

    fn read_at(&self, buf: &mut [u8], byte_offset: u64) -> Result<usize> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = stream.of == self.number && stream.from(byte_offset).is_some();
        if !goes_on {
            if buf.len() < STREAM_BYTES {
                // A look at something else, as at the table of a chapter between two pieces of it.
                drop(stream);
                let found = self.found(self.ask(byte_offset, buf.len()))?;
                let some = found.len().min(buf.len());
                buf[..some].copy_from_slice(&found[..some]);
                return Ok(some);
            }
            stream.of = self.number;
            stream.held = (byte_offset, Vec::new());
            stream.coming.clear();
        }
        let (mut read, mut has_ended) = (0, false);
        loop {
            let held = stream.from(byte_offset + read as u64).unwrap_or_default();
            let some = held.len().min(buf.len() - read);
            buf[read..read + some].copy_from_slice(&held[..some]);
            read += some;
            if read == buf.len() || has_ended {
                return Ok(read);
            }
            let at = byte_offset + read as u64;
            let wanted = if goes_on { BYTES_MAX } else { BYTES_MAX.min(buf.len() - read) };
            let pending = match stream.coming.pop_front() {
                Some((from, pending)) if from == at => pending,
                _ => {
                    stream.coming.clear();
                    self.ask(at, wanted)
                }
            };
            while goes_on && stream.coming.len() < AHEAD_MAX {
                let last = stream.coming.back().map_or(at, |(from, _)| *from);
                let next = last + BYTES_MAX as u64;
                stream.coming.push_back((next, self.ask(next, BYTES_MAX)));
            }
            let found = self.found(pending)?;
            has_ended = found.len() < wanted;
            stream.hold(at, &found);
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        only_read("write", &self.file)
    }

    fn write_sync_at(&self, _: &[u8], _: u64, _: SyncMethod) -> Result<Promise> {
        only_read("write", &self.file)
    }

    fn sync(&self, _: SyncMethod) -> Result<Promise> {
        only_read("sync", &self.file)
    }

    fn allocate(&self, _: u64, _: u64, _: Allocation) -> Result<()> {
        only_read("allocate", &self.file)
    }

    fn truncate(&self, _: u64) -> Result<()> {
        only_read("truncate", &self.file)
    }

    fn alignment(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use plimsoll_simdisk::SimDir;

    use super::*;
    use crate::seed::lender::answer;

    /// A node that answers at once, and counts.
    #[derive(Debug)]
    struct Here(SimDir, AtomicUsize);

    impl Ask for Here {
        fn ask(&self, request: &Request) -> Pending {
            self.1.fetch_add(1, Ordering::Relaxed);
            let answered = answer(&self.0, request);
            Box::new(move || Ok(answered))
        }
    }

    #[test]
    fn a_file_that_is_read_on_is_as_it_is_there_and_one_that_is_opened_again_is_as_it_is_then() {
        let disk = SimDir::new();
        let shard = disk.create_dir("shard-2").unwrap();
        let there = shard.create("file", SyncMethod::ORDINARY.access()).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(9 * BYTES_MAX / 2).collect();
        there.write_at(&bytes, 0).unwrap();
        let node = Arc::new(Here(disk, AtomicUsize::new(0)));
        let remote = Remote::of(Arc::clone(&node) as Arc<dyn Ask>).open_dir("shard-2").unwrap();
        // As runs are read, as logs are, and with looks between.
        for (sizes, back, looks) in [
            ([1 << 20, 1 << 20], 0, false),
            ([1 << 20, 900_000], 0, true),
            ([131_072, 200_000], 4096, false),
            ([700_001, 3 << 20], 0, false),
        ] {
            let file = remote.open("file", Access::default()).unwrap();
            let (mut read, before) = (Vec::new(), node.1.load(Ordering::Relaxed));
            let mut looked = 0;
            for size in sizes.into_iter().cycle() {
                read.truncate(read.len().saturating_sub(back));
                let mut buf = vec![0; size];
                let some = file.read_at(&mut buf, read.len() as u64).unwrap();
                read.extend_from_slice(&buf[..some]);
                if some < size {
                    break;
                }
                if looks {
                    assert_eq!(file.read_at(&mut [0; 2560], 4 << 20).unwrap(), 2560);
                    looked += 1;
                }
            }
            assert!(read == bytes, "{sizes:?}");
            let asked = node.1.load(Ordering::Relaxed) - before - looked;
            assert!(asked <= 14, "{sizes:?}: {asked} questions");
            // What was asked for ahead of it is not what is there by now.
            there.write_at(&[255; 9], 2 << 20).unwrap();
            let (file, mut again) = (remote.open("file", Access::default()).unwrap(), [0; 9]);
            assert_eq!(file.read_at(&mut again, 2 << 20).unwrap(), 9);
            assert_eq!(again, [255; 9]);
            there.write_at(&bytes[2 << 20..][..9], 2 << 20).unwrap();
        }
    }
}
