//! Why a state fails, from evidence: which writes it is without, whose they are, when they came and were
//! flushed, which files differ by them, and which others name those.
//!
//! Some had arrived and were lost. Where nothing had to be lost, what it lacks came only later, if at all: then
//! that is sought.

use anyhow::Result;
use plimsoll_simdisk::block::{
    Belief, End, Event, Later, Loss, Mode, Platter, State, Timeline, Trace,
};
use plimsoll_simdisk::mounted::{Error, FileChange, Files, Owner, Owners, Situation, Verdict};
use serde_json::{Value, json};

use super::{look, options, progress, replay};
use crate::disk_args::ShrinkArgs;
use crate::interrupt;

/// After so many states no fewer writes are sought.
const TRIES_MAX: usize = 400;

/// What a state is without, and all that is known of it.
pub(super) struct Why {
    /// The writes and discards, as they arrived.
    pub(super) writes: Vec<Write>,
    /// Whether it fails without any one of them.
    pub(super) is_fewest: bool,
    /// What differs by them, with the files that name it.
    pub(super) changes: Vec<(FileChange, Vec<String>)>,
    /// The last mark before the cut: index of the event, and text.
    pub(super) mark: Option<(usize, String)>,
    /// Whether the disk did all that it was asked for.
    pub(super) disk_kept: bool,
    /// Whether the recorder had the kernel write, and synced at the end, which is a flush like any other.
    pub(super) write_back: bool,
}

pub(super) struct Write {
    pub(super) request: u32,
    pub(super) what: String,
    pub(super) owners: Vec<Owner>,
    pub(super) arrived: usize,
    pub(super) when: When,
}

/// When what was written was durable on a disk that does as it says; the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum When {
    /// Before the cut, by the flush that ended with that event.
    Before(usize),
    /// After the cut, likewise.
    Flushed(usize),
    /// Not before the workload ended.
    Unflushed,
    /// It came when the workload had ended.
    Aftermath,
}

impl Why {
    /// Of a state that fails because of what it lost.
    pub(super) fn lost(
        args: &ShrinkArgs,
        trace: &Trace,
        state: &State,
        losses: &[Loss],
    ) -> Result<Self> {
        let timeline = Timeline::of(&trace.events, options::belief(&args.view));
        let whole = State { point: state.point, mode: Mode::Without(Vec::new()) };
        let disk = |state: &State| state.platter(&trace.base, &trace.events, &timeline);
        Self::of(args, trace, state.point, [disk(state), disk(&whole)], losses)
    }

    /// Of a state that fails though nothing of it is lost; `None` if it fails with what came later too, as far as
    /// was tried. Counts the states that were.
    pub(super) fn lacking(
        args: &ShrinkArgs,
        trace: &Trace,
        state: &State,
        tried: &mut u64,
    ) -> Result<Option<Self>> {
        let events = trace.all_events();
        let timeline = Timeline::of(&events, options::belief(&args.view));
        let later = Later::of(state, &trace.base, &events, &timeline);
        let situation = Situation { state, marks: timeline.marks(state.point) };
        let bar = progress::bar(0, "states");
        bar.set_message("; with what came later");
        let lacking = later.lacking(TRIES_MAX, |platter| {
            if interrupt::interrupted() {
                return Err(Error::Interrupted);
            }
            *tried += 1;
            bar.set_length(*tried + 1);
            bar.set_position(*tried);
            Ok(look::judged(args, trace, platter, &situation)? == Verdict::Ok)
        });
        bar.finish_and_clear();
        let Some(lacking) = lacking? else { return Ok(None) };
        let disks = [later.platter(&[]), later.platter(&lacking.requests)];
        let whole = |&request: &u32| Loss { request, bytes: None };
        let writes: Vec<Loss> = lacking.requests.iter().map(whole).collect();
        let why = Self::of(args, trace, state.point, disks, &writes)?;
        Ok(Some(Self { is_fewest: lacking.is_fewest, ..why }))
    }

    /// Looks at the disk without the writes and with them.
    fn of(
        args: &ShrinkArgs,
        trace: &Trace,
        point: usize,
        [without, with]: [Platter; 2],
        writes: &[Loss],
    ) -> Result<Self> {
        let seen = look::on(args, trace, &with, |image| {
            let filesystem = trace.about.filesystem.parse();
            let owners = filesystem.map(|known| Owners::of(image, known)).unwrap_or_default();
            Ok((owners, Files::of(image.directory())))
        })?;
        // What does not mount has nothing to look at.
        let (owners, after) = seen.ok().unzip();
        let owners = owners.unwrap_or_default();
        let changes = look::on(args, trace, &without, |image| {
            let before = Files::of(image.directory());
            let changes = after.map(|after| before.changes(&after)).unwrap_or_default();
            let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
            let named_by = before.naming(&names);
            Ok(changes.into_iter().zip(named_by).collect())
        })?;
        // What is believed of the disk says nothing about what it was asked for.
        let events = trace.all_events();
        let timeline = Timeline::of(&events, Belief::default());
        let write = |loss: &Loss| {
            let (what, owners) = replay::whose(&events, &timeline, &owners, loss);
            let of = &timeline.requests()[loss.request as usize];
            let when = match of.durable {
                Some(durable) if durable < point => When::Before(durable),
                _ if of.arrived >= trace.events.len() => When::Aftermath,
                Some(durable) if durable < trace.events.len() => When::Flushed(durable),
                _ => When::Unflushed,
            };
            Write { request: loss.request, what, owners, arrived: of.arrived, when }
        };
        let is_kept =
            |event: &Event| !matches!(event, Event::Ended { end, .. } if *end != End::Done);
        let mark = timeline.marks(point).last();
        Ok(Self {
            writes: writes.iter().map(write).collect(),
            is_fewest: true,
            changes: changes.unwrap_or_default(),
            mark: mark.map(|(event, text)| (*event, text.to_string())),
            disk_kept: trace.events.iter().all(is_kept),
            write_back: trace.about.write_back,
        })
    }

    /// What it has in common with other answers in JSON: `writes` by the name `how`, and what they explain.
    pub(super) fn json(&self, how: &str) -> Value {
        let write = |write: &Write| {
            let flushed = match write.when {
                When::Before(event) | When::Flushed(event) => Some(event),
                When::Unflushed | When::Aftermath => None,
            };
            json!({
                "request": write.request,
                "what": write.what,
                "of": write.owners.iter().map(replay::owner).collect::<Vec<_>>(),
                "event": write.arrived,
                "flushed": flushed,
                "in_aftermath": write.when == When::Aftermath,
            })
        };
        let change = |(change, named_by): &(FileChange, Vec<String>)| {
            json!({
                "name": change.name,
                "bytes": change.before,
                "bytes_with": change.after,
                "named_by": named_by,
            })
        };
        json!({
            how: self.writes.iter().map(write).collect::<Vec<_>>(),
            "fewest": self.is_fewest,
            "changes": self.changes.iter().map(change).collect::<Vec<_>>(),
            "mark": self.mark.as_ref().map(|(event, text)| json!({ "event": event, "text": text })),
            "said": self.sentence(),
        })
    }
}
