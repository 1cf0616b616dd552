//! [`Said`]: what a program prints, for whoever must be told: the end of it, and no more.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::{Error, Result};
use super::namespace::BASE;

/// What is kept.
const SAID_BYTES_MAX: u64 = 4096;

/// The file that a program prints to. One at a time in a namespace.
#[derive(Debug)]
pub(super) struct Said {
    path: PathBuf,
}

impl Said {
    /// Has a program print to it, on both ways.
    pub(super) fn by(command: &mut Command) -> Result<Self> {
        let path = Path::new(BASE).join("said");
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        let clone = file.try_clone().map_err(Error::io("open", &path))?;
        command.stdout(file).stderr(clone);
        Ok(Self { path })
    }

    /// The last lines.
    pub(super) fn end(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            let from = file.metadata()?.len().saturating_sub(SAID_BYTES_MAX);
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
    }
}
