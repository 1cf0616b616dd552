//! What was found of each state, as lines of JSON beside the trace: written as it comes, read back to
//! go on, or to draw a page.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plimsoll_sync::{Dir, OsDir};

use super::check::Verdict;
use super::error::{Error, Result};
use super::finding::{Finding, Standing};
use super::question::Question;
use crate::block::Plan;

/// A line that is longer is none of ours.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Results of other questions beside a trace.
const ASIDE_MAX: u32 = 1000;

/// Results of another question, that were in the way.
#[derive(Debug)]
pub struct Aside {
    /// Where they are now.
    pub path: PathBuf,
    /// What the other question had otherwise.
    pub differs: Vec<String>,
}

/// All that was found of a trace so far, and the file that it goes to.
#[derive(Debug)]
pub struct Findings {
    /// The file.
    pub path: PathBuf,
    /// Where the page goes.
    pub page: PathBuf,
    /// Where the summary goes.
    pub summary: PathBuf,
    file: File,
    /// What was asked.
    pub question: Question,
    /// Whether the disk said other than what it did.
    pub disk_lies: bool,
    /// By number in the plan.
    pub found: BTreeMap<usize, Finding>,
    /// What was moved.
    pub aside: Option<Aside>,
}

impl Findings {
    /// Goes on where the same question was left, or begins anew. What was found of other questions stays:
    /// under the plain names is what was asked last, all else has a number.
    pub(super) fn open(trace: &Path, question: Question, fresh: bool) -> Result<Self> {
        let trace = &as_named(trace, question.lying);
        let path = results(trace, 0);
        let failed = |operation| Error::io(operation, &path);
        let mut aside = None;
        if let Some(file) = open_locked(&path, false)? {
            let first = first_line(&file).map_err(failed("read"))?;
            let is_other = !first.is_empty() && Question::parse(&first).as_ref() != Some(&question);
            let length = file.metadata().map_err(failed("stat"))?.len();
            let is_unanswered = Question::parse(&first).is_some() && first.len() as u64 == length;
            if is_other && !is_unanswered {
                let (number, differs) = (free_number(trace)?, question.differs(&first));
                rename_all(trace, 0, number)?;
                aside = Some(Aside { path: results(trace, number), differs });
            }
        }
        if !path.exists() {
            for number in 1..ASIDE_MAX {
                let earlier = results(trace, number);
                let Ok(file) = File::open(&earlier) else { continue };
                if Question::parse(&first_line(&file).unwrap_or_default()).as_ref()
                    == Some(&question)
                {
                    rename_all(trace, number, 0)?;
                    break;
                }
            }
        }
        let mut file =
            open_locked(&path, true)?.ok_or_else(|| failed("open")(ErrorKind::NotFound.into()))?;
        let known = if fresh { None } else { read(&file, &question).map_err(failed("read"))? };
        let (found, whole_bytes) = known.unwrap_or_default();
        // A line that was cut short when we were killed goes.
        file.set_len(whole_bytes).map_err(failed("truncate"))?;
        file.seek(SeekFrom::End(0)).map_err(failed("seek"))?;
        let disk_lies = question.disk_lies();
        let (page, summary) = (page(trace, 0), summary(trace, 0));
        let mut findings = Self { path, page, summary, file, question, disk_lies, found, aside };
        if whole_bytes == 0 {
            let first = json(&findings.question);
            findings.line(&first)?;
        }
        Ok(findings)
    }

    /// Gives what was found of the trace of this name a number, because another trace has it now;
    /// returns where it is then, if there was any.
    pub fn set_aside(trace: &Path) -> Result<Option<PathBuf>> {
        let [plain, lying] = [false, true].map(|lying| set_aside(&as_named(trace, lying)));
        Ok(plain?.or(lying?))
    }

    /// Forgets what is not of this plan: an older version may have had another.
    pub(super) fn keep_of(&mut self, plan: &Plan) {
        self.found.retain(|&number, finding| {
            plan.states.get(number).is_some_and(|state| state.to_string() == finding.state)
        });
    }

    /// Writes a finding down; it is in the file on return, and durable when the system sees fit.
    pub(super) fn add(&mut self, finding: Finding) -> Result<&Finding> {
        self.line(&json(&finding))?;
        let number = finding.number;
        self.found.insert(number, finding);
        Ok(&self.found[&number])
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(Error::io("write", &self.path))
    }

    /// How many states ended how, in the order in which that is reported.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        let of = |name| self.found.values().filter(|found| found.verdict == name).count();
        Verdict::NAMES.into_iter().map(|name| (name, of(name))).collect()
    }

    /// What a finding says of what was checked.
    #[must_use]
    pub fn standing(&self, finding: &Finding) -> Standing {
        finding.standing(self.disk_lies)
    }

    /// Findings that count against what was checked.
    pub fn bad(&self) -> impl Iterator<Item = &Finding> {
        self.found.values().filter(|finding| self.standing(finding) == Standing::Failed)
    }

    /// How many findings stand like this.
    #[must_use]
    pub fn count(&self, standing: Standing) -> usize {
        self.found.values().filter(|finding| self.standing(finding) == standing).count()
    }
}

/// What results are named after: those of a disk that is believed to lie are nobody's verdict, and have names of
/// their own, such as `ext4.lying.html`.
fn as_named(trace: &Path, lying: bool) -> PathBuf {
    if lying { trace.with_extension("lying.trace") } else { trace.to_owned() }
}

fn set_aside(trace: &Path) -> Result<Option<PathBuf>> {
    let there: Vec<_> = ALL.iter().filter(|of| of(trace, 0).exists()).collect();
    if there.is_empty() {
        return Ok(None);
    }
    let _locked = open_locked(&results(trace, 0), false)?;
    let number = free_number(trace)?;
    rename_all(trace, 0, number)?;
    Ok(there.first().map(|of| of(trace, number)))
}

/// What lies beside a trace.
const ALL: [fn(&Path, u32) -> PathBuf; 3] = [results, page, summary];

/// `ext4.states.jsonl`, or with a number `ext4.1.states.jsonl`.
fn results(trace: &Path, number: u32) -> PathBuf {
    with_number(trace, number, "states.jsonl")
}

fn page(trace: &Path, number: u32) -> PathBuf {
    with_number(trace, number, "html")
}

fn summary(trace: &Path, number: u32) -> PathBuf {
    with_number(trace, number, "summary.json")
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
        opened => opened.map_err(Error::io("open", path))?,
    };
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(Error::InUse { path: path.to_owned() });
    }
    Ok(Some(file))
}

fn free_number(trace: &Path) -> Result<u32> {
    let is_free = |&number: &u32| ALL.iter().all(|of| !of(trace, number).exists());
    let full = || Error::TooManyResults { trace: trace.to_owned() };
    (1..ASIDE_MAX).find(is_free).ok_or_else(full)
}

/// Results, and what was made of them if it is there.
fn rename_all(trace: &Path, from: u32, to: u32) -> Result<()> {
    let parent = trace.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = OsDir::open(parent.unwrap_or(Path::new("."))).map_err(Error::Results)?;
    for of in ALL {
        let (from, to) = (of(trace, from), of(trace, to));
        let names =
            (from.file_name().and_then(OsStr::to_str), to.file_name().and_then(OsStr::to_str));
        if let (Some(from_name), Some(to_name)) = names
            && from.exists()
        {
            dir.rename(from_name, to_name).map_err(Error::Results)?;
        }
    }
    Ok(())
}

fn first_line(file: &File) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(file).by_ref_take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(line)
}

type Known = (BTreeMap<usize, Finding>, u64);

/// Findings of the same question, and how many bytes of whole lines they are.
fn read(mut file: &File, question: &Question) -> std::io::Result<Option<Known>> {
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
            if Question::parse(&line).as_ref() != Some(question) {
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

fn json(line: &impl serde::Serialize) -> String {
    serde_json::to_string(line).expect("texts and numbers, by names that are texts")
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
    use super::super::finding::Micros;
    use super::super::question::tests::question;
    use super::*;
    use crate::block::Toll;

    fn finding(number: usize, verdict: &str) -> Finding {
        Finding {
            number,
            state: "point=1,mode=durable".to_owned(),
            verdict: verdict.to_owned(),
            said: "no".to_owned(),
            last_mark: None,
            pending: Toll::default(),
            disk: "0".to_owned(),
            micros: Micros::default(),
        }
    }

    #[test]
    fn the_same_question_goes_on_where_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        let mut first = Findings::open(&trace, question(1), false).unwrap();
        first.add(finding(3, "ok")).unwrap();
        first.add(finding(5, "lost")).unwrap();
        // Killed in the middle of a line.
        first.file.write_all(b"{\"number\":7,\"sta").unwrap();
        drop(first);
        let mut second = Findings::open(&trace, question(1), false).unwrap();
        assert_eq!(second.found.keys().copied().collect::<Vec<_>>(), [3, 5]);
        second.add(finding(7, "refused")).unwrap();
        drop(second);
        let third = Findings::open(&trace, question(1), false).unwrap();
        assert_eq!((third.found.len(), third.bad().count(), third.aside.is_none()), (3, 2, true));
        drop(third);
        assert!(Findings::open(&trace, question(1), true).unwrap().found.is_empty(), "--fresh");
    }

    #[test]
    fn a_changed_check_is_another_question_and_the_earlier_answer_stays() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        Findings::open(&trace, question(1), false).unwrap().add(finding(3, "ok")).unwrap();
        std::fs::write(dir.path().join("ext4.html"), "the page of the first").unwrap();
        let edited =
            Question { check_files: vec!["/bin/true: 10 bytes".to_owned()], ..question(1) };
        let patient = Question { check_limit_ms: 1, ..question(1) };
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
        // Question again, the first has its answer and its names again.
        let again = Findings::open(&trace, question(1), false).unwrap();
        assert_eq!((again.found.len(), again.aside.unwrap().differs.len()), (1, 1));
        assert!(dir.path().join("ext4.html").exists());
    }

    /// A page that was opened after both showed thousands of losses, of a disk that nobody had.
    #[test]
    fn what_a_lying_disk_left_is_not_under_the_names_of_what_an_honest_one_did() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        Findings::open(&trace, question(1), false).unwrap().add(finding(3, "ok")).unwrap();
        let lying = Question { lying: true, ..question(1) };
        let mut lying = Findings::open(&trace, lying, false).unwrap();
        lying.add(finding(3, "lost")).unwrap();
        assert!(lying.aside.is_none() && lying.page == dir.path().join("ext4.lying.html"));
        assert!(dir.path().join("ext4.lying.states.jsonl").exists());
        drop(lying);
        assert_eq!(Findings::open(&trace, question(1), false).unwrap().found[&3].verdict, "ok");
        // Another trace gets the name: neither is about that.
        Findings::set_aside(&trace).unwrap();
        let names = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ext4.1.states.jsonl", "ext4.lying.1.states.jsonl"]);
    }

    #[test]
    fn a_question_that_was_never_answered_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        for seed in 1..9 {
            assert!(Findings::open(&trace, question(seed), false).unwrap().aside.is_none());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_not_ours_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        std::fs::write(dir.path().join("ext4.states.jsonl"), "my notes").unwrap();
        Findings::open(&trace, question(1), true).unwrap();
        let kept = std::fs::read_to_string(dir.path().join("ext4.1.states.jsonl")).unwrap();
        assert_eq!(kept, "my notes");
    }

    #[test]
    fn two_that_write_the_same_results_are_one_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("ext4.trace");
        let _first = Findings::open(&trace, question(1), false).unwrap();
        let second = Findings::open(&trace, question(1), false).unwrap_err();
        assert!(second.to_string().contains("wait for it"), "{second}");
    }

    #[test]
    fn what_a_lying_disk_loses_may_be_reported_and_not_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let honest = Findings::open(&dir.path().join("a.trace"), question(1), true).unwrap();
        let lying = Question { lying: true, ..question(1) };
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
    fn a_state_that_did_not_mount_has_not_passed() {
        let dir = tempfile::tempdir().unwrap();
        let torn = Question { tear_bytes: 512, ..question(1) };
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
