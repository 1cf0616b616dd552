//! `plimsoll log verify`: everything is read, and what is bad is said.

use std::io::{self, IsTerminal};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::units;
use plimsoll_log::{Corruption, Dumped, Kind, SegmentReport, SegmentState, View};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::log_args::VerifyArgs;
use crate::output;

/// Valid records behind damage in the same segment: `dump` shows them, a reader does not get there.
#[derive(Clone, Copy)]
struct Behind {
    first_index: u64,
    last_index: u64,
    records: u64,
    /// Where the first one begins.
    byte_offset: u64,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit> {
    let is_open = args.log.writer()?.is_some();
    let view = args.log.view()?;
    let bar = bar();
    let reports = view.verify(&|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let mut verdict = Verdict { first_index: view.first_index(), is_open, ..Verdict::default() };
    for report in reports {
        let behind = match &report.state {
            SegmentState::Corrupt(wrong) => behind(&view, &report, wrong)?,
            _ => None,
        };
        verdict.add(report, behind);
    }
    let text = match args.json {
        true => format!("{}\n", verdict.json()),
        false => verdict.text(args.details),
    };
    output::answer(&text)?;
    Ok(if verdict.is_corrupt() { Exit::CheckFailed } else { Exit::Ok })
}

fn behind(view: &View, report: &SegmentReport, wrong: &Corruption) -> Result<Option<Behind>> {
    let mut found: Option<Behind> = None;
    view.dump(report, |dumped| -> Result<()> {
        if let Dumped::Frame { byte_offset, frame, .. } = dumped
            && frame.kind == Kind::Record
            && (1..byte_offset).contains(&wrong.byte_offset)
            && wrong.records.contains(&frame.index)
        {
            let index = frame.index;
            let first = Behind { first_index: index, last_index: index, records: 0, byte_offset };
            let found = found.get_or_insert(first);
            found.last_index = index;
            found.records += 1;
        }
        Ok(())
    })?;
    Ok(found)
}

#[derive(Default)]
struct Verdict {
    first_index: u64,
    is_open: bool,
    segments: Vec<(SegmentReport, Option<Behind>)>,
    /// Records that can be read, in runs without a gap.
    readable: Vec<(u64, u64)>,
}

impl Verdict {
    fn add(&mut self, report: SegmentReport, behind: Option<Behind>) {
        let (first, last) = (report.first_index, report.last_index);
        if report.state != SegmentState::Stale && last >= first {
            match self.readable.last_mut() {
                Some(run) if run.1.checked_add(1) == Some(first) => run.1 = last,
                _ => self.readable.push((first, last)),
            }
        }
        self.segments.push((report, behind));
    }

    fn corruptions(&self) -> impl Iterator<Item = (&Corruption, Option<Behind>)> {
        self.segments.iter().filter_map(|(report, behind)| match &report.state {
            SegmentState::Corrupt(wrong) => Some((wrong, *behind)),
            _ => None,
        })
    }

    fn is_corrupt(&self) -> bool {
        self.corruptions().next().is_some()
    }

    fn torn(&self) -> Option<&Corruption> {
        self.segments.iter().find_map(|(report, _)| match &report.state {
            SegmentState::Torn(wrong) => Some(wrong),
            _ => None,
        })
    }

    /// In a word. The end of a log that is being written is not torn, it is where the writer is.
    fn word(&self, state: &SegmentState) -> &'static str {
        match state {
            SegmentState::Good => "good",
            SegmentState::Closed if !self.is_open => "closed",
            SegmentState::Torn(_) if !self.is_open => "torn",
            SegmentState::Closed | SegmentState::Open | SegmentState::Torn(_) => "open",
            SegmentState::Corrupt(_) => "corrupt",
            SegmentState::Stale => "stale",
        }
    }

    fn is_good(&self, state: &SegmentState) -> bool {
        matches!(self.word(state), "good" | "closed" | "open")
    }

    /// Of segments that are good only with `details` more than how many they are.
    fn text(&self, details: bool) -> String {
        let mut text = String::new();
        let (mut good, mut stale) = (0, 0);
        for (report, _) in &self.segments {
            let is_good = self.is_good(&report.state);
            good += u64::from(is_good);
            stale += u64::from(report.state == SegmentState::Stale);
            if details || !is_good {
                text += &self.line(report);
            }
        }
        if stale > 0 {
            text += "what is stale is not part of the log any more\n";
        }
        text.extend(self.corruptions().map(|(wrong, behind)| told(wrong, behind)));
        let n = output::counted(self.segments.len() as u64 - stale, "segment");
        let runs: Vec<_> =
            self.readable.iter().map(|(first, last)| super::range(*first, *last)).collect();
        if self.is_corrupt() {
            let runs = if runs.is_empty() { "nothing".to_owned() } else { runs.join(", ") };
            text += &format!("readable: {runs}\n");
            let shown = if details { "" } else { "; --details lists them" };
            text += &format!("{good} of {n} are good{}\n", if good > 0 { shown } else { "" });
            return text;
        }
        if let Some(wrong) = self.torn().filter(|_| !self.is_open) {
            text += &format!(
                "the last write was not finished ({} at byte offset {}: {}): {}, and the next open cuts \
                 it off\n",
                wrong.segment,
                wrong.byte_offset,
                wrong.damage,
                super::NOT_KNOWN_DURABLE
            );
        }
        let held = if runs.is_empty() { "no records".to_owned() } else { runs.join(", ") };
        text += &format!("good: {held}, in {n}\n");
        text
    }

    fn line(&self, report: &SegmentReport) -> String {
        let held = match report.last_index {
            last if last < report.first_index => "no records".to_owned(),
            last => format!("{} to {last}", report.first_index),
        };
        let word = self.word(&report.state);
        let bytes = units::bytes(report.file_bytes);
        let shown = match word {
            _ if !output::colour() => word.to_owned(),
            "corrupt" => format!("\x1b[31m{word}\x1b[0m"),
            "torn" | "stale" => format!("\x1b[33m{word}\x1b[0m"),
            _ => format!("\x1b[32m{word}\x1b[0m"),
        };
        format!("{}  {held:<24} {bytes:>10}  {shown}\n", report.segment)
    }

    fn json(&self) -> Value {
        let segments: Vec<Value> = self.segments.iter().map(|pair| self.segment(pair)).collect();
        let state = match self.torn() {
            _ if self.is_corrupt() => "corrupt",
            Some(_) if !self.is_open => "torn",
            _ => "good",
        };
        let readable: Vec<Value> = self
            .readable
            .iter()
            .map(|(first, last)| json!({ "first_index": first, "last_index": last }))
            .collect();
        json!({
            "state": state,
            "first_index": self.first_index,
            "open": self.is_open,
            "readable": readable,
            "segments": segments,
        })
    }

    fn segment(&self, (report, behind): &(SegmentReport, Option<Behind>)) -> Value {
        let damage = match &report.state {
            SegmentState::Torn(wrong) | SegmentState::Corrupt(wrong) => {
                let (first, last) = wrong.records.clone().into_inner();
                let behind = behind.map(|behind| {
                    json!({
                        "first_index": behind.first_index,
                        "last_index": behind.last_index,
                        "records": behind.records,
                        "byte_offset": behind.byte_offset,
                    })
                });
                json!({
                    "byte_offset": wrong.byte_offset,
                    "reason": wrong.damage.to_string(),
                    "first_index": first,
                    "last_index": (last < u64::MAX).then_some(last),
                    "behind": behind,
                })
            }
            _ => Value::Null,
        };
        json!({
            "segment": report.segment,
            "first_index": report.first_index,
            "last_index": report.last_index,
            "records_end": report.records_end,
            "file_bytes": report.file_bytes,
            "durable": report.durable,
            "state": self.word(&report.state),
            "damage": damage,
        })
    }
}

/// What is wrong, and what is still valid behind it.
fn told(wrong: &Corruption, behind: Option<Behind>) -> String {
    let mut text = format!("{wrong}\n");
    if let Some(Behind { first_index, last_index, records, byte_offset }) = behind {
        let records = match records {
            1 => "1 record is".to_owned(),
            n => format!("{n} records are"),
        };
        text += &format!(
            "  behind it {records} still valid, {first_index} to {last_index}, from byte offset \
             {byte_offset} on: `plimsoll log dump DIR --segment {} --from {first_index}`\n",
            wrong.segment
        );
    }
    text
}

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} segments, {eta} left")
        .expect("it is well formed");
    ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(4)).with_style(style)
}
