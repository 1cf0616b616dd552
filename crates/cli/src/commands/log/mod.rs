//! `plimsoll log`: a log in a directory, one command a file.

mod append;
mod cat;
mod dump;
pub(crate) mod input;
mod record;
mod stat;
mod tail;
mod truncate;
mod verify;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use plimsoll_log::{Error, LOCK, Log, Options, Recovery, SegmentReport, SegmentState, View};
use plimsoll_sync::{Dir, Error as DiskError, OsDir, Overwrite};

use crate::exit::Exit;
use crate::log_args::{LogCommand, LogDir};
use crate::output;

pub(crate) fn run(command: LogCommand) -> Result<Exit> {
    match command {
        LogCommand::Append(args) => append::run(&args),
        LogCommand::Cat(args) => cat::run(&args),
        LogCommand::Tail(args) => tail::run(&args),
        LogCommand::Stat(args) => stat::run(&args),
        LogCommand::Verify(args) => verify::run(&args),
        LogCommand::Truncate(args) => truncate::run(&args),
        LogCommand::Dump(args) => dump::run(&args),
    }
}

impl LogDir {
    /// The log, to be looked at. An error if there is none.
    fn view(&self) -> Result<View> {
        let view = View::of(Arc::new(open_dir(&self.dir)?))?;
        if !view.is_log() {
            let dir = self.dir.display();
            // Where something else is, another directory may have been meant.
            match is_empty(&self.dir) {
                true => bail!("there is no log in {dir}; `plimsoll log append {dir}` makes one"),
                false => bail!("there is no log in {dir}"),
            }
        }
        Ok(view)
    }

    /// The log, to be changed.
    fn open(&self, options: Options) -> Result<(Log, Recovery)> {
        let opened =
            Log::open_in(Arc::new(open_dir(&self.dir)?), options).map_err(|error| match error {
                Error::Disk(DiskError::Locked { path, holder }) if path.ends_with(LOCK) => {
                    in_use(&path, holder)
                }
                // It names what failed, which may be the ring's file.
                Error::Disk(error) => anyhow!(error),
                error => anyhow!(error),
            });
        let (log, recovery) = opened.with_context(|| self.dir.display().to_string())?;
        tell(&recovery);
        Ok((log, recovery))
    }

    /// Whether its filesystem is memory (tmpfs): syncs succeed there, and nothing survives a power cut.
    fn is_in_memory(&self) -> Result<bool> {
        Ok(open_dir(&self.dir)?.overwrite() == Overwrite::Memory)
    }

    /// Whether a process writes the log, and which.
    fn writer(&self) -> Result<Option<Option<u32>>> {
        match open_dir(&self.dir)?.check_unlocked(LOCK) {
            Ok(()) => Ok(None),
            Err(DiskError::Locked { holder, .. }) => Ok(Some(holder)),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_empty(dir: &Path) -> bool {
    dir.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

fn open_dir(path: &Path) -> Result<OsDir> {
    OsDir::open(path).map_err(|error| match error.kind() {
        Some(ErrorKind::NotFound) => anyhow!("there is no directory {}", path.display()),
        Some(ErrorKind::NotADirectory) => file_in_the_way(path).unwrap_or_else(|| anyhow!(error)),
        _ => error.into(),
    })
}

/// The directory, made with its parents where it is not there yet.
fn make_dir(path: &Path) -> Result<OsDir> {
    OsDir::create_all(path).map_err(|error| match file_in_the_way(path) {
        Some(wrong) if path.is_file() => {
            anyhow!("{wrong}: `plimsoll log append DIR {}` appends it", path.display())
        }
        Some(wrong) => wrong,
        None => anyhow!(error).context(format!("the directory {} cannot be made", path.display())),
    })
}

/// That something on the path of a log is no directory, if that is so.
fn file_in_the_way(path: &Path) -> Option<anyhow::Error> {
    let is_other = |path: &Path| path.metadata().is_ok_and(|metadata| !metadata.is_dir());
    let other = path.ancestors().find(|path| is_other(path))?;
    let wrong = match other.is_file() {
        true => "is a file, and a log is a directory",
        false => "is not a directory, and a log is one",
    };
    Some(anyhow!("{} {wrong}", other.display()))
}

fn in_use(lock: &Path, holder: Option<u32>) -> anyhow::Error {
    let who = process(holder);
    anyhow!(
        "{who} has this log open for writing ({}), and only one can; cat, tail, stat, verify and \
         dump work beside it",
        lock.display()
    )
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// What is to be said in place of "durable" of a log whose filesystem is memory.
const IN_MEMORY: &str = "the filesystem is in memory, and nothing there survives a power cut";

/// All that can be said of a torn tail: a log notes what is durable at most once in 4 KiB.
const NOT_KNOWN_DURABLE: &str = "nothing in the log says that it was durable";

/// What opening found, for whoever watches.
fn tell(recovery: &Recovery) {
    if let Some(torn) = &recovery.torn_tail {
        output::news(&format!(
            "the last write was not finished ({} at byte offset {}: {}); {NOT_KNOWN_DURABLE}, and is cut \
             off",
            torn.segment, torn.byte_offset, torn.damage
        ));
    }
    if recovery.replayed > 0 {
        output::news(&format!("{} records came back from the ring's file", recovery.replayed));
    }
    if let Some(why) = &recovery.ring_ignored {
        output::news(&format!("the ring's file could not be used: {why}"));
    }
    if let Some(lost) = &recovery.lost {
        output::news(&format!("given up: {lost}"));
    }
}

/// What a reader of these records does not get to see because no file has it any more, though it was
/// durable.
fn lost(reports: &[SegmentReport], from: u64, to: u64) -> Result<()> {
    for report in reports {
        if let SegmentState::Corrupt(wrong) = &report.state
            && *wrong.records.end() >= from
            && *wrong.records.start() <= to
        {
            return Err(Error::Corrupt(Box::new(wrong.clone())).into());
        }
    }
    Ok(())
}

/// The last record that belongs to the log.
fn last_index(reports: &[SegmentReport]) -> u64 {
    let ours = reports.iter().rfind(|report| report.state != SegmentState::Stale);
    ours.map_or(0, |newest| newest.last_index)
}

/// That a record is not there, and which are.
fn missing(index: u64, first_index: u64, last_index: u64) -> anyhow::Error {
    let held = match last_index {
        last if last < first_index => format!("the log has none, and the next is {first_index}"),
        last => format!("the log has {first_index} to {last}"),
    };
    anyhow!("there is no record {index}: {held}")
}

/// Size of the log's newest segment, for those that follow.
fn segment_bytes(reports: &[SegmentReport]) -> Option<u64> {
    reports.iter().rev().map(|report| report.segment_bytes).find(|bytes| *bytes > 0)
}

/// Options for segments of this size, or the defaults.
fn options(segment_bytes: Option<u64>) -> Options {
    let mut options = Options::default();
    if let Some(segment_bytes) = segment_bytes {
        options.segment_bytes = segment_bytes;
    }
    options
}

/// `record 1`, `records 1 to 2`.
fn range(first: u64, last: u64) -> String {
    if first == last { format!("record {first}") } else { format!("records {first} to {last}") }
}
