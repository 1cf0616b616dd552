//! `plimsoll broker scrub`: every chapter read from the disk itself, slowly, beside a broker that runs.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use plimsoll_server::broker::snapshot_of;
use plimsoll_server::chapter::{Error, Found, MANIFEST, Opened, Scrub};
use plimsoll_server::shard::State;

use crate::broker_args::{Rate, ScrubArgs};
use crate::commands::chapter::Data;
use crate::commands::chapter::verdict::Verdict;
use crate::commands::chapter::verify::bar;
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output::{self, counted};

/// One pass over a directory.
struct Pass<'a> {
    data: &'a Data,
    verdict: Verdict,
    /// Files that could not be read past the page cache.
    cached: Vec<String>,
    pace: Pace,
    bar: ProgressBar,
}

/// How fast it reads.
struct Pace {
    rate: Rate,
    /// When the next piece may be read.
    next: Instant,
}

pub(super) fn run(args: &ScrubArgs) -> Result<Exit> {
    let reader = thread::current();
    on_interrupt(move || reader.unpark())?;
    let data = Data::open(&args.dir)?;
    let mut pass = Pass {
        verdict: Verdict { names: data.names(), ..Verdict::default() },
        data: &data,
        cached: Vec::new(),
        pace: Pace { rate: args.rate, next: Instant::now() },
        bar: bar(0),
    };
    let mut is_whole = true;
    for shard in data.chapters.iter().map(|(number, _)| *number) {
        is_whole = is_whole && pass.shard(shard)?;
    }
    pass.bar.finish_and_clear();
    let (verdict, cached) = (pass.verdict, pass.cached);
    if args.json {
        let mut object = verdict.json(is_whole);
        object["through_cache"] = cached.into();
        output::text(&format!("{object}\n"))?;
    } else {
        let cached = through_cache(&cached);
        output::answer(&format!("{cached}{}", verdict.text(&args.dir, is_whole)))?;
    }
    Ok(match (is_whole, verdict.is_good()) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Ok,
        (true, false) => Exit::CheckFailed,
    })
}

impl Pass<'_> {
    /// Reads the chapters of a shard; whether all of them were.
    fn shard(&mut self, number: u32) -> Result<bool> {
        let data = self.data;
        let of_shard = data.chapters.iter().find(|(shard, _)| *shard == number);
        let Some((_, Some(dir))) = of_shard else { return Ok(true) };
        let place = format!("chapters-{number}");
        // First the snapshot: of what it says is settled the manifest, which is read later, knows.
        let state = self.state(number)?;
        let mut scrub = match Scrub::of(&**dir, number) {
            Ok(scrub) => scrub,
            Err(why) => return self.no_manifest(&place, why),
        };
        self.verdict.look_whether_lost(&place, scrub.last_chapter(), state.as_ref(), number);
        self.bar.inc_length(scrub.bytes());
        loop {
            let found = match scrub.next_file() {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(true),
                Err(why) => return self.no_manifest(&place, why),
            };
            let before = self.bar.position();
            let file = format!("{place}/{}", found.named.name());
            match &found.opened {
                Ok(opened) => {
                    if !self.file(number, &file, &scrub, &found, opened)? {
                        return Ok(false);
                    }
                }
                Err(why) => self.verdict.wrong.push((file, why.to_string())),
            }
            // What is deleted is not read.
            self.bar.set_position(before + found.named.bytes);
        }
    }

    /// Reads what lives of a file; whether all of it was.
    fn file(
        &mut self,
        shard: u32,
        file: &str,
        scrub: &Scrub<'_>,
        found: &Found,
        opened: &Opened,
    ) -> Result<bool> {
        let footer = opened.chapter.footer();
        let state = self.state(shard)?;
        if !opened.is_past_cache {
            self.cached.push(file.to_owned());
        }
        self.verdict.files += 1;
        if !self.pace.goes_on(footer.file_bytes.saturating_sub(footer.blocks_at)) {
            return Ok(false);
        }
        for run in &opened.runs {
            if opened.is_deleted(run, state.as_ref()) {
                self.verdict.deleted += 1;
                continue;
            }
            let examined = opened.examine(run, |bytes| {
                self.bar.inc(bytes);
                self.pace.goes_on(bytes)
            });
            let damage = match examined {
                Ok(damage) => damage,
                Err(Error::Stopped) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if !damage.is_empty() && scrub.is_gone(found, run, self.state(shard)?.as_ref())? {
                self.verdict.deleted += 1;
                continue;
            }
            self.verdict.runs += 1;
            self.verdict.bytes += run.bytes;
            if !damage.is_empty() {
                self.verdict.damaged.push((file.to_owned(), *run, damage));
            }
        }
        Ok(true)
    }

    /// What the newest snapshot of a shard says. One that is damaged is noted once, and says nothing.
    fn state(&mut self, shard: u32) -> Result<Option<State>> {
        match snapshot_of(&*self.data.dir, shard) {
            Err(why @ plimsoll_server::broker::Failed::Directory(_)) => Err(why.into()),
            Err(why) => {
                let damaged = (format!("state-{shard}"), why.to_string());
                if !self.verdict.wrong.contains(&damaged) {
                    self.verdict.wrong.push(damaged);
                }
                Ok(None)
            }
            Ok(state) => Ok(state),
        }
    }

    fn no_manifest(&mut self, place: &str, why: Error) -> Result<bool> {
        match why {
            Error::Disk(_) => Err(why.into()),
            why => {
                self.verdict.wrong.push((format!("{place}/{MANIFEST}"), why.to_string()));
                Ok(true)
            }
        }
    }
}

impl Pace {
    /// Waits as long as so many bytes may take; whether nobody asked it to stop.
    fn goes_on(&mut self, bytes: u64) -> bool {
        if let Rate(Some(rate)) = self.rate {
            // Where the disk was slower than that, nothing is made up for.
            let from = self.next.max(Instant::now());
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.get());
            let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.next = from.checked_add(wait).unwrap_or(from);
        }
        while !interrupted() {
            let wait = self.next.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return true;
            }
            thread::park_timeout(wait);
        }
        false
    }
}

fn through_cache(files: &[String]) -> String {
    let Some(first) = files.first() else { return String::new() };
    let count = counted(files.len() as u64, "file");
    format!(
        "{count}, {first} the first, went through the page cache, as the filesystem has no way past it: what is in \
         memory may be good, and what is on the disk not\n"
    )
}
