//! `plimsoll chapter cat`: the records of a partition, as far as they are settled.

use std::io::Write;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use plimsoll_server::broker::Names;
use plimsoll_server::chapter::{Chapter, Error, Opened, Run};
use plimsoll_server::kafka::batch::{self, Batch};
use plimsoll_server::kafka::records::{self, Records};
use plimsoll_server::shard::{Partition, TopicId};

use super::{Data, hex, names_above, open_file};
use crate::chapter_args::CatArgs;
use crate::commands::client::consume::{BATCH_BYTES_MAX, write};
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output;

/// Bytes of batches that are read at once, about.
const READ_BYTES: usize = 1 << 20;

/// A run of the partition.
struct Part {
    chapter: Rc<Chapter>,
    run: Run,
    /// The first offset that is not deleted.
    start: i64,
}

/// What there is of the partition.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    /// Some of it may be in a file that cannot be read.
    is_wrong: bool,
}

pub(super) fn run(args: &CatArgs) -> Result<Exit> {
    on_interrupt(|| {})?;
    let Parts { mut parts, mut is_wrong } = parts(args)?;
    match (parts.last(), args.from) {
        (None, _) if is_wrong => return Ok(Exit::CheckFailed),
        (None, _) => bail!(
            "nothing of {} is settled in {}; `plimsoll chapter list DIR --runs` shows what is",
            whose(args),
            args.path.display()
        ),
        // The next one may be asked for, which is not settled yet.
        (Some(Part { run, .. }), Some(from)) if from > run.end_offset => bail!(
            "there is no offset {from}: what is settled of {} ends with {}",
            whose(args),
            run.end_offset - 1
        ),
        _ => {}
    }
    let (mut out, mut next) = (output::stream(), args.from.unwrap_or(0));
    let printed = loop {
        let mut part = None;
        let printed = parts.iter().try_for_each(|of| {
            part = Some((of.chapter.name().to_owned(), of.run));
            print(of, &mut next, args, &mut out)
        });
        let Some((name, run)) = part.filter(|_| is_damage(&printed) && args.path.is_dir()) else {
            break printed;
        };
        // A broker may have freed the run meanwhile, or put it elsewhere: then it goes on with what there is now.
        let now = self::parts(args)?;
        if now.parts.iter().any(|of| of.chapter.name() == name && of.run == run) {
            break printed;
        }
        (parts, is_wrong) = (now.parts, is_wrong || now.is_wrong);
    };
    out.flush()?;
    match printed {
        Err(wrong) if wrong.is::<batch::Wrong>() || wrong.is::<records::Wrong>() => {
            output::error(&wrong);
            return Ok(Exit::CheckFailed);
        }
        printed => printed?,
    }
    Ok(match (interrupted(), is_wrong) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::CheckFailed,
        (false, false) => Exit::Ok,
    })
}

/// What there is, by stay and chapter: so offsets go on.
fn parts(args: &CatArgs) -> Result<Parts> {
    let mut all = if args.path.is_dir() { of_directory(args)? } else { of_file(args)? };
    all.parts.sort_by_key(|part| (part.run.opening, part.run.chapter));
    Ok(all)
}

fn is_damage(printed: &Result<()>) -> bool {
    let why = printed.as_ref().err().and_then(|why| why.downcast_ref::<Error>());
    matches!(why, Some(Error::Run { .. }))
}

fn whose(args: &CatArgs) -> String {
    let topic = args.topic.clone().or(args.topic_id.map(hex)).unwrap_or_default();
    format!("partition {} of topic {topic}", args.partition)
}

fn of_directory(args: &CatArgs) -> Result<Parts> {
    let data = Data::open(&args.path)?;
    let topic = topic(args, || data.names())?;
    let mut all = Parts::default();
    for shard in data.shards()? {
        let state = shard.state?;
        for found in shard.survey?.files {
            match found.opened {
                Ok(opened) => all.add(opened, topic, args, |opened, run| {
                    let partition = state.as_ref().and_then(|state| state.partition(run.opening));
                    let start = partition.map_or(0, Partition::start);
                    (!opened.is_deleted(run, state.as_ref())).then_some(start)
                }),
                Err(why) => {
                    output::news(&format!("plimsoll: {why}: what is in it is not printed"));
                    all.is_wrong = true;
                }
            }
        }
    }
    Ok(all)
}

fn of_file(args: &CatArgs) -> Result<Parts> {
    let opened = open_file(&args.path)?;
    let topic = topic(args, || names_above(&args.path))?;
    let mut all = Parts::default();
    all.add(opened, topic, args, |_, _| Some(0));
    Ok(all)
}

fn topic(args: &CatArgs, names: impl FnOnce() -> Names) -> Result<TopicId> {
    let Some(name) = &args.topic else {
        return Ok(args.topic_id.expect("one of both is required"));
    };
    names().find(name).with_context(|| {
        format!(
            "no topic {name} is known there; --topic-id takes its id, which `plimsoll chapter list DIR \
             --runs` shows"
        )
    })
}

impl Parts {
    /// Adds the runs of a file that are asked for; `start` says where each begins that is not deleted.
    fn add(
        &mut self,
        opened: Opened,
        topic: TopicId,
        args: &CatArgs,
        start: impl Fn(&Opened, &Run) -> Option<i64>,
    ) {
        let runs = opened.runs.iter().filter(|run| {
            let partition = run.opening.partition;
            partition.topic == topic && partition.number == args.partition
        });
        let runs = runs.filter_map(|run| Some((*run, start(&opened, run)?)));
        let runs: Vec<(Run, i64)> = runs.collect();
        let chapter = Rc::new(opened.chapter);
        let part = |(run, start)| Part { chapter: Rc::clone(&chapter), run, start };
        self.parts.extend(runs.into_iter().map(part));
    }
}

/// Prints the records of a run from this offset on, up to what is damaged: that is next then.
fn print(part: &Part, next: &mut i64, args: &CatArgs, out: &mut impl Write) -> Result<()> {
    let Part { chapter, run, start } = part;
    *next = (*next).max(*start);
    while *next < run.end_offset && !interrupted() && !output::reader_is_gone() {
        let from = *next;
        let batches = chapter.read(run, from, run.end_offset, READ_BYTES).map_err(|why| {
            let goes_on = match why {
                Error::Run { last, .. } => format!("--from {} goes on behind it", last + 1),
                _ => "nothing more is printed".to_owned(),
            };
            anyhow::Error::new(why).context(goes_on)
        })?;
        let Some(last) = batches.last() else { return Ok(()) };
        let behind = plimsoll_server::shard::Batch::read(last)?.end().unwrap_or(i64::MAX);
        for mut bytes in batches {
            let batch = Batch::take(&mut bytes)
                .map_err(anyhow::Error::from)
                .and_then(|batch| batch.context("an empty batch"));
            let batch = batch.with_context(|| format!("{} of {}", chapter.name(), whose(args)))?;
            print_batch(&batch, from, args, out)?;
        }
        *next = behind;
    }
    Ok(())
}

fn print_batch(batch: &Batch, from: i64, args: &CatArgs, out: &mut impl Write) -> Result<()> {
    let header = batch.header();
    if header.is_control() {
        return Ok(());
    }
    let wrong = || {
        let (first, next) = (header.base_offset(), header.last_offset() + 1);
        format!("{}, the batch at offset {first} (--from {next} goes on behind it)", whose(args))
    };
    for record in &Records::of(batch, BATCH_BYTES_MAX).with_context(wrong)? {
        let record = record.with_context(wrong)?;
        if record.offset >= from {
            write(&record, args.partition.cast_signed(), args.json, out)?;
        }
    }
    Ok(())
}
