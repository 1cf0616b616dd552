//! [`Taken`]: what is taken of one shard, in the order that fits together (drawn in `mod.rs`).

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_sync::Dir;

use super::error::Error;
use super::head::OfShard;
use super::{Progress, ShardReport, Tell};
use crate::broker::{Failed, Snapshot, layout};
use crate::chapter::{self, Manifest, Mirror, Survey, Wanted};
use crate::cluster::{self, Identity, LogCopy};
use crate::shard::State;

/// How often runs that went while they were read are looked for anew.
const LOOKS_MAX: u32 = 100;

/// A shard in the directory of a broker.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) number: u32,
    root: Arc<dyn Dir>,
    pub(crate) log: Arc<dyn Dir>,
    /// Of a shard of records.
    chapters: Option<Arc<dyn Dir>>,
    /// Chapters that are nearer: what of them is the same is read there.
    nearer: Option<Arc<dyn Dir>>,
}

/// A shard that is being taken.
pub(crate) struct Taken {
    source: Source,
    /// The directory of the generation.
    rest: Arc<dyn Dir>,
    identity: Identity,
    pub(crate) log: LogCopy,
    state: Option<Snapshot>,
    wanted: Option<Wanted>,
}

impl Source {
    /// A shard of a broker's directory; `has_chapters` if it is one of records.
    pub(crate) fn open(
        root: &Arc<dyn Dir>,
        number: u32,
        has_chapters: bool,
    ) -> Result<Self, Error> {
        let open = |name: String| match root.open_dir(&name) {
            Err(why) if why.kind() == Some(ErrorKind::NotFound) => {
                Err(Error::NotABroker { lacks: format!("directory '{name}'") })
            }
            opened => Ok(opened?),
        };
        let log = open(layout::shard(number))?;
        let chapters = has_chapters.then(|| open(layout::chapters(number))).transpose()?;
        Ok(Self { number, root: Arc::clone(root), log, chapters, nearer: None })
    }

    /// Reads what it can of these chapters instead.
    pub(crate) fn nearer(self, chapters: Arc<dyn Dir>) -> Self {
        Self { nearer: Some(chapters), ..self }
    }

    /// Its newest snapshot, if there is one.
    fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        Ok(Snapshot::look(&*self.root, self.number)?)
    }

    /// What lives of its chapters by now, of what this snapshot does not call deleted.
    fn wanted(&self, snapshot: Option<&Snapshot>) -> Result<Option<Wanted>, Error> {
        let Some(chapters) = &self.chapters else { return Ok(None) };
        let state = snapshot.map(|snapshot| State::decode(&snapshot.state)).transpose();
        let state = state.map_err(|_malformed| Failed::Damaged(layout::state(self.number)))?;
        let wanted = Survey::of(&**chapters, self.number)
            .and_then(|survey| Wanted::of(survey, state.as_ref()));
        let mut wanted = wanted.map_err(Error::of_chapters(self.number))?;
        if let Some(nearer) = &self.nearer {
            let named = Survey::of(&**nearer, self.number).ok();
            // A manifest that names too little may be damaged, or not there.
            let all = named.filter(|survey| survey.strays.is_empty());
            let all = all.map_or_else(|| Survey::of_files(&**nearer), Ok);
            // One that cannot be read is of no use.
            all.into_iter().for_each(|of| wanted.prefer(of));
        }
        Ok(Some(wanted))
    }

    /// Copies the runs that lack, of what this snapshot does not call deleted; returns what there was when none did.
    pub(crate) fn fill(
        &self,
        mirror: &mut Mirror,
        rest: &dyn Dir,
        snapshot: Option<&Snapshot>,
        tell: Tell<'_>,
    ) -> Result<Option<Wanted>, Error> {
        let manifests = rest.create_dir(&layout::chapters(self.number))?;
        let mut looks_left = LOOKS_MAX;
        loop {
            let Some(wanted) = self.wanted(snapshot)? else { return Ok(None) };
            let lacking = mirror.lacks(&wanted);
            if lacking > 0 && !tell(Progress::Lacking(lacking)) {
                return Err(Error::Stopped);
            }
            let filled = mirror.fill(
                &wanted,
                &mut |begun: &Manifest| begun.write(&*manifests, self.number),
                &mut |bytes| tell(Progress::Runs(bytes)),
            );
            match filled {
                Ok(()) => return Ok(Some(wanted)),
                // It may have been deleted, or written elsewhere, while it was read: then its bytes were given back.
                Err(chapter::Error::Run { file, opening, from, last }) => {
                    let again = self.wanted(snapshot)?;
                    let is_there = again.is_some_and(|again| again.has(&file, opening, from));
                    if is_there || looks_left == 0 {
                        let why = chapter::Error::Run { file, opening, from, last };
                        return Err(Error::of_chapters(self.number)(why));
                    }
                    looks_left -= 1;
                }
                Err(why) => return Err(Error::of_chapters(self.number)(why)),
            }
        }
    }
}

impl Taken {
    /// Takes identity and log, as far as that goes by now.
    pub(crate) fn begin(
        source: Source,
        rest: &Arc<dyn Dir>,
        tell: Tell<'_>,
    ) -> Result<Self, Error> {
        let of_shard = Error::of_shard(source.number);
        let identity = Identity::look(&*source.log).map_err(&of_shard)?;
        let lacks = || format!("file 'identity' in '{}'", layout::shard(source.number));
        let identity = identity.ok_or_else(|| Error::NotABroker { lacks: lacks() })?;
        let to = rest.create_dir(&layout::shard(source.number))?;
        let log = LogCopy::begin(Arc::clone(&source.log), to, identity.needs_from());
        let log = log.map_err(&of_shard)?;
        let (rest, state, wanted) = (Arc::clone(rest), None, None);
        let mut taken = Self { source, rest, identity, log, state, wanted };
        taken.catch_up(taken.end()?, tell)?;
        Ok(taken)
    }

    /// Takes snapshot and chapters, and what of the log these need.
    pub(crate) fn go_on(
        &mut self,
        mirror: Option<&mut Mirror>,
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        self.state = self.source.snapshot()?;
        let mut needed = 0;
        if let Some(mirror) = mirror {
            self.wanted = self.source.fill(mirror, &*self.rest, self.state.as_ref(), tell)?;
            needed = self.wanted.as_ref().map_or(0, |wanted| wanted.settled.end);
        }
        // What made a run go is at or below the newest snapshot. The engine counts from 0.
        let newest = self.source.snapshot()?;
        needed = needed.max(newest.map_or(0, |newest| newest.place.index() + 1));
        self.catch_up(needed, tell)?;
        if self.log.last() < needed {
            return Err(Error::TooFast { what: "its log is not where its chapters are" });
        }
        Ok(())
    }

    /// Where the log ends as it is copied: in which term, and with which record.
    pub(crate) fn ends(&self) -> (u64, u64) {
        let let_go = self.identity.purged.map_or(0, |purged| purged.leader_id.term);
        (self.log.term().max(let_go), self.log.last())
    }

    /// Where its log ends by now.
    pub(crate) fn end(&self) -> Result<u64, Error> {
        cluster::end_of(&self.source.log).map_err(Error::of_shard(self.source.number))
    }

    /// Copies what follows of its log, up to here.
    pub(crate) fn catch_up(&mut self, end: u64, tell: Tell<'_>) -> Result<(), Error> {
        self.catch_up_seeing(end, &mut |_payload| {}, tell)
    }

    /// And shows each entry that carries something.
    pub(crate) fn catch_up_seeing(
        &mut self,
        end: u64,
        see: &mut dyn FnMut(&[u8]),
        tell: Tell<'_>,
    ) -> Result<(), Error> {
        let mut is_told_to_stop = false;
        let copied = self.log.catch_up(end, |payload, bytes| {
            payload.into_iter().for_each(&mut *see);
            is_told_to_stop = !tell(Progress::Log(bytes));
            !is_told_to_stop
        });
        copied.map_err(Error::of_shard(self.source.number))?;
        if is_told_to_stop { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Makes it durable, with its manifest. It must still be the run of the broker that it was taken from.
    pub(crate) fn finish(
        self,
        mirror: Option<&Mirror>,
    ) -> Result<(OfShard, ShardReport, Option<Manifest>), Error> {
        let Self { source, rest, identity, log, state, wanted } = self;
        let number = source.number;
        let of_shard = Error::of_shard(number);
        let now = Identity::look(&*source.log).map_err(&of_shard)?;
        // Each start votes anew: entries of two may be in the log, and the vote of the first beside it.
        if now.is_none_or(|now| now.vote != identity.vote) {
            return Err(Error::TooFast { what: "it was started while it was copied" });
        }
        let log = log.finish().map_err(&of_shard)?;
        let to = rest.create_dir(&layout::shard(number))?;
        identity.write(&*to).map_err(&of_shard)?;
        if let Some(state) = &state {
            state.write(&*rest, number)?;
        }
        let mut manifest = None;
        if let Some((mirror, wanted)) = mirror.zip(wanted.as_ref()) {
            let chapters = rest.create_dir(&layout::chapters(number))?;
            let named = mirror.manifest(wanted);
            named.write(&*chapters, number).map_err(Error::of_chapters(number))?;
            manifest = Some(named);
        }
        let of_head = OfShard::of(&*rest, number, log)?;
        let report = ShardReport {
            number,
            last_index: log.last,
            log_entries: log.last + 1 - log.first,
            log_bytes: log.bytes,
            chapter: wanted.as_ref().map_or(0, |wanted| wanted.settled.chapter),
            runs: mirror.zip(wanted.as_ref()).map(|(m, w)| m.filled(w)).unwrap_or_default(),
        };
        Ok((of_head, report, manifest))
    }
}
