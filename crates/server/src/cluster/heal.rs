//! [`heal`]: what a replica's disk has lost of its log is fetched from another replica, and put back.
//!
//! No leader is needed for it, and no agreement: by Raft's log matching, two logs that have an entry of the same term
//! and index have the same entries before it. So this replica names the last entry of what is damaged, whose id the engine
//! holds; or, where that does not answer, the last of its log. Another that has that very entry has what is missing, be it committed or
//! not, and whether it leads, votes or is in doubt itself. What survives of a damaged frame is held against what comes
//! (`Log::heal`).
//!
//! Not fetched is what is in memory here, and what a snapshot of this replica covers: that is let go of, as nobody needs it
//! here. Meanwhile what was fetched is served from memory. What nobody has any more, as all others have let go of it, and what
//! a segment cannot be without, is not healed by entry: it is soon covered here too, or, where it is there after some seconds
//! still, the replica is seeded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, Weak};
use std::time::Duration;

use openraft::RaftState;
use openraft::async_runtime::WatchReceiver;
use plimsoll_log::Error as LogError;
use tokio::time::{Instant, sleep, timeout};

use super::apply::Apply;
use super::behind::{Behind, Lack};
use super::campaign::wait_to_campaign;
use super::error::{Error, Result};
use super::gone::Gone;
use super::message::{Answer, AskEntries, Request};
use super::network::Network;
use super::record::{self, from_log, to_log};
use super::standing::Standing;
use super::state::Engine;
use super::storage::Storage;
use super::types::{Entry, LogId, Types};

/// The others may have by then what they have not yet, or be there: at first, then twice as long, up to the second.
const REST_AFTER_FAILURE: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(2));
/// Whoever looks is told of what is not healed so long after it was found, once.
const TOLD_AFTER: Duration = Duration::from_secs(1);
/// What all others have let go of is soon covered here too, most often: only after so long must the replica be seeded for it.
pub(super) const GOES_WITHIN: Duration = Duration::from_secs(5);
/// An engine that takes longer to say what it knows waits for the disk, or for what is healed.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of entries that are given at once, at most, and the entry that goes beyond: a frame has room for them.
const BYTES_MAX: usize = 4 << 20;

/// What the task that heals works with.
pub(crate) struct Healing<S: Apply> {
    pub(crate) shard: u32,
    pub(crate) node: u64,
    pub(crate) engine: Engine<S>,
    pub(crate) storage: Weak<Storage>,
    pub(crate) network: Network,
    pub(crate) standing: Arc<Standing>,
    pub(crate) gone: Arc<Gone>,
    pub(crate) behind: Arc<Behind>,
}

/// What became of an entry that could not be read.
enum Tended {
    /// So many were damaged, and are not any more.
    Healed(u64),
    /// It was healed with what lies beside it.
    Already,
    /// It is not in the log any more.
    Gone,
}

/// What was given of entries that were asked for.
enum Given {
    Entries(Vec<Entry>),
    /// Who has let go of it for good, and how far, if that is so.
    Nobody {
        gone: Option<(u64, u64)>,
        why: String,
    },
}

/// Heals whatever is noted, as long as the group lives.
pub(crate) async fn heal<S: Apply>(healing: Healing<S>) {
    let Some(mut found) = healing.storage.upgrade().map(|storage| storage.wounds.watch()) else {
        return;
    };
    let (shard, mut members) = (healing.shard, healing.engine.server_metrics());
    // The others are tried before it is tried again.
    let mut failed = None;
    let mut since = BTreeMap::new();
    let mut told = BTreeSet::new();
    let (mut rest, mut was_gone) = (REST_AFTER_FAILURE.0, None);
    loop {
        let others: Vec<u64> = {
            let now = members.borrow_and_update();
            let nodes = now.membership_config.membership().nodes().map(|(id, _)| *id);
            // What is damaged may say who votes: whoever leads by that has it.
            let all: BTreeSet<u64> = nodes.chain(now.current_leader).collect();
            all.into_iter().filter(|id| *id != healing.node).collect()
        };
        let Some(storage) = healing.storage.upgrade() else { return };
        storage.wounds.set_tended(!others.is_empty());
        drop(storage);
        let noted = {
            let found = found.borrow_and_update();
            if found.has_ended {
                return;
            }
            healing.behind.is_damaged_still(&found.open);
            since.retain(|noted, _| found.open.contains(noted));
            told.retain(|noted| found.open.contains(noted));
            let next = failed.and_then(|failed| found.open.range(failed + 1..).next());
            next.or_else(|| found.open.first()).copied()
        };
        let Some(noted) = noted.filter(|_| !others.is_empty()) else {
            // Once nobody is left who could note anything the group has ended.
            let has_ended = tokio::select! {
                changed = found.changed() => changed.is_err(),
                changed = members.changed() => changed.is_err(),
            };
            if has_ended {
                return;
            }
            continue;
        };
        healing.may_campaign(false);
        let is_late = since.get(&noted).is_some_and(|at: &Instant| at.elapsed() >= GOES_WITHIN);
        match healing.tend(noted, &others, is_late).await {
            Ok(tended) => {
                (failed, rest) = (None, REST_AFTER_FAILURE.0);
                match tended {
                    Tended::Healed(records) => {
                        tracing::info!(
                            shard,
                            noted,
                            records,
                            "damaged records of the log are healed"
                        );
                    }
                    Tended::Gone => {
                        tracing::info!(shard, noted, "a damaged record is not in the log any more");
                        // Whoever reads it goes on asking.
                        if was_gone.replace(noted) == Some(noted) {
                            sleep(REST_AFTER_FAILURE.1).await;
                        }
                    }
                    Tended::Already => {}
                }
            }
            Err(why) => {
                failed = Some(noted);
                let begun = *since.entry(noted).or_insert_with(Instant::now);
                // At a start the others are not there yet.
                if begun.elapsed() >= TOLD_AFTER && told.insert(noted) {
                    tracing::warn!(shard, noted, %why, "a damaged record of the log is not healed, and asked for still");
                } else {
                    tracing::debug!(shard, noted, %why, "a damaged record of the log is not healed");
                }
                sleep(rest).await;
                rest = REST_AFTER_FAILURE.1.min(2 * rest);
            }
        }
        let Some(storage) = healing.storage.upgrade() else { return };
        let open = storage.wounds.watch().borrow().open.clone();
        since.retain(|noted, _| open.contains(noted));
        let lasts = |at: &Instant| at.elapsed() >= GOES_WITHIN;
        let first = open.first().and_then(|first| since.get(first));
        storage.wounds.set_lasting(since.values().any(lasts), first.is_some_and(lasts));
        if storage.is_whole() {
            healing.may_campaign(true);
        }
    }
}

impl<S: Apply> Healing<S> {
    /// Says whether it campaigns, where that depends on its log only.
    fn may_campaign(&self, campaigns: bool) {
        let Some(storage) = self.storage.upgrade() else { return };
        let may = campaigns && !storage.disk.has_failed() && !self.standing.is_dirty();
        let has_enough = self.standing.may_lead(storage.tail().last());
        self.engine.runtime_config().elect(may && has_enough);
        if may && !has_enough {
            // What was damaged was cut off, and more with it: it is given that now.
            let (engine, storage) = (self.engine.clone(), Weak::clone(&self.storage));
            tokio::spawn(wait_to_campaign(engine, storage, Arc::clone(&self.standing)));
        }
    }

    /// Heals the segment that has this entry; where it cannot be, and that `is_late`, the replica is to be seeded.
    async fn tend(&self, noted: u64, others: &[u64], is_late: bool) -> Result<Tended> {
        let find = move |storage: &Storage| Ok(storage.log.find_damage(to_log(noted))?);
        let found = self.block(find).await;
        if self.lets_go(noted, &found).await? {
            self.storage()?.wounds.close_gone(noted);
            return Ok(Tended::Gone);
        }
        // What was let go of, and is in the segment still, nobody has, nor is it needed.
        let purged = self.storage()?.identity.known().purged.map_or(0, |last| to_log(last.index));
        let is_kept = |found: &RangeInclusive<u64>| *found.end() > purged;
        let found = found.map(|damaged| damaged.into_iter().filter(is_kept).collect::<Vec<_>>());
        let damaged = match found {
            Ok(damaged) if damaged.is_empty() && to_log(noted) <= purged => {
                self.storage()?.wounds.close_gone(noted);
                return Ok(Tended::Gone);
            }
            Ok(damaged) if damaged.is_empty() && self.storage()?.look_up(noted).is_ok() => {
                self.storage()?.wounds.close(noted, 0);
                return Ok(Tended::Already);
            }
            Ok(damaged) => damaged,
            // Retention has taken it, or it was cut off.
            Err(Error::Log(LogError::OutOfRange { .. })) => {
                self.storage()?.wounds.close_gone(noted);
                return Ok(Tended::Gone);
            }
            Err(why) => {
                if is_late && is_damage(&why) {
                    self.is_lost_by_entry(noted, others);
                }
                return Err(why);
            }
        };
        let mended = self.mend(noted, &damaged, others, is_late).await;
        // Of what is cut off nobody has anything.
        let last = self.storage()?.tail().last().map_or(0, |last| to_log(last.index));
        match mended {
            Ok(()) => {
                let is_there = |records: &RangeInclusive<u64>| {
                    (records.end().min(&last) + 1).saturating_sub(*records.start())
                };
                let healed = damaged.iter().map(is_there).sum();
                self.storage()?.wounds.close(noted, healed);
                Ok(Tended::Healed(healed))
            }
            Err(why) => {
                // What stays cannot be written without it.
                let goes_on = damaged.iter().any(|records| *records.end() > last);
                if is_late && goes_on && is_damage(&why) {
                    self.is_lost_by_entry(noted, others);
                }
                Err(why)
            }
        }
    }

    /// Has what is damaged of a segment given, and writes it.
    async fn mend(
        &self,
        noted: u64,
        damaged: &[RangeInclusive<u64>],
        others: &[u64],
        is_late: bool,
    ) -> Result<()> {
        for records in damaged {
            self.fetch(noted, records, others, is_late).await?;
        }
        self.block(move |storage| {
            let record = |index| {
                let entry = storage.wounds.given(from_log(index)?)?;
                let mut record = Vec::new();
                record::encode(&entry, &mut record);
                Some(record)
            };
            Ok(storage.log.heal(to_log(noted), record)?)
        })
        .await
        .map(drop)
    }

    /// Lets go of what is damaged there, with all before it, if a snapshot covers it: nobody needs it here, and nobody can be
    /// given it. Whether that is so, or was before.
    async fn lets_go(&self, noted: u64, found: &Result<Vec<RangeInclusive<u64>>>) -> Result<bool> {
        let records = match found {
            Ok(all) => all.iter().find(|records| records.contains(&to_log(noted))),
            // Where a segment begins or ends.
            Err(Error::Log(LogError::Corrupt(damage))) => Some(&damage.records),
            Err(_) => None,
        };
        let last = records.and_then(|records| from_log(*records.end()));
        let Some(last) = last else { return Ok(false) };
        // The segment may be there still.
        if self.storage()?.identity.known().purged.is_some_and(|purged| purged.index >= last) {
            return Ok(true);
        }
        if self.gone.covered() < Some(last) {
            return Ok(false);
        }
        let Some(last) = known(&self.engine, self.storage()?, last).await? else {
            return Ok(false);
        };
        let gone = Arc::clone(&self.gone);
        self.block(move |storage| gone.purge_unread(storage, last)).await?;
        Ok(true)
    }

    /// Takes records that are damaged from memory, if all are there; else asks for them until it has all: an answer has as
    /// many as a frame has room for.
    async fn fetch(
        &self,
        noted: u64,
        records: &RangeInclusive<u64>,
        others: &[u64],
        is_late: bool,
    ) -> Result<()> {
        let not_an_index = || Error::Stopped { why: "a log counts from 1".to_owned() };
        let mut first = from_log(*records.start()).ok_or_else(not_an_index)?;
        let cuts = self.storage()?.wounds.cuts();
        // The log's index is the engine's next.
        let behind = *records.end();
        if let Some(entries) = self.storage()?.in_memory(first..behind)
            && self.storage()?.wounds.give(entries, cuts)
        {
            return Ok(());
        }
        let last = self.storage()?.tail().last();
        // Where the log is to be cut off the engine waits for what is fetched here.
        let proof = match last.filter(|last| last.index < behind) {
            None => known(&self.engine, self.storage()?, behind - 1).await?.or(last),
            last => last,
        };
        let Some(proof) = proof else {
            return Err(Error::NotHealed { why: "its log has no entry".to_owned() });
        };
        let end = behind.min(proof.index + 1);
        while first < end {
            let given = self.fetch_some(first..end, proof, others).await?;
            let entries = match given {
                Given::Entries(entries) => entries,
                Given::Nobody { gone, why } => {
                    if let Some((node, through)) = gone.filter(|_| is_late) {
                        self.is_lost(noted, Some(node), through);
                    }
                    return Err(Error::NotHealed { why });
                }
            };
            first += entries.len() as u64;
            if let Some(holes) = self.storage()?.holes.get() {
                holes.see(&entries);
            }
            if !self.storage()?.wounds.give(entries, cuts) {
                return Err(Error::NotHealed {
                    why: "some of the log was cut off meanwhile".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Asks one node after the other for the first of these.
    async fn fetch_some(&self, wanted: Range<u64>, proof: LogId, others: &[u64]) -> Result<Given> {
        let first = wanted.start;
        let request = Request::Give(AskEntries { first, end: wanted.end, proof });
        let leader = self.engine.metrics().borrow_watched().current_leader;
        let (mut gone, mut is_given_by_leader, mut is_one_away) = (None, false, false);
        for &node in others {
            match self.network.ask(node, &request).await {
                Ok(Answer::Given(entries)) if are_of(&entries, &wanted, proof) => {
                    return Ok(Given::Entries(entries));
                }
                Ok(Answer::LetGo(through)) if through >= first && leader == Some(node) => {
                    (gone, is_given_by_leader) = (Some((node, through)), true);
                }
                Ok(Answer::LetGo(through)) if through >= first && !is_given_by_leader => {
                    gone = Some((node, through));
                }
                Ok(_) => {}
                Err(why) => {
                    is_one_away = true;
                    tracing::debug!(node, %why, "it gives no entries");
                }
            }
        }
        // Who is away may have it; but a leader can give all that it lets go of, in another form.
        let gone = gone.filter(|_| is_given_by_leader || !is_one_away);
        let why = match gone {
            Some((node, _)) => {
                format!("node {node} has let go of entry {first}, and no other gives it")
            }
            None => format!("nobody who answers gives entry {first}"),
        };
        Ok(Given::Nobody { gone, why })
    }

    /// What is damaged cannot be healed by entry: whoever opened this replica is told that it must be seeded. When it may be is
    /// another matter (`Group::needed`).
    fn is_lost(&self, noted: u64, from: Option<u64>, through: u64) {
        if let Some(leader) = from {
            self.behind.learn_of_damage(noted, Lack { leader, through });
        }
    }

    /// The same, where any other may be asked: the leader, if one is known.
    fn is_lost_by_entry(&self, noted: u64, others: &[u64]) {
        let leader = self.engine.metrics().borrow_watched().current_leader;
        self.is_lost(noted, leader.or(others.first().copied()), noted);
    }

    fn storage(&self) -> Result<Arc<Storage>> {
        let ended = || Error::Stopped { why: "it was closed".to_owned() };
        self.storage.upgrade().ok_or_else(ended)
    }

    /// Does what waits for the disk, and sees whether that has failed.
    async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Storage) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let work = |storage: &Storage| work(storage).inspect_err(|why| storage.disk.see(why));
        let storage = self.storage()?;
        if storage.is_inline {
            return work(&storage);
        }
        let done = tokio::task::spawn_blocking(move || work(&storage)).await;
        done.unwrap_or_else(|why| Err(Error::Stopped { why: why.to_string() }))
    }
}

/// Whether this says that a segment is damaged, and not that something could not be done just now.
fn is_damage(why: &Error) -> bool {
    matches!(why, Error::Log(LogError::Corrupt(_)))
}

/// The id of an entry that the log has, read or not: the engine has those of all, if it answers.
async fn known<S: Apply>(
    engine: &Engine<S>,
    storage: Arc<Storage>,
    index: u64,
) -> Result<Option<LogId>> {
    let known = move |state: &RaftState<Types>| {
        // An engine that has entries cut off knows before what comes in their places.
        let last = storage.tail().last()?;
        let is_of_this_log = state.log_ids.get(last.index) == Some(last);
        state.log_ids.get(index).filter(|_| is_of_this_log)
    };
    let Ok(known) = timeout(KNOWN_WITHIN, engine.with_raft_state(known)).await else {
        return Ok(None);
    };
    known.map_err(|why| Error::Stopped { why: why.to_string() })
}

/// Whether these are entries that were asked for, from the first on, in an order in which a log has them.
fn are_of(entries: &[Entry], wanted: &Range<u64>, proof: LogId) -> bool {
    let follow = (wanted.start..).zip(entries).all(|(index, entry)| entry.log_id.index == index);
    let rise = entries.is_sorted_by_key(|entry| entry.log_id.leader_id.term);
    let end = wanted.start + entries.len() as u64;
    let last = entries.last().map(|last| last.log_id);
    let fits =
        last.is_some_and(|last| last <= proof && (last.index < proof.index || last == proof));
    follow && rise && fits && end <= wanted.end
}

/// What another replica asks for, if this one's log is as that one's.
pub(crate) async fn give<S: Apply>(
    engine: &Engine<S>,
    storage: &Arc<Storage>,
    asked: &AskEntries,
) -> Result<Answer> {
    let AskEntries { first, end, proof } = *asked;
    if let Some(purged) = storage.identity.known().purged.filter(|purged| purged.index >= first) {
        // Who asks may have to be seeded with what this one has.
        return Ok(match storage.is_whole() {
            true => Answer::LetGo(purged.index),
            false => Answer::Given(Vec::new()),
        });
    }
    let cuts = storage.wounds.cuts();
    let is_same = known(engine, Arc::clone(storage), proof.index).await? == Some(proof);
    // What is damaged here too is noted, and not given.
    let entries = if is_same { storage.read(first..end, BYTES_MAX) } else { Ok(Vec::new()) };
    let is_so_still = storage.wounds.cuts() == cuts;
    Ok(Answer::Given(entries.ok().filter(|_| is_so_still).unwrap_or_default()))
}

#[cfg(test)]
#[path = "heal_tests.rs"]
mod tests;
