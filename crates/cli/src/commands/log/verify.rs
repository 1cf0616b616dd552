//! `plimsoll log verify`: everything is read, and something said of each segment.

use std::io::{self, IsTerminal};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_lab::units;
use plimsoll_log::{Corruption, Dumped, Kind, SegmentReport, SegmentState, View};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::log_args::LookArgs;
use crate::output;

/// The next record behind damage, and where it is.
type NextValid = Option<(u64, u64)>;

pub(super) fn run(args: &LookArgs) -> Result<Exit> {
    let is_open = args.dirs.writer()?.is_some();
    let view = args.dirs.view()?;
    let bar = bar();
    let reports = view.verify(&|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let mut verdict = Verdict { first_index: view.first_index(), is_open, ..Verdict::default() };
    for report in reports {
        let next_valid = match &report.state {
            SegmentState::Corrupt(wrong) => next_valid(&view, &report, wrong)?,
            _ => None,
        };
        verdict.add(report, next_valid);
    }
    let text = if args.json { format!("{}\n", verdict.json()) } else { verdict.text() };
    output::answer(&text)?;
    Ok(if verdict.is_corrupt() { Exit::CheckFailed } else { Exit::Ok })
}

fn next_valid(view: &View, report: &SegmentReport, wrong: &Corruption) -> Result<NextValid> {
    let mut found = None;
    view.dump(report, |dumped| -> Result<()> {
        if let Dumped::Frame { byte_offset, frame, .. } = dumped
            && frame.kind == Kind::Record
            && byte_offset > wrong.byte_offset
            && wrong.byte_offset > 0
            && found.is_none()
        {
            found = Some((frame.index, byte_offset));
        }
        Ok(())
    })?;
    Ok(found)
}

#[derive(Default)]
struct Verdict {
    first_index: u64,
    is_open: bool,
    segments: Vec<(SegmentReport, NextValid)>,
    /// Records that can be read, in runs without a gap.
    readable: Vec<(u64, u64)>,
}

impl Verdict {
    fn add(&mut self, report: SegmentReport, next_valid: NextValid) {
        let (first, last) = (report.first_index, report.last_index);
        if report.state != SegmentState::Stale && last >= first {
            match self.readable.last_mut() {
                Some(run) if run.1 + 1 == first => run.1 = last,
                _ => self.readable.push((first, last)),
            }
        }
        self.segments.push((report, next_valid));
    }

    fn corruptions(&self) -> impl Iterator<Item = (&Corruption, NextValid)> {
        self.segments.iter().filter_map(|(report, next_valid)| match &report.state {
            SegmentState::Corrupt(wrong) => Some((wrong, *next_valid)),
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

    fn text(&self) -> String {
        let mut text = String::new();
        for (report, _) in &self.segments {
            let held = match report.last_index {
                last if last < report.first_index => "no records".to_owned(),
                last => format!("{} to {last}", report.first_index),
            };
            let word = self.word(&report.state);
            let bytes = units::bytes(report.file_bytes);
            let shown = if output::colour() {
                let colour = match word {
                    "corrupt" => 31,
                    "torn" | "stale" => 33,
                    _ => 32,
                };
                format!("\x1b[{colour}m{word}\x1b[0m")
            } else {
                word.to_owned()
            };
            text += &format!("{}  {held:<24} {bytes:>10}  {shown}\n", report.segment);
        }
        for (wrong, next_valid) in self.corruptions() {
            text += &format!("{wrong}\n");
            if let Some((index, byte_offset)) = next_valid {
                text += &format!(
                    "  the next valid record in {} is {index}, at byte offset {byte_offset}\n",
                    wrong.segment
                );
            }
        }
        let runs: Vec<_> =
            self.readable.iter().map(|(first, last)| super::range(*first, *last)).collect();
        if self.is_corrupt() {
            let runs = if runs.is_empty() { "nothing".to_owned() } else { runs.join(", ") };
            text += &format!("readable: {runs}\n");
            return text;
        }
        if let Some(wrong) = self.torn().filter(|_| !self.is_open) {
            text += &format!(
                "the last write was not finished ({} at byte offset {}: {}): it was never acknowledged \
                 as durable, and the next open cuts it off\n",
                wrong.segment, wrong.byte_offset, wrong.damage
            );
        }
        let held = if runs.is_empty() { "no records".to_owned() } else { runs.join(", ") };
        text += &format!("good: {held}\n");
        text
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

    fn segment(&self, (report, next_valid): &(SegmentReport, NextValid)) -> Value {
        let damage = match &report.state {
            SegmentState::Torn(wrong) | SegmentState::Corrupt(wrong) => {
                let (first, last) = wrong.records.clone().into_inner();
                let next = next_valid.map(
                    |(index, byte_offset)| json!({ "index": index, "byte_offset": byte_offset }),
                );
                json!({
                    "byte_offset": wrong.byte_offset,
                    "reason": wrong.damage.to_string(),
                    "first_index": first,
                    "last_index": (last < u64::MAX).then_some(last),
                    "next_valid": next,
                })
            }
            _ => Value::Null,
        };
        json!({
            "segment": report.segment,
            "directory": report.place,
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

fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {pos} of {len} segments, {eta} left")
        .expect("it is well formed");
    ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(4)).with_style(style)
}
