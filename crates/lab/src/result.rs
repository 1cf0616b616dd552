//! What a run leaves behind: one versioned JSON file per experiment, and everything that a report
//! needs.
//!
//! Fields are added freely; a field that changes its meaning or goes away raises [`VERSION`], and
//! old versions stay readable. docs/results.md describes the format.
//!
//! A file that is read may contain anything: it may be cut off, damaged, huge, or another
//! program's. [`load`] names such a file and says what is wrong with it; it neither panics nor
//! takes memory without bound.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_sync::{Dir, OsDir, SyncMethod};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

pub use crate::arm_result::{ArmResult, Machine, PerOperation, Series};
pub use crate::attribution::Attribution;
use crate::claim::Claim;
use crate::environment::Environment;
use crate::error::{Error, Result};
pub use crate::quiet::Before;
pub use crate::summary::Summary;
use crate::units;
use crate::warning::Warning;

/// What the file says it is.
pub const FORMAT: &str = "plimsoll-lab-result";
/// Version of the format that this program writes.
pub const VERSION: u32 = 1;
/// The largest file that is read. The largest that is written has some megabytes.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// The result of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// The question it asks.
    pub question: String,
    /// Where the question comes from.
    pub source: String,
    /// The profile: `quick`, `full`, `article`.
    pub profile: String,
    /// What draws the order of the arms.
    pub seed: u64,
    /// When it began, in UTC (RFC 3339).
    pub started_at: String,
    /// How long it took.
    pub duration_ms: u64,
    /// How long it was allowed to take.
    pub budget_ms: u64,
    /// Parameters, as `name=value`.
    pub parameters: Vec<String>,
    /// The answer, in sentences.
    pub answer: Vec<String>,
    /// The same in a line. Absent if there is no answer, and in results that are older than this field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_short: Option<String>,
    /// What articles claim, and whether it holds here. Results that are older than this field say
    /// it only in the answer.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub claims: Vec<Claim>,
    /// What the machine did before the run. Absent if nobody looked, and in results that are older than
    /// this field.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<Before>,
    /// What measuring itself costs.
    pub harness: Harness,
    /// What was measured.
    pub arms: Vec<ArmResult>,
    /// What could not be measured here, and why.
    pub unavailable: Vec<Unavailable>,
    /// Reasons to distrust the run as a whole.
    pub warnings: Vec<Warning>,
    /// What it was measured on.
    pub environment: Environment,
}

/// What measuring itself costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harness {
    /// The median time of an operation that does nothing, measured in the same loop.
    pub operation_p50_ns: u64,
    /// The median time between two readings of the clock.
    pub clock_p50_ns: u64,
}

/// Something that could not be measured here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unavailable {
    /// The method, or the arm.
    pub name: String,
    /// Why not.
    pub reason: String,
}

impl ExperimentResult {
    /// A result of nothing.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let json = serde_json::json!({
            "format": FORMAT, "version": VERSION, "experiment": "", "question": "", "source": "",
            "profile": "", "seed": 0, "started_at": "", "duration_ms": 0, "budget_ms": 0,
            "parameters": [], "answer": [], "harness": Harness::default(), "arms": [],
            "unavailable": [], "warnings": [], "environment": Environment::default(),
        });
        serde_json::from_value(json).expect("all fields are there")
    }

    /// Whether any arm contradicts its promise.
    #[must_use]
    pub fn has_invalid_arm(&self) -> bool {
        self.arms.iter().any(|arm| !arm.valid)
    }

    /// Saves as `<experiment>.json` in `dir`, which must exist. The file is durable on return, and
    /// no half-written file ever has its name.
    pub fn save(&self, dir: &Path) -> Result<PathBuf> {
        save_json(dir, &format!("{}.json", self.experiment), self)
    }

    /// Reads what [`Self::save`] wrote.
    pub fn parse(json: &str) -> std::result::Result<Self, String> {
        check_head(&head_of(json)?)?;
        let result: Self = parsed(json).map_err(|error| format!("damaged: {error}"))?;
        result.check()?;
        Ok(result)
    }

    /// Checks what the rest of the program relies on.
    fn check(&self) -> std::result::Result<(), String> {
        let mut names = BTreeSet::new();
        for arm in &self.arms {
            let name = &arm.name;
            if arm.summaries.is_empty() {
                return Err(format!("damaged: arm {name:?} has no measure"));
            }
            if !names.insert(name) {
                return Err(format!("damaged: arm {name:?} is there twice"));
            }
        }
        // Names are printed on terminals, which obey escape sequences.
        match names.into_iter().chain([&self.experiment]).find(|n| n.contains(char::is_control)) {
            Some(name) => Err(format!("damaged: control characters in the name {name:?}")),
            None => Ok(()),
        }
    }
}

/// Saves `value` as `name` in `dir`, which must exist. The file is durable on return, and no
/// half-written file ever has its name.
pub(crate) fn save_json(dir: &Path, name: &str, value: &impl Serialize) -> Result<PathBuf> {
    let path = dir.join(name);
    let failed = |source| Error::Save { path: path.clone(), source };
    let json = serde_json::to_vec(value).map_err(|error| {
        failed(plimsoll_sync::Error::io("encode", &path, io::Error::from(error)))
    })?;
    write_durably(dir, name, &json).map_err(failed)?;
    Ok(path)
}

/// Why saved results could not be read. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The system does not let us.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No result is so large.
    #[error(
        "{} is larger than {}: not a result of plimsoll lab",
        path.display(),
        units::bytes(FILE_BYTES_MAX)
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, or comes from another program or a newer version of this one.
    #[error("{}: {reason}", path.display())]
    NotAResult {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A directory without any result.
    #[error(
        "no results in {}: name a directory that `plimsoll lab` wrote <experiment>.json to",
        path.display()
    )]
    NoResults {
        /// The directory.
        path: PathBuf,
    },
}

/// Reads the results in a file, or in all `*.json` files of a directory, in the order of their
/// names. A file holds one result, as [`ExperimentResult::save`] writes it, or an array, as
/// `--json` prints it. In a directory, files that name another format are skipped; a file that
/// cannot be understood is an error.
pub fn load(path: &Path) -> std::result::Result<Vec<ExperimentResult>, LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return load_file(path, false);
    }
    let entries: io::Result<Vec<_>> =
        fs::read_dir(path).map_err(unreadable)?.map(|entry| Ok(entry?.path())).collect();
    let mut files = entries.map_err(unreadable)?;
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    let mut results = Vec::new();
    for file in files {
        results.extend(load_file(&file, true)?);
    }
    if results.is_empty() {
        return Err(LoadError::NoResults { path: path.to_owned() });
    }
    Ok(results)
}

/// Reads the runs in a file or a directory. A file is one run. In a directory, the results beside
/// each other are one run, and each directory in it is another, in the order of their names.
pub fn load_runs(path: &Path) -> std::result::Result<Vec<Vec<ExperimentResult>>, LoadError> {
    let mut runs = Vec::new();
    let mut add = |loaded| match loaded {
        Ok(run) => {
            runs.push(run);
            Ok(())
        }
        Err(LoadError::NoResults { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    add(load(path))?;
    if path.is_dir() {
        let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
        let entries: io::Result<Vec<_>> =
            fs::read_dir(path).map_err(unreadable)?.map(|entry| Ok(entry?.path())).collect();
        let mut within = entries.map_err(unreadable)?;
        within.retain(|path| path.is_dir());
        within.sort();
        within.iter().try_for_each(|directory| add(load(directory)))?;
    }
    match runs.is_empty() {
        true => Err(LoadError::NoResults { path: path.to_owned() }),
        false => Ok(runs),
    }
}

fn load_file(
    path: &Path,
    skip_foreign: bool,
) -> std::result::Result<Vec<ExperimentResult>, LoadError> {
    let unreadable = |source| LoadError::Read { path: path.to_owned(), source };
    let wrong = |reason| LoadError::NotAResult { path: path.to_owned(), reason };
    let file = fs::File::open(path).map_err(unreadable)?;
    let too_large = || LoadError::TooLarge { path: path.to_owned() };
    // The size is checked before anything is read, and again while reading, as pipes and devices
    // have none.
    if file.metadata().map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if read as u64 > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let json = String::from_utf8(bytes)
        .map_err(|error| wrong(format!("not a result of plimsoll lab: {error}")))?;
    if !json.trim_start().starts_with('[') {
        let is_foreign = |head: Head| head.format.is_some_and(|format| format != FORMAT);
        if skip_foreign && head_of(&json).is_ok_and(is_foreign) {
            return Ok(Vec::new());
        }
        return ExperimentResult::parse(&json).map(|result| vec![result]).map_err(wrong);
    }
    let heads: Vec<Head> = parsed(&json)
        .map_err(|why| wrong(format!("not readable results of plimsoll lab: {why}")))?;
    heads.iter().try_for_each(check_head).map_err(wrong)?;
    let results: Vec<ExperimentResult> =
        parsed(&json).map_err(|error| wrong(format!("damaged: {error}")))?;
    results.iter().try_for_each(ExperimentResult::check).map_err(wrong)?;
    match results.is_empty() {
        true => Err(wrong("an empty array: no result in it".to_owned())),
        false => Ok(results),
    }
}

/// What is read of a file first: is it ours, and can we read its version?
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<serde_json::Number>,
}

fn check_head(head: &Head) -> std::result::Result<(), String> {
    match (head.format.as_deref(), &head.version) {
        (None, _) => Err("not a result of plimsoll lab: it does not say its format".to_owned()),
        (Some(FORMAT), Some(version)) if version.as_u64() == Some(u64::from(VERSION)) => Ok(()),
        (Some(FORMAT), Some(version)) => Err(format!(
            "version {version} of the result format; this program reads version {VERSION}: use a \
             newer plimsoll"
        )),
        (Some(FORMAT), None) => Err("damaged: no version".to_owned()),
        (Some(other), _) => Err(format!("not a result of plimsoll lab but {other:?}")),
    }
}

fn head_of(json: &str) -> std::result::Result<Head, String> {
    parsed(json).map_err(|why| format!("not a readable result of plimsoll lab: {why}"))
}

/// Parses JSON, or says in words what is wrong. serde_json bounds how deep it goes.
fn parsed<T: DeserializeOwned>(json: &str) -> std::result::Result<T, String> {
    serde_json::from_str(json).map_err(|error| match error.classify() {
        Category::Eof if json.trim().is_empty() => "it is empty".to_owned(),
        Category::Eof => format!("it is cut off: {error}"),
        _ => error.to_string(),
    })
}

/// Writes a file under a name that may be taken. It is durable on return, and no half-written file
/// ever has its name.
pub(crate) fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> plimsoll_sync::Result<()> {
    let dir = OsDir::open(dir)?;
    let method = SyncMethod::ORDINARY;
    let (unfinished, file) = dir.create_unfinished(name, method.access())?;
    let written =
        file.write_sync_at(bytes, 0, method).and_then(|_kept| dir.rename(&unfinished, name));
    if written.is_err() {
        // The first failure is the one to report.
        dir.remove(&unfinished).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_damaged_or_newer_file_is_told_apart() {
        let foreign = ExperimentResult::parse("{\"a\": 1}").unwrap_err();
        assert!(foreign.contains("not a result of plimsoll lab"), "{foreign}");
        let newer = ExperimentResult::parse(&format!("{{\"format\":\"{FORMAT}\",\"version\":99}}"));
        assert!(newer.unwrap_err().contains("version 99"));
        let damaged =
            ExperimentResult::parse(&format!("{{\"format\":\"{FORMAT}\",\"version\":1}}"));
        assert!(damaged.unwrap_err().contains("damaged"));
    }
}
