//! What was found of each state, as lines of JSON beside the trace: written as it comes, read back to
//! go on, or to draw a page.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use plimsoll_simdisk::mounted::{Timings, Verdict};
use serde::{Deserialize, Serialize};

/// A line that is longer is none of ours.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What was asked; the first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Hash of the trace.
    pub(super) trace: String,
    pub(super) filesystem: String,
    pub(super) check: String,
    pub(super) states: usize,
    pub(super) modes: Vec<String>,
    pub(super) tear_bytes: u32,
    pub(super) exhaustive_writes: u32,
    pub(super) seed: u64,
    pub(super) lying: bool,
    /// What the disk was told to do wrong when it was recorded.
    pub(super) faults: Vec<String>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) mount_options: String,
    /// Of the kernel that mounts the states; the recording knows its own.
    pub(super) kernel: String,
    pub(super) plimsoll: String,
}

/// What was found of a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    /// In the plan.
    pub(super) number: usize,
    pub(super) state: String,
    /// As [`Verdict::name`] says it.
    pub(super) verdict: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_mark: Option<String>,
    pub(super) micros: Micros,
}

/// How long each step took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Micros {
    pub(super) build: u64,
    pub(super) attach: u64,
    pub(super) mount: u64,
    pub(super) check: u64,
    pub(super) unmount: u64,
}

impl Micros {
    pub(super) fn of(timings: &Timings) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            build: micros(timings.build),
            attach: micros(timings.attach),
            mount: micros(timings.mount),
            check: micros(timings.check),
            unmount: micros(timings.unmount),
        }
    }

    pub(super) fn sum(&self) -> u64 {
        let steps = [self.build, self.attach, self.mount, self.check, self.unmount];
        steps.into_iter().fold(0, u64::saturating_add)
    }
}

/// All that was found of a trace so far, and the file that it goes to.
#[derive(Debug)]
pub(super) struct Findings {
    path: PathBuf,
    file: File,
    pub(super) asked: Asked,
    pub(super) found: BTreeMap<usize, Finding>,
}

impl Findings {
    /// Goes on where the same question was left, or begins anew.
    pub(super) fn open(path: &Path, asked: Asked, fresh: bool) -> Result<Self> {
        let context = || format!("{}", path.display());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(context)?;
        let known = if fresh { None } else { read(&file, &asked).with_context(context)? };
        let (found, whole_bytes) = known.unwrap_or_default();
        // A line that was cut short when we were killed goes.
        file.set_len(whole_bytes).with_context(context)?;
        file.seek(SeekFrom::End(0)).with_context(context)?;
        let mut findings = Self { path: path.to_owned(), file, asked, found };
        if whole_bytes == 0 {
            let first = serde_json::to_string(&findings.asked)?;
            findings.line(&first)?;
        }
        Ok(findings)
    }

    /// Keeps a finding; also returns its line.
    pub(super) fn add(&mut self, finding: Finding) -> Result<String> {
        let line = serde_json::to_string(&finding)?;
        self.line(&line)?;
        self.found.insert(finding.number, finding);
        Ok(line)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("write {}", self.path.display()))
    }

    /// How many states ended how, in the order in which that is reported.
    pub(super) fn counts(&self) -> Vec<(&'static str, usize)> {
        let of = |name| self.found.values().filter(|found| found.verdict == name).count();
        Verdict::NAMES.into_iter().map(|name| (name, of(name))).collect()
    }

    /// Whether it counts against what was checked, or against the check.
    pub(super) fn is_bad(&self, finding: &Finding) -> bool {
        match finding.verdict.as_str() {
            "ok" => false,
            // On a disk that lies something may be lost, if that is noticed.
            "reported" => !self.asked.lying && self.asked.faults.is_empty(),
            // Filesystems themselves do not survive torn 4 KiB; that is not the program's fault.
            "not-mounted" => self.asked.tear_bytes >= 4096 && !self.asked.lying,
            _ => true,
        }
    }

    pub(super) fn bad(&self) -> impl Iterator<Item = &Finding> {
        self.found.values().filter(|finding| self.is_bad(finding))
    }
}

type Known = (BTreeMap<usize, Finding>, u64);

/// Findings of the same question, and how many bytes of whole lines they are.
fn read(file: &File, asked: &Asked) -> std::io::Result<Option<Known>> {
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    let mut whole_bytes = 0;
    let mut found = BTreeMap::new();
    let mut is_first = true;
    loop {
        line.clear();
        let read = lines.by_ref_take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok((!is_first).then_some((found, whole_bytes)));
        }
        if is_first {
            if serde_json::from_slice::<Asked>(&line).ok().as_ref() != Some(asked) {
                return Ok(None);
            }
            is_first = false;
        } else {
            let Ok(finding) = serde_json::from_slice::<Finding>(&line) else {
                return Ok(Some((found, whole_bytes)));
            };
            found.insert(finding.number, finding);
        }
        whole_bytes += read as u64;
    }
}

/// At most so much of a reader, without taking it.
trait ByRefTake: BufRead + Sized {
    fn by_ref_take(&mut self, bytes: usize) -> std::io::Take<&mut Self> {
        std::io::Read::take(std::io::Read::by_ref(self), bytes as u64)
    }
}

impl<R: BufRead> ByRefTake for R {}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(seed: u64) -> Asked {
        Asked {
            trace: "t".to_owned(),
            filesystem: "ext4".to_owned(),
            check: "true".to_owned(),
            states: 9,
            modes: vec![],
            tear_bytes: 4096,
            exhaustive_writes: 6,
            seed,
            lying: false,
            faults: vec![],
            cache_bytes: None,
            mount_options: String::new(),
            kernel: String::new(),
            plimsoll: String::new(),
        }
    }

    fn finding(number: usize, verdict: &str) -> Finding {
        Finding {
            number,
            state: "point=1,mode=durable".to_owned(),
            verdict: verdict.to_owned(),
            said: "no".to_owned(),
            last_mark: None,
            micros: Micros::default(),
        }
    }

    #[test]
    fn the_same_question_goes_on_where_it_was_left_and_another_begins_anew() {
        let path = std::env::temp_dir().join(format!("plimsoll-findings-{}", std::process::id()));
        let mut first = Findings::open(&path, asked(1), true).unwrap();
        first.add(finding(3, "ok")).unwrap();
        first.add(finding(5, "lost")).unwrap();
        // Killed in the middle of a line.
        first.file.write_all(b"{\"number\":7,\"sta").unwrap();
        let mut second = Findings::open(&path, asked(1), false).unwrap();
        assert_eq!(second.found.keys().copied().collect::<Vec<_>>(), [3, 5]);
        second.add(finding(7, "refused")).unwrap();
        let third = Findings::open(&path, asked(1), false).unwrap();
        assert_eq!((third.found.len(), third.bad().count()), (3, 2));
        let other = Findings::open(&path, asked(2), false).unwrap();
        assert!(other.found.is_empty());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_a_lying_disk_loses_may_be_reported_and_not_hidden() {
        let path = std::env::temp_dir().join(format!("plimsoll-lying-{}", std::process::id()));
        let honest = Findings::open(&path, asked(1), true).unwrap();
        let lying = Asked { lying: true, ..asked(1) };
        let lying = Findings::open(&path, lying, true).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(honest.is_bad(&finding(1, "reported")) && !lying.is_bad(&finding(1, "reported")));
        assert!(lying.is_bad(&finding(1, "lost")) && honest.is_bad(&finding(1, "not-mounted")));
    }
}
