//! [`put_in_place`]: what this node was given of a shard, as the others had let go of what it lacked.
//!
//! ```text
//! DIR/shard-N/FILE.seed            its log, from where the giver still has it, and the giver's identity: each file under its name
//!                                  and `.seed`
//! DIR/seed-N/state-N               its snapshot; none where the log begins with its first entry
//! DIR/seed-N/chapters-N/manifest   which files are its chapters
//! DIR/chapters-N/FILE.seed         these
//! DIR/seed-N/putting               the log that the shard had is gone: what is not aside is of the one that it is given
//! DIR/seeded-N                     that all of it is there; or that it is in place, and the replica in doubt;
//!                                  or that nothing was given, and the replica in doubt all the same; or has nothing at all
//!
//!  0 magic     8   "PLIMSEED"
//!  8 version  u32  1
//! 12 shard    u32
//! 16 stage    u32  1 given: to be put in place   2 in doubt, as it was given   3 in doubt, as it may have forgotten
//!              4 it began anew, and is to be given all of it (`anew.rs`)
//! 20 zeros     4
//! 24 checksum u64  XXH3-64 of all before it
//! ```
//!
//! Little-endian. Nothing that the shard has is touched before `seeded-N` says that all it is given is durable. From then on
//! every start puts it in place anew until that is durable, and only then opens the shard: so a crash leaves the old
//! shard, or the new one. What the old one acknowledged may not be in the new one: so it is *in doubt* until it has
//! re-entered its group, and that is durable before it is opened. Its node and its vote stay: none is ever given twice.
//!
//! A replica that may have forgotten what it acknowledged is in doubt in the same way: what a start knows of its run is of all
//! shards together, and each of them ends its doubt by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::aside::{ASIDE, Given};
use super::error::{Failed, found};
use super::kept;
use super::known::forget_lost;
use super::layout;
use super::snapshot::Snapshot;
use crate::chapter::{MANIFEST, Manifest};
use crate::cluster::{self, Identity};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMSEED";
const VERSION: u32 = 1;
const BYTES: usize = 32;
/// Why the replica of a shard that was given is in doubt.
const GIVEN: &str =
    "what it lacked was given to it by another broker, and it has not caught up since";
/// Why it is in doubt where nothing was given, or too little.
const FORGOT: &str = "an earlier run may have lost records, and has not got them all back";
/// Says that the log that a shard had is gone, in the directory of what it is given.
const PUTTING: &str = "putting";

/// How far a shard is that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// All of it is there.
    Given = 1,
    /// It is in place, and its replica does not vote.
    InDoubt = 2,
    /// Its replica may have forgotten what it acknowledged, and does not vote.
    Forgot = 3,
    /// It has begun anew: its replica has nothing, takes nothing but a seed, and does not vote.
    Anew = 4,
}

impl Stage {
    /// That of a shard, if any of it was given and its replica has not re-entered since.
    pub(crate) fn read(dir: &dyn Dir, number: u32) -> Result<Option<Self>, Failed> {
        let name = layout::seeded(number);
        let Some(file) = whole::open(dir, &name).map_err(Failed::Directory)? else {
            return Ok(None);
        };
        let mut bytes = [0; BYTES + 1];
        let read = file.read_at(&mut bytes, 0).map_err(Failed::Directory)?;
        let all = [Self::Given, Self::InDoubt, Self::Forgot, Self::Anew];
        let found = all.into_iter().find(|stage| bytes[..read] == stage.encode(number));
        found.map(Some).ok_or(Failed::Damaged(name))
    }

    /// Makes it that of a shard. Durable on return.
    pub(crate) fn write(self, dir: &dyn Dir, number: u32) -> Result<(), Failed> {
        let bytes = self.encode(number);
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        let written = whole::create(dir, &layout::seeded(number), fill);
        written.map(drop).map_err(Failed::Directory)
    }

    fn encode(self, number: u32) -> [u8; BYTES] {
        let mut to = [0; BYTES];
        to[..8].copy_from_slice(&MAGIC);
        to[8..12].copy_from_slice(&VERSION.to_le_bytes());
        to[12..16].copy_from_slice(&number.to_le_bytes());
        to[16..20].copy_from_slice(&(self as u32).to_le_bytes());
        let checksum = XxHash3_64::oneshot(&to[..24]);
        to[24..].copy_from_slice(&checksum.to_le_bytes());
        to
    }
}

/// What of the shards is in place that was given.
#[derive(Debug, Default)]
pub(super) struct InPlace {
    /// Shards that are in doubt since this start or an earlier one, and why.
    pub(super) in_doubt: BTreeMap<u32, &'static str>,
    /// Those that were put there just now: where their logs end says nothing of the disk.
    pub(super) now: BTreeSet<u32>,
}

/// Puts in place what was given of any shard. Those that are in doubt on return, durably, and why; `forgets` is told before the log of
/// one is another: what memory has of it is to go. The node's lock is held.
pub(super) fn put_in_place(
    dir: &Arc<dyn Dir>,
    node: u64,
    forgets: impl Fn(u32) -> Result<(), Failed>,
) -> Result<InPlace, Failed> {
    let InPlace { mut in_doubt, mut now } = InPlace::default();
    for number in layout::SHARDS {
        let why = match Stage::read(&**dir, number)? {
            None | Some(Stage::Anew) => continue,
            // An older version has left the log elsewhere.
            Some(Stage::Given) if !is_given(&**dir, number)? => {
                Stage::Forgot.write(&**dir, number)?;
                FORGOT
            }
            Some(Stage::Given) => {
                forgets(number)?;
                put(dir, number, node)?;
                Stage::InDoubt.write(&**dir, number)?;
                now.insert(number);
                tracing::info!(shard = number, "what it was given is in place");
                GIVEN
            }
            Some(Stage::InDoubt) => GIVEN,
            Some(Stage::Forgot) => FORGOT,
        };
        clear(&**dir, number)?;
        in_doubt.insert(number, why);
    }
    Ok(InPlace { in_doubt, now })
}

/// Whether the log that a shard is given is there.
fn is_given(dir: &dyn Dir, number: u32) -> Result<bool, Failed> {
    let given = Given::create(dir, number).map_err(Failed::Directory)?;
    let aside = given.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    let identity = Identity::look(&*aside).map_err(|why| Failed::Shard { number, why })?;
    Ok(identity.is_some())
}

/// From here on it is not in doubt: it has re-entered its group. Durable on return.
pub(super) fn trust(dir: &dyn Dir, number: u32) -> Result<(), Failed> {
    dir.remove(&layout::seeded(number)).map_err(Failed::Directory)
}

/// Each step may have been done before.
fn put(dir: &Arc<dyn Dir>, number: u32, node: u64) -> Result<(), Failed> {
    let given = Given::create(&**dir, number).map_err(Failed::Directory)?;
    if let Some(of_chapters) = found(given.open_dir(&layout::chapters(number)))? {
        let chapters = dir.create_dir(&layout::chapters(number)).map_err(Failed::Directory)?;
        put_chapters(&*of_chapters, &*chapters, number)?;
    }
    match Snapshot::look(&*given, number)? {
        Some(state) => state.write(&**dir, number)?,
        // Its giver has let go of nothing: the log has all. What this node had is of another log.
        None => found(dir.remove(&layout::state(number))).map(drop)?,
    }
    put_log(&*given, &**dir, number, node)
}

fn put_chapters(given: &dyn Dir, chapters: &dyn Dir, number: u32) -> Result<(), Failed> {
    let failed = |why| Failed::Chapters { number, why };
    for name in chapters.list().map_err(Failed::Directory)? {
        if let Some(own) = name.strip_suffix(ASIDE) {
            chapters.rename(&name, own).map_err(Failed::Directory)?;
        }
    }
    let has_one = given.list().map_err(Failed::Directory)?.iter().any(|name| name == MANIFEST);
    if !has_one {
        return Err(Failed::Damaged(layout::seed(number) + "/" + MANIFEST));
    }
    let manifest = Manifest::look(given, number).map_err(failed)?;
    manifest.write(chapters, number).map_err(failed)
}

fn put_log(given: &dyn Dir, dir: &dyn Dir, number: u32, node: u64) -> Result<(), Failed> {
    let failed = |why| Failed::Shard { number, why };
    let name = layout::shard(number);
    let aside = given.open_dir(&name).map_err(Failed::Directory)?;
    let own = dir.create_dir(&name).map_err(Failed::Directory)?;
    let of_giver = Identity::look(&*aside).map_err(failed)?;
    let lost = || Failed::Damaged(format!("{name}/{}{ASIDE}", cluster::IDENTITY));
    let of_giver = of_giver.ok_or_else(lost)?;
    put_files(given, &*own).map_err(Failed::Directory)?;
    // The others went on without what was kept here.
    if Identity::look(&*own)
        .map_err(failed)?
        .is_some_and(|own| own.generation < of_giver.generation)
    {
        kept::stays(dir, number)?;
        // What was known before says nothing of this log: it was decided to go on without some of it.
        forget_lost(dir, number, (0, 0)).map_err(Failed::Directory)?;
    }
    of_giver.hand_on(&*own, node).map_err(failed)
}

/// Gives the files of a log that lie aside their names; those of the log that was there go first. Of both the identity stays
/// where it is.
fn put_files(given: &dyn Dir, own: &dyn Dir) -> plimsoll_sync::Result<()> {
    if !given.list()?.iter().any(|name| name == PUTTING) {
        remove_log(own)?;
        given.create(PUTTING, SyncMethod::ORDINARY.access())?;
    }
    for name in own.list()?.iter().filter(is_of_log) {
        if let Some(to) = name.strip_suffix(ASIDE) {
            own.rename(name, to)?;
        }
    }
    Ok(())
}

/// Takes away the files of a log, but for the identity and what lies aside.
pub(super) fn remove_log(own: &dyn Dir) -> plimsoll_sync::Result<()> {
    let names = own.list()?;
    let olds = names.iter().filter(is_of_log).filter(|name| !name.ends_with(ASIDE));
    olds.into_iter().try_for_each(|name| own.remove(name))
}

fn is_of_log(name: &&String) -> bool {
    !name.starts_with(cluster::IDENTITY)
}

/// Takes away what was given.
fn clear(dir: &dyn Dir, number: u32) -> Result<(), Failed> {
    let Some(of_seed) = found(dir.open_dir(&layout::seed(number)))? else { return Ok(()) };
    // Where an older version had the log.
    found(of_seed.open_dir(&layout::shard(number)))?.map_or(Ok(()), |dir| empty(&*dir))?;
    let given = Given::create(dir, number).map_err(Failed::Directory)?;
    clear_but_chapters(&*given, number)?;
    found(given.open_dir(&layout::chapters(number)))?.map_or(Ok(()), |dir| empty(&*dir))
}

/// Takes away the log and the snapshot that are being given.
pub(crate) fn clear_but_chapters(given: &dyn Dir, number: u32) -> Result<(), Failed> {
    found(given.open_dir(&layout::shard(number)))?.map_or(Ok(()), |dir| empty(&*dir))?;
    empty(given)
}

fn empty(dir: &dyn Dir) -> Result<(), Failed> {
    let names = dir.list().map_err(Failed::Directory)?;
    names.iter().try_for_each(|name| dir.remove(name).map_err(Failed::Directory))
}

#[cfg(test)]
mod tests {
    use plimsoll_log::Ack;
    use plimsoll_simdisk::SimDir;

    use super::*;
    use crate::broker::known::Known;
    use crate::cluster::{Options, Recovered};

    /// The log of a node in this directory, which is of this generation.
    fn log_of(dir: &Arc<dyn Dir>, node: u64, generation: u64) {
        let log = plimsoll_log::Options { threads: false, ..plimsoll_log::Options::default() };
        let (promise, must_sync) = (Ack::Durable, |_: &[u8]| false);
        let options = Options { node, promise, must_sync, start: None, log, crew: None };
        Recovered::open(dir, options).unwrap().rise(generation).unwrap();
    }

    /// What was known of the log of an older generation was held against the one that came in its place: D, which a decision had
    /// given up, was called lost (a review).
    #[test]
    fn of_a_log_that_went_on_after_a_loss_nothing_is_known_by_what_was_before() {
        for generation in [0, 1] {
            let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
            let own = dir.create_dir("shard-2").unwrap();
            log_of(&own, 1, 0);
            let giver: Arc<dyn Dir> = Arc::new(SimDir::new());
            log_of(&giver, 3, generation);
            for name in giver.list().unwrap() {
                let from = giver.open(&name, SyncMethod::ORDINARY.access()).unwrap();
                let mut bytes = vec![0; usize::try_from(from.len().unwrap()).unwrap()];
                from.read_at(&mut bytes, 0).unwrap();
                let aside = name + ASIDE;
                let to = own.create(&aside, SyncMethod::ORDINARY.access()).unwrap();
                to.write_at(&bytes, 0).unwrap();
            }
            let known = Known::of(12, 9, 8);
            known.write(&*dir, 2).unwrap();
            Stage::Given.write(&*dir, 2).unwrap();
            let in_place = put_in_place(&dir, 1, |_| Ok(())).unwrap();
            assert_eq!(in_place.now, BTreeSet::from([2]));
            let expected = if generation == 0 { known } else { Known::default() };
            assert_eq!(Known::read(&*dir, 2), Some(expected), "generation {generation}");
        }
    }

    #[test]
    fn what_was_given_elsewhere_is_asked_for_again_and_the_shard_stays_in_doubt() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let log = dir.create_dir("shard-2").unwrap();
        log.create("00000000000000000001.seg", SyncMethod::ORDINARY.access()).unwrap();
        Stage::Given.write(&*dir, 2).unwrap();
        let in_place = put_in_place(&dir, 1, |_| unreachable!("its log stays")).unwrap();
        assert_eq!(in_place.now, BTreeSet::new(), "its log is what it was");
        assert_eq!(in_place.in_doubt.into_keys().collect::<Vec<_>>(), [2]);
        assert_eq!(Stage::read(&*dir, 2).unwrap(), Some(Stage::Forgot));
        assert_eq!(log.list().unwrap().len(), 1);
    }
}
