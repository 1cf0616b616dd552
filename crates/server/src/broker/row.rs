//! [`Row`]: what a node says of its replica of a shard. Pure.
//!
//! ```text
//!  0 version     u8   1
//!  1 flags       u8   1: in doubt, 2: its vote was granted, 4: it leads,
//!                  8: it began anew, and has not caught up since,
//!                 16: it lacks what the others have let go of,
//!                 32: it leads, and takes nothing; of one that does not lead: its disk has lost something of it,
//!                 64: its log ends before that which it was decided to go on with,
//!                128: its log is damaged
//!  2 shard       u32
//!  6 node        u64
//! 14 incarnation u64
//! 22 generation  u64
//! 30 boot        16   of its system; 0 if it is not known
//! 46 vote        u64 term · u64 node
//! 62 last        u64 term · u64 index      of its log; 0: it is empty
//! 78 synced      u64  log index
//! 86 committed   u64  C, as far as it knows, or knew before its last end
//! 94 durable     u64  D, the same
//! 102 leader     u64  0: it knows of none
//! 110 voters     u32 count · u64 each
//! .. said        text what is known of its run before
//! ```
//!
//! Little-endian; text is length u16 · UTF-8. What is damaged of a log, and lasts, is asked for by itself (`operators.rs`): brokers of before, which
//! read all rows of a node or none, do not know of that.

use serde::Serialize;

use super::known::Known;
use crate::cluster::Outline;
use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
const SAID_BYTES_MAX: usize = 512;
const IN_DOUBT: u8 = 1;
const GRANTED: u8 = 2;
const LEADS: u8 = 4;
const ANEW: u8 = 8;
const LACKS: u8 = 16;
const REFUSES: u8 = 32;
const HAS_LESS: u8 = 64;
const IS_DAMAGED: u8 = 128;

/// What a node says of its replica of a shard. Indexes are the log's; 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The number of the shard.
    pub shard: u32,
    /// Which node.
    pub node: u64,
    /// Which of its starts.
    pub incarnation: u64,
    /// After which loss its replica goes on.
    pub generation: u64,
    /// The boot of its system, as 32 hexadecimal digits; empty if that is not known.
    pub boot: String,
    /// Whether it may have forgotten what it acknowledged.
    pub is_in_doubt: bool,
    /// Whether it began anew, and has not caught up with a leader since: what it has says nothing of what it had.
    pub is_anew: bool,
    /// Whether it lacks what the others have let go of, and is to be given it.
    pub lacks: bool,
    /// Whether its log ends before that which it was decided to go on with after a loss: it does not campaign.
    pub has_less: bool,
    /// Whether its log is damaged, and not healed yet, or its disk has failed: it does not campaign either.
    pub is_damaged: bool,
    /// Whether it has been damaged for seconds: nobody gives what it lacks.
    pub damage_lasts: bool,
    /// Term and index of the last entry before what is damaged, zeros for none; `None` where that is not known yet, or its state is ahead of it:
    /// nobody can go on with that alone.
    pub whole: Option<(u64, u64)>,
    /// Whether its disk has lost something of it, and it is in doubt for that.
    pub has_lost: bool,
    /// Whether it leads, and takes nothing: too few of its voters take what it appends, or their disks have no room.
    pub refuses: bool,
    /// The term of its vote.
    pub vote_term: u64,
    /// For whom that was.
    pub voted_for: u64,
    /// Whether a quorum granted that vote.
    pub is_granted: bool,
    /// The term of the last entry of its log.
    pub last_term: u64,
    /// The index of that.
    pub last: u64,
    /// The last entry that is durable there.
    pub synced: u64,
    /// C, as far as it knows, or knew some seconds before its last end.
    pub committed: u64,
    /// D, the same: entries up to there are durable on a majority.
    pub durable: u64,
    /// Whether it leads.
    pub leads: bool,
    /// Who leads, as far as it knows; 0 if nobody.
    pub leader: u64,
    /// Who votes, as far as it knows.
    pub voters: Vec<u64>,
    /// What is known of its run before this one.
    pub said: String,
}

impl Row {
    /// A node's, of what its replica says of itself and it knew before.
    pub(super) fn of(
        (shard, node, incarnation): (u32, u64, u64),
        boot: Option<u128>,
        outline: Outline,
        known: Known,
        said: &str,
    ) -> Self {
        let (vote_term, voted_for, is_granted) = outline.vote;
        let (last_term, last) = outline.last;
        Self {
            shard,
            node,
            incarnation,
            generation: outline.generation,
            boot: boot.map_or(String::new(), |boot| format!("{boot:032x}")),
            is_in_doubt: outline.is_dirty,
            is_anew: false,
            lacks: false,
            has_less: outline.has_less,
            is_damaged: outline.is_damaged,
            damage_lasts: outline.damage_lasts,
            whole: outline.whole,
            has_lost: false,
            refuses: false,
            vote_term,
            voted_for,
            is_granted,
            last_term,
            last,
            synced: outline.synced,
            committed: outline.committed.max(known.committed),
            durable: outline.durable.max(known.durable),
            leads: outline.leader == Some(node),
            leader: outline.leader.unwrap_or(0),
            voters: outline.voters,
            said: cut(said).to_owned(),
        }
    }

    /// What is decided on: what is durable may grow while somebody looks, as what is given and what is free may, and what is said
    /// is for people.
    pub(super) fn told(&self) -> Self {
        Self {
            said: String::new(),
            damage_lasts: false,
            whole: None,
            synced: 0,
            lacks: false,
            has_lost: false,
            refuses: false,
            ..self.clone()
        }
    }

    /// Term and index of the last entry of its log.
    pub(super) fn end(&self) -> (u64, u64) {
        (self.last_term, self.last)
    }

    /// The same of what can be led with after a loss: of a log that is damaged what lies before that, once nobody has given it for seconds.
    pub(super) fn usable(&self) -> Option<(u64, u64)> {
        if self.is_damaged { self.whole } else { Some(self.end()) }
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let doubt = flag(self.is_in_doubt, IN_DOUBT);
        to.extend_from_slice(&[
            VERSION,
            doubt
                | flag(self.is_granted, GRANTED)
                | flag(self.leads, LEADS)
                | flag(self.is_anew, ANEW)
                | flag(self.lacks, LACKS)
                | flag(if self.leads { self.refuses } else { self.has_lost }, REFUSES)
                | flag(self.has_less, HAS_LESS)
                | flag(self.is_damaged, IS_DAMAGED),
        ]);
        to.extend_from_slice(&self.shard.to_le_bytes());
        for field in [self.node, self.incarnation, self.generation] {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let boot = u128::from_str_radix(&self.boot, 16).unwrap_or(0);
        to.extend_from_slice(&boot.to_le_bytes());
        let fields = [self.vote_term, self.voted_for, self.last_term, self.last, self.synced];
        for field in fields.into_iter().chain([self.committed, self.durable, self.leader]) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        let voters = u32::try_from(self.voters.len()).expect("few vote");
        to.extend_from_slice(&voters.to_le_bytes());
        to.extend(self.voters.iter().flat_map(|voter| voter.to_le_bytes()));
        push_text(cut(&self.said), to);
    }

    pub(super) fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [version, flags] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a row", version.into()));
        }
        let has = |flag| flags & flag != 0;
        let (shard, node, incarnation) = (from.u32()?, from.u64()?, from.u64()?);
        let generation = from.raisable("a generation")?;
        let boot = Some(u128::from_le_bytes(from.array()?)).filter(|boot| *boot != 0);
        let (vote_term, voted_for) = (from.u64()?, from.u64()?);
        let (last_term, last) = (from.u64()?, from.raisable("a log index")?);
        let synced = from.raisable("a log index")?;
        let committed = from.raisable("a log index")?;
        let durable = from.raisable("a log index")?;
        let leader = from.u64()?;
        let count = from.count(8, "the count of voters")?;
        let voters = (0..count).map(|_| from.u64()).collect::<Result<Vec<_>, _>>()?;
        let said = from.text(SAID_BYTES_MAX, "what is said")?.to_owned();
        Ok(Self {
            shard,
            node,
            incarnation,
            generation,
            boot: boot.map_or(String::new(), |boot| format!("{boot:032x}")),
            is_in_doubt: has(IN_DOUBT),
            is_anew: has(ANEW),
            lacks: has(LACKS),
            has_less: has(HAS_LESS),
            is_damaged: has(IS_DAMAGED),
            damage_lasts: false,
            whole: None,
            has_lost: has(REFUSES) && !has(LEADS),
            refuses: has(REFUSES) && has(LEADS),
            vote_term,
            voted_for,
            is_granted: has(GRANTED),
            last_term,
            last,
            synced,
            committed,
            durable,
            leads: has(LEADS),
            leader,
            voters,
            said,
        })
    }
}

/// A text that is not too long.
fn cut(said: &str) -> &str {
    let mut ends = (0..=SAID_BYTES_MAX.min(said.len())).rev();
    let end = ends.find(|end| said.is_char_boundary(*end)).unwrap_or(0);
    &said[..end]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Of shard 2 of three voters, of which nobody leads.
    pub(in crate::broker) fn row(node: u64, is_in_doubt: bool, last: (u64, u64)) -> Row {
        let outline = Outline {
            generation: 1,
            vote: (7, 2, true),
            last,
            synced: 4,
            committed: 9,
            durable: 5,
            leader: None,
            is_dirty: is_in_doubt,
            has_less: false,
            is_damaged: false,
            damage_lasts: false,
            whole: None,
            voters: vec![1, 2, 3],
        };
        Row::of((2, node, 11), Some(77), outline, Known::of(8, 6, 6), "it was cut off")
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_no_other_bytes_are_one() {
        let mut bytes = Vec::new();
        let written = Row {
            is_anew: true,
            has_lost: true,
            has_less: true,
            is_damaged: true,
            ..row(3, true, (7, 20))
        };
        written.encode(&mut bytes);
        assert_eq!(bytes.len(), 110 + 4 + 3 * 8 + 2 + "it was cut off".len());
        let read = |bytes: &[u8]| {
            let mut from = Cursor::new(bytes, "a row");
            let row = Row::decode(&mut from)?;
            from.end().map(|()| row)
        };
        assert_eq!(read(&bytes), Ok(written));
        for refuses in [false, true] {
            let leads = Row { leads: true, leader: 3, refuses, ..row(3, false, (7, 20)) };
            let mut bytes = Vec::new();
            leads.encode(&mut bytes);
            assert_eq!(read(&bytes), Ok(leads));
        }
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes");
        }
        let long = Row { said: "é".repeat(400), ..row(3, true, (7, 20)) };
        let mut bytes = Vec::new();
        long.encode(&mut bytes);
        assert_eq!(read(&bytes).map(|row| row.said.len()), Ok(SAID_BYTES_MAX));
    }
}
