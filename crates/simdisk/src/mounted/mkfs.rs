//! Making a filesystem, and reading what its program wrote.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Whence, lseek};

use super::error::{Error, Result};
use super::filesystem::Filesystem;
use super::namespace::BASE;
use crate::block::Platter;

/// Makes a filesystem, with more arguments for its program; also returns the command.
pub(super) fn make(
    filesystem: Filesystem,
    disk_bytes: u64,
    args: &[String],
) -> Result<(Platter, Vec<String>)> {
    let (program, _) = filesystem.mkfs();
    if disk_bytes < filesystem.least_bytes() || !disk_bytes.is_multiple_of(4096) {
        let reason =
            format!("it needs at least {} MiB, in whole 4 KiB", filesystem.least_bytes() >> 20);
        return Err(Error::Unavailable { what: "a disk of this size", reason });
    }
    let path = PathBuf::from(BASE).join("made.img");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.map_err(Error::io("create", &path))?;
    file.set_len(disk_bytes).map_err(Error::io("truncate", &path))?;
    // Whoever chooses the log has it.
    let is_chosen = args.iter().any(|arg| arg.starts_with("-l"));
    let logs = if is_chosen { &[&[][..]] } else { filesystem.log_args() };
    let command = |log: &[&str]| -> Vec<String> {
        let ours = [program].into_iter().chain(filesystem.mkfs_args().iter().copied());
        ours.chain(log.iter().copied()).map(str::to_owned).chain(args.iter().cloned()).collect()
    };
    let mut commands = logs.iter().map(|log| command(log));
    let mut command = commands.next().expect("there is at least one way");
    let made = loop {
        match (run(&command, filesystem, &path), commands.next()) {
            (Err(Error::Program { .. }), Some(next)) => command = next,
            (made, _) => break made,
        }
    };
    made?;
    let platter = read_sparse(&file, disk_bytes).map_err(Error::io("read", &path))?;
    std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    Ok((platter, command))
}

/// Has the program make a filesystem in a file.
fn run(command: &[String], filesystem: Filesystem, path: &Path) -> Result<()> {
    let (program, package) = filesystem.mkfs();
    let output = Command::new(program)
        .args(&command[1..])
        .arg(path)
        .envs(filesystem.mkfs_env().iter().copied())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Unavailable {
            what: program,
            reason: format!("{error}; on Debian it is in the package {package}"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = format!("{}; {}", output.status, said.trim());
    Err(Error::Program { program: command.join(" "), said })
}

/// The parts of a file that are not holes, and of those the pages that are not zeros.
fn read_sparse(file: &File, disk_bytes: u64) -> io::Result<Platter> {
    let mut platter = Platter::new(disk_bytes);
    let mut page = [0; 4096];
    let mut at = 0;
    while at < disk_bytes {
        let from = i64::try_from(at).map_err(io::Error::other)?;
        let start = match lseek(file, from, Whence::SeekData) {
            Ok(start) => start,
            Err(nix::Error::ENXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = lseek(file, start, Whence::SeekHole)?;
        let number = |at: i64| u64::try_from(at).map_err(io::Error::other);
        at = number(start)? / 4096 * 4096;
        let end = number(end)?.min(disk_bytes);
        while at < end {
            file.read_exact_at(&mut page, at)?;
            if page.iter().any(|&byte| byte != 0) {
                platter.write(at, &page);
            }
            at += 4096;
        }
    }
    Ok(platter)
}
