//! [`recover`]: what a disk has lost of a log, and is met at the start.
//!
//! While a replica runs, a damaged record of its log is healed by another's (`cluster/heal.rs`). At its start nobody can be asked. What a
//! snapshot covers is let go of. Where others vote, the rest is borne: it is healed once the engine runs, which needs to know of
//! such an entry only what those beside it tell (`cluster/holes.rs`).
//!
//! Where they do not tell it, and where the log does not open, it is cut before the first entry that is damaged, and the
//! replica is in doubt like any that may have forgotten what it acknowledged: it gets the rest back from the others before it
//! votes, and if too many are in doubt at once, an operator is asked. That is where others vote by what stays of the log and by all of it that
//! can be read, and for damage behind the snapshot and what is in chapters. Otherwise it is an error, and where
//! others vote the shard begins anew (`anew.rs`). Of the shards that are acknowledged before they are durable a log that is only too short, or
//! that nobody else has, is opened as far as it goes: whether that is all the run says (`run/verdict.rs`).
//!
//! Nothing is destroyed before that: the log is kept as it was found (`kept.rs`).
//!
//! Where it was decided after a loss to go on with what lies before what is damaged of a log (`decided.rs`), it is cut off there too, and in doubt of nothing.
//!
//! What is lost at a log's end looks like a write that was not finished, unless it was noted that it was durable (`known.rs`). Where that note is lost
//! too, and memory does not know it either, the shard whose records are durable before they are acknowledged is in doubt, unless its log was
//! closed in order, at the end of a run that was.

use std::sync::Arc;

use plimsoll_sync::Dir;

use super::anew;
use super::decided::Decided;
use super::error::Failed;
use super::kept::{keep, keep_beside};
use super::known::{Known, forget_lost};
use super::layout::{self, SHARED};
use super::seeded::Stage;
use crate::cluster::{self, Place, Recovered};

/// Why the replica of a shard is in doubt whose log was cut off.
const DAMAGED: &str =
    "its disk has lost entries that it had called durable, and it has not got them back";
/// Why one is that began anew (`anew.rs`).
const ANEW: &str =
    "what its disk has of it cannot be used, and no other broker has given it all of it yet";

/// Why one is of which nothing says how much it had (`Found::doubts`).
const UNTOLD: &str =
    "nothing says any more up to where its disk had entries, and it has not caught up since";

/// What a disk has lost of a shard, as a start finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Nothing says whether its log lacks anything.
    Untold,
    /// All from this entry on, as the shard counts: it was cut off.
    From(u64),
    /// Nothing can be used: it begins anew.
    All,
}

impl Lost {
    /// Why its replica is in doubt.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::Untold => UNTOLD,
            Self::From(_) => DAMAGED,
            Self::All => ANEW,
        }
    }
}

/// The same, of a start: a part of a sentence.
pub(super) fn said((number, lost): (&u32, &Lost)) -> String {
    let kept = layout::damaged(*number);
    let entry = match lost {
        Lost::Untold => {
            return format!(
                "; shard {number} is in doubt until it has caught up with the other brokers"
            );
        }
        Lost::From(entry) => entry,
        Lost::All => {
            return format!(
                "; what the disk has of shard {number} cannot be used: another broker is asked for all of it, the shard is in doubt until \
                 it has caught up, and its log as it was found is kept in {kept} until then"
            );
        }
    };
    format!(
        "; the disk has lost entries of shard {number} from {entry} on that it had called durable: the shard is in \
         doubt until the other brokers have given them back, and what was found is kept in {kept} until then"
    )
}

/// That a shard has lost so many entries, and goes on: a part of a sentence.
pub(super) fn said_of_borne(number: u32, missed: u64) -> String {
    let (entries, them) =
        if missed == 1 { ("an entry", "it") } else { (&*format!("{missed} entries"), "them") };
    format!(
        "; the disk has lost {entries} of shard {number}: the other brokers are asked for {them}"
    )
}

/// What is found of a log, and what was cut off of it as its disk had lost that. The chapters have the first
/// `settled` entries, and up to `covered` nobody needs any.
pub(super) fn recover(
    root: &Arc<dyn Dir>,
    number: u32,
    options: &cluster::Options,
    settled: u64,
    covered: Option<u64>,
) -> Result<(Recovered, Option<Lost>), Failed> {
    let failed = |why| Failed::Shard { number, why };
    let dir = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    let mut options = options.clone();
    // Who is alone by its snapshot has nobody to get anything from. What is cut off is so around what is kept.
    options.log.keep_damaged =
        options.start.as_ref().is_none_or(|start| start.has_others(options.node));
    let start = options.start.clone();
    let start = start.as_ref();
    let is_behind_the_rest =
        |lost: u64| lost >= settled && start.is_none_or(|start| start.index() < lost);
    let node = options.node;
    let others_have_it = |lost: u64| cluster::others_vote(&dir, start, node, lost).map_err(failed);
    // To the log what it has lost where nothing in it says that it was durable looks like a write that was not finished.
    let mut noted = match noted(&**root, number)? {
        None => 0,
        // Of what is acknowledged first the run says what is lost, where nobody has it, and it goes on behind a fence.
        Some(_)
            if SHARED.contains(&number)
                && !others_were_there(root, number, options.node, start)? =>
        {
            0
        }
        Some(noted) => noted.max(options.log.durable),
    };
    options.log.durable = noted;
    let mut cut = None;
    loop {
        let why = match open(&dir, number, &options, covered) {
            // The shard counts from 1.
            Ok(recovered) => return Ok((recovered, cut.map(|cut| Lost::From(cut + 1)))),
            Err(cluster::Error::Gap { first_index, wanted: 0, .. }) if start.is_none() => {
                return Err(Failed::NoSnapshot { number, first: first_index + 1 });
            }
            Err(why) => why,
        };
        // What was cut off is not met again.
        let lost = why.damaged_from().filter(|lost| cut.is_none_or(|cut| *lost < cut));
        let Some(lost) = lost.filter(|lost| is_behind_the_rest(*lost)) else {
            return Err(failed(why));
        };
        let is_short = cluster::end_of(&dir).is_ok_and(|end| end == lost && end < noted);
        let acknowledges_first = SHARED.contains(&number);
        if is_short && acknowledges_first && lost > 0 {
            // What a log that is too short tells of its disk the run says, and of all shards of that kind.
            (noted, options.log.durable) = (0, 0);
            continue;
        }
        if !others_have_it(lost)? {
            // Nothing of it is there: that is said as it is.
            return Err(match is_short && !acknowledges_first {
                true => Failed::TooShort { number, end: lost, durable: noted },
                false => failed(why),
            });
        }
        tracing::warn!(shard = number, entry = lost + 1, %why, "its log is cut off there");
        give_up(root, number, options.clone(), lost)?;
        options.log.durable = noted.min(lost);
        cut = Some(lost);
    }
}

/// Whether others vote beside this node, as its snapshot says; of a log that has none, which is short, whatever says it.
fn others_were_there(
    root: &Arc<dyn Dir>,
    number: u32,
    node: u64,
    start: Option<&Place>,
) -> Result<bool, Failed> {
    start.map_or_else(|| anew::others_have(root, number, node), |start| Ok(start.has_others(node)))
}

/// Up to which entry this node had noted that its log is durable; none where that is not of this log, as another gave it. A start that was to
/// cut it off, and ended before it had, knows it still.
fn noted(root: &dyn Dir, number: u32) -> Result<Option<u64>, Failed> {
    let is_own = matches!(Stage::read(root, number)?, None | Some(Stage::Forgot));
    if !is_own {
        return Ok(None);
    }
    let own = Known::read(root, number).map_or(0, |known| known.own);
    // What was missing as it was decided to go on is not missed again. The note of it is not written anew before the log is opened.
    let decided = Decided::read(root, number)?.filter(|decided| decided.lifts);
    Ok(Some(decided.map_or(own, |decided| own.min(decided.ended.1))))
}

/// What is found of a log. What is damaged was let go of, or is borne.
fn open(
    dir: &Arc<dyn Dir>,
    number: u32,
    options: &cluster::Options,
    covered: Option<u64>,
) -> cluster::Result<Recovered> {
    let recovered = Recovered::open(dir, options.clone())?;
    if let Some(through) = recovered.let_go_of_damage(covered)? {
        // The shard counts from 1.
        let through = through + 1;
        tracing::warn!(
            shard = number,
            through,
            "what is damaged of its log is let go of: its snapshot has it"
        );
    }
    let others_vote = || cluster::others_vote_now(dir, options.start.as_ref(), options.node);
    if let Some(why) = recovered.bear_damage(others_vote)? {
        let entries = recovered.missed();
        tracing::warn!(shard = number, entries, %why, "what the disk has lost of its log is asked of others");
    }
    Ok(recovered)
}

/// The same, where it may have been decided to go on with what the log has before what is damaged: it is cut off there, if it is as it was then,
/// and in doubt of nothing. Whether that is so.
pub(super) fn recover_as_decided(
    root: &Arc<dyn Dir>,
    number: u32,
    options: &cluster::Options,
    (settled, covered): (u64, Option<u64>),
    decided: Option<Decided>,
) -> Result<(Recovered, Option<Lost>, bool), Failed> {
    let found = recover(root, number, options, settled, covered)?;
    let decided = decided.filter(|decided| decided.lifts && decided.cuts);
    let Some(decided) = decided else { return Ok((found.0, found.1, false)) };
    let is_as_shown = found.0.whole_and_last() == Some((decided.least, decided.ended));
    let (recovered, lost) = if is_as_shown && decided.least.1 >= settled {
        drop(found);
        cut(root, number, options, decided)?;
        recover(root, number, options, settled, covered)?
    } else {
        found
    };
    // A start that ended before this one may have cut it off, or the log took what is damaged for a write that was not finished.
    let is_given_up = recovered.recovery().last_index == decided.least.1;
    Ok((recovered, lost.filter(|_| !is_given_up), is_given_up))
}

/// Cuts a log off as was decided. It goes on as one that ends so: that it had more is not missed. Durable on return; nobody has it open.
fn cut(
    root: &Arc<dyn Dir>,
    number: u32,
    options: &cluster::Options,
    decided: Decided,
) -> Result<(), Failed> {
    // The shard's index of the last that stays is the engine's of the first that does not.
    let (_, first) = decided.least;
    tracing::warn!(shard = number, entry = first + 1, "its log is cut off there, as was decided");
    let log = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    keep_beside(&**root, number).map_err(Failed::Directory)?;
    let forgets = forget_lost(&**root, number, (decided.guaranteed, first));
    forgets.map_err(Failed::Directory)?;
    let mut options = options.clone();
    options.log.keep_damaged = true;
    cluster::cut_from(&log, options, first).map_err(|why| Failed::Shard { number, why })
}

/// Cuts the log of a shard off before this entry. Its replica is in doubt then. Durable on return.
fn give_up(
    root: &Arc<dyn Dir>,
    number: u32,
    options: cluster::Options,
    damaged: u64,
) -> Result<(), Failed> {
    let log = root.open_dir(&layout::shard(number)).map_err(Failed::Directory)?;
    // What is found while it is in doubt was cut off before, or begun to be.
    let is_kept = Stage::read(&**root, number)?.is_some();
    keep(&**root, &*log, number, is_kept).map_err(Failed::Directory)?;
    Stage::Forgot.write(&**root, number)?;
    cluster::cut_from(&log, options, damaged).map_err(|why| Failed::Shard { number, why })
}

#[cfg(test)]
mod tests {
    use plimsoll_log::Ack;
    use plimsoll_simdisk::{Fault, FaultKind, Operation, SimDir};
    use plimsoll_sync::{Access, Crash};

    use super::*;
    use crate::cluster::Begin;
    use crate::cluster::trio::{Net, Nothing, damage, start, tell};

    /// Founds a shard of three with some entries, has the founder end, and its disk lose those of its log that are said of the one that it had
    /// when it was alone, and of the last. Nothing in the log of one that was killed says that all was durable. The directory, and the last.
    fn founder(
        entries: u64,
        lose: impl Fn(u64, u64) -> Vec<u64>,
        is_closed: bool,
    ) -> (Arc<SimDir>, u64) {
        let (net, root) = (Net::default(), Arc::new(SimDir::new()));
        let mut end = 0;
        tell(async {
            let nodes = [1, 2, 3].map(|node| start(node, &net));
            let leader = &nodes[0].group;
            let leadership = leader.wait_to_lead().await.unwrap();
            let alone = leader.propose(leadership, "alone".into()).await.unwrap().index;
            for other in [2, 3] {
                leader.add(other, "").await.unwrap();
            }
            leader.set_voters([1, 2, 3]).await.unwrap();
            for number in 0..entries {
                let payload = format!("number {number}").into();
                end = leader.propose(leadership, payload).await.unwrap().index;
            }
            nodes[0].reaches(end).await;
            let [one, ..] = nodes;
            let killed = Arc::new(one.dir.crash(Crash::Process, 0));
            let closed = one.close(1, &net).await;
            let disk = if is_closed { &closed } else { &killed };
            lose(alone, end).iter().for_each(|entry| damage(disk, *entry, 30, &[0xa5; 4]));
            let log = root.create_dir(&layout::shard(0)).unwrap();
            for name in closed.list().unwrap() {
                // Its terms are kept beside it a moment after that.
                let from = if name == "terms" { &closed } else { disk };
                let Ok(file) = from.open(&name, Access::default()) else { continue };
                let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
                file.read_at(&mut bytes, 0).unwrap();
                log.create(&name, Access::default()).unwrap().write_at(&bytes, 0).unwrap();
            }
            Known::of(end + 1, end + 1, end + 1).write(&*root, 0).unwrap();
        });
        net.heard().clear();
        (root, end)
    }

    fn options() -> cluster::Options {
        let log =
            plimsoll_log::Options { segment_bytes: 5 << 20, threads: false, ..Default::default() };
        let (promise, must_sync) = (Ack::Durable, |_: &[u8]| true);
        cluster::Options { node: 1, promise, must_sync, start: None, log, crew: None }
    }

    fn recovered(root: &Arc<SimDir>) -> Result<(Recovered, Option<Lost>), Failed> {
        recover(&(Arc::clone(root) as Arc<dyn Dir>), 0, &options(), 0, None)
    }

    /// Its last entry is cut off, it goes on without so many others, and knows who votes.
    fn is_cut_off_at_its_last(root: &Arc<SimDir>, last: u64, missed: u64) {
        let (recovered, lost) = recovered(root).unwrap();
        // The shard counts from 1.
        assert_eq!(lost, Some(Lost::From(last + 1)));
        assert_eq!((recovered.recovery().last_index, recovered.missed()), (last, missed));
        tell(async {
            let begin = Begin { is_dirty: true, ..Begin::alone() };
            let group = recovered.start_here(begin, Nothing).await.unwrap();
            assert_eq!((group.voters(), group.is_dirty()), (vec![1, 2, 3], true));
        });
    }

    /// It was cut at the other, from before the others came, and led by itself: of that place nothing had been asked.
    #[test]
    fn a_founder_that_lost_an_entry_and_the_last_is_cut_off_at_the_last() {
        let (root, last) = founder(20, |alone, last| vec![alone, last], true);
        is_cut_off_at_its_last(&root, last, 1);
    }

    /// All of it was taken for a write that was not finished, and the broker did not start: what was left did not say who votes (a trial).
    #[test]
    fn a_small_log_of_which_only_the_broker_knows_that_it_was_durable_is_cut_off_at_its_last_entry_only()
     {
        let (root, last) = founder(1, |_, last| vec![0, 1, 2, 3, last], false);
        is_cut_off_at_its_last(&root, last, 4);
    }

    /// The next start did not know any more what had been durable, cut it at the other, and it led by itself (a review).
    #[test]
    fn a_start_that_ended_before_it_cut_a_log_off_is_not_followed_by_one_that_cuts_off_more() {
        let (root, last) = founder(1, |alone, last| vec![alone, last], false);
        // Where it is killed in between.
        let killed = Arc::new(root.crash(Crash::Process, 0));
        let log = killed.open_dir(&layout::shard(0)).unwrap();
        keep(&*killed, &*log, 0, false).unwrap();
        Stage::Forgot.write(&*killed, 0).unwrap();
        is_cut_off_at_its_last(&killed, last, 1);
        // And where the disk has no room for the segment that it takes.
        let full = FaultKind::Fail(std::io::ErrorKind::StorageFull);
        root.inject(Fault::new(Operation::Allocate, full).sticky());
        assert!(recovered(&root).is_err());
        let again = Arc::new(root.crash(Crash::Process, 0));
        assert_eq!(Stage::read(&*again, 0).unwrap(), Some(Stage::Forgot));
        is_cut_off_at_its_last(&again, last, 1);
        // Nor by one that does not know that it is done.
        is_cut_off_at_its_last(&again, last, 1);
    }

    /// A start that ended behind the cut was followed by one that took what is not there any more for lost (a review).
    #[test]
    fn what_is_cut_off_as_was_decided_is_missed_by_no_start() {
        let (root, last) = founder(20, |_, last| vec![last - 1], true);
        let dir: Arc<dyn Dir> = Arc::clone(&root) as _;
        // The engine counts from 0: two go, of which the first is damaged.
        let (least, ended) = ((1, last - 1), (1, last + 1));
        let decided = Decided {
            number: 0,
            generation: 1,
            digest: 1,
            guaranteed: last - 1,
            at_ms: 1,
            lifts: true,
            lost_durable: true,
            least,
            ended: (1, last),
            cuts: true,
        };
        let found = || {
            let decided = Decided::read(&*dir, 0).unwrap();
            let (recovered, lost, is_given_up) =
                recover_as_decided(&dir, 0, &options(), (0, None), decided).unwrap();
            (recovered.recovery().last_index, recovered.missed(), lost, is_given_up)
        };
        decided.write(&*dir).unwrap();
        assert_eq!(found(), (last + 1, 1, None, false), "something was added since");
        Decided { ended, ..decided }.write(&*dir).unwrap();
        assert_eq!(found(), (last - 1, 0, None, true));
        assert_eq!(found(), (last - 1, 0, None, true), "nobody said yet that it is done");
        Decided { ended, lifts: false, ..decided }.write(&*dir).unwrap();
        assert_eq!(found(), (last - 1, 0, None, false));
        let kept = dir.open_dir(&layout::damaged(0)).unwrap().list().unwrap();
        assert!(kept.iter().any(|name| name.ends_with(".seg")), "{kept:?}");
    }

    /// The decision lifted the doubt, and the start after it met the same loss again, and doubted anew: the shard did not go on (an attacker).
    #[test]
    fn what_was_decided_to_be_gone_is_not_missed_by_the_start_that_goes_on() {
        let (root, last) = founder(20, |_, last| vec![last], true);
        let decided = Decided {
            number: 0,
            generation: 1,
            digest: 1,
            // Another has more.
            guaranteed: last + 1,
            at_ms: 1,
            lifts: true,
            lost_durable: false,
            least: (1, last),
            ended: (1, last),
            cuts: false,
        };
        assert_eq!(noted(&*root, 0).unwrap(), Some(last + 1));
        decided.write(&*root).unwrap();
        assert_eq!(noted(&*root, 0).unwrap(), Some(last));
        Decided { lifts: false, ..decided }.write(&*root).unwrap();
        assert_eq!(noted(&*root, 0).unwrap(), Some(last + 1), "it counts once");
    }
}
