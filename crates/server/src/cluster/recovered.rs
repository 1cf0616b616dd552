//! [`Recovered`]: the log of a group as it was found, before the engine adds to it.

use std::sync::Arc;

use openraft::{Config, EntryPayload};
use plimsoll_log::{Ack, Dumped, Kind, Log, Recovery, SegmentState, View};
use plimsoll_sync::Dir;

use super::apply::Apply;
use super::behind::Behind;
use super::core::{Core, Setting};
use super::durability::Durability;
use super::error::{Error, Result};
use super::generation::Generation;
use super::gone::Gone;
use super::group::Group;
use super::handing::Handing;
use super::heard::Heard;
use super::holes::Holes;
use super::level::Named;
use super::network::Network;
use super::newcomer::Newcomer;
use super::options::{Begin, Options};
use super::place::Place;
use super::record::{self, from_log, to_log};
use super::settings::settings;
use super::standing::Standing;
use super::state::{Engine, Progress, State};
use super::storage::Storage;
use super::terms;
use super::types::{Entry, LogId};
use super::watch;

/// Cuts the log in a directory off before this entry, the first that its disk has lost, as the engine counts. Durable on return.
///
/// # Errors
/// [`Error::Log`]; [`Error::Gap`] if it ends before that.
pub fn cut_from(dir: &Arc<dyn Dir>, options: Options, damaged: u64) -> Result<()> {
    let Options { log, crew, .. } = options;
    let accepting = plimsoll_log::Options { accept_loss: true, ..log };
    let (log, _) = match crew {
        Some(crew) => crew.open_in(Arc::clone(dir), accepting)?,
        None => Log::open_in(Arc::clone(dir), accepting)?,
    };
    // The log's index is the engine's next: the last that stays.
    let last_index = log.last_index();
    if last_index > damaged {
        log.truncate_after(damaged)?;
    }
    log.close()?;
    // Who votes was asked of what stays up to there.
    if last_index < damaged {
        let first_index = 0;
        return Err(Error::Gap { first_index, next_index: last_index, wanted: damaged });
    }
    Ok(())
}

/// Whether others vote beside this node both by what is left of its log where it is cut off before this entry, or by its snapshot,
/// and by all of the log that can be read. By the first alone one would go on without whoever came behind the damage; and
/// by the second nobody may be left who has what is cut off. What cannot be read is passed over.
pub(crate) fn others_vote(
    dir: &Arc<dyn Dir>,
    start: Option<&Place>,
    node: u64,
    lost: u64,
) -> Result<bool> {
    let mut left = None;
    let newest = see_voters(dir, node, |index, has_others| {
        left = left.max((index < lost).then_some((index, has_others)));
    })?;
    let by_snapshot = start.is_some_and(|start| start.has_others(node));
    let left = left.map_or(by_snapshot, |(_, has_others)| has_others);
    Ok(left && newest.map_or(by_snapshot, |(_, has_others)| has_others))
}

/// Whether others vote beside this node by the newest that can be read of its log or its snapshot.
pub(crate) fn others_vote_now(
    dir: &Arc<dyn Dir>,
    start: Option<&Place>,
    node: u64,
) -> Result<bool> {
    let by_snapshot = start.map(|start| start.others_since(node));
    let newest = others_voted_last(dir, node)?.max(by_snapshot);
    Ok(newest.is_some_and(|(_, others)| others))
}

/// The newest entry that can be read of a log and says who votes, if there is one: its index, and whether others do beside this node.
pub(crate) fn others_voted_last(dir: &Arc<dyn Dir>, node: u64) -> Result<Option<(u64, bool)>> {
    see_voters(dir, node, |_, _| {})
}

/// Shows of each entry that says who votes, in a log and beside it, its index, and whether that are others beside this node; returns
/// those of the newest.
fn see_voters(
    dir: &Arc<dyn Dir>,
    node: u64,
    mut see: impl FnMut(u64, bool),
) -> Result<Option<(u64, bool)>> {
    let view = View::of(Arc::clone(dir))?;
    let mut beside = terms::members_beside(&**dir);
    let mut newest = None;
    let mut look = |entry: &Entry| {
        let EntryPayload::Membership(members) = &entry.payload else { return };
        let has_others = members.voter_ids().any(|voter| voter != node);
        newest = newest.max(Some((entry.log_id.index, has_others)));
        see(entry.log_id.index, has_others);
    };
    for segment in view.outline()? {
        if segment.state == SegmentState::Stale {
            continue;
        }
        let seen = view.dump(&segment, |dumped| {
            let Dumped::Frame { frame, payload, .. } = dumped else { return Ok(()) };
            let index = from_log(frame.index).filter(|_| frame.kind == Kind::Record);
            let Some(index) = index else { return Ok(()) };
            if let Ok(entry) = record::decode(index, payload) {
                look(&entry);
                beside.iter_mut().for_each(|kept| kept.hold_against(entry.log_id));
            }
            Ok::<_, Error>(())
        });
        if let Err(why) = seen {
            tracing::warn!(segment = segment.segment, %why, "a segment of a damaged log cannot be read");
        }
    }
    beside.iter().filter_map(terms::Beside::is_in_log).for_each(&mut look);
    Ok(newest)
}

/// A group that is open and has not begun. What its log has says what the run before left; the first entry of
/// a leadership hides where that ended.
#[derive(Debug)]
pub struct Recovered {
    node: u64,
    start: Option<Place>,
    pub(super) storage: Storage,
    recovery: Recovery,
}

impl Recovered {
    /// Opens what is in the directory.
    ///
    /// # Errors
    /// As [`Group::open`], but for [`Error::MembersLost`].
    pub fn open(dir: &Arc<dyn Dir>, options: Options) -> Result<Self> {
        let (node, start) = (options.node, options.start.clone());
        let (storage, recovery) = Storage::open(dir, options)?;
        // What is to be applied is there.
        storage.check_has(start.as_ref().map_or(0, |start| start.index().saturating_add(1)))?;
        Ok(Self { node, start, storage, recovery })
    }

    /// What was found.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Takes the log as it is, with what its disk has lost of it: that is asked of the others once the engine runs. What the engine
    /// reads at its start is read here before. Why it cannot read what it has lost, if it has lost anything.
    ///
    /// # Errors
    /// The first damage, where nobody is to be asked for it, or the engine cannot go on without it; [`Error::Log`].
    pub fn bear_damage(&self, others_vote: impl Fn() -> Result<bool>) -> Result<Option<Error>> {
        let storage = &self.storage;
        let purged = storage.identity.known().purged;
        let first = purged.map_or(0, |purged| purged.index + 1);
        let next = self.start.as_ref().map_or(0, |start| start.index().saturating_add(1));
        let (from, term) = match self.term_of_all(first) {
            // The engine reads no other between these.
            Some(term) if self.recovery.damaged.is_none() => (first.max(next), Some(term)),
            Some(term) => (first, Some(term)),
            None => (first, purged.map(|purged| purged.leader_id.term)),
        };
        if from >= next && self.start.as_ref().is_some_and(|start| !start.has_others(self.node)) {
            // Nobody is to be asked, and the engine says what is damaged.
            return Ok(None);
        }
        let mut before = term;
        let Some((_, why)) = storage.first_damaged(from, &mut before)? else { return Ok(None) };
        if !others_vote()? {
            return Err(why);
        }
        let mut pieces = Vec::new();
        let holes = self.holes(from, term, next, &mut pieces)?;
        pieces.into_iter().for_each(|first| storage.wounds.note(first));
        storage.holes.set(holes).expect("it is borne once");
        Ok(Some(why))
    }

    /// What is damaged from an entry on, which comes behind one of this term; who votes is read from `read_from` on. Adds the first
    /// entry of each piece of it, of which a segment has all.
    fn holes(
        &self,
        from: u64,
        term: Option<u64>,
        read_from: u64,
        pieces: &mut Vec<u64>,
    ) -> Result<Holes> {
        let storage = &self.storage;
        let (mut holes, mut next, mut before) = (Holes::none(read_from), from, term);
        while let Some((first, why)) = storage.first_damaged(next, &mut before)? {
            // What is damaged right behind it is another piece.
            let mut end = first;
            let behind = loop {
                pieces.push(end);
                let Some(ends) = storage.end_of_damage(end)? else { return Err(why) };
                end = ends;
                match storage.look_up(end) {
                    Ok(Some(behind)) => break behind,
                    Err(why) if why.damaged_from().is_some() => {}
                    _ => return Err(why),
                }
            };
            if !holes.add(first..end, before, &behind, &storage.terms) {
                return Err(why);
            }
            next = end;
        }
        Ok(holes)
    }

    /// Lets go of what is damaged before the snapshot, and all before it, as far as that is covered, up to this entry: nobody needs
    /// it, so nobody is asked for it. The last of it, if there was any. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::Log`]; [`Error::Disk`].
    pub(crate) fn let_go_of_damage(&self, covered: Option<u64>) -> Result<Option<u64>> {
        let storage = &self.storage;
        let Some((applied, covered)) = self.start.as_ref().map(|start| start.applied).zip(covered)
        else {
            return Ok(None);
        };
        let first = storage.identity.known().purged.map_or(0, |purged| purged.index + 1);
        if first > applied.index || self.term_of_all(first).is_some() {
            return Ok(None);
        }
        let Some(behind) = storage.behind_damage(first..covered + 1)? else { return Ok(None) };
        // The snapshot says what its last is, though that cannot be read.
        let snapshots = Some(applied).filter(|applied| covered == applied.index);
        let through = behind.or(snapshots);
        if let Some(through) = through {
            storage.purge(through)?;
        }
        Ok(through.map(|through| through.index))
    }

    /// The term of all entries from this one on, if it can be read and is of the term of the last.
    fn term_of_all(&self, first: u64) -> Option<u64> {
        let term = |id: LogId| id.leader_id.term;
        let found = self.storage.look_up(first).ok().flatten().map(|entry| term(entry.log_id));
        found.filter(|found| self.storage.tail().last().map(term) == Some(*found))
    }

    /// Waits until all that was found is durable, and asks for that.
    ///
    /// # Errors
    /// [`Error::Log`].
    pub async fn wait_durable(&self) -> Result<()> {
        let log = &self.storage.log;
        if log.last_index() > log.durable() {
            log.wait(log.last_index(), Ack::Durable)?.await?;
        }
        Ok(())
    }

    /// How many entries it has lost, and goes on without for a while.
    pub(crate) fn missed(&self) -> u64 {
        self.storage.holes.get().map_or(0, Holes::count)
    }

    /// Of what it goes on without, the entry before the first of it, if that is no older than the snapshot; and the last of the log: terms and
    /// indexes, as the log counts.
    #[must_use]
    pub fn whole_and_last(&self) -> Option<((u64, u64), (u64, u64))> {
        let applied = self.start.as_ref().map(Place::index);
        let (whole, last) = self.storage.whole(applied).zip(self.storage.tail().last())?;
        Some((whole, (last.leader_id.term, to_log(last.index))))
    }

    /// As [`Group::lacks_room`].
    #[must_use]
    pub fn lacks_room(&self) -> Option<Error> {
        self.storage.lacks_room()
    }

    /// Which generation it is of.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.storage.identity.known().generation
    }

    /// Has it be of this generation, if that is newer than its own. Durable on return.
    ///
    /// # Errors
    /// [`Error::Disk`].
    pub fn rise(&self, generation: u64) -> Result<()> {
        if self.generation() >= generation {
            return Ok(());
        }
        self.storage.identity.save(|identity| identity.generation = generation)
    }

    /// Begins alone, with a state to apply entries to.
    ///
    /// # Errors
    /// As [`Recovered::start_as`].
    pub fn start<S: Apply>(self, state: S) -> Result<Group<S>> {
        self.start_as(Begin::alone(), state)
    }

    /// Begins, with a state to apply entries to.
    ///
    /// # Errors
    /// [`Error::MembersLost`], [`Error::Stopped`], [`Error::Thread`].
    pub fn start_as<S: Apply>(self, begin: Begin, state: S) -> Result<Group<S>> {
        let (setting, rest) = self.set(settings(), begin, state);
        let (core, engine) = Core::start(setting)?;
        Ok(rest.group(core, engine))
    }

    /// As [`Recovered::start_as`], on the runtime that this is called on, whose tasks all share one thread.
    ///
    /// # Errors
    /// As there.
    pub async fn start_here<S: Apply>(self, begin: Begin, state: S) -> Result<Group<S>> {
        self.start_told(settings(), begin, state).await
    }

    /// The same, with the engine told this: what comes of its defaults is in `defaults_tests`.
    pub(crate) async fn start_told<S: Apply>(
        self,
        settings: Config,
        begin: Begin,
        state: S,
    ) -> Result<Group<S>> {
        let (setting, rest) = self.set(settings, begin, state);
        let (core, engine) = Core::start_here(setting).await?;
        Ok(rest.group(core, engine))
    }

    fn set<S: Apply>(self, settings: Config, begin: Begin, state: S) -> (Setting<S>, Rest) {
        let Self { node, start, storage, .. } = self;
        let Begin { number, carrier, founds, is_dirty, may_be_lost, is_anew, basis, testimony } =
            begin;
        if let Some(testimony) = testimony {
            storage.testimony.set(testimony).expect("it is set once");
        }
        let newcomer = Arc::new(Newcomer::new(may_be_lost && storage.has_nothing()));
        let generation = Arc::new(Generation::new(storage.identity.known().generation));
        let storage = Arc::new(storage);
        let (sender, progress) = watch::channel(Progress::default());
        let gone = Arc::new(Gone::new(storage.identity.known().purged));
        let state = State::new(state, start, Arc::clone(&gone), sender);
        let (standing, durability) = (Arc::new(Standing::new(is_dirty, basis)), Arc::default());
        let storage_then = Arc::downgrade(&storage);
        let (incarnations, behind) = (Arc::default(), Arc::new(Behind::new(is_anew)));
        let network = Network { carrier, incarnations, generation, storage: storage_then };
        let heard = Arc::<Heard>::default();
        let rest = Rest {
            node,
            storage: Arc::clone(&storage),
            progress,
            standing: Arc::clone(&standing),
            durability: Arc::clone(&durability),
            network: network.clone(),
            gone: Arc::clone(&gone),
            newcomer,
            heard: Arc::clone(&heard),
            named: Arc::default(),
            behind: Arc::clone(&behind),
        };
        let setting = Setting {
            settings,
            number,
            node,
            storage,
            state,
            network,
            founds,
            standing,
            durability,
            gone,
            behind,
            heard,
        };
        (setting, rest)
    }
}

/// A group but for its engine.
struct Rest {
    node: u64,
    storage: Arc<Storage>,
    progress: watch::Receiver<Progress>,
    standing: Arc<Standing>,
    durability: Arc<Durability>,
    network: Network,
    gone: Arc<Gone>,
    newcomer: Arc<Newcomer>,
    heard: Arc<Heard>,
    named: Arc<Named>,
    behind: Arc<Behind>,
}

impl Rest {
    fn group<S: Apply>(self, core: Core, engine: Engine<S>) -> Group<S> {
        let Self { node, storage, progress, standing, durability, network, gone, .. } = self;
        let (newcomer, heard, named, behind) = (self.newcomer, self.heard, self.named, self.behind);
        Group {
            node,
            engine,
            storage,
            progress,
            standing,
            durability,
            network,
            handing: Handing::default(),
            gone,
            behind,
            newcomer,
            heard,
            named,
            core,
        }
    }
}

impl<S: Apply> Group<S> {
    /// Opens the group in a directory, or founds one there with this node as its only voter. What
    /// the log's files had is durable on return; it is applied once this replica leads again, in a new
    /// term, or follows.
    ///
    /// # Errors
    /// [`Error::IdentityLost`], [`Error::OtherNode`], [`Error::Version`], [`Error::Gap`],
    /// [`Error::NotAnEntry`], [`Error::MembersLost`]: it cannot be used as it is; at most a torn tail of the log was cut
    /// off. [`Error::Log`] as of opening a log.
    pub fn open(dir: &Arc<dyn Dir>, options: Options, state: S) -> Result<(Self, Recovery)> {
        let recovered = Recovered::open(dir, options)?;
        let recovery = recovered.recovery().clone();
        Ok((recovered.start(state)?, recovery))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bytes::Bytes;
    use openraft::BasicNode;
    use openraft::entry::RaftEntry;
    use plimsoll_simdisk::SimDir;

    use super::*;
    use crate::cluster::types::{Entry, Members, Payload, log_id};

    fn members(index: u64, voters: &[u64]) -> Entry {
        let nodes: BTreeMap<u64, BasicNode> =
            voters.iter().map(|voter| (*voter, BasicNode::new(""))).collect();
        let voters: BTreeSet<u64> = voters.iter().copied().collect();
        let members = Members::new(vec![voters], nodes).unwrap();
        Entry::new(log_id(1, index), EntryPayload::Membership(members))
    }

    fn normal(index: u64) -> Entry {
        let payload = Payload(Bytes::from_static(b"something"));
        Entry::new(log_id(1, index), EntryPayload::Normal(payload))
    }

    /// A founder whose log was damaged before the others came was cut back to when it voted alone, and led by itself.
    #[test]
    fn who_votes_is_asked_of_what_stays_of_a_log_and_of_all_that_can_be_read() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let options = plimsoll_log::Options { threads: false, ..plimsoll_log::Options::default() };
        let (log, _) = Log::open_in(Arc::clone(&dir), options).unwrap();
        let entries =
            [members(0, &[1]), normal(1), members(2, &[1, 2, 3]), normal(3), members(4, &[1])];
        let mut record = Vec::new();
        for entry in entries {
            if entry.log_id.index == 4 {
                let by_lost = [0, 1, 2, 3, 4].map(|lost| others_vote(&dir, None, 1, lost).unwrap());
                assert_eq!(by_lost, [false, false, false, true, true]);
            }
            record::encode(&entry, &mut record);
            log.append_with(&record, Ack::Durable).unwrap();
        }
        // Nobody else has by now what is behind that.
        assert!(!others_vote(&dir, None, 1, 4).unwrap());
    }
}
