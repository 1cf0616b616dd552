//! What was found of each state, as lines of JSON beside the trace: written as it comes, read back to
//! go on, or to draw a page.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_simdisk::block::{Fault, Mode, Plan, State};
use plimsoll_simdisk::mounted::{Timings, Verdict};
use plimsoll_sync::{Dir, OsDir};
use serde::{Deserialize, Serialize};

/// A line that is longer is none of ours.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Results of other questions beside a trace.
const ASIDE_MAX: u32 = 1000;

/// What was asked; the first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    /// Hash of the trace.
    pub(super) trace: String,
    pub(super) filesystem: String,
    pub(super) check: String,
    /// The files that it names, and how they looked: see `fingerprint.rs`.
    pub(super) check_files: Vec<String>,
    pub(super) check_limit_ms: u64,
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

impl Asked {
    /// What is not a fault that we know excuses nothing.
    fn disk_lies(&self) -> bool {
        let lies = |fault: &String| fault.parse::<Fault>().is_ok_and(|fault| fault.lies());
        self.lying || self.faults.iter().any(lies)
    }
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

/// What a finding says of what was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It held.
    Passed,
    /// It could not be checked, and nobody is to blame.
    Apart,
    /// It counts against what was checked, or against the check.
    Failed,
}

/// Results of another question, that were in the way.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) path: PathBuf,
    /// What the other question had otherwise.
    pub(super) differs: Vec<String>,
}

/// All that was found of a trace so far, and the file that it goes to.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) path: PathBuf,
    /// Where the page goes.
    pub(super) page: PathBuf,
    file: File,
    pub(super) asked: Asked,
    /// Whether the disk said other than what it did.
    pub(super) disk_lies: bool,
    pub(super) found: BTreeMap<usize, Finding>,
    /// What was moved.
    pub(super) aside: Option<Aside>,
}

impl Findings {
    /// Goes on where the same question was left, or begins anew. What was found of other questions stays:
    /// under the plain names is what was asked last, all else has a number.
    pub(super) fn open(trace: &Path, asked: Asked, fresh: bool) -> Result<Self> {
        let path = results(trace, 0);
        let context = || path.display().to_string();
        let mut aside = None;
        if let Some(file) = open_locked(&path, false)? {
            let first = first_line(&file).with_context(context)?;
            let is_other = !first.is_empty() && question(&first).as_ref() != Some(&asked);
            let length = file.metadata().with_context(context)?.len();
            let is_unanswered = question(&first).is_some() && first.len() as u64 == length;
            if is_other && !is_unanswered {
                let (number, differs) = (free_number(trace)?, differs(&first, &asked));
                rename_both(trace, 0, number)?;
                aside = Some(Aside { path: results(trace, number), differs });
            }
        }
        if !path.exists() {
            for number in 1..ASIDE_MAX {
                let earlier = results(trace, number);
                let Ok(file) = File::open(&earlier) else { continue };
                if question(&first_line(&file).unwrap_or_default()).as_ref() == Some(&asked) {
                    rename_both(trace, number, 0)?;
                    break;
                }
            }
        }
        let mut file = open_locked(&path, true)?.context("it is gone")?;
        let known = if fresh { None } else { read(&file, &asked).with_context(context)? };
        let (found, whole_bytes) = known.unwrap_or_default();
        // A line that was cut short when we were killed goes.
        file.set_len(whole_bytes).with_context(context)?;
        file.seek(SeekFrom::End(0)).with_context(context)?;
        let disk_lies = asked.disk_lies();
        let page = page(trace, 0);
        let mut findings = Self { path, page, file, asked, disk_lies, found, aside };
        if whole_bytes == 0 {
            let first = serde_json::to_string(&findings.asked)?;
            findings.line(&first)?;
        }
        Ok(findings)
    }

    /// Forgets what is not of this plan: an older version may have had another.
    pub(super) fn keep_of(&mut self, plan: &Plan) {
        self.found.retain(|&number, finding| {
            plan.states.get(number).is_some_and(|state| state.to_string() == finding.state)
        });
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

    /// What a finding says of what was checked.
    pub(super) fn standing(&self, finding: &Finding) -> Standing {
        let lies = self.disk_lies;
        match finding.verdict.as_str() {
            "ok" => Standing::Passed,
            // On a disk that lies something may be lost, if that is noticed.
            "reported" if lies => Standing::Passed,
            // Filesystems themselves survive neither; that is not the program's fault.
            "not-mounted" if lies || tears_small(&finding.state) => Standing::Apart,
            _ => Standing::Failed,
        }
    }

    pub(super) fn bad(&self) -> impl Iterator<Item = &Finding> {
        self.found.values().filter(|finding| self.standing(finding) == Standing::Failed)
    }

    /// How many findings stand like this.
    pub(super) fn count(&self, standing: Standing) -> usize {
        self.found.values().filter(|finding| self.standing(finding) == standing).count()
    }
}

/// Whether a write was torn into less than most drives write at once.
fn tears_small(state: &str) -> bool {
    let mode = state.parse::<State>().map(|state| state.mode);
    matches!(mode, Ok(Mode::Torn { tear_bytes, .. }) if tear_bytes < 4096)
}

/// `ext4.states.jsonl`, or with a number `ext4.1.states.jsonl`.
fn results(trace: &Path, number: u32) -> PathBuf {
    with_number(trace, number, "states.jsonl")
}

fn page(trace: &Path, number: u32) -> PathBuf {
    with_number(trace, number, "html")
}

fn with_number(trace: &Path, number: u32, extension: &str) -> PathBuf {
    match number {
        0 => trace.with_extension(extension),
        number => trace.with_extension(format!("{number}.{extension}")),
    }
}

/// Two that write one file would each find half.
fn open_locked(path: &Path, create: bool) -> Result<Option<File>> {
    let mut how = OpenOptions::new();
    let file = match how.read(true).write(true).create(create).truncate(false).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| path.display().to_string())?,
    };
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        bail!("{}: another `explore` of this trace is writing it; wait for it", path.display());
    }
    Ok(Some(file))
}

fn free_number(trace: &Path) -> Result<u32> {
    let is_free = |&number: &u32| !results(trace, number).exists() && !page(trace, number).exists();
    (1..ASIDE_MAX)
        .find(is_free)
        .with_context(|| format!("beside {} are too many results; remove some", trace.display()))
}

/// Results, and their page if there is one.
fn rename_both(trace: &Path, from: u32, to: u32) -> Result<()> {
    let parent = trace.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = OsDir::open(parent.unwrap_or(Path::new(".")))?;
    for of in [results, page] {
        let (from, to) = (of(trace, from), of(trace, to));
        let names =
            (from.file_name().and_then(OsStr::to_str), to.file_name().and_then(OsStr::to_str));
        if let (Some(from_name), Some(to_name)) = names
            && from.exists()
        {
            dir.rename(from_name, to_name)?;
        }
    }
    Ok(())
}

fn first_line(file: &File) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(file).by_ref_take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn question(line: &[u8]) -> Option<Asked> {
    serde_json::from_slice(line).ok()
}

/// What of a question is another than in the first line of some results.
fn differs(line: &[u8], asked: &Asked) -> Vec<String> {
    let now = serde_json::to_value(asked).unwrap_or_default();
    let then = serde_json::from_slice::<serde_json::Value>(line).unwrap_or_default();
    let fields = now.as_object().into_iter().flatten();
    let differ = fields.filter(|(name, value)| then.get(name.as_str()) != Some(*value));
    differ.map(|(name, _)| name.replace('_', " ")).collect()
}

type Known = (BTreeMap<usize, Finding>, u64);

/// Findings of the same question, and how many bytes of whole lines they are.
fn read(mut file: &File, asked: &Asked) -> std::io::Result<Option<Known>> {
    file.rewind()?;
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
            if question(&line).as_ref() != Some(asked) {
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
            check_files: vec!["/bin/true: 9 bytes".to_owned()],
            check_limit_ms: 60_000,
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
    fn the_same_question_goes_on_where_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        let mut first = Findings::open(&trace, asked(1), false).unwrap();
        first.add(finding(3, "ok")).unwrap();
        first.add(finding(5, "lost")).unwrap();
        // Killed in the middle of a line.
        first.file.write_all(b"{\"number\":7,\"sta").unwrap();
        drop(first);
        let mut second = Findings::open(&trace, asked(1), false).unwrap();
        assert_eq!(second.found.keys().copied().collect::<Vec<_>>(), [3, 5]);
        second.add(finding(7, "refused")).unwrap();
        drop(second);
        let third = Findings::open(&trace, asked(1), false).unwrap();
        assert_eq!((third.found.len(), third.bad().count(), third.aside.is_none()), (3, 2, true));
        drop(third);
        assert!(Findings::open(&trace, asked(1), true).unwrap().found.is_empty(), "--fresh");
    }

    #[test]
    fn a_changed_check_is_another_question_and_the_earlier_answer_stays() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        Findings::open(&trace, asked(1), false).unwrap().add(finding(3, "ok")).unwrap();
        std::fs::write(dir.path().join("ext4.html"), "the page of the first").unwrap();
        let edited = Asked { check_files: vec!["/bin/true: 10 bytes".to_owned()], ..asked(1) };
        let patient = Asked { check_limit_ms: 1, ..asked(1) };
        for (number, other) in [(1, edited), (2, patient)] {
            let mut findings = Findings::open(&trace, other, false).unwrap();
            assert!(findings.found.is_empty());
            findings.add(finding(4, "ok")).unwrap();
            let aside = findings.aside.unwrap();
            assert_eq!(aside.path, dir.path().join(format!("ext4.{number}.states.jsonl")));
            assert!(aside.differs.iter().any(|field| field.starts_with("check ")), "{aside:?}");
        }
        let page = dir.path().join("ext4.1.html");
        assert_eq!(std::fs::read_to_string(page).unwrap(), "the page of the first");
        // Asked again, the first has its answer and its names again.
        let again = Findings::open(&trace, asked(1), false).unwrap();
        assert_eq!((again.found.len(), again.aside.unwrap().differs.len()), (1, 1));
        assert!(dir.path().join("ext4.html").exists());
    }

    #[test]
    fn a_question_that_was_never_answered_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        for seed in 1..9 {
            assert!(Findings::open(&trace, asked(seed), false).unwrap().aside.is_none());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_ours_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        std::fs::write(dir.path().join("ext4.states.jsonl"), "my notes").unwrap();
        Findings::open(&trace, asked(1), true).unwrap();
        let kept = std::fs::read_to_string(dir.path().join("ext4.1.states.jsonl")).unwrap();
        assert_eq!(kept, "my notes");
    }

    #[test]
    fn two_that_write_the_same_results_are_one_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        let _first = Findings::open(&trace, asked(1), false).unwrap();
        let second = Findings::open(&trace, asked(1), false).unwrap_err();
        assert!(second.to_string().contains("wait for it"), "{second}");
    }

    #[test]
    fn what_a_lying_disk_loses_may_be_reported_and_not_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let honest = Findings::open(&dir.path().join("a.trace"), asked(1), true).unwrap();
        let lying = Asked { lying: true, ..asked(1) };
        let lying = Findings::open(&dir.path().join("b.trace"), lying, true).unwrap();
        let both = |verdict| {
            let finding = finding(1, verdict);
            (honest.standing(&finding), lying.standing(&finding))
        };
        assert_eq!(both("ok"), (Standing::Passed, Standing::Passed));
        assert_eq!(both("reported"), (Standing::Failed, Standing::Passed));
        assert_eq!(both("lost"), (Standing::Failed, Standing::Failed));
        assert_eq!(both("not-mounted"), (Standing::Failed, Standing::Apart));
    }

    #[test]
    fn a_disk_that_fails_honestly_excuses_nothing() {
        let lies = |fault: &str| Asked { faults: vec![fault.to_owned()], ..asked(1) }.disk_lies();
        for honest in ["flush EIO nth=3", "write ENOSPC sticky", "read EIO", "no rule at all"] {
            assert!(!lies(honest), "{honest}");
        }
        let lying = ["write lost", "flush dropped", "write misdirected", "read flip"];
        for lying in lying.into_iter().chain(["read unreadable range=64KiB..68KiB"]) {
            assert!(lies(lying), "{lying}");
        }
    }

    #[test]
    fn a_state_that_did_not_mount_has_not_passed() {
        let dir = tempfile::tempdir().unwrap();
        let torn = Asked { tear_bytes: 512, ..asked(1) };
        let mut findings = Findings::open(&dir.path().join("ext4.trace"), torn, true).unwrap();
        findings.add(finding(0, "ok")).unwrap();
        let state = "point=9,mode=torn,seed=1,tear=512".to_owned();
        findings.add(Finding { state, ..finding(1, "not-mounted") }).unwrap();
        // Nothing of it was torn small.
        findings.add(finding(2, "not-mounted")).unwrap();
        let of = |standing| findings.count(standing);
        assert_eq!((of(Standing::Passed), of(Standing::Apart), of(Standing::Failed)), (1, 1, 1));
    }
}
