//! `plimsoll disk cycle`: generations of one disk. Run, cut the power, recover, check, go on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use plimsoll_simdisk::block::{Belief, Event, Keep, Mode, Platter, State, Timeline, Trace};
use plimsoll_simdisk::mounted::{
    Ended, Error, Program, Refused, Rig, RigOptions, Situation, Verdict, keeper,
};
use serde_json::json;

use super::{options, progress};
use crate::disk_args::{CycleArgs, quoted};
use crate::exit::Exit;
use crate::{interrupt, output};

/// After so many generations that said nothing it is no use to go on.
const SILENT_MAX: u64 = 5;
const MARKS_HELP: &str = "without marks a check knows nothing that must be there, and would pass whatever is \
                          lost. Say what is acknowledged with `plimsoll disk mark` or PLIMSOLL_MARK_SOCKET";

pub(super) fn run(args: &CycleArgs) -> Result<Exit> {
    let mut how = options::rig_options(&args.fs, &args.disk)?;
    how.keep = Keep::Pending;
    how.mark_on = options::mark_on(args.mark_on.as_deref())?;
    let mut cycle = Cycle {
        args,
        how,
        random: Random(args.disk.seed),
        begun: Instant::now(),
        bar: progress::bar(args.cycles.unwrap_or(0), "generations"),
        checked: 0,
        marks: Vec::new(),
        alone: None,
        refused: Refused::default(),
    };
    let done = cycle.generations();
    cycle.bar.finish_and_clear();
    if cycle.refused.lines > 0 {
        output::news(&cycle.refused.to_string());
    }
    if done.is_err() && interrupt::interrupted() {
        cycle.say_end("interrupted")?;
    }
    done
}

/// Generations of one disk.
struct Cycle<'a> {
    args: &'a CycleArgs,
    how: RigOptions,
    random: Random,
    begun: Instant,
    bar: ProgressBar,
    /// Generations that were checked.
    checked: u64,
    /// What all of them said.
    marks: Vec<String>,
    /// How many ended before the power was cut, and how the last of those did.
    alone: Option<(u64, String)>,
    /// What all of them printed that matched `--mark-on` and could not be a mark.
    refused: Refused,
}

impl Cycle<'_> {
    fn generations(&mut self) -> Result<Exit> {
        let preparation = options::preparation(&self.args.disk);
        let mut rig = Rig::prepared(self.how.clone(), &preparation, &interrupt::interrupted)?;
        loop {
            let generation = self.checked + 1;
            let Cut { trace, mode } = self.cut(&mut rig, generation)?;
            rig.stop()?;
            let ended = trace.about.ended.clone();
            let trace = with_marks(trace, &self.marks);
            let timeline = Timeline::of(&trace.events, Belief::default());
            let state = State { point: trace.events.len(), mode };
            let platter = state.platter(&trace.base, &trace.events, &timeline);
            let before = self.marks.len();
            let said = timeline.marks(state.point);
            self.marks = said.iter().map(|(_, text)| text.to_string()).collect();
            let (verdict, next) = self.after(platter, &state)?;
            self.checked = generation;
            self.bar.inc(1);
            let saved = if verdict.is_failure() { Some(self.save(&trace)?) } else { None };
            if self.args.json {
                let line = json!({
                    "generation": generation,
                    "state": state.to_string(),
                    "verdict": verdict.name(),
                    "said": verdict.said(),
                    "marks": self.marks.len(),
                    "new_marks": self.marks.len() - before,
                    "ended": ended,
                    "trace": saved,
                });
                output::text(&format!("{line}\n"))?;
            }
            if let Some(path) = saved {
                drop(next);
                self.bar.finish_and_clear();
                if !self.args.json {
                    output::text(&failed(generation, &verdict, &state, &path))?;
                }
                return Ok(Exit::CheckFailed);
            }
            let is_enough = match self.args.cycles {
                Some(cycles) => generation >= cycles,
                None => self.begun.elapsed() >= self.args.time,
            };
            match next {
                Some(next) if !is_enough => rig = next,
                _ => break,
            }
        }
        if self.marks.is_empty() {
            bail!("no generation made a mark, so nothing was checked: {MARKS_HELP}");
        }
        self.bar.finish_and_clear();
        self.say_end("ok")?;
        Ok(Exit::Ok)
    }

    /// Runs until it is time, and takes what the disk has then.
    fn cut(&mut self, rig: &mut Rig, generation: u64) -> Result<Cut> {
        let (from, to) = self.args.cut_after;
        let share = self.random.share();
        let waits = self.args.cut_on.is_some();
        let limit = (!waits).then(|| from + (to - from).mul_f64(share));
        let asked = keeper::cuts_asked();
        let stop = || interrupt::interrupted() || (waits && keeper::cuts_asked() > asked);
        let env = [("PLIMSOLL_GENERATION", generation.to_string())];
        let work = Program::shell(&self.args.run);
        let (ended, point) = rig.run(&work, &env, limit, &stop)?;
        self.refused.add(rig.refused());
        if interrupt::interrupted() {
            return Err(Error::Interrupted.into());
        }
        let seed = self.random.next();
        let mode = match seed % 4 {
            0 => Mode::Durable,
            1 => Mode::Subset { seed },
            2 => Mode::Torn { seed, tear_bytes: 4096 },
            _ => Mode::Arrived,
        };
        let trace = rig.trace(point);
        let is_silent = self.marks.is_empty()
            && !trace.events.iter().any(|event| matches!(event, Event::Mark(_)));
        let how = &trace.about.ended;
        match ended {
            Ended::Exited(_) if ended.is_not_started() => {
                bail!(
                    "generation {generation}: the shell could not start --run ({how}): {}",
                    self.args.run
                )
            }
            Ended::Exited(_) | Ended::Signalled(_) if is_silent => bail!(
                "generation {generation}: --run ended by itself ({how}) and had made no mark, so there is \
                 nothing to check: {MARKS_HELP}"
            ),
            Ended::Exited(_) | Ended::Signalled(_) => {
                let times = self.alone.as_ref().map_or(0, |(times, _)| *times);
                self.alone = Some((times + 1, how.clone()));
            }
            Ended::TimedOut | Ended::Stopped if is_silent && generation >= SILENT_MAX => bail!(
                "{generation} generations made no mark: {MARKS_HELP}; or cut later, with --cut-after 1s..2s"
            ),
            Ended::TimedOut | Ended::Stopped => {}
        }
        Ok(Cut { trace, mode })
    }

    /// Mounts what is left, recovers and checks it. The rig is for the next generation.
    fn after(&self, platter: Platter, state: &State) -> Result<(Verdict, Option<Rig>)> {
        let mut rig = match Rig::resume(platter, self.how.clone()) {
            Ok(rig) => rig,
            Err(Error::NotMounted { source, .. }) => {
                return Ok((Verdict::NotMounted(source.to_string()), None));
            }
            Err(error) => return Err(error.into()),
        };
        let args = self.args;
        if let Some(line) = &args.recover {
            let limit = Some(args.check.check_limit);
            let program = Program::shell(line);
            let (ended, _) = rig.run(&program, &[], limit, &interrupt::interrupted)?;
            match ended {
                Ended::Exited(0) => {}
                Ended::Stopped => return Err(Error::Interrupted.into()),
                Ended::Exited(code) if ended.is_not_started() => {
                    bail!("the shell could not start --recover (exit status {code}): {line}")
                }
                _ => {
                    return Ok((Verdict::Refused(format!("recovery: {ended:?}")), Some(rig)));
                }
            }
        }
        let situation = Situation { state, marks: &[] };
        let check = options::check(&args.check);
        let verdict = check.run(&situation, &self.marks, &interrupt::interrupted)?;
        Ok((verdict, Some(rig)))
    }

    fn save(&self, trace: &Trace) -> Result<String> {
        let dir = &self.args.output;
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let path = free(&dir.join(format!("{}-generation-{}.trace", self.args.fs, self.checked)));
        trace.save(&path)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The last line: part of the answer, unless that is JSON.
    fn say_end(&self, how: &str) -> Result<()> {
        let rate = self.checked as f64 / self.begun.elapsed().as_secs_f64().max(f64::EPSILON);
        let generations = output::counted(self.checked, "generation");
        let marks = output::counted(self.marks.len() as u64, "mark");
        let mut text = format!("{generations}, {how}; {marks}; {rate:.1} power cuts a second");
        if let Some((times, ended)) = &self.alone {
            text += &format!("\n  {times} ended before the cut, the last with {ended}");
        }
        if self.args.json {
            output::news(&text);
        } else {
            output::text(&format!("{text}\n"))?;
        }
        Ok(())
    }
}

/// A name that nobody has: this, or with a number. What an earlier run saved stays.
fn free(path: &Path) -> PathBuf {
    let numbered = |number: u32| path.with_extension(format!("{number}.trace"));
    let names = std::iter::once(path.to_owned()).chain((2..).map(numbered));
    names.into_iter().find(|path| !path.exists()).expect("a directory holds fewer")
}

/// What was there when the power went.
struct Cut {
    trace: Trace,
    mode: Mode,
}

fn failed(generation: u64, verdict: &Verdict, state: &State, path: &str) -> String {
    let said = verdict.said().replace('\n', "; ");
    let (name, path, quoted_state) = (verdict.name(), quoted(path), quoted(&state.to_string()));
    format!(
        "generation {generation}: {name}: {said}\n  {state}\n  look at it: plimsoll disk replay {path} \
         {quoted_state} --keep-mounted\n"
    )
}

/// What earlier generations said comes first, so that the trace alone tells the whole story.
fn with_marks(mut trace: Trace, earlier: &[String]) -> Trace {
    let said = earlier.iter().map(|text| Event::Mark(Arc::from(text.as_str())));
    trace.events.splice(0..0, said);
    trace
}

/// SplitMix64: one seed, one run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
