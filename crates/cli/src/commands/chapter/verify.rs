//! `plimsoll chapter verify`: everything that lives is read, and what is bad is said.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_server::chapter::{Error, Found, MANIFEST, Opened, Run, Survey};
use plimsoll_server::shard::State;

use super::verdict::Verdict;
use super::{Data, names_above, open_file};
use crate::chapter_args::VerifyArgs;
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output;

/// A run that is to be read.
struct Due<'a> {
    /// With the directory of its shard.
    file: String,
    opened: &'a Opened,
    run: Run,
    shard: u32,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit> {
    on_interrupt(|| {})?;
    let (verdict, is_whole) = match args.path.is_dir() {
        true => of_directory(&args.path)?,
        false => of_file(&args.path)?,
    };
    if args.json {
        output::text(&format!("{}\n", verdict.json(is_whole)))?;
    } else {
        output::answer(&verdict.text(&args.path, is_whole))?;
    }
    Ok(match (is_whole, verdict.is_good()) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Ok,
        (true, false) => Exit::CheckFailed,
    })
}

/// And whether all of it was read.
fn of_directory(path: &Path) -> Result<(Verdict, bool)> {
    let data = Data::open(path)?;
    let mut verdict = Verdict { names: data.names(), ..Verdict::default() };
    let mut shards = Vec::new();
    for shard in data.shards()? {
        let place = format!("chapters-{}", shard.number);
        let state = shard.state.unwrap_or_else(|why| {
            verdict.wrong.push((format!("state-{}", shard.number), why.to_string()));
            None
        });
        match shard.survey {
            Ok(survey) => {
                verdict.look(&place, &survey, state.as_ref(), shard.number);
                shards.push((shard.number, place, survey, state));
            }
            Err(why) => verdict.wrong.push((format!("{place}/{MANIFEST}"), why.to_string())),
        }
    }
    let mut due = Vec::new();
    for (shard, place, survey, state) in &shards {
        for opened in survey.files.iter().filter_map(|found| found.opened.as_ref().ok()) {
            verdict.files += 1;
            for run in &opened.runs {
                match opened.is_deleted(run, state.as_ref()) {
                    true => verdict.deleted += 1,
                    false => {
                        let file = format!("{place}/{}", opened.chapter.name());
                        due.push(Due { file, opened, run: *run, shard: *shard });
                    }
                }
            }
        }
    }
    let is_whole = verdict.read(&due, |due| {
        // A broker that runs may have freed it meanwhile, or written it again elsewhere.
        let shards = data.shards().unwrap_or_default();
        let Some(shard) = shards.into_iter().find(|shard| shard.number == due.shard) else {
            return false;
        };
        let (Ok(state), Ok(survey)) = (shard.state, shard.survey) else { return false };
        let mut files = survey.files.iter();
        match files.find(|found| found.named.name() == due.opened.chapter.name()) {
            Some(Found { opened: Ok(opened), .. }) => opened.is_deleted(&due.run, state.as_ref()),
            Some(_) => false,
            None => true,
        }
    })?;
    Ok((verdict, is_whole))
}

fn of_file(path: &Path) -> Result<(Verdict, bool)> {
    let mut verdict = Verdict { names: names_above(path), is_file: true, ..Verdict::default() };
    let file = path.display().to_string();
    let opened = match open_file(path) {
        Ok(opened) => opened,
        Err(why) => match why.downcast_ref::<Error>() {
            Some(damage @ Error::File { .. }) => {
                verdict.wrong.push((file, damage.to_string()));
                return Ok((verdict, true));
            }
            _ => return Err(why),
        },
    };
    verdict.files = 1;
    let due = |run: &Run| {
        let (file, shard) = (file.clone(), opened.chapter.shard());
        Due { file, opened: &opened, run: *run, shard }
    };
    let due: Vec<Due<'_>> = opened.runs.iter().map(due).collect();
    let is_whole = verdict.read(&due, |_| false)?;
    Ok((verdict, is_whole))
}

impl Verdict {
    /// Takes what there is to be said of a shard before anything is read.
    fn look(&mut self, place: &str, survey: &Survey, state: Option<&State>, shard: u32) {
        self.look_whether_lost(place, survey.manifest.settled.chapter, state, shard);
        for Found { named, opened } in &survey.files {
            if let Err(why) = opened {
                self.wrong.push((format!("{place}/{}", named.name()), why.to_string()));
            }
        }
        self.strays.extend(survey.strays.iter().map(|name| format!("{place}/{name}")));
    }

    /// Reads these runs; whether all of them were.
    fn read(&mut self, due: &[Due<'_>], is_deleted: impl Fn(&Due<'_>) -> bool) -> Result<bool> {
        let bar = bar(due.iter().map(|due| due.run.bytes).sum());
        for one in due {
            let examined = one.opened.examine(&one.run, |bytes| {
                bar.inc(bytes);
                !interrupted()
            });
            let damage = match examined {
                Ok(damage) => damage,
                Err(Error::Stopped) => {
                    bar.finish_and_clear();
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            };
            if !damage.is_empty() && is_deleted(one) {
                self.deleted += 1;
                continue;
            }
            self.runs += 1;
            self.bytes += one.run.bytes;
            if !damage.is_empty() {
                self.damaged.push((one.file.clone(), one.run, damage));
            }
        }
        bar.finish_and_clear();
        Ok(true)
    }
}

pub(crate) fn bar(bytes: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:24} {bytes} of {total_bytes}, {eta} left")
        .expect("it is well formed");
    ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(4))
        .with_style(style)
}
