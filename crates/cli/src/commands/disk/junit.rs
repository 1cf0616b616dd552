//! What was explored as JUnit's XML, for CI: a suite for each trace, in it a test case for each state that was
//! visited, and one more for what no state says: that it was interrupted, or tested nothing.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use maud::{Markup, PreEscaped, html};
use plimsoll_lab::report::page::save;
use plimsoll_simdisk::mounted::{Finding, Findings, Standing};

use crate::output::plain;

/// What each of ours begins with.
const HEAD: &str =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"plimsoll disk explore\"";

/// One trace.
#[derive(Debug)]
pub(super) struct Suite {
    cases: Vec<Case>,
    name: String,
    id: String,
    /// What it said of all states.
    summary: String,
}

#[derive(Debug)]
struct Case {
    name: String,
    seconds: f64,
    end: End,
}

#[derive(Debug)]
enum End {
    Passed,
    /// It could not be checked, and nobody is to blame.
    Skipped(String),
    /// With its kind.
    Failed(String, String),
    /// Nothing is known of what was to be checked; with its kind.
    Error(String, String),
}

impl Suite {
    /// What was found of a trace; `untested` says why that is nothing, `whole` that it was not interrupted.
    pub(super) fn of(
        path: &Path,
        findings: &Findings,
        untested: Option<&str>,
        is_whole: bool,
        summary: &str,
    ) -> Self {
        let name = path.display().to_string();
        let states = findings.found.values().map(|finding| Case::of(findings, finding));
        let end = match untested {
            _ if !is_whole => {
                Some(End::Error("interrupted".to_owned(), "it was interrupted".to_owned()))
            }
            Some(why) => Some(End::Failed("untested".to_owned(), why.to_owned())),
            None => None,
        };
        let of_all = end.map(|end| Case { name: format!("all of {name}"), seconds: 0.0, end });
        let cases = of_all.into_iter().chain(states).collect();
        Self { cases, name, id: findings.question.trace.clone(), summary: summary.to_owned() }
    }

    fn count(&self, is_counted: fn(&End) -> bool) -> usize {
        self.cases.iter().filter(|case| is_counted(&case.end)).count()
    }

    fn seconds(&self) -> f64 {
        self.cases.iter().map(|case| case.seconds).sum()
    }

    fn xml(&self) -> Markup {
        let [tests, failures, errors, skipped] = counts(std::slice::from_ref(self));
        html! {
            testsuite name=(xml(&self.name)) tests=(tests) failures=(failures) errors=(errors) skipped=(skipped)
                time=(seconds(self.seconds())) {
                properties { property name="trace" value=(self.id) {} }
                (PreEscaped("\n"))
                @for case in &self.cases { (case.xml(&self.name)) (PreEscaped("\n")) }
                system-out { (xml(&self.summary)) }
            }
            (PreEscaped("\n"))
        }
    }
}

impl Case {
    fn of(findings: &Findings, finding: &Finding) -> Self {
        let (kind, said) = (finding.verdict.clone(), finding.said.clone());
        let end = match findings.standing(finding) {
            Standing::Passed => End::Passed,
            Standing::Apart => End::Skipped(said),
            Standing::Failed if kind == "broken" => End::Error(kind, said),
            Standing::Failed => End::Failed(kind, said),
        };
        let seconds = finding.micros.sum() as f64 / 1e6;
        Self { name: finding.state.clone(), seconds, end }
    }

    fn xml(&self, suite: &str) -> Markup {
        let first = |said: &str| xml(said.lines().next().unwrap_or_default());
        html! {
            testcase classname=(xml(suite)) name=(xml(&self.name)) time=(seconds(self.seconds)) {
                @match &self.end {
                    End::Passed => {}
                    End::Skipped(said) => skipped message=(first(said)) {},
                    End::Failed(kind, said) => failure type=(kind) message=(first(said)) { (xml(said)) },
                    End::Error(kind, said) => error type=(kind) message=(first(said)) { (xml(said)) },
                }
            }
        }
    }
}

/// Tests, failures, errors, and what was skipped.
fn counts(suites: &[Suite]) -> [usize; 4] {
    let sum =
        |is_counted: fn(&End) -> bool| suites.iter().map(|suite| suite.count(is_counted)).sum();
    [
        sum(|_| true),
        sum(|end| matches!(end, End::Failed(..))),
        sum(|end| matches!(end, End::Error(..))),
        sum(|end| matches!(end, End::Skipped(_))),
    ]
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.6}")
}

/// Text without what XML has no way to say; the rest is escaped where it is put.
fn xml(text: &str) -> String {
    plain(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

/// Removes what an earlier run wrote: it is nothing that this one found. What is no report of ours is left as it
/// is, above all a trace or a device, and an error; so is a name under which none can be saved.
pub(super) fn make_way(path: &Path) -> Result<()> {
    let shown = path.display();
    if path.file_name().is_none_or(|name| name.to_str().is_none()) {
        bail!("--junit {shown} is not the name of a file, in UTF-8: give another");
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
        bail!("--junit {shown}: there is no directory {}: make it first", dir.display());
    }
    let failed = |what: &str| format!("--junit: {what} {shown}");
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| failed("look at")),
        Ok(there) if !there.is_file() => bail!("--junit {shown} is not a file: give another name"),
        Ok(_) => {}
    }
    let mut head = Vec::new();
    let file = File::open(path).with_context(|| failed("open"))?;
    file.take(HEAD.len() as u64).read_to_end(&mut head).with_context(|| failed("read"))?;
    if !head.is_empty() && head != HEAD.as_bytes() {
        bail!(
            "--junit {shown} is there, and is no report of `plimsoll disk explore`: give another name"
        );
    }
    fs::remove_file(path).with_context(|| failed("remove"))
}

/// Writes all suites; at no time is there half of them under the name.
pub(super) fn write(path: &Path, suites: &[Suite]) -> Result<()> {
    save(path, &whole(suites)).with_context(|| format!("save {}", path.display()))
}

fn whole(suites: &[Suite]) -> String {
    let [tests, failures, errors, skipped] = counts(suites);
    let all = html! {
        (PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        testsuites name="plimsoll disk explore" tests=(tests) failures=(failures) errors=(errors)
            skipped=(skipped) time=(seconds(suites.iter().map(Suite::seconds).sum())) {
            (PreEscaped("\n"))
            @for suite in suites { (suite.xml()) }
        }
    };
    all.into_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_is_text_in_it() {
        let hostile = "]]></failure><x a=\"\u{1b}[2J\u{0}\u{ffff}&\n'";
        let case = |end| Case { name: hostile.to_owned(), seconds: 1.5, end };
        let failed = || case(End::Failed("lost".to_owned(), hostile.to_owned()));
        let cases = vec![failed(), case(End::Passed), case(End::Skipped(hostile.to_owned()))];
        let text = hostile.to_owned();
        let suite = Suite { cases, name: text.clone(), id: "7".to_owned(), summary: text };
        let xml = whole(&[suite]);
        assert!(
            xml.starts_with("<?xml")
                && !xml.contains("<x")
                && !xml.contains(['\u{1b}', '\u{ffff}'])
        );
        assert!(
            xml.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"4.500000\"")
        );
        assert_eq!(xml.matches("<failure").count(), 1);
        assert_eq!(xml.matches("</failure>").count(), 1);
        assert!(xml.starts_with(HEAD), "the next run must know it");
    }
}
