//! `plimsoll disk cycle`: generations of one disk. Run, cut the power, recover, check, go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll_simdisk::block::{Belief, Event, Keep, Mode, Platter, State, Timeline, Trace};
use plimsoll_simdisk::mounted::{Ended, Error, Program, Rig, RigOptions, Situation, Verdict};
use serde_json::json;

use super::{interrupt, options, progress};
use crate::disk_args::CycleArgs;
use crate::exit::Exit;
use crate::output;

pub(super) fn run(args: &CycleArgs) -> Result<Exit> {
    let mut how = options::rig_options(&args.fs, &args.disk)?;
    how.keep = Keep::Pending;
    let mut random = Random(args.disk.seed);
    let mut marks: Vec<String> = Vec::new();
    let begun = Instant::now();
    let bar = progress::bar(args.cycles.unwrap_or(0), "generations");
    let mut rig = Rig::start(how.clone())?;
    let mut generation = 0_u64;
    loop {
        generation += 1;
        let work = Program::shell(&args.run);
        let cut = cut(args, &mut rig, &work, generation, &mut random)?;
        let Some(cut) = cut else {
            rig.stop()?;
            bar.finish_and_clear();
            output::answer(&end(generation - 1, begun.elapsed(), "interrupted"))?;
            return Ok(Exit::Interrupted);
        };
        rig.stop()?;
        let trace = with_marks(cut.trace, &marks);
        let timeline = Timeline::of(&trace.events, Belief::default());
        let state = State { point: trace.events.len(), mode: cut.mode };
        let platter = state.platter(&trace.base, &trace.events, &timeline);
        let said = timeline.marks(state.point);
        let before = marks.len();
        marks = said.iter().map(|(_, text)| text.to_string()).collect();
        let (verdict, next) = after(args, &how, platter, &state, &marks)?;
        bar.inc(1);
        if args.json {
            let line = json!({
                "generation": generation,
                "state": state.to_string(),
                "verdict": verdict.name(),
                "said": verdict.said(),
                "marks": marks.len(),
                "new_marks": marks.len() - before,
            });
            output::answer(&format!("{line}\n"))?;
        }
        if verdict.is_failure() {
            bar.finish_and_clear();
            drop(next);
            return failed(args, &trace, &state, &verdict, generation);
        }
        let enough = match args.cycles {
            Some(cycles) => generation >= cycles,
            None => begun.elapsed() >= args.time,
        };
        match next {
            Some(next) if !enough => rig = next,
            _ => {
                bar.finish_and_clear();
                drop(next);
                output::answer(&end(generation, begun.elapsed(), "ok"))?;
                return Ok(Exit::Ok);
            }
        }
    }
}

/// What was there when the power went.
struct Cut {
    trace: Trace,
    mode: Mode,
}

/// Runs until it is time, and takes what the disk has then. `None` if somebody asked to stop.
fn cut(
    args: &CycleArgs,
    rig: &mut Rig,
    work: &Program,
    generation: u64,
    random: &mut Random,
) -> Result<Option<Cut>> {
    let (from, to) = args.cut_after;
    let limit = from + (to - from).mul_f64(random.share());
    let env = [("PLIMSOLL_GENERATION", generation.to_string())];
    let (ended, point) = rig.run(work, &env, Some(limit), &interrupt::interrupted)?;
    if ended == Ended::Stopped {
        return Ok(None);
    }
    let seed = random.next();
    let mode = match seed % 4 {
        0 => Mode::Durable,
        1 => Mode::Subset { seed },
        2 => Mode::Torn { seed, tear_bytes: 4096 },
        _ => Mode::Arrived,
    };
    Ok(Some(Cut { trace: rig.trace(point), mode }))
}

/// Mounts what is left, recovers and checks it. The rig is for the next generation.
fn after(
    args: &CycleArgs,
    how: &RigOptions,
    platter: Platter,
    state: &State,
    marks: &[String],
) -> Result<(Verdict, Option<Rig>)> {
    let mut rig = match Rig::resume(platter, how.clone()) {
        Ok(rig) => rig,
        Err(Error::NotMounted { source, .. }) => {
            return Ok((Verdict::NotMounted(source.to_string()), None));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(line) = &args.recover {
        let program = Program::shell(line);
        let (ended, _) =
            rig.run(&program, &[], Some(args.check.check_limit), &interrupt::interrupted)?;
        if ended != Ended::Exited(0) {
            return Ok((Verdict::Refused(format!("recovery: {ended:?}")), Some(rig)));
        }
    }
    let situation = Situation { state, marks: &[] };
    let verdict = options::check(&args.check).run(&situation, marks, &interrupt::interrupted)?;
    Ok((verdict, Some(rig)))
}

/// What earlier generations said comes first, so that the trace alone tells the whole story.
fn with_marks(mut trace: Trace, earlier: &[String]) -> Trace {
    let said = earlier.iter().map(|text| Event::Mark(Arc::from(text.as_str())));
    trace.events.splice(0..0, said);
    trace
}

fn failed(
    args: &CycleArgs,
    trace: &Trace,
    state: &State,
    verdict: &Verdict,
    generation: u64,
) -> Result<Exit> {
    std::fs::create_dir_all(&args.output)
        .with_context(|| format!("create {}", args.output.display()))?;
    let path = args.output.join(format!("{}-generation-{generation}.trace", args.fs));
    trace.save(&path)?;
    if !args.json {
        output::answer(&format!(
            "generation {generation}: {}: {}\n  {state}\n  look at it: plimsoll disk replay {} '{state}' --keep-mounted\n",
            verdict.name(),
            verdict.said(),
            path.display()
        ))?;
    }
    Ok(Exit::CheckFailed)
}

fn end(generations: u64, took: Duration, how: &str) -> String {
    let rate = generations as f64 / took.as_secs_f64().max(f64::EPSILON);
    format!("{generations} generations, {how}; {rate:.1} power cuts a second\n")
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
