//! [`Verdict`]: what was found where chapters were read, and how that is said.

use std::path::Path;

use plimsoll_lab::units;
use plimsoll_server::broker::Names;
use plimsoll_server::chapter::{Damage, MANIFEST, Run};
use plimsoll_server::shard::State;
use serde_json::{Value, json};

use super::{hex, nothing_settled, run_object, span};
use crate::output::{self, counted};

/// What was found.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) names: Names,
    /// A single file was read: nobody says what of it is deleted.
    pub(crate) is_file: bool,
    pub(crate) files: u64,
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
    pub(crate) deleted: u64,
    /// Runs, each with the file that it is in.
    pub(crate) damaged: Vec<(String, Run, Vec<Damage>)>,
    /// Files that do not say what they hold, or are not there.
    pub(crate) wrong: Vec<(String, String)>,
    pub(crate) strays: Vec<String>,
}

impl Verdict {
    /// Notes it if a manifest knows of fewer chapters than a snapshot of its shard, which was kept later.
    pub(crate) fn look_whether_lost(
        &mut self,
        place: &str,
        settled: u64,
        state: Option<&State>,
        shard: u32,
    ) {
        let known = state.map_or(0, settled_by);
        if settled < known {
            let why = format!(
                "chapters up to {settled} are settled by it, and by state-{shard} up to {known}: a newer \
                 manifest was lost"
            );
            self.wrong.push((format!("{place}/{MANIFEST}"), why));
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.damaged.is_empty() && self.wrong.is_empty()
    }

    pub(crate) fn text(&self, path: &Path, is_whole: bool) -> String {
        let mut text = String::new();
        for (file, why) in &self.wrong {
            text += &format!("{file}: {why}\n");
        }
        for (file, run, damage) in &self.damaged {
            for Damage { from, last, why } in damage {
                let offsets = span(from, last);
                let whose = self.whose(run);
                text += &format!(
                    "{file}: {whose}, chapter {}, offsets {offsets}: {why}\n",
                    run.chapter
                );
            }
        }
        for stray in &self.strays {
            text += &format!(
                "{stray} is not named by the manifest: it is being written, or was left behind, and the next \
                 start removes it\n"
            );
        }
        let deleted = match self.deleted {
            0 => String::new(),
            1 => "; 1 run is deleted, and was passed over".to_owned(),
            n => format!("; {n} runs are deleted, and were passed over"),
        };
        let (runs, files) = (counted(self.runs, "run"), counted(self.files, "file"));
        let read = format!("{runs} in {files}, {}", units::bytes(self.bytes));
        let damaged = self.damaged.len() as u64;
        let summary = match () {
            () if !is_whole => {
                format!("interrupted: {damaged} damaged of {read}, and more is not read")
            }
            () if !self.is_good() => {
                format!("{}: {damaged} damaged of {read}{deleted}", word("damaged", 31))
            }
            () if self.runs > 0 => format!("{}: {read}{deleted}", word("good", 32)),
            () if self.deleted > 0 => format!("nothing was tested{deleted}"),
            () if self.files > 0 => format!("nothing was tested: no run is in {files}"),
            () => format!("nothing was tested: {}", nothing_settled(path)),
        };
        text += &format!("{summary}\n");
        if self.is_file && damaged > 0 {
            text += "what is deleted may read as damaged: `plimsoll chapter verify DIR` passes over it\n";
        }
        text
    }

    fn whose(&self, run: &Run) -> String {
        let partition = run.opening.partition;
        let name = self.names.of(partition.topic).map_or(String::new(), |name| format!("{name} "));
        format!("topic {name}({}), partition {}", hex(partition.topic), partition.number)
    }

    pub(crate) fn json(&self, is_whole: bool) -> Value {
        let state = match () {
            () if !self.is_good() => "damaged",
            () if !is_whole => "interrupted",
            () if self.runs == 0 => "nothing",
            () => "good",
        };
        let damaged = self.damaged.iter().map(|(file, run, damage)| {
            let mut object = run_object(run, &self.names);
            object["file"] = file.clone().into();
            let part = |damage: &Damage| {
                let Damage { from, last, why } = damage;
                json!({ "first_offset": from, "last_offset": last, "reason": why.to_string() })
            };
            object["damage"] = damage.iter().map(part).collect();
            object
        });
        let wrong = self.wrong.iter().map(|(file, why)| json!({ "file": file, "reason": why }));
        json!({
            "state": state,
            "files": self.files,
            "runs": self.runs,
            "bytes": self.bytes,
            "deleted_runs": self.deleted,
            "damaged": damaged.collect::<Vec<_>>(),
            "wrong": wrong.collect::<Vec<_>>(),
            "strays": self.strays,
        })
    }
}

/// The last chapter that was settled when this state was kept.
fn settled_by(state: &State) -> u64 {
    state.ended().next().map_or(state.chapter(), |next| next.chapter - 1)
}

fn word(word: &str, colour: u8) -> String {
    if output::colour() { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() }
}
