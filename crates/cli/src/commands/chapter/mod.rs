//! `plimsoll chapter`: what a broker has settled, looked at on its disk, one command a file.
//!
//! The broker may be running: nothing is changed, and no lock is taken.

mod cat;
mod dump;
mod list;
pub(crate) mod verdict;
pub(crate) mod verify;

use std::fmt::{Display, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use plimsoll_server::backup::{HEAD, Look};
use plimsoll_server::broker::{Failed, Names, chapters_in, names_in, snapshot_of};
use plimsoll_server::chapter::{Error, MANIFEST, Opened, Run, Survey};
use plimsoll_server::shard::{State, TopicId};
use plimsoll_sync::{Dir, OsDir};
use serde_json::{Value, json};

use crate::chapter_args::ChapterCommand;
use crate::exit::Exit;

pub(crate) fn run(command: ChapterCommand) -> Result<Exit> {
    match command {
        ChapterCommand::List(args) => list::run(&args),
        ChapterCommand::Verify(args) => verify::run(&args),
        ChapterCommand::Dump(args) => dump::run(&args),
        ChapterCommand::Cat(args) => cat::run(&args),
    }
}

/// The data directory of a broker, or a backup of it.
pub(crate) struct Data {
    /// Where logs and snapshots are.
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) chapters: Vec<(u32, Option<Arc<dyn Dir>>)>,
    pub(crate) backup: Option<Look>,
}

/// A shard of records, as it lies there.
struct Shard {
    number: u32,
    /// What its newest snapshot says; `None` if there is none yet.
    state: Result<Option<State>, Failed>,
    survey: Result<Survey, Error>,
}

impl Data {
    /// An error if it is no broker's.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        if path.join(MANIFEST).is_file() {
            bail!(
                "{shown} has the chapters of one shard: name the directory of the broker above it"
            );
        }
        let dir: Arc<dyn Dir> = Arc::new(OsDir::open(path)?);
        if path.join(HEAD).is_file() {
            let backup = Look::open(&dir).with_context(|| shown.to_string())?;
            let dir = Arc::clone(backup.rest());
            let chapters = chapters_in(&*dir)?;
            return Ok(Self { dir, chapters, backup: Some(backup) });
        }
        let chapters = chapters_in(&*dir)?;
        if chapters.iter().all(|(_, dir)| dir.is_none()) && !path.join("cluster").is_file() {
            bail!("there are no chapters in {shown}: it is not the data directory of a broker");
        }
        Ok(Self { dir, chapters, backup: None })
    }

    /// Its shards of records. What is wrong with one stands there; an error is the disk's.
    fn shards(&self) -> Result<Vec<Shard>> {
        let shards = self.chapters.iter().map(|(number, dir)| {
            let number = *number;
            // First the snapshot: of what it says is settled the manifest, which is read later, knows.
            let state = match snapshot_of(&*self.dir, number) {
                Err(error @ Failed::Directory(_)) => return Err(error.into()),
                state => state,
            };
            let survey = match (&self.backup, dir) {
                (Some(backup), _) => backup.survey(number),
                (None, Some(dir)) => Survey::of(&**dir, number),
                (None, None) => Ok(Survey::default()),
            };
            match survey {
                Err(error @ Error::Disk(_)) => Err(error.into()),
                survey => Ok(Shard { number, state, survey }),
            }
        });
        shards.collect()
    }

    /// What topics are called, as far as that can be known.
    pub(crate) fn names(&self) -> Names {
        names_in(&*self.dir).unwrap_or_default()
    }
}

/// One file of chapters. An error names it.
fn open_file(path: &Path) -> Result<Opened> {
    let shown = || path.display().to_string();
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} is not the name of a file", shown()))?;
    if !path.exists() {
        bail!("there is no {}", shown());
    }
    let dir = OsDir::open(above(path)).with_context(shown)?;
    Opened::of(&dir, name).with_context(shown)
}

/// What topics are called, if the file is where its broker put it.
fn names_above(file: &Path) -> Names {
    Data::open(&above(file).join("..")).map(|data| data.names()).unwrap_or_default()
}

fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// As it is typed: 32 hexadecimal digits.
fn hex(id: TopicId) -> String {
    id.0.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("memory takes what is written");
        hex
    })
}

/// `1`, `1 to 2`.
fn span<T: Copy + PartialEq + Display>(first: T, last: T) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn time(unix_ms: u64) -> String {
    // What a file says may be beyond what a calendar has.
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms.min(CALENDAR_MS_MAX)));
    let time = time.unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The end of the year 9999: behind it a time is not written.
const CALENDAR_MS_MAX: u64 = 253_402_300_799_000;

/// That a broker's shards hold nothing yet.
fn nothing_settled(path: &Path) -> String {
    format!("no chapter is settled in {} yet", path.display())
}

/// Which run it is.
fn run_object(run: &Run, names: &Names) -> Value {
    let partition = run.opening.partition;
    json!({
        "topic": names.of(partition.topic),
        "topic_id": hex(partition.topic),
        "partition": partition.number,
        "opening": run.opening.number,
        "chapter": run.chapter,
        "first_offset": run.base_offset,
        "last_offset": run.end_offset - 1,
        "bytes": run.bytes,
    })
}
