//! `plimsoll disk shrink`: the fewest lost writes that still do harm, and whose they were; where nothing had to
//! be lost, what came too late.

use anyhow::{Result, bail};
use plimsoll_simdisk::block::{Loss, Mode, State, Timeline, Trace, shrink};
use plimsoll_simdisk::mounted::{Error, Image, Situation, Verdict};
use serde_json::{Value, json};

use super::why::Why;
use super::{look, options, progress};
use crate::disk_args::{ShrinkArgs, quoted};
use crate::exit::Exit;
use crate::{interrupt, output};

pub(super) fn run(args: &ShrinkArgs) -> Result<Exit> {
    let trace = options::load(&args.trace)?;
    let timeline = Timeline::of(&trace.events, options::belief(&args.view));
    args.state.check(&trace, &timeline).map_err(anyhow::Error::msg)?;
    // What does not mount at all would seem to fail for any state.
    Image::try_undamaged(&trace, &args.view.mount_options)?;
    let losses = args.state.losses(&trace.events, &timeline);
    let before = losses.len();
    let bar = progress::bar(0, "states");
    let mut tried = 0_u64;
    let mut broken = None;
    let found = shrink(args.state.point, losses, |state| {
        if interrupt::interrupted() {
            return Err(Error::Interrupted);
        }
        tried += 1;
        bar.set_length(tried + 1);
        bar.set_position(tried);
        if let Mode::Without(losses) = &state.mode {
            bar.set_message(format!("; {} lost writes", losses.len()));
        }
        let platter = state.platter(&trace.base, &trace.events, &timeline);
        let situation = Situation { state, marks: timeline.marks(state.point) };
        let verdict = look::judged(args, &trace, &platter, &situation)?;
        if let Verdict::Broken(said) = &verdict {
            broken.get_or_insert(said.clone());
        }
        Ok(harm(&verdict))
    });
    bar.finish_and_clear();
    let Some(found) = found? else {
        if let Some(said) = broken {
            bail!("{}: the check is broken: {said}", args.state);
        }
        let said = format!("{}: the check does not fail", args.state);
        if args.json {
            output::news(&said);
        } else {
            output::text(&format!("{said}\n"))?;
        }
        return Ok(Exit::CheckFailed);
    };
    // Said the short way, unless a write that failed is there too.
    let arrived = State { mode: Mode::Arrived, ..found };
    let is_arrived = match &found.mode {
        Mode::Without(losses) => *losses == arrived.losses(&trace.events, &timeline),
        _ => false,
    };
    let found = if is_arrived { arrived } else { found };
    let losses: Vec<Loss> = match &found.mode {
        Mode::Without(losses) => losses.clone(),
        _ => Vec::new(),
    };
    let why = match losses[..] {
        [] => Why::lacking(args, &trace, &found, &mut tried)?,
        _ => Some(Why::lost(args, &trace, &found, &losses)?),
    };
    Answer { args, trace: &trace, found, before, tried, why }.print(losses.is_empty())?;
    Ok(Exit::Ok)
}

/// What was found.
struct Answer<'a> {
    args: &'a ShrinkArgs,
    trace: &'a Trace,
    found: State,
    /// Lost writes of the state that was given.
    before: usize,
    /// States that were tried.
    tried: u64,
    why: Option<Why>,
}

impl Answer<'_> {
    fn print(&self, is_whole: bool) -> Result<()> {
        let Self { args, trace, found, before, tried, why } = self;
        if args.json {
            let mut answer = json!({
                "state": found.to_string(),
                "trace": trace.id(),
                "lost_before": before,
                "tried": tried,
                "lost": [],
                "lacking": [],
                "changes": [],
                "mark": null,
                "said": null,
            });
            let how = if is_whole { "lacking" } else { "lost" };
            let why = why.as_ref().map(|why| why.json(how));
            if let (Some(answer), Some(Value::Object(why))) = (answer.as_object_mut(), why) {
                answer.extend(why);
            }
            output::text(&format!("{}\n", serde_json::to_string_pretty(&answer)?))?;
            return Ok(());
        }
        output::text(&match why {
            Some(why) if is_whole => format!(
                "it fails though nothing is lost: it lacks {} that came only later, after {tried} states:\n{}",
                why.count("write"),
                why.text("lacks")
            ),
            Some(why) => format!(
                "{}, of {before}, after {tried} states:\n{}",
                why.count("lost write"),
                why.text("lost")
            ),
            None => self.unexplained(),
        })?;
        output::text(&format!(
            "  look at it: plimsoll disk replay {} {}{} --keep-mounted\n",
            quoted(&args.trace.to_string_lossy()),
            quoted(&found.to_string()),
            args.view
        ))?;
        Ok(())
    }

    fn unexplained(&self) -> String {
        let wrong = "the check, or the program, is wrong on what had arrived";
        if self.found.point < self.trace.events.len() + self.trace.aftermath.len() {
            format!("it fails though nothing is lost, and with what came later, too: {wrong}\n")
        } else {
            format!(
                "it fails though nothing is lost, and nothing is recorded after it: what it lacks had not been \
                 sent to the disk, or {wrong}\n"
            )
        }
    }
}

/// As what it fails, if it does. What is broken says nothing about the disk.
fn harm(verdict: &Verdict) -> Option<&'static str> {
    let fails = verdict.is_failure() && !matches!(verdict, Verdict::Broken(_));
    fails.then(|| verdict.name())
}
