//! [`verdict`]: what is known of the records that the last run acknowledged. Pure.
//!
//! | the mark says | evidence | verdict |
//! | --- | --- | --- |
//! | nothing: there is no file | there are no logs either | new |
//! | clean, or quiesced | every log ends at or beyond what it names | nothing lost |
//! | running, on this boot | the same, and what the run's own witness names | nothing lost |
//! | anything | anything else | may have lost |
//!
//! The boot id alone proves nothing: a volume may be detached, and its page cache dropped, under a
//! system that goes on. The witness alone proves nothing either: a clone of a virtual machine has
//! the memory of another.

use std::fmt;

use super::mark::{Ends, Mark, State};
use super::witness::Witness;
use crate::shard::{Fence, Why};

/// What is known of what was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is there.
    NothingLost(How),
    /// Some of it may be gone.
    MayHaveLost(Loss),
}

/// How it is known that nothing is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// There was nothing.
    New,
    /// The last run ended in order.
    Clean,
    /// It was idle, and all it had acknowledged was durable.
    Quiesced,
    /// Its process died, and the system did not.
    ProcessCrash,
}

/// What may be lost, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Why nothing better can be said.
    pub doubt: Doubt,
    /// Entries up to this log index are all there.
    pub guaranteed: Ends,
    /// Entries up to this log index were durable or may have been acknowledged, none beyond; `None`
    /// if that is not known. A shard whose log reaches as far has lost nothing.
    pub given: Option<Ends>,
    /// When it was last known that nothing was lost, in ms since 1970; 0 if it never was.
    pub since_ms: u64,
}

/// Why nothing better can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// There are logs, and no mark.
    NoMark,
    /// A slot is damaged, or a doubt of an earlier start has no fence yet.
    Unsettled,
    /// A log ends before what was durable.
    LostDurable(Short),
    /// Nothing says on which run of the system the broker was, or is.
    NoBoot,
    /// The system was started anew.
    OtherBoot,
    /// There is no witness.
    NoWitness,
    /// It is of another run, or of another data directory.
    OtherWitness,
    /// A log ends before what was acknowledged.
    LostAcknowledged(Short),
}

/// A log that is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Short {
    /// Whose log it is.
    pub shard: u32,
    /// Where it ends.
    pub end: u64,
    /// Where it should end, at least.
    pub wanted: u64,
}

/// What is known after a run that left this mark and this witness, on a system with this boot id,
/// where the logs now have these last indexes.
#[must_use]
pub fn verdict(
    mark: Option<&Mark>,
    witness: Option<&Witness>,
    boot: Option<u128>,
    ends: &Ends,
) -> Verdict {
    let Some(mark) = mark else {
        return if ends.is_empty() {
            Verdict::NothingLost(How::New)
        } else {
            Verdict::MayHaveLost(Loss::of_all(ends))
        };
    };
    match innocence(mark, witness, boot, ends) {
        Ok(how) => Verdict::NothingLost(how),
        Err(doubt) => Verdict::MayHaveLost(Loss {
            doubt,
            guaranteed: paired(&mark.ends, ends, u64::min),
            given: testimony(mark, witness, boot)
                .ok()
                .map(|said| paired(&mark.ends, &said.acknowledged, u64::max)),
            since_ms: mark.when_ms,
        }),
    }
}

/// The evidence that nothing is lost, or what it lacks.
fn innocence(
    mark: &Mark,
    witness: Option<&Witness>,
    boot: Option<u128>,
    ends: &Ends,
) -> Result<How, Doubt> {
    reach(ends, &mark.ends).map_err(Doubt::LostDurable)?;
    match mark.state {
        State::Clean => Ok(How::Clean),
        State::Quiesced => Ok(How::Quiesced),
        State::Running | State::Doubtful => {
            let witness = testimony(mark, witness, boot)?;
            reach(ends, &witness.acknowledged).map_err(Doubt::LostAcknowledged)?;
            Ok(How::ProcessCrash)
        }
    }
}

/// The witness, if it speaks of the run that left the mark, on this system, and of all that may
/// have been acknowledged: of a run that began in doubt it does not know what those before it did.
fn testimony<'a>(
    mark: &Mark,
    witness: Option<&'a Witness>,
    boot: Option<u128>,
) -> Result<&'a Witness, Doubt> {
    if mark.state == State::Doubtful {
        return Err(Doubt::Unsettled);
    }
    let (now, then) = (boot.ok_or(Doubt::NoBoot)?, mark.boot.ok_or(Doubt::NoBoot)?);
    if now != then {
        return Err(Doubt::OtherBoot);
    }
    let witness = witness.ok_or(Doubt::NoWitness)?;
    let said = (witness.data, witness.incarnation, witness.boot);
    if said == (mark.data, mark.incarnation, now) { Ok(witness) } else { Err(Doubt::OtherWitness) }
}

/// Whether each log ends at or beyond what is wanted of it. One that is not there ends at 0.
fn reach(ends: &Ends, wanted: &Ends) -> Result<(), Short> {
    let short = wanted.iter().find_map(|(&shard, &wanted)| {
        let end = ends.get(&shard).copied().unwrap_or(0);
        (end < wanted).then_some(Short { shard, end, wanted })
    });
    short.map_or(Ok(()), Err)
}

/// One of the two indexes of each shard; one that is not there is 0.
fn paired(these: &Ends, those: &Ends, choose: fn(u64, u64) -> u64) -> Ends {
    let of = |ends: &Ends, shard| ends.get(shard).copied().unwrap_or(0);
    let shards = these.keys().chain(those.keys());
    shards.map(|shard| (*shard, choose(of(these, shard), of(those, shard)))).collect()
}

impl Loss {
    /// Logs of which nothing is known.
    fn of_all(ends: &Ends) -> Self {
        let guaranteed = ends.keys().map(|shard| (*shard, 0)).collect();
        Self { doubt: Doubt::NoMark, guaranteed, given: None, since_ms: 0 }
    }

    /// What the shard's log says of it from now on.
    #[must_use]
    pub fn fence(&self, shard: u32) -> Fence {
        let of = |ends: &Ends| ends.get(&shard).copied().unwrap_or(0);
        Fence {
            why: Why::UncleanStart,
            guaranteed: of(&self.guaranteed),
            given: self.given.as_ref().map(of),
            since: self.since_ms,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingLost(how) => write!(f, "nothing is lost: {how}"),
            Self::MayHaveLost(loss) => write!(f, "records may be lost: {}", loss.doubt),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "the data directory is new",
            Self::Clean => "the last run ended in order",
            Self::Quiesced => "the last run was idle, with all it had acknowledged durable",
            Self::ProcessCrash => {
                "the last run's process died and the system did not, \
                 and every log holds what was acknowledged"
            }
        })
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, short) = match self {
            Self::LostDurable(short) => ("durable", short),
            Self::LostAcknowledged(short) => ("acknowledged", short),
            other => return f.write_str(other.reason()),
        };
        let Short { shard, end, wanted } = short;
        write!(f, "the log of shard {shard} ends at {end}, and was {what} up to {wanted}")?;
        // Its marks may be as old, and so may what clears other shards.
        f.write_str(": no shard that acknowledges before it is durable is believed on a disk that lost this")
    }
}

impl Doubt {
    /// Whether the disk has lost what it had: no power cut takes that.
    pub(crate) fn is_of_the_disk(self) -> bool {
        matches!(self, Self::LostDurable(_) | Self::LostAcknowledged(_))
    }

    fn reason(self) -> &'static str {
        match self {
            Self::NoMark => "there are logs, and no file 'run' says how the last run ended",
            Self::Unsettled => {
                "the file 'run' is damaged, or an earlier start found a loss, \
                 and no fence was written"
            }
            Self::NoBoot => "the last run did not end in order, and the system has no boot id",
            Self::OtherBoot => {
                "the last run did not end in order, and the system was started since"
            }
            Self::NoWitness => {
                "the last run did not end in order, \
                 and nothing in memory says what it had acknowledged"
            }
            Self::OtherWitness => {
                "the last run did not end in order, and what is in memory is of another run"
            }
            Self::LostDurable(_) | Self::LostAcknowledged(_) => "a log is too short",
        }
    }
}
