//! `plimsoll chapter list`: which files there are, and how much of them lives.

use anyhow::Result;
use plimsoll_lab::units;
use plimsoll_server::broker::Names;
use plimsoll_server::chapter::{Footer, Found, Opened, Run, Settled, Survey};
use plimsoll_server::shard::State;
use serde_json::{Value, json};

use super::{Data, hex, nothing_settled, span, time};
use crate::chapter_args::ListArgs;
use crate::commands::client::{head, table};
use crate::exit::Exit;
use crate::output;

/// A shard, and what its snapshot says of it.
struct Listed {
    number: u32,
    state: Option<State>,
    survey: Survey,
}

pub(super) fn run(args: &ListArgs) -> Result<Exit> {
    let data = Data::open(&args.dir)?;
    let mut shards = Vec::new();
    for shard in data.shards()? {
        shards.push(Listed { number: shard.number, state: shard.state?, survey: shard.survey? });
    }
    let names = if args.runs { data.names() } else { Names::default() };
    if args.json {
        let shards: Vec<Value> =
            shards.iter().map(|shard| shard.json(args.runs.then_some(&names))).collect();
        output::text(&format!("{}\n", json!({ "shards": shards })))?;
    } else {
        output::text(&text(args, &shards, &names))?;
    }
    let is_bad = |found: &Found| found.opened.is_err();
    let is_bad = shards.iter().any(|shard| shard.survey.files.iter().any(is_bad));
    Ok(if is_bad { Exit::CheckFailed } else { Exit::Ok })
}

fn text(args: &ListArgs, shards: &[Listed], names: &Names) -> String {
    let with_chapters = shards.iter().filter(|shard| !shard.is_empty());
    let texts: Vec<String> =
        with_chapters.map(|shard| shard.text(args.runs.then_some(names))).collect();
    if texts.is_empty() {
        return format!("{}\n", nothing_settled(&args.dir));
    }
    texts.join("\n")
}

impl Listed {
    fn is_empty(&self) -> bool {
        self.settled().chapter == 0 && self.survey.files.is_empty() && self.survey.strays.is_empty()
    }

    fn settled(&self) -> Settled {
        self.survey.manifest.settled
    }

    fn is_live(&self, opened: &Opened, run: &Run) -> bool {
        !opened.is_deleted(run, self.state.as_ref())
    }

    fn live<'a>(&'a self, opened: &'a Opened) -> impl Iterator<Item = &'a Run> {
        opened.runs.iter().filter(|run| self.is_live(opened, run))
    }

    /// With its runs, where the names of topics are.
    fn text(&self, names: Option<&Names>) -> String {
        let Settled { chapter, end } = self.settled();
        let judged = match &self.state {
            Some(state) => format!("what lives as of log index {}", state.applied()),
            None => "it has no snapshot yet: everything lives".to_owned(),
        };
        let mut text = format!(
            "shard {}: settled up to chapter {chapter}, log index {end}; {judged}\n",
            self.number
        );
        let heads =
            ["file", "chapters", "log indexes", "ended", "runs", "live", "bytes", "live bytes"];
        let mut rows = vec![head(heads)];
        let mut runs = vec![head([
            "file",
            "topic",
            "topic id",
            "partition",
            "chapter",
            "offsets",
            "bytes",
            "",
        ])];
        let mut wrong = String::new();
        for found in &self.survey.files {
            match &found.opened {
                Ok(opened) => {
                    rows.push(self.row(opened));
                    let of_file = opened.runs.iter();
                    runs.extend(of_file.map(|run| self.run_row(opened, run, names)));
                }
                Err(why) => wrong += &format!("{why}\n"),
            }
        }
        if rows.len() > 1 {
            text += &table(&rows);
        }
        text += &wrong;
        for stray in &self.survey.strays {
            text += &format!("{stray} is not named by the manifest: see plimsoll chapter verify\n");
        }
        if names.is_some() && runs.len() > 1 {
            text += &format!("\n{}", table(&runs));
        }
        text
    }

    fn row(&self, opened: &Opened) -> [String; 8] {
        let footer = opened.chapter.footer();
        let Footer { first_chapter, last_chapter, first_index, last_index, .. } = *footer;
        let live_bytes = self.live(opened).map(|run| run.bytes).sum();
        [
            opened.chapter.name().to_owned(),
            span(first_chapter, last_chapter),
            span(first_index, last_index),
            time(footer.time),
            opened.runs.len().to_string(),
            self.live(opened).count().to_string(),
            units::bytes(footer.file_bytes),
            units::bytes(live_bytes),
        ]
    }

    fn run_row(&self, opened: &Opened, run: &Run, names: Option<&Names>) -> [String; 8] {
        let partition = run.opening.partition;
        let name = names.and_then(|names| names.of(partition.topic));
        [
            opened.chapter.name().to_owned(),
            name.unwrap_or("-").to_owned(),
            hex(partition.topic),
            partition.number.to_string(),
            run.chapter.to_string(),
            span(run.base_offset, run.end_offset - 1),
            units::bytes(run.bytes),
            if self.is_live(opened, run) { String::new() } else { "deleted".to_owned() },
        ]
    }

    fn json(&self, names: Option<&Names>) -> Value {
        let files = self.survey.files.iter().map(|found| match &found.opened {
            Ok(opened) => self.file(opened, names),
            Err(why) => json!({ "file": found.named.name(), "wrong": why.to_string() }),
        });
        json!({
            "shard": self.number,
            "settled": { "chapter": self.settled().chapter, "log_index": self.settled().end },
            "snapshot_log_index": self.state.as_ref().map(State::applied),
            "files": files.collect::<Vec<_>>(),
            "strays": self.survey.strays,
        })
    }

    fn file(&self, opened: &Opened, names: Option<&Names>) -> Value {
        let footer = opened.chapter.footer();
        let mut file = json!({
            "file": opened.chapter.name(),
            "first_chapter": footer.first_chapter,
            "last_chapter": footer.last_chapter,
            "first_log_index": footer.first_index,
            "last_log_index": footer.last_index,
            "ended_unix_ms": footer.time,
            "runs": opened.runs.len(),
            "live_runs": self.live(opened).count(),
            "file_bytes": footer.file_bytes,
            "live_bytes": self.live(opened).map(|run| run.bytes).sum::<u64>(),
        });
        if let Some(names) = names {
            let runs = opened.runs.iter().map(|run| {
                let mut object = super::run_object(run, names);
                object["live"] = self.is_live(opened, run).into();
                object
            });
            file["run"] = runs.collect();
        }
        file
    }
}
