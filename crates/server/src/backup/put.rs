//! [`restore`]: from a backup into a directory for a broker.

use std::sync::Arc;

use plimsoll_sync::Dir;

use super::error::Error;
use super::head::{Head, OfShard};
use super::look::Look;
use super::{Progress, Report, ShardReport, Tell};
use crate::broker::Snapshot;
use crate::broker::layout::{self, ALONE};
use crate::chapter::{Filled, Manifest, Mirror, Wanted};
use crate::cluster::{Identity, LogCopy};
use crate::cursor::Malformed;
use crate::random;

/// Makes the data directory of a broker of a backup, in a directory that has nothing. All that is copied is verified. Durable
/// on return; before, no broker starts there. `tell` is told what is going on, and says whether to go on.
///
/// What was given away beyond the backup is not known: the broker that starts there finds logs without a mark of their run,
/// and fences it off.
///
/// A replica of a cluster becomes a cluster of its own, whose only node is 1: nobody else of those that voted has what was
/// restored. It has another id, so that the brokers that the backup is of never take it for theirs.
///
/// # Errors
/// [`Error`]. What is in `dest` then is to be removed.
pub fn restore(
    backup: &Arc<dyn Dir>,
    dest: &Arc<dyn Dir>,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<Report, Error> {
    let look = Look::open(backup)?;
    if let Some(found) = dest.list()?.into_iter().next() {
        return Err(Error::NotEmpty { found });
    }
    layout::begin_restore(&**dest)?;
    let mut shards = Vec::new();
    let mut was_alone = true;
    for of_shard in &look.head.shards {
        let (report, is_alone) = shard(&look, dest, of_shard, tell)?;
        shards.push(report);
        was_alone &= is_alone;
    }
    let Head { cluster, begun_ms, .. } = look.head;
    let (cluster, came_from) =
        if was_alone { (cluster, None) } else { (random::hex(), Some(cluster)) };
    layout::end_restore(&**dest, &cluster)?;
    Ok(Report { cluster, came_from, begun_ms, doubts: Vec::new(), shards })
}

/// A shard, and whether nobody else had a replica of it.
fn shard(
    look: &Look,
    dest: &Arc<dyn Dir>,
    wanted: &OfShard,
    tell: Tell<'_>,
) -> Result<(ShardReport, bool), Error> {
    let number = wanted.number;
    let of_shard = Error::of_shard(number);
    let name = layout::shard(number);
    let from = look.rest().open_dir(&name)?;
    let to = dest.create_dir(&name)?;
    let mut log = LogCopy::begin(Arc::clone(&from), Arc::clone(&to), wanted.first);
    let mut stopped = false;
    if let Ok(log) = &mut log {
        let copied = log.catch_up(wanted.last, |_payload, bytes| {
            stopped = !tell(Progress::Log(bytes));
            !stopped
        });
        copied.map_err(&of_shard)?;
    }
    if stopped {
        return Err(Error::Stopped);
    }
    let voters = log.as_ref().map(LogCopy::voters).unwrap_or_default();
    let log = log.and_then(LogCopy::finish).map_err(&of_shard)?;
    let found = OfShard::of(&**look.rest(), number, log)?;
    if (found.last, found.log) != (wanted.last, wanted.log) {
        return Err(Error::OtherLog { number, last: found.last, wanted: wanted.last });
    }
    for (file, found, expected) in [
        (format!("{name}/identity"), found.identity, wanted.identity),
        (layout::state(number), found.state, wanted.state),
        (layout::chapters(number) + "/manifest", found.manifest, wanted.manifest),
    ] {
        if found != expected {
            let why = Malformed::Checksum { expected, found };
            return Err(Error::Damaged { file, why });
        }
    }
    let identity = Identity::look(&*from).map_err(&of_shard)?;
    let state = Snapshot::look(&**look.rest(), number)?;
    let mut is_alone = true;
    if let Some(mut identity) = identity {
        let place = state.as_ref().map(|state| &state.place);
        is_alone = identity.is_alone(ALONE, &voters, place);
        if !is_alone {
            identity.go_on_alone(ALONE, &voters, place, &to, log).map_err(&of_shard)?;
        }
        identity.write(&*to).map_err(&of_shard)?;
    }
    if let Some(state) = state {
        state.write(&**dest, number)?;
    }
    let mut report = ShardReport {
        number,
        last_index: log.last,
        log_entries: log.last + 1 - log.first,
        log_bytes: log.bytes,
        chapter: 0,
        runs: Filled::default(),
    };
    if wanted.manifest != 0 {
        let of_chapters = Error::of_chapters(number);
        let runs = look.survey(number).and_then(|survey| Wanted::of(survey, None));
        let runs = runs.map_err(&of_chapters)?;
        let to = dest.create_dir(&layout::chapters(number))?;
        let none = Manifest::default();
        let mut mirror =
            Mirror::open(Arc::clone(&to), number, &none, &none).map_err(&of_chapters)?;
        if !tell(Progress::Lacking(mirror.lacks(&runs))) {
            return Err(Error::Stopped);
        }
        let filled =
            mirror.fill(&runs, &mut |_begun| Ok(()), &mut |bytes| tell(Progress::Runs(bytes)));
        filled.map_err(&of_chapters)?;
        let manifest = mirror.manifest(&runs);
        manifest.write(&*to, number).map_err(&of_chapters)?;
        (report.chapter, report.runs) = (manifest.settled.chapter, mirror.filled(&runs));
    }
    Ok((report, is_alone))
}
