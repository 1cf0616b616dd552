//! `plimsoll cluster scrub`: every broker reads all its chapters, and its logs, from the disk itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use plimsoll_lab::units;
use serde::{Deserialize, Serialize};

use crate::broker_args::Rate;
use crate::commands::ask;
use crate::exit::Exit;
use crate::interrupt::{interrupted, on_interrupt};
use crate::output::{self, counted};

/// How long it may take until each node has begun, or stopped.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(500);
/// How long a node may say nothing, or what it found damaged may wait for somebody to try to heal it.
const SILENCE: Duration = Duration::from_secs(30);

/// What was begun. A newer broker may say more.
#[derive(Debug, Deserialize)]
struct Begun {
    scrub: String,
    nodes: Vec<Node>,
}

/// What a node says.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct Node {
    node: u64,
    silent: Option<String>,
    shards: Vec<Shard>,
}

/// What it says of a shard.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct Shard {
    shard: u32,
    phase: Phase,
    /// Whose pass it is; nobody's but the schedule's if it is none.
    scrub: Option<String>,
    begun_ms: u64,
    ended_ms: u64,
    due_bytes: u64,
    read_bytes: u64,
    damaged: u64,
    healed: u64,
    left: u64,
    untried: u64,
    whole_ms: u64,
    whole_bytes: u64,
    wounds: Vec<String>,
    unread: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Never,
    Waiting,
    Running,
    Ended,
    Stopped,
    /// A newer broker knows more.
    #[serde(other)]
    Other,
}

impl Phase {
    fn goes_on(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Good,
    Damaged,
    Unfinished,
}

/// All that is told at the end.
#[derive(Debug, Serialize)]
struct Report {
    state: State,
    /// Why not all was read.
    lacks: Vec<String>,
    nodes: Vec<Node>,
}

/// Begins one unless no rate is told: then what was found last is said.
pub(super) fn run(http: &str, rate: Option<Rate>, json: bool) -> Result<Exit> {
    let Some(rate) = rate else {
        return tell(&Report::of(look(http)?, None), json);
    };
    let watcher = thread::current();
    on_interrupt(move || watcher.unpark())?;
    let path = match rate.0 {
        Some(rate) => format!("/cluster/scrub?rate={rate}"),
        None => "/cluster/scrub".to_owned(),
    };
    let answer = ask::post(http, &path, PATIENCE)?;
    let begun: Begun = read(http, &answer)?;
    for node in &begun.nodes {
        if others(node, &begun.scrub) {
            let node = node.node;
            output::news(&format!("node {node} is being scrubbed already: this watches that"));
        }
    }
    let nodes = watch(http, &begun)?;
    if !interrupted() {
        return tell(&Report::of(nodes, Some(&begun)), json);
    }
    let scrub = &begun.scrub;
    match ask::post(http, &format!("/cluster/scrub?stop={scrub}"), PATIENCE) {
        Ok(answer) => {
            let nodes: Vec<Node> = read(http, &answer)?;
            for node in nodes.iter().filter(|node| node.shards.iter().any(|of| of.phase.goes_on()))
            {
                let node = node.node;
                output::news(&format!(
                    "the scrub of node {node}, which somebody else began, goes on"
                ));
            }
            tell(&Report::of(nodes, Some(&begun)), json)?;
        }
        Err(why) => {
            output::news(&format!("the scrub {scrub} goes on, as no broker was told: {why:#}"));
        }
    }
    Ok(Exit::Interrupted)
}

/// Whether a node reads what another operator asked for.
fn others(node: &Node, scrub: &str) -> bool {
    let is_others = |of: &Shard| of.phase.goes_on() && of.scrub.as_deref() != Some(scrub);
    node.shards.iter().any(is_others)
}

fn look(http: &str) -> Result<Vec<Node>> {
    read(http, &ask::get(http, "/cluster/scrub")?)
}

fn read<T: for<'a> Deserialize<'a>>(http: &str, answer: &str) -> Result<T> {
    serde_json::from_str(answer).with_context(|| format!("what {http} answers is none"))
}

/// Shows how it goes until it has ended everywhere, and it was tried to heal what was found; or until it is to stop.
fn watch(http: &str, begun: &Begun) -> Result<Vec<Node>> {
    let mut shown = Shown::new();
    let mut nodes = begun.nodes.clone();
    // Nothing waits for those that were never told.
    let told: Vec<u64> = nodes.iter().filter(|of| of.silent.is_none()).map(|of| of.node).collect();
    let mut settled_since = None;
    loop {
        shown.show(&nodes);
        let is_under_way = nodes.iter().any(|of| of.shards.iter().any(|of| of.phase.goes_on()));
        let waits = nodes.iter().any(|of| {
            let is_silent = of.silent.is_some() && told.contains(&of.node);
            is_silent || of.shards.iter().any(|of| of.untried > 0)
        });
        settled_since = if is_under_way { None } else { settled_since.or(Some(Instant::now())) };
        let is_late = settled_since.is_some_and(|since: Instant| since.elapsed() > SILENCE);
        if interrupted() || (!is_under_way && (!waits || is_late)) {
            shown.clear();
            return Ok(nodes);
        }
        thread::park_timeout(LOOK);
        if !interrupted() {
            nodes = look(http)?;
        }
    }
}

impl Report {
    /// Of what nodes say; of a scrub that was begun, if one was.
    fn of(nodes: Vec<Node>, begun: Option<&Begun>) -> Self {
        let mut lacks = Vec::new();
        for Node { node, silent, shards } in &nodes {
            if let Some(why) = silent {
                lacks.push(format!("node {node} says nothing: {why}"));
            }
            // One that was started again has no scrub of any shard.
            let has_none = |of: &Shard| {
                begun.is_some_and(|begun| of.scrub.as_deref() != begun.of(*node, of.shard))
            };
            let is_anew = !shards.is_empty() && shards.iter().all(has_none);
            if is_anew {
                lacks.push(format!("node {node}: it was started again, or scrubbed anew"));
            }
            for of in shards {
                let shard = of.shard;
                let unread = of.unread.iter();
                lacks.extend(unread.map(|why| format!("node {node}, shard {shard}: {why}")));
                let why = match (begun, of.phase) {
                    (None, _) if of.whole_ms == 0 => "not since its start",
                    (None, _) => continue,
                    _ if is_anew => continue,
                    _ if has_none(of) => "it was scrubbed anew",
                    (_, Phase::Ended) => continue,
                    (_, Phase::Stopped) => "the scrub was stopped",
                    (_, Phase::Waiting | Phase::Running) => "the scrub goes on",
                    (_, Phase::Never | Phase::Other) => "there was none",
                };
                lacks.push(format!("node {node}, shard {shard}: {why}"));
            }
        }
        let mut shards = nodes.iter().flat_map(|node| &node.shards);
        let state = if shards.any(|of| of.damaged > 0 || of.left > 0) {
            State::Damaged
        } else if lacks.is_empty() {
            State::Good
        } else {
            State::Unfinished
        };
        Self { state, lacks, nodes }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut line =
            |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string grows");
        line(format_args!(
            "{:>4}  {:>5}  {:<8}  {:>10}  {:>7}  {:>6}  {:>4}  {}",
            "node", "shard", "scrub", "read", "damaged", "healed", "left", "all of it was read"
        ));
        for Node { node, silent, shards } in &self.nodes {
            if silent.is_some() {
                line(format_args!("{node:>4}  {:>5}  says nothing", "-"));
            }
            for of in shards {
                let phase = match of.phase {
                    Phase::Never => "none yet",
                    Phase::Waiting => "waits",
                    Phase::Running => "reads",
                    Phase::Ended => "ended",
                    Phase::Stopped => "stopped",
                    Phase::Other => "?",
                };
                line(format_args!(
                    "{node:>4}  {:>5}  {phase:<8}  {:>10}  {:>7}  {:>6}  {:>4}  {}",
                    of.shard,
                    units::bytes(of.read_bytes),
                    of.damaged,
                    of.healed,
                    of.left,
                    when(of.whole_ms)
                ));
            }
        }
        for (node, of) in self.nodes.iter().flat_map(|of| of.shards.iter().map(|s| (of.node, s))) {
            for wound in &of.wounds {
                line(format_args!("node {node}, shard {}: {wound}", of.shard));
            }
            let told = of.wounds.len() as u64;
            if of.left > told {
                line(format_args!("node {node}, shard {}: and {} more", of.shard, of.left - told));
            }
        }
        for lack in &self.lacks {
            line(format_args!("not all was read: {lack}"));
        }
        let sum = |of: fn(&Shard) -> u64| -> u64 {
            self.nodes.iter().flat_map(|node| &node.shards).map(of).sum()
        };
        let read = units::bytes(sum(|of| of.read_bytes));
        let brokers = counted(self.nodes.len() as u64, "broker");
        match self.state {
            State::Good => line(format_args!("good: {read} of {brokers}")),
            State::Unfinished => line(format_args!("unfinished: what was read is good, {read}")),
            State::Damaged => {
                let (damaged, healed) = (sum(|of| of.damaged), sum(|of| of.healed));
                let left = sum(|of| of.left);
                // Retention, compaction, or a log that has settled what it had.
                let gone = sum(|of| of.damaged.saturating_sub(of.healed + of.left));
                let gone = match gone {
                    0 => String::new(),
                    gone => format!(", {gone} let go of since"),
                };
                line(format_args!(
                    "damaged: {} found in {read}, {healed} healed{gone}, {left} left as {}",
                    counted(damaged, "place"),
                    if left == 1 { "it is" } else { "they are" }
                ));
            }
        }
        text
    }
}

impl Begun {
    /// Which scrub reads a shard of a node.
    fn of(&self, node: u64, shard: u32) -> Option<&str> {
        let node = self.nodes.iter().find(|of| of.node == node)?;
        node.shards.iter().find(|of| of.shard == shard)?.scrub.as_deref()
    }
}

fn when(ms: u64) -> String {
    match ms {
        0 => "not since its start".to_owned(),
        ms => {
            let time = UNIX_EPOCH + Duration::from_millis(ms);
            humantime::format_rfc3339_seconds(time).to_string()
        }
    }
}

fn tell(report: &Report, json: bool) -> Result<Exit> {
    if json {
        output::text(&(serde_json::to_string_pretty(report)? + "\n"))?;
    } else {
        output::text(&report.text())?;
    }
    Ok(if report.state == State::Good { Exit::Ok } else { Exit::CheckFailed })
}

/// A bar for each shard of each node, where somebody watches.
struct Shown {
    bars: BTreeMap<(u64, u32), ProgressBar>,
    all: MultiProgress,
    is_watched: bool,
}

impl Shown {
    fn new() -> Self {
        let is_watched = io::stderr().is_terminal();
        Self { bars: BTreeMap::new(), all: MultiProgress::new(), is_watched }
    }

    fn show(&mut self, nodes: &[Node]) {
        if !self.is_watched {
            return;
        }
        for (node, of) in nodes.iter().flat_map(|node| node.shards.iter().map(|of| (node.node, of)))
        {
            let bar = self.bars.entry((node, of.shard)).or_insert_with(|| {
                let style = "node {prefix} {bar:24} {percent:>3} %  {bytes} of {total_bytes}{msg}";
                let style = ProgressStyle::with_template(style).expect("it is well formed");
                let bar = self.all.add(ProgressBar::new(of.due_bytes).with_style(style));
                bar.with_prefix(format!("{node}, shard {}", of.shard))
            });
            let bytes = if of.phase == Phase::Ended { of.due_bytes } else { of.read_bytes };
            bar.set_length(of.due_bytes.max(bytes));
            bar.set_position(bytes);
            let damage = format!("; damaged {}, healed {}", of.damaged, of.healed);
            bar.set_message(if of.damaged > 0 { damage } else { String::new() });
        }
    }

    fn clear(&self) {
        // What is left on a screen harms nobody.
        self.all.clear().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(shard: u32) -> Shard {
        Shard {
            shard,
            phase: Phase::Ended,
            scrub: Some("ours".to_owned()),
            begun_ms: 1,
            ended_ms: 2,
            due_bytes: 10 << 20,
            read_bytes: 10 << 20,
            damaged: 0,
            healed: 0,
            left: 0,
            untried: 0,
            whole_ms: 1_795_000_000_000,
            whole_bytes: 10 << 20,
            wounds: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn node(node: u64) -> Node {
        Node { node, silent: None, shards: vec![shard(2), shard(3)] }
    }

    fn begun() -> Begun {
        Begun { scrub: "ours".to_owned(), nodes: vec![node(1), node(2)] }
    }

    #[test]
    fn only_what_was_all_read_and_is_whole_is_called_good() {
        let report = |nodes| Report::of(nodes, Some(&begun()));
        let good = report(vec![node(1), node(2)]);
        assert_eq!(good.state, State::Good);
        assert!(good.text().ends_with("good: 40 MiB of 2 brokers\n"), "{}", good.text());

        let changed = |change: &dyn Fn(&mut Shard)| {
            let mut nodes = vec![node(1), node(2)];
            change(&mut nodes[1].shards[0]);
            report(nodes)
        };
        for (lack, unfinished) in [
            ("it was scrubbed anew", changed(&|of| of.scrub = None)),
            ("stopped", changed(&|of| of.phase = Phase::Stopped)),
            ("goes on", changed(&|of| of.phase = Phase::Running)),
            ("no such file", changed(&|of| of.unread = vec!["no such file".to_owned()])),
        ] {
            assert_eq!(unfinished.state, State::Unfinished, "{lack}");
            assert!(unfinished.text().contains(lack), "{}", unfinished.text());
        }
        let silent =
            Node { silent: Some("is not connected".to_owned()), shards: Vec::new(), ..node(2) };
        let silent = report(vec![node(1), silent]);
        assert_eq!(silent.state, State::Unfinished);
        assert!(silent.text().contains("node 2 says nothing: is not connected"));

        // Where nothing was begun, what was read last is told, and nothing is none.
        let last = |whole_ms| {
            let mut nodes = vec![node(1), node(2)];
            (nodes[1].shards[0].phase, nodes[1].shards[0].whole_ms) = (Phase::Never, whole_ms);
            Report::of(nodes, None)
        };
        assert_eq!((last(1).state, last(0).state), (State::Good, State::Unfinished));
        assert!(last(0).text().contains("not all was read: node 2, shard 2: not since its start"));

        let mut nodes = vec![node(1), node(2)];
        nodes[1].shards.iter_mut().for_each(|of| of.scrub = None);
        let said = report(nodes).text();
        assert_eq!(said.matches("node 2: it was started again").count(), 1, "{said}");
        assert_eq!(said.matches("scrubbed anew").count(), 1, "{said}");

        let healed = changed(&|of| (of.damaged, of.healed) = (1, 1));
        assert_eq!(healed.state, State::Damaged);
        let said = healed.text();
        assert!(said.contains("damaged: 1 place found in 40 MiB, 1 healed, 0 left"), "{said}");
        let gone = changed(&|of| (of.damaged, of.healed) = (3, 2)).text();
        assert!(
            gone.contains("3 places found in 40 MiB, 2 healed, 1 let go of since, 0"),
            "{gone}"
        );
        let left = changed(&|of| {
            (of.damaged, of.left) = (40, 40);
            of.wounds = vec!["topic orders, partition 1".to_owned()];
        });
        let said = left.text();
        assert!(said.contains("node 2, shard 2: topic orders, partition 1\n"), "{said}");
        assert!(said.contains("node 2, shard 2: and 39 more\n"), "{said}");
    }
}
