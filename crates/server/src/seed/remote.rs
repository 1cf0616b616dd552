//! [`Remote`]: the directory of another node, as a directory that is only read.
//!
//! Each call is a question that is waited for. A file is looked up by its name with each: what another took the place of
//! meanwhile is read in parts of both, which their checksums tell.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use plimsoll_sync::{Access, Allocation, Dir, Error, File, Lock, Promise, Result, SyncMethod};

use super::message::{Answer, BYTES_MAX, Request};

/// Asks a node, and waits for what it answers.
pub(super) trait Ask: Debug + Send + Sync {
    fn ask(&self, request: &Request) -> io::Result<Answer>;
}

/// A directory of another node.
#[derive(Debug)]
pub(super) struct Remote {
    node: Arc<dyn Ask>,
    dir: String,
}

/// A file of another node.
#[derive(Debug)]
struct RemoteFile {
    node: Arc<dyn Ask>,
    dir: String,
    file: String,
}

impl Remote {
    /// That of a node.
    pub(super) fn of(node: Arc<dyn Ask>) -> Self {
        Self { node, dir: String::new() }
    }
}

fn path(dir: &str, file: &str) -> String {
    if dir.is_empty() { file.to_owned() } else { format!("{dir}/{file}") }
}

fn ask(node: &dyn Ask, what: &'static str, path: &str, request: &Request) -> Result<Answer> {
    let failed = |why: io::Error| Error::io(what, path, why);
    match node.ask(request).map_err(failed)? {
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
        let file = RemoteFile { node, dir, file };
        // It is there.
        file.len()?;
        Ok(Arc::new(file))
    }

    fn open_dir(&self, name: &str) -> Result<Arc<dyn Dir>> {
        let dir = Self { node: Arc::clone(&self.node), dir: path(&self.dir, name) };
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
        let mut read = 0;
        for piece in buf.chunks_mut(BYTES_MAX) {
            let (dir, file) = (self.dir.clone(), self.file.clone());
            let path = path(&dir, &file);
            let at = byte_offset + read as u64;
            let request = Request::Read { dir, file, at, bytes: piece.len() };
            let found = match ask(&*self.node, "read", &path, &request)? {
                Answer::Read(found) if found.len() <= piece.len() => found,
                _ => return Err(other("read", path)),
            };
            piece[..found.len()].copy_from_slice(&found);
            read += found.len();
            if found.len() < piece.len() {
                break;
            }
        }
        Ok(read)
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
