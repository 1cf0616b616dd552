//! [`backup()`]: from a broker's directory into a backup.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_sync::Dir;

use super::error::Error;
use super::head::{Head, NAME, Slot};
use super::shard::{Source, Taken};
use super::{Report, Tell};
use crate::broker::layout::{self, RECORDS, SHARDS};
use crate::broker::{doubts_of, durable_of};
use crate::chapter::{MANIFEST, Manifest, Mirror};
use crate::cluster;
use crate::control::Change;
use crate::cursor::Malformed;

/// How often all but the runs is begun again, where something went before it was read.
const ROUNDS_MAX: u32 = 20;
/// How often the log of one round may look damaged before it is.
const DAMAGED_MAX: u32 = 3;
/// How often the logs are read on until no topic went meanwhile.
const READS_MAX: u32 = 100;
/// The file that keeps others out, in a directory that is being written.
const LOCK: &str = "lock";

/// Takes a backup of the broker whose data directory `source` is, running or not: what was durable when it was called, at
/// least. In `dest` there is nothing, or a backup of the same broker: then only runs that it lacks are copied.
/// `source` is only read. On return the backup is durable; if it fails, or the process dies, `dest` has the backup
/// that was, and what was copied by then is found by the next call. `now_ms` is the time, in ms since 1970; `tell` is told what is
/// going on, and says whether to go on.
///
/// # Errors
/// [`Error`].
pub fn backup(
    source: &Arc<dyn Dir>,
    dest: &Arc<dyn Dir>,
    now_ms: u64,
    tell: &mut dyn FnMut(super::Progress) -> bool,
) -> Result<Report, Error> {
    let cluster = layout::look_for_cluster_id(&**source)?;
    let cluster = cluster.ok_or(Error::NotABroker { lacks: "file 'cluster'".to_owned() })?;
    let broker = source;
    // Before the logs: what is noted later may be of entries behind what is copied.
    let known = durable_of(&**broker);
    let source = |number| Source::open(source, number, RECORDS.contains(&number));
    let sources: Vec<Source> = SHARDS.into_iter().map(source).collect::<Result<_, _>>()?;
    let old = Head::look(&**dest)?;
    match &old {
        Some(old) if old.cluster != cluster => {
            return Err(Error::OtherBroker { there: old.cluster.clone(), here: cluster });
        }
        Some(_) => {}
        None => refuse_others(&**dest)?,
    }
    let _lock = dest.lock(LOCK)?;
    let begun_ms = now_ms;
    let old = match Head::look(&**dest)? {
        Some(old) => old,
        None => {
            // From here on it is a backup, which is not finished.
            let head = Head { slot: None, begun_ms, cluster, shards: Vec::new() };
            head.write(&**dest)?;
            head
        }
    };
    let slot = old.slot.map_or(Slot::One, Slot::other);
    let rest = dest.create_dir(&slot.name())?;
    let mut backup = Backup::open(dest, &old, &rest)?;
    let taken = backup.take(&sources, &rest, tell);
    let (head, report, manifests) = match taken {
        Ok((shards, reports, manifests)) => {
            let (cluster, slot) = (old.cluster.clone(), Some(slot));
            let head = Head { slot, begun_ms, cluster: cluster.clone(), shards };
            let ends = reports.iter().map(|shard| (shard.number, shard.last_index)).collect();
            let doubts = doubts_of(&**broker, &known, &ends)?;
            let report = Report { cluster, came_from: None, begun_ms, doubts, shards: reports };
            (head, report, manifests)
        }
        Err(why) => {
            // Runs that were copied stay, and the manifest that names them. What stays of the rest is cleared by the next.
            clear(&*rest, &sources, false).ok();
            return Err(why);
        }
    };
    head.write(&**dest)?;
    // It is whole. What is not freed now is freed by the next.
    backup
        .free(&manifests)
        .and_then(|()| {
            let Some(slot) = old.slot else { return Ok(()) };
            clear(&*dest.create_dir(&slot.name())?, &sources, true)
        })
        .unwrap_or_else(
            |why| tracing::warn!(%why, "what the backup does not need any more is not all removed"),
        );
    Ok(report)
}

/// A backup that is being added to.
struct Backup {
    mirrors: Vec<(u32, Mirror)>,
}

/// What was taken: of each shard what the head says, what is said of it, and its manifest.
type All = (Vec<super::head::OfShard>, Vec<super::ShardReport>, Vec<Option<Manifest>>);

impl Backup {
    fn open(dest: &Arc<dyn Dir>, old: &Head, rest: &Arc<dyn Dir>) -> Result<Self, Error> {
        let mut mirrors = Vec::new();
        for number in RECORDS {
            let of_chapters = Error::of_chapters(number);
            let name = layout::chapters(number);
            let chapters = dest.create_dir(&name)?;
            let finished = match old.slot {
                Some(slot) => {
                    let of_slot = dest.open_dir(&slot.name())?.open_dir(&name)?;
                    let of_head = old.shards.iter().find(|shard| shard.number == number);
                    let is_there = of_slot.list()?.iter().any(|name| name == MANIFEST);
                    // Without it all that it names would be nobody's.
                    if !is_there && of_head.is_some_and(|of| of.manifest != 0) {
                        let why = Malformed::Short("a manifest");
                        return Err(Error::Damaged { file: name + "/manifest", why });
                    }
                    Manifest::look(&*of_slot, number).map_err(&of_chapters)?
                }
                None => Manifest::default(),
            };
            // What a backup that was not finished had copied; one that cannot be read names nothing.
            let begun = Manifest::look(&*rest.create_dir(&name)?, number).unwrap_or_default();
            let mirror = Mirror::open(chapters, number, &finished, &begun).map_err(&of_chapters)?;
            mirrors.push((number, mirror));
        }
        Ok(Self { mirrors })
    }

    fn take(
        &mut self,
        sources: &[Source],
        rest: &Arc<dyn Dir>,
        tell: Tell<'_>,
    ) -> Result<All, Error> {
        // Most of it first: what comes while it is copied is little.
        for source in sources {
            if let Some(mirror) = self.mirror(source.number) {
                source.fill(mirror, &**rest, None, tell)?;
            }
        }
        let (mut rounds, mut damaged) = (1, 0);
        loop {
            clear(&**rest, sources, false)?;
            match self.take_rest(sources, rest, tell) {
                Err(why) if went(&why) && rounds < ROUNDS_MAX => {}
                Err(why) if looks_damaged(&why) && damaged < DAMAGED_MAX => damaged += 1,
                Err(why) if went(&why) && !matches!(why, Error::TooFast { .. }) => {
                    return Err(Error::TooFast { what: "its log lets go of what is not read yet" });
                }
                taken => return taken,
            }
            rounds += 1;
        }
    }

    /// Takes logs, snapshots and the runs that came since, so that they fit together.
    fn take_rest(
        &mut self,
        sources: &[Source],
        rest: &Arc<dyn Dir>,
        tell: Tell<'_>,
    ) -> Result<All, Error> {
        let mut all = Vec::new();
        // Control comes last: it has the causes of what was read before.
        for source in sources.iter().rev() {
            all.push(Taken::begin(source.clone(), rest, tell)?);
        }
        for (taken, source) in all.iter_mut().zip(sources.iter().rev()) {
            taken.go_on(self.mirror(source.number), tell)?;
        }
        let (control, others) = all.split_last_mut().expect("there is a control shard");
        let mut reads_left = READS_MAX;
        loop {
            // What it has by now it has before the others are read.
            control.catch_up(control.end()?, tell)?;
            // Groups before records: what was committed is of records that are read after it.
            for taken in others.iter_mut().rev() {
                taken.catch_up(taken.end()?, tell)?;
            }
            let mut has_gone = false;
            let end = control.end()?;
            let mut see = |payload: &[u8]| {
                has_gone |= matches!(Change::decode(payload), Ok(Change::Gone { .. }));
            };
            control.catch_up_seeing(end, &mut see, tell)?;
            if !has_gone {
                break;
            }
            // A shard may have been read before it let go of that topic, and would have it, and nobody know of it.
            if reads_left == 0 {
                return Err(Error::TooFast { what: "topics are deleted one after the other" });
            }
            reads_left -= 1;
        }
        let (mut shards, mut reports, mut manifests) = (Vec::new(), Vec::new(), Vec::new());
        for (taken, source) in all.into_iter().rev().zip(sources) {
            let mirror = self.mirror(source.number).map(|mirror| &*mirror);
            let (of_head, report, manifest) = taken.finish(mirror)?;
            shards.push(of_head);
            reports.push(report);
            manifests.push(manifest);
        }
        Ok((shards, reports, manifests))
    }

    fn free(&mut self, manifests: &[Option<Manifest>]) -> Result<(), Error> {
        for ((number, mirror), manifest) in self.mirrors.iter_mut().zip(manifests.iter().flatten())
        {
            mirror.free(manifest).map_err(Error::of_chapters(*number))?;
        }
        Ok(())
    }

    fn mirror(&mut self, number: u32) -> Option<&mut Mirror> {
        self.mirrors.iter_mut().find(|(of, _)| *of == number).map(|(_, mirror)| mirror)
    }
}

/// Refuses a directory that has something, and is no backup.
fn refuse_others(dest: &dyn Dir) -> Result<(), Error> {
    let unfinished = format!("{NAME}.new");
    let mut names = dest.list()?.into_iter().filter(|name| *name != LOCK && *name != unfinished);
    names.next().map_or(Ok(()), |found| Err(Error::NotEmpty { found }))
}

/// Takes away what a generation has of shards; its manifests too, if it is not needed any more.
fn clear(rest: &dyn Dir, sources: &[Source], and_manifests: bool) -> Result<(), Error> {
    empty(rest)?;
    for source in sources {
        for (name, goes) in
            [(layout::shard(source.number), true), (layout::chapters(source.number), and_manifests)]
        {
            match rest.open_dir(&name) {
                Ok(dir) if goes => empty(&*dir)?,
                Err(why) if why.kind() != Some(ErrorKind::NotFound) => return Err(why.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn empty(dir: &dyn Dir) -> Result<(), Error> {
    dir.list()?.iter().try_for_each(|name| Ok(dir.remove(name)?))
}

/// Whether the broker let go of something before it was read.
pub(crate) fn went(why: &Error) -> bool {
    use plimsoll_log::Error::{OutOfRange, Truncated};

    match why {
        Error::TooFast { .. } => true,
        Error::Shard { why: cluster::Error::Log(OutOfRange { .. } | Truncated { .. }), .. } => true,
        Error::Disk(why)
        | Error::Shard { why: cluster::Error::Log(plimsoll_log::Error::Disk(why)), .. } => {
            why.kind() == Some(ErrorKind::NotFound)
        }
        _ => false,
    }
}

/// Whether a log looks damaged: it is not if it was written while it was read.
pub(crate) fn looks_damaged(why: &Error) -> bool {
    let Error::Shard { why, .. } = why else { return false };
    matches!(why, cluster::Error::Log(plimsoll_log::Error::Corrupt(_)))
}
