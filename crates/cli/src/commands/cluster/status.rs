//! `plimsoll cluster status`: who leads what, and after a loss what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result};
use plimsoll_server::broker::Unmet;
use serde::Deserialize;

use crate::commands::ask;
use crate::exit::Exit;
use crate::output;

/// Digits of a boot id that tell it from others.
const BOOT_DIGITS: usize = 8;
/// The shard of topics, in which it is decided who is in the cluster.
const CONTROL: u32 = 0;

/// What is known of a shard. A newer broker may say more.
#[derive(Debug, Deserialize)]
pub(super) struct Roll {
    pub(super) shard: u32,
    pub(super) condition: String,
    pub(super) leader: Option<u64>,
    generation: u64,
    guaranteed: u64,
    #[serde(default)]
    durable: u64,
    best_tail: (u64, u64),
    committed: u64,
    pub(super) voters: Vec<u64>,
    missing: Vec<u64>,
    #[serde(default)]
    empty: Vec<u64>,
    #[serde(default)]
    absent: Vec<u64>,
    #[serde(default)]
    awaited: Vec<u64>,
    #[serde(default)]
    level: Option<BTreeSet<u64>>,
    #[serde(default)]
    spare: Option<u64>,
    #[serde(default)]
    is_guarded: Option<bool>,
    #[serde(default)]
    unmet: Option<Unmet>,
    #[serde(default)]
    drained: BTreeSet<u64>,
    #[serde(default)]
    undecidable: Option<Undecidable>,
    digest: String,
    rows: Vec<Row>,
}

/// Why nothing can be decided of a fenced shard: the log of a node is damaged.
#[derive(Debug, Deserialize)]
struct Undecidable {
    node: u64,
    /// Some seconds later it can be, or need not be.
    is_new: bool,
}

impl Roll {
    /// Whether it is of topics or of groups: nobody may go on with less than all of that.
    fn steers(&self) -> bool {
        self.shard < 2
    }

    /// Whether whoever leads it takes nothing: too few voters take what it appends, or disks have no room.
    fn refuses(&self) -> bool {
        self.rows.iter().any(|row| row.refuses && self.leader == Some(row.node))
    }

    /// Whether as many are sure as could elect one, and none of them has less than was decided on.
    fn is_held_up(&self) -> bool {
        let is_sure =
            |row: &&Row| !row.is_in_doubt && !row.has_less && row.generation == self.generation;
        let sure = self.rows.iter().filter(is_sure).filter(|row| self.voters.contains(&row.node));
        sure.count() > self.voters.len() / 2
    }

    /// Whether nobody who answers knows who votes: the cluster was never founded, or the shard began anew everywhere.
    fn is_unknown(&self) -> bool {
        self.voters.is_empty()
    }

    /// Whether enough of its voters have what they had, be they here or not.
    fn may_come_back(&self) -> bool {
        self.voters.len().saturating_sub(self.empty.len()) > self.voters.len() / 2
    }
}

/// What a node says of its replica.
#[derive(Debug, Deserialize)]
struct Row {
    node: u64,
    incarnation: u64,
    generation: u64,
    boot: String,
    is_in_doubt: bool,
    #[serde(default)]
    lacks: bool,
    #[serde(default)]
    has_less: bool,
    #[serde(default)]
    is_damaged: bool,
    #[serde(default)]
    refuses: bool,
    vote_term: u64,
    voted_for: u64,
    last_term: u64,
    last: u64,
    synced: u64,
    committed: u64,
    durable: u64,
    said: String,
}

/// What of `/status` is shown here. An older broker says nothing of it.
#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    domains: Domains,
}

/// Where the brokers stand.
#[derive(Debug, Default, Deserialize)]
struct Domains {
    racks: BTreeMap<u64, String>,
    warning: Option<String>,
}

pub(super) fn run(http: &str, json: bool) -> Result<Exit> {
    let answer = ask::get(http, "/cluster/status")?;
    let rolls = read(http, &answer)?;
    output::text(&if json { answer } else { said(&rolls) + &domains(http)? })?;
    let is_well =
        rolls.iter().all(|roll| roll.leader.is_some() && !roll.refuses() && roll.unmet.is_none());
    Ok(if is_well { Exit::Ok } else { Exit::CheckFailed })
}

/// Where the brokers stand, as the one that is asked knows it.
fn domains(http: &str) -> Result<String> {
    let answer = ask::get(http, "/status")?;
    let status = serde_json::from_str::<Status>(&answer);
    let Domains { racks, warning } =
        status.with_context(|| format!("what {http} answers is no status"))?.domains;
    let racks: Vec<String> =
        racks.iter().map(|(node, rack)| format!("node {node} in {rack}")).collect();
    let racks = (!racks.is_empty()).then(|| format!("\nracks: {}\n", racks.join(", ")));
    let warning = warning.map(|warning| format!("\nwarning: {warning}\n"));
    Ok(racks.unwrap_or_default() + &warning.unwrap_or_default())
}

pub(super) fn read(http: &str, answer: &str) -> Result<Vec<Roll>> {
    serde_json::from_str(answer).with_context(|| format!("what {http} answers is no status"))
}

fn said(rolls: &[Roll]) -> String {
    let spares: BTreeSet<u64> = rolls.iter().filter_map(spared).collect();
    // Where all shards spare as many it is said once, behind them. Of one that takes nothing it must not seem so.
    let is_open = |roll: &Roll| roll.voters.len() > 1 && roll.spare.is_none();
    let says_each = spares.len() > 1 || rolls.iter().any(is_open);
    let mut said: Vec<String> = rolls.iter().map(|roll| one(roll, says_each)).collect();
    if let (Some(spare), false) = (spares.first(), says_each) {
        said.push(format!("as far as is heard, {}\n", may_fail(*spare)));
    }
    let (steer, records): (Vec<&Roll>, Vec<&Roll>) =
        rolls.iter().filter(|roll| roll.condition == "fenced").partition(|roll| roll.steers());
    if rolls.iter().any(Roll::refuses) {
        said.push(
            "/health of a leader that takes nothing says why, and which nodes are not well: where disks are full make room, or \
             have topics keep less\n"
                .to_owned(),
        );
    }
    if !steer.is_empty() {
        said.push(
            "nothing can be decided of topics and groups (shards 0 and 1): bring back the nodes that can be, or restore a backup\n"
                .to_owned(),
        );
    }
    let awaited: BTreeSet<&u64> = rolls.iter().flat_map(|roll| &roll.awaited).collect();
    if !awaited.is_empty() {
        let control = rolls.iter().find(|roll| roll.shard == CONTROL);
        let founder = control.and_then(|roll| roll.leader);
        said.push(format!(
            "{} awaited: until all are there {} runs alone; start each with the same settings, its own --node and an empty --dir\n",
            match awaited.len() {
                1 => nodes(awaited) + " is",
                _ => nodes(awaited) + " are",
            },
            founder.map_or("the first".to_owned(), |node| format!("node {node}"))
        ));
    }
    let (unknown, unreached): (Vec<&Roll>, Vec<&Roll>) = rolls
        .iter()
        .filter(|roll| roll.condition == "unreached")
        .partition(|roll| roll.is_unknown());
    if unknown.iter().any(|roll| roll.shard == CONTROL) {
        said.push(
            "no node that answers knows who is in the cluster: start the one in whose directory `plimsoll cluster init` \
             founded it; or, if others were in it before, bring those back\n"
                .to_owned(),
        );
    } else if !unknown.is_empty() {
        said.push(format!(
            "no node that answers has anything of shard {}: bring back those that do not, or restore a backup; what was set aside as damaged \
             lies in the brokers' directories, as damaged-SHARD\n",
            listed(unknown.iter().map(|roll| &roll.shard))
        ));
    }
    let (waiting, gone): (Vec<&Roll>, Vec<&Roll>) =
        unreached.into_iter().partition(|roll| roll.may_come_back());
    let missing: BTreeSet<&u64> = waiting.iter().flat_map(|roll| &roll.missing).collect();
    if !missing.is_empty() {
        said.push(format!(
            "bring back {}, or as many as make a majority: until then shards that are unreached take and give nothing, and \
             nothing can be decided of them\n",
            nodes(missing)
        ));
        if rolls.iter().all(|roll| roll.rows.len() <= 1) {
            said.push(
                "if they run, this node may have been removed: `plimsoll cluster status --http` with the address of one of them says who is in the \
                 cluster\n"
                    .to_owned(),
            );
        }
    }
    if !gone.is_empty() {
        said.push(format!(
            "nothing can be decided of shard {}, of which too few voters have what they had: restore a backup\n",
            listed(gone.iter().map(|roll| &roll.shard))
        ));
    }
    let digests: Vec<String> = records
        .iter()
        .filter(|roll| roll.undecidable.is_none())
        .map(|roll| format!(" --digest {}", roll.digest))
        .collect();
    if !digests.is_empty() {
        said.push(format!(
            "bring back the nodes that can be; to go on with what is left:\nplimsoll cluster recover{}\n",
            digests.concat()
        ));
    }
    said.join("\n")
}

fn listed<'a, N: ToString + 'a>(numbers: impl IntoIterator<Item = &'a N>) -> String {
    numbers.into_iter().map(N::to_string).collect::<Vec<_>>().join(", ")
}

/// One node by its number, or several by theirs.
fn nodes<'a>(numbers: impl IntoIterator<Item = &'a u64>) -> String {
    let numbers: Vec<&u64> = numbers.into_iter().collect();
    let what = if numbers.len() == 1 { "node" } else { "nodes" };
    format!("{what} {}", listed(numbers))
}

/// How many more of its voters may fail, where others vote too.
fn spared(roll: &Roll) -> Option<u64> {
    roll.spare.filter(|_| roll.voters.len() > 1)
}

/// What becomes of writes where so many more voters may fail.
fn may_fail(spare: u64) -> String {
    match spare {
        0 => "writes stop if 1 more voter fails".to_owned(),
        1 => "writes go on if 1 more voter fails, and stop if 2 do".to_owned(),
        more => format!("writes go on if {more} more voters fail, and stop if {} do", more + 1),
    }
}

/// What is known of a shard, and of how many may fail if it `says` so.
fn one(roll: &Roll, says: bool) -> String {
    let mut said = String::new();
    let mut line =
        |text: std::fmt::Arguments<'_>| writeln!(said, "{text}").expect("a string grows");
    let Roll { shard, guaranteed, committed, generation, digest, .. } = roll;
    let is_fenced = roll.condition == "fenced";
    let how = match (roll.leader, &*roll.condition) {
        (Some(leader), _) => format!("led by node {leader}"),
        (None, "fenced") if roll.rows.iter().any(|row| row.has_less) => {
            "FENCED: nobody leads it, and who answers has less than it was decided to go on with, or may have forgotten".to_owned()
        }
        (None, "fenced") if roll.is_held_up() => {
            "FENCED: nobody leads it: the longest log is damaged, and was not healed for seconds, and no majority votes for another".to_owned()
        }
        (None, "fenced") => "FENCED: nobody leads it, and too many may have forgotten".to_owned(),
        (None, "unreached") if roll.is_unknown() => {
            "unreached: no node that answers knows who votes on it".to_owned()
        }
        (None, "unreached") if !roll.empty.is_empty() => {
            "unreached: of its voters too few answer that did not begin it anew".to_owned()
        }
        (None, "unreached") => "unreached: fewer than a majority of its voters answer".to_owned(),
        (None, other) => other.to_owned(),
    };
    let after = match generation {
        0 => String::new(),
        _ => format!(", in generation {generation}"),
    };
    let has_no_vote = |node: &&u64| !roll.voters.contains(node);
    let others = listed(roll.rows.iter().map(|row| &row.node).filter(has_no_vote));
    let others = if others.is_empty() { others } else { format!("; no vote: {others}") };
    let votes = match &roll.voters[..] {
        [] => String::new(),
        [one] => format!("; node {one} votes"),
        voters => format!("; nodes {} vote", listed(voters)),
    };
    line(format_args!("shard {shard}: {how}{after}{votes}{others}"));
    if !roll.missing.is_empty() {
        line(format_args!("  no answer of {}", nodes(&roll.missing)));
    }
    if !roll.empty.is_empty() {
        let nodes = listed(&roll.empty);
        line(format_args!(
            "  node {nodes} began it anew, and what it has does not count before it has caught up"
        ));
    }
    if !roll.absent.is_empty() {
        line(format_args!("  no answer of {}, without a vote", nodes(&roll.absent)));
    }
    if !roll.drained.is_empty() {
        let nodes = listed(&roll.drained);
        line(format_args!(
            "  node {nodes} is drained, or about to close: it leads nothing before it is started again, or told to stay (`plimsoll \
             cluster drain --undo`)"
        ));
    }
    if roll.refuses() {
        line(format_args!("  its leader takes nothing just now"));
    }
    if let Some(unmet) = &roll.unmet {
        line(format_args!("  {unmet}"));
    }
    if roll.is_guarded == Some(true) {
        line(format_args!("  guarded: what it acknowledges is durable on a majority first"));
    }
    if let Some(spare) = spared(roll).filter(|_| says) {
        line(format_args!("  as far as is heard, {}", may_fail(spare)));
    }
    if roll.leader.is_some() && roll.level.is_none() && roll.voters.len() > 1 {
        line(format_args!("  its leader does not say yet who has what was committed a moment ago"));
    }
    line(format_args!(
        "  {:>4}  {:<8}  {:>11}  {:<8}  {:>13}  {:>16}  {:>12}  {:>12}  {:>12}",
        "node", "mark", "incarnation", "boot", "voted", "log ends", "synced to", "C", "D"
    ));
    for row in &roll.rows {
        let mark = if row.is_in_doubt { "in doubt" } else { "sure" };
        let boot = row.boot.get(..BOOT_DIGITS).unwrap_or("-");
        let vote = format!("{} in {}", row.voted_for, row.vote_term);
        let log = format!("{} of {}", row.last, row.last_term);
        line(format_args!(
            "  {:>4}  {mark:<8}  {:>11}  {boot:<8}  {vote:>13}  {log:>16}  {:>12}  {:>12}  {:>12}",
            row.node, row.incarnation, row.synced, row.committed, row.durable
        ));
        if row.generation < *generation {
            line(format_args!("        of generation {}: it has not heard yet", row.generation));
        }
        if row.is_in_doubt {
            line(format_args!("        {}", row.said));
        }
        if row.has_less {
            line(format_args!(
                "        its log ends before that which it was decided to go on with: it votes only for a node that has that"
            ));
        }
        if row.is_damaged && roll.leader.is_none() {
            line(format_args!(
                "        its log is damaged, or its disk has failed: it does not lead before that is mended"
            ));
        }
        let votes = roll.voters.contains(&row.node);
        let lags = votes && roll.level.as_ref().is_some_and(|level| !level.contains(&row.node));
        if row.lacks {
            line(format_args!(
                "        it lacks what the others have let go of: whoever leads gives it that"
            ));
        } else if lags && !row.is_in_doubt {
            line(format_args!(
                "        it is not level: it lacks what was committed a moment ago, or does not answer its leader, whose /health says why (unwell); stop no other now"
            ));
        }
    }
    if let Some(Undecidable { node, is_new }) = &roll.undecidable {
        let why = if *is_new {
            "how much of it can be gone on with is known in some seconds, or it is healed: look again then"
        } else {
            "what it has lost it has applied, and the others that answer are no majority: bring back a node that has it, or restore a backup"
        };
        line(format_args!(
            "  undecided   the log of node {node} is damaged, and none that can be gone on with has as much: {why}"
        ));
    } else if is_fenced {
        let (term, last) = roll.best_tail;
        if *generation > 0 {
            line(format_args!(
                "  before      what {} gave up, if anything, is not counted here again",
                if *generation == 1 { "an earlier decision" } else { "earlier decisions" }
            ));
        }
        line(format_args!(
            "  guaranteed  all up to entry {guaranteed}: it is durable on a majority"
        ));
        if roll.durable > *guaranteed {
            let or_away = match &roll.missing[..] {
                [] => String::new(),
                missing => format!(
                    ", or node {} has them, which does not answer: bring that back first",
                    listed(missing)
                ),
            };
            line(format_args!(
                "  lost        entries {} to {} were durable on a majority, and no log that can be gone on \
                 with has them: their disks have lost them{or_away}",
                guaranteed + 1,
                roll.durable
            ));
        }
        line(format_args!(
            "  best tail   entry {last} of term {term}: the longest log of those that vote and answer"
        ));
        let is_longer = |row: &&Row| (row.last_term, row.last) > (term, last);
        for Row { node, last_term, last, .. } in roll.rows.iter().filter(is_longer) {
            let why = if roll.voters.contains(node) { "is damaged" } else { "has no vote" };
            line(format_args!(
                "  not used    node {node}, which {why}, has entries up to {last} of term {last_term}"
            ));
        }
        line(format_args!(
            "  in doubt    what was acknowledged behind entry {guaranteed}: up to entry {committed} at least was, and \
             more may have been"
        ));
        line(format_args!("  digest      {digest}"));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node says of a shard that is led in term 4.
    fn row(node: u64, is_in_doubt: bool) -> Row {
        Row {
            node,
            incarnation: 3,
            generation: 0,
            boot: "0123456789abcdef0123456789abcdef".to_owned(),
            is_in_doubt,
            lacks: false,
            has_less: false,
            is_damaged: false,
            refuses: false,
            vote_term: 4,
            voted_for: 1,
            last_term: 4,
            last: 200,
            synced: 198,
            committed: 180,
            durable: 120,
            said: "the system was started anew".to_owned(),
        }
    }

    /// One that is led, and of which all is well.
    fn led() -> Roll {
        Roll {
            shard: 2,
            condition: "led".to_owned(),
            leader: Some(1),
            generation: 0,
            guaranteed: 120,
            durable: 120,
            best_tail: (4, 200),
            committed: 180,
            voters: vec![1, 2, 3],
            missing: Vec::new(),
            empty: Vec::new(),
            absent: Vec::new(),
            awaited: Vec::new(),
            level: Some(BTreeSet::from([1, 2, 3])),
            spare: None,
            is_guarded: None,
            unmet: None,
            drained: BTreeSet::new(),
            undecidable: None,
            digest: "5f0c".to_owned(),
            rows: [1, 2, 3].map(|node| row(node, false)).into(),
        }
    }

    #[test]
    fn a_fenced_shard_shows_what_is_guaranteed_left_and_in_doubt() {
        let row = |node| Row { lacks: node == 3, last: 200 - node, ..row(node, node != 2) };
        let roll = Roll {
            shard: 2,
            condition: "fenced".to_owned(),
            leader: None,
            generation: 0,
            guaranteed: 120,
            durable: 130,
            best_tail: (4, 199),
            committed: 180,
            voters: vec![1, 2, 3],
            missing: vec![2],
            empty: vec![7],
            absent: vec![5, 6],
            awaited: vec![],
            level: None,
            spare: None,
            is_guarded: None,
            unmet: None,
            drained: BTreeSet::from([4]),
            undecidable: None,
            digest: "5f0c".to_owned(),
            rows: vec![row(1), row(3), Row { last: 230, ..row(4) }],
        };
        let said = said(&[roll]);
        for part in [
            "shard 2: FENCED: nobody leads it, and too many may have forgotten; nodes 1, 2, 3 vote; no vote: 4",
            "no answer of node 2\n",
            "node 4 is drained, or about to close: it leads nothing",
            "node 7 began it anew, and what it has does not count before it has caught up\n",
            "no answer of nodes 5, 6, without a vote\n",
            "   1  in doubt            3  01234567         1 in 4          199 of 4           198           180           120",
            "the system was started anew\n        it lacks what the others have let go of: whoever leads gives it that\n  ",
            "guaranteed  all up to entry 120",
            "lost        entries 121 to 130 were durable on a majority, and no log that can be gone on with has them: their disks have lost them, or node 2 has them, which does not answer: bring that back first",
            "best tail   entry 199 of term 4",
            "not used    node 4, which has no vote, has entries up to 230 of term 4",
            "up to entry 180 at least was",
            "digest      5f0c",
            "\nplimsoll cluster recover --digest 5f0c\n",
        ] {
            assert!(said.contains(part), "{part}:\n{said}");
        }
    }

    /// One that had just been started looked as all others did, and the next was stopped.
    #[test]
    fn a_voter_that_lacks_what_was_committed_a_moment_ago_is_told_from_the_others() {
        let roll = |level: Option<&[u64]>| Roll {
            level: level.map(|level| level.iter().copied().collect()),
            rows: vec![row(1, false), row(2, false), row(3, true), row(4, false)],
            ..led()
        };
        let lags = "it is not level: it lacks what was committed a moment ago";
        let unknown = "its leader does not say yet who has what was committed a moment ago";
        assert_eq!(said(&[roll(Some(&[1]))]).matches(lags).count(), 1, "of node 2 only");
        assert!(!said(&[roll(Some(&[1, 2]))]).contains(lags));
        assert!(!said(&[roll(Some(&[1, 2]))]).contains(unknown));
        assert!(said(&[roll(None)]).contains(unknown));
    }

    /// It was said to be led, and took nothing.
    #[test]
    fn a_shard_whose_leader_takes_nothing_is_told_from_one_that_is_well() {
        let roll = |refuses: u64| {
            let row = |node| Row { refuses: node == refuses, ..row(node, false) };
            Roll { rows: [1, 2, 3].map(row).into(), ..led() }
        };
        let told = said(&[roll(1)]);
        assert!(told.contains("its leader takes nothing just now\n"), "{told}");
        assert!(told.contains("where disks are full make room"), "{told}");
        // One that leads no more speaks for nobody.
        assert!(!said(&[roll(2), roll(0)]).contains("room"));
    }

    /// It was for whoever looked to work out.
    #[test]
    fn how_many_more_may_fail_is_said_once_where_it_is_the_same_of_all_shards() {
        let roll = |shard, spare| Roll { shard, spare, ..led() };
        let same = said(&[roll(0, Some(0)), roll(2, Some(0)), roll(3, Some(0))]);
        let stops = "as far as is heard, writes stop if 1 more voter fails\n";
        assert_eq!(same.matches(stops).count(), 1, "{same}");
        assert!(same.contains(&format!("\n\n{stops}")), "behind the shards: {same}");
        let each = said(&[roll(0, Some(1)), roll(2, Some(0))]);
        assert!(each.contains(&format!("\n  {stops}")), "at its shard: {each}");
        assert!(each.contains(
            "\n  as far as is heard, writes go on if 1 more voter fails, and stop if 2 do\n"
        ));
        // Of those that take nothing it seemed so, too (a trial).
        let fenced = Roll { condition: "fenced".to_owned(), leader: None, ..roll(2, None) };
        let some = said(&[roll(0, Some(1)), fenced]);
        assert!(
            !some.contains("\nas far as is heard") && some.contains("\n  as far as is heard"),
            "{some}"
        );
        let five = said(&[roll(0, Some(2))]);
        assert!(five.contains("writes go on if 2 more voters fail, and stop if 3 do\n"), "{five}");
        let alone = Roll { voters: vec![1], ..roll(0, Some(0)) };
        assert!(!said(&[alone, roll(2, None)]).contains("as far as is heard"));
    }

    #[test]
    fn a_shard_says_where_it_is_guarded_and_which_topics_it_refuses() {
        let roll = |is_guarded| Roll { is_guarded, ..led() };
        let guarded = "\n  guarded: what it acknowledges is durable on a majority first\n";
        assert!(said(&[roll(Some(true))]).contains(guarded));
        assert!(!said(&[roll(Some(false)), roll(None)]).contains("guarded"));
        let unmet = Some(Unmet { in_sync: 2, topics: 1, named: vec!["orders".to_owned()] });
        let told = said(&[Roll { unmet, ..led() }]);
        assert!(told.contains("\n  producers to topic orders get NOT_ENOUGH_REPLICAS"), "{told}");
    }

    /// The brokers that are there already point to themselves for it.
    #[test]
    fn who_is_awaited_is_said_with_who_runs_alone_until_then() {
        let control = Roll { shard: CONTROL, voters: vec![1], awaited: vec![3], ..led() };
        let told = said(&[control, led()]);
        assert!(
            told.contains("\nnode 3 is awaited: until all are there node 1 runs alone; start"),
            "{told}"
        );
    }

    #[test]
    fn of_an_unreached_shard_it_is_said_who_is_to_be_brought_back() {
        let roll = |missing, empty| Roll {
            shard: 1,
            condition: "unreached".to_owned(),
            leader: None,
            generation: 0,
            guaranteed: 41,
            durable: 41,
            best_tail: (35, 41),
            committed: 41,
            voters: vec![1, 2, 3],
            missing,
            empty,
            absent: Vec::new(),
            awaited: Vec::new(),
            level: None,
            spare: None,
            is_guarded: None,
            unmet: None,
            drained: BTreeSet::new(),
            undecidable: None,
            digest: "5f0c".to_owned(),
            rows: Vec::new(),
        };
        let away = said(&[roll(vec![1, 3], Vec::new()), roll(vec![3], vec![1])]);
        assert!(away.contains("unreached: fewer than a majority of its voters answer;"), "{away}");
        assert!(away.contains("too few answer that did not begin it anew;"), "{away}");
        assert!(away.contains("\nbring back nodes 1, 3, or as many as make a majority"), "{away}");
        let unknown = |shard| Roll { shard, voters: Vec::new(), ..roll(Vec::new(), Vec::new()) };
        let unfounded = said(&[unknown(0), unknown(2)]);
        assert!(unfounded.contains("no node that answers knows who votes on it\n"), "{unfounded}");
        assert!(unfounded.contains("in whose directory `plimsoll cluster init`"), "{unfounded}");
        assert!(
            !unfounded.contains("backup") && !unfounded.contains("bring back node"),
            "{unfounded}"
        );
        let anew = said(&[unknown(3)]);
        assert!(anew.contains("has anything of shard 3: bring back those that do not"), "{anew}");
        let gone = said(&[roll(vec![2], vec![1, 3])]);
        assert!(gone.contains("shard 1, of which too few") && !gone.contains("bring"), "{gone}");
    }
}
