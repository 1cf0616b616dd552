//! A run, as it is saved: after each trial, whole, under another name and then renamed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use plimsoll_lab::environment::Environment;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::task::{Answer, Cell};

const FORMAT: &str = "plimsoll-bench";
const VERSION: u32 = 1;

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Saved {
    format: String,
    version: u32,
    pub(crate) seed: u64,
    pub(crate) quick: bool,
    /// What was measured: the commit, with `+` if the tree had changes.
    pub(crate) commit: String,
    pub(crate) environment: Environment,
    /// Versions of what is not pinned in a manifest.
    pub(crate) versions: BTreeMap<String, String>,
    /// Arms that were not there, and why.
    pub(crate) missing: BTreeMap<String, String>,
    pub(crate) trials: Vec<Trial>,
    /// What strace saw of each arm.
    #[serde(default)]
    pub(crate) traced: Vec<Traced>,
}

/// One trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) round: u32,
    pub(crate) cell: Cell,
    pub(crate) arm: String,
    /// Seconds since 1970 when it began.
    pub(crate) at: u64,
    pub(crate) conditions: Conditions,
    /// What went wrong, if something did; then there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Answer>,
}

/// Syncs that strace counted while an arm appended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Traced {
    pub(crate) arm: String,
    pub(crate) cell: Cell,
    pub(crate) records: u64,
    /// Calls by name, and writes that sync (`RWF_DSYNC`, or to a file opened with `O_DSYNC`).
    pub(crate) calls: BTreeMap<String, u64>,
}

impl Saved {
    /// A run to add to: what the file holds, or an empty one.
    pub(crate) fn open(path: &Path, dir: &Path, seed: u64, quick: bool) -> Result<Self> {
        if path.exists() {
            let saved = Self::read(path)?;
            ensure!(
                saved.seed == seed && saved.quick == quick,
                "{} is of a run with another seed or length; choose another --out",
                path.display()
            );
            ensure!(
                saved.commit == commit(),
                "{} is of commit {}; go on there, or choose another --out",
                path.display(),
                saved.commit
            );
            return Ok(saved);
        }
        let (environment, _) = Environment::of(dir);
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            seed,
            quick,
            commit: commit(),
            environment: Environment { directory: "bench/scratch".into(), ..environment },
            versions: versions(),
            missing: BTreeMap::new(),
            trials: Vec::new(),
            traced: Vec::new(),
        })
    }

    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let saved: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no saved run", path.display()))?;
        ensure!(
            saved.format == FORMAT && saved.version == VERSION,
            "{} is {} {}; this program knows {FORMAT} {VERSION}",
            path.display(),
            saved.format,
            saved.version
        );
        Ok(saved)
    }

    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut text = String::from("{\n");
        let serde_json::Value::Object(fields) = serde_json::to_value(self)? else {
            unreachable!("a struct is an object")
        };
        let mut first = true;
        for (name, value) in fields {
            text.push_str(if first { "" } else { ",\n" });
            first = false;
            // A trial a line: readable as a diff, and small.
            match value {
                serde_json::Value::Array(lines) => {
                    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                    text.push_str(&format!("\"{name}\": [\n{}\n]", lines.join(",\n")));
                }
                other => text.push_str(&format!("\"{name}\": {other}")),
            }
        }
        text.push_str("\n}\n");
        let new = path.with_extension("json.new");
        fs::write(&new, text)?;
        fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whether a trial was made.
    pub(crate) fn has(&self, round: u32, cell: &Cell, arm: &str) -> bool {
        self.trials
            .iter()
            .any(|trial| trial.round == round && trial.arm == arm && trial.cell == *cell)
    }
}

fn commit() -> String {
    let git = |args: &[&str]| said("git", args).unwrap_or_default();
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_empty() { "" } else { "+" };
    format!("{}{mark}", git(&["rev-parse", "--short=12", "HEAD"]))
}

fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut add = |name: &str, text: Option<String>| {
        if let Some(line) = text.and_then(|text| text.lines().next().map(str::to_owned)) {
            versions.insert(name.to_owned(), line);
        }
    };
    add("rustc", said("rustc", &["--version"]));
    add("go", said("go", &["version"]));
    let redis = said("redis-server", &["--version"]);
    let redis =
        redis.and_then(|text| Some(text.split(" v=").nth(1)?.split(' ').next()?.to_owned()));
    add("Redis", redis.map(|version| format!("Redis {version}")));
    add("SQLite", Some(format!("SQLite {}", rusqlite::version())));
    versions
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
