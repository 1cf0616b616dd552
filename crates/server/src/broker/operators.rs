//! What nodes ask each other for an operator's sake, as bytes.
//!
//! ```text
//! a request
//! 0 version   u8   1
//! 1 kind      u8   1 may you lead   2 have it led   3 what are you   4 go on after a loss   5 what was decided
//!                  6 have a node come   7 have one go   8 scrub   9 end a scrub   10 how do scrubs go
//!                  11 who is level   12 how is what you lead   13 what is damaged for long
//! 2 shard     u32  of 2 and 5
//! 6 node      u64  of 2: who is to lead it
//! 2 node      u64  of 6 and 7; 0 of 6 is for whoever is asked to choose
//! 10 address  text of 6: where it is to be found
//! 2 scrub     u64  of 8 and 9: its number, never 0
//! 10 rate     u64  of 8: bytes a second; 0: as fast as the disk is
//! 2 declared  u8   of 4: 1 by what was declared before
//! 3 count     u32  of 4: of so many shards the decision 96, as in `decided.rs`, and the row of whoever is asked, as in `row.rs`
//!
//! an answer
//! 0 version   u8   1
//! 1 kind      u8   1 yes, or done   2 no   3 it is being closed, and may open again
//! 2 why       text of 2
//! 2 node      u64  of 6
//! 2 rows      u32 count · each as in `row.rs`   of 1 to 3
//! 2 decision  96   of 1 to 5
//! 2 scrubs    u32 count · each as in `scrubbed.rs`   of 8 to 10
//! 2 levels    u32 count · each a shard that it leads, u32, and who is level, u32 count · u64 each   of 11
//! 2 leads     of 12, as in `lead.rs`
//! 2 damage    u32 count · each a shard, u32, then u8 1 and u64 term · u64 index of the last entry before what is damaged, or as many zeros where that is
//!             not to be gone on with   of 13
//! ```
//!
//! Little-endian; text is length u16 · UTF-8, nothing behind it.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::timeout;

use super::company::{Company, OPERATORS};
use super::decided::{self, Decided};
use super::roll::{Damage, Levels};
use super::row::Row;
use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
/// What is said of why, in bytes.
const WHY_BYTES_MAX: usize = 1024;
/// Where a node is found, in bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 512;
/// What a row has at least.
const ROW_BYTES_MIN: usize = 112;
/// How long a node may take: it hands over within that, or gives up.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where a node waits for its turn, and for others, before it answers.
const CHANGE_PATIENCE: Duration = Duration::from_secs(12);

/// What a node is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Whether it may lead, or is about to be stopped.
    May,
    /// To have another lead what it leads.
    Move { number: u32, to: u64 },
    /// What its shards are.
    Roll,
    /// To have shards go on after a loss, if they are as they were shown.
    Recover { of: Vec<(Decided, Row)>, is_declared: bool },
    /// What was decided last of a shard.
    Decided(u32),
    /// To have a node come that is found there; under any number if that is 0.
    Join { node: u64, address: String },
    /// To have a node go.
    Remove(u64),
    /// To read all its chapters again, as the scrub of this number, at so many bytes a second.
    Scrub { scrub: u64, rate: Option<NonZeroU64> },
    /// To end that, if it is under way.
    StopScrub(u64),
    /// How its scrubs go.
    Scrubs,
    /// Of each shard that it leads, which voters have what was committed a moment ago.
    Level,
    /// How each shard is that it leads, and whom it awaits.
    Leads,
    /// Of which shards its log has been damaged for seconds.
    Damage,
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::May => vec![VERSION, 1],
            Self::Move { number, to } => {
                let mut bytes = vec![VERSION, 2];
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes.extend_from_slice(&to.to_le_bytes());
                bytes
            }
            Self::Roll => vec![VERSION, 3],
            Self::Recover { of, is_declared } => {
                let mut bytes = vec![VERSION, 4, u8::from(*is_declared)];
                let count = u32::try_from(of.len()).expect("there are few shards");
                bytes.extend_from_slice(&count.to_le_bytes());
                for (decided, row) in of {
                    bytes.extend_from_slice(&decided.encode());
                    row.encode(&mut bytes);
                }
                bytes
            }
            Self::Decided(number) => {
                let mut bytes = vec![VERSION, 5];
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes
            }
            Self::Join { node, address } => {
                let mut bytes = vec![VERSION, 6];
                bytes.extend_from_slice(&node.to_le_bytes());
                push_text(address, &mut bytes);
                bytes
            }
            Self::Remove(node) => [&[VERSION, 7][..], &node.to_le_bytes()].concat(),
            Self::Scrub { scrub, rate } => {
                let rate = rate.map_or(0, NonZeroU64::get);
                [&[VERSION, 8][..], &scrub.to_le_bytes(), &rate.to_le_bytes()].concat()
            }
            Self::StopScrub(scrub) => [&[VERSION, 9][..], &scrub.to_le_bytes()].concat(),
            Self::Scrubs => vec![VERSION, 10],
            Self::Level => vec![VERSION, 11],
            Self::Leads => vec![VERSION, 12],
            Self::Damage => vec![VERSION, 13],
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "what a node asks for an operator");
        let [version, kind] = from.array()?;
        let request = match (version, kind) {
            (VERSION, 1) => Self::May,
            (VERSION, 2) => Self::Move { number: from.u32()?, to: from.u64()? },
            (VERSION, 3) => Self::Roll,
            (VERSION, 4) => Self::Recover {
                is_declared: match from.array()? {
                    [0] => false,
                    [1] => true,
                    [other] => return Err(Malformed::Field("a flag", other.into())),
                },
                of: {
                    let count =
                        from.count(decided::TOLD_BYTES + ROW_BYTES_MIN, "the count of shards")?;
                    let mut one = || {
                        let decided = Decided::decode(from.bytes(decided::TOLD_BYTES)?)?;
                        Ok((decided, Row::decode(&mut from)?))
                    };
                    (0..count).map(|_| one()).collect::<Result<_, Malformed>>()?
                },
            },
            (VERSION, 5) => Self::Decided(from.u32()?),
            (VERSION, 6) => Self::Join {
                node: from.u64()?,
                address: from.text(ADDRESS_BYTES_MAX, "an address")?.to_owned(),
            },
            (VERSION, 7) => Self::Remove(from.u64()?),
            (VERSION, 8) => Self::Scrub { scrub: from.u64()?, rate: NonZeroU64::new(from.u64()?) },
            (VERSION, 9) => Self::StopScrub(from.u64()?),
            (VERSION, 10) => Self::Scrubs,
            (VERSION, 11) => Self::Level,
            (VERSION, 12) => Self::Leads,
            (VERSION, 13) => Self::Damage,
            (VERSION, other) => return Err(Malformed::Field("what is asked", other.into())),
            (other, _) => return Err(Malformed::Field("a version", other.into())),
        };
        from.end()?;
        Ok(request)
    }
}

/// What is answered where whoever would know is being closed: that is no word on what was asked.
pub(super) const CLOSING: [u8; 2] = [VERSION, 3];

/// What is answered, as bytes.
pub(super) fn encode(answer: &Result<Vec<u8>, String>) -> Vec<u8> {
    match answer {
        Ok(said) => [&[VERSION, 1], &said[..]].concat(),
        Err(why) => {
            let mut bytes = vec![VERSION, 2];
            let mut ends = (0..=WHY_BYTES_MAX.min(why.len())).rev();
            let end = ends.find(|end| why.is_char_boundary(*end)).unwrap_or(0);
            push_text(&why[..end], &mut bytes);
            bytes
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Result<Vec<u8>, String>, Malformed> {
    let mut from = Cursor::new(bytes, "an answer to what was asked for an operator");
    let [version, kind] = from.array()?;
    let answer = match (version, kind) {
        (VERSION, 1) => return Ok(Ok(from.rest().to_vec())),
        (VERSION, 2) => Err(from.text(WHY_BYTES_MAX, "why")?.to_owned()),
        (VERSION, other) => return Err(Malformed::Field("an answer", other.into())),
        (other, _) => return Err(Malformed::Field("a version", other.into())),
    };
    from.end()?;
    Ok(answer)
}

/// Rows, as they are answered.
pub(super) fn rows(rows: &[Row]) -> Vec<u8> {
    let count = u32::try_from(rows.len()).expect("there are few shards");
    let mut bytes = count.to_le_bytes().to_vec();
    rows.iter().for_each(|row| row.encode(&mut bytes));
    bytes
}

/// The rows of an answer.
pub(super) fn rows_in(bytes: &[u8]) -> Result<Vec<Row>, Malformed> {
    let mut from = Cursor::new(bytes, "the rows of a node");
    let count = from.count(ROW_BYTES_MIN, "the count of rows")?;
    let rows = (0..count).map(|_| Row::decode(&mut from)).collect::<Result<_, _>>()?;
    from.end()?;
    Ok(rows)
}

/// Who is level in which shard, as it is answered.
pub(super) fn levels(levels: &Levels) -> Vec<u8> {
    let count = |len: usize| u32::try_from(len).expect("there are few").to_le_bytes();
    let mut bytes = count(levels.len()).to_vec();
    for (shard, nodes) in levels {
        bytes.extend_from_slice(&shard.to_le_bytes());
        bytes.extend_from_slice(&count(nodes.len()));
        bytes.extend(nodes.iter().flat_map(|node| node.to_le_bytes()));
    }
    bytes
}

/// Who is level, of an answer.
pub(super) fn levels_in(bytes: &[u8]) -> Result<Levels, Malformed> {
    let mut from = Cursor::new(bytes, "who is level");
    let mut levels = Levels::new();
    for _ in 0..from.count(4 + 4, "the count of shards")? {
        let shard = from.u32()?;
        let count = from.count(8, "the count of nodes")?;
        let nodes = (0..count).map(|_| from.u64()).collect::<Result<_, _>>()?;
        levels.insert(shard, nodes);
    }
    from.end()?;
    Ok(levels)
}

/// Of which of these shards the log has been damaged for seconds, as it is answered.
pub(super) fn damage(rows: &[Row]) -> Vec<u8> {
    let damaged: Vec<&Row> = rows.iter().filter(|row| row.damage_lasts).collect();
    let count = u32::try_from(damaged.len()).expect("there are few");
    let mut bytes = count.to_le_bytes().to_vec();
    for row in damaged {
        let (term, index) = row.whole.unwrap_or_default();
        bytes.extend_from_slice(&row.shard.to_le_bytes());
        bytes.push(u8::from(row.whole.is_some()));
        bytes.extend_from_slice(&term.to_le_bytes());
        bytes.extend_from_slice(&index.to_le_bytes());
    }
    bytes
}

/// The same of an answer: of each such shard up to where its log can be gone on with, if it can.
pub(super) fn damage_in(bytes: &[u8]) -> Result<Damage, Malformed> {
    let mut from = Cursor::new(bytes, "what is damaged of a node");
    let mut damage = Damage::new();
    for _ in 0..from.count(21, "the count of shards")? {
        let (shard, [is_whole]) = (from.u32()?, from.array()?);
        let whole = (from.u64()?, from.raisable("a log index")?);
        damage.insert(shard, (is_whole != 0).then_some(whole));
    }
    from.end()?;
    Ok(damage)
}

/// Why a node does not do what it was asked, as it says itself, or why it was not reached.
#[derive(Debug, thiserror::Error)]
#[error("node {node}: {why}")]
pub struct Said {
    /// Which.
    pub node: u64,
    /// What it says.
    pub why: String,
    /// Whether it says so itself.
    pub is_its_word: bool,
}

/// Asks a node, once.
pub(super) async fn ask(company: &Company, node: u64, request: Request) -> Result<Vec<u8>, Said> {
    let said = |why: String| Said { node, why, is_its_word: false };
    let patience = match request {
        Request::Join { .. } | Request::Remove(_) => CHANGE_PATIENCE,
        _ => PATIENCE,
    };
    let asked = company.ask(node, OPERATORS, request.encode());
    let answer = match timeout(patience, asked).await {
        Ok(answer) => answer.map_err(|why| said(why.to_string()))?,
        Err(_late) => return Err(said("it did not answer in time".to_owned())),
    };
    if *answer == CLOSING {
        return Err(said("it is being closed".to_owned()));
    }
    let answer = decode(&answer).map_err(|_why| said("it knows of no such request".to_owned()))?;
    answer.map_err(|why| Said { is_its_word: true, ..said(why) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::broker::row::tests::row as one;

    fn row() -> Row {
        one(3, true, (7, 20))
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written_and_no_others() {
        let moved = Request::Move { number: 2, to: 258 };
        let decided = Decided {
            number: 2,
            generation: 1,
            digest: 5,
            guaranteed: 6,
            at_ms: 7,
            lifts: true,
            lost_durable: true,
            least: (6, 9),
            ended: (0, 0),
            cuts: false,
        };
        let of = vec![(decided, row()), (Decided { number: 4, ..decided }, row())];
        let recover = Request::Recover { of, is_declared: true };
        let join = Request::Join { node: 4, address: "d:9094".to_owned() };
        let others = [recover, Request::Decided(2), join, Request::Remove(3)];
        let scrub = Request::Scrub { scrub: 7, rate: NonZeroU64::new(16 << 20) };
        let others = others.into_iter().chain([scrub, Request::StopScrub(7), Request::Scrubs]);
        let first = [Request::May, moved.clone(), Request::Roll, Request::Level, Request::Leads];
        let first = first.into_iter().chain([Request::Damage]);
        for request in first.chain(others) {
            let bytes = request.encode();
            for end in 0..bytes.len() {
                assert!(Request::decode(&bytes[..end]).is_err());
            }
            assert_eq!(Request::decode(&bytes), Ok(request));
        }
        assert_eq!(moved.encode(), [1, 2, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert!(Request::decode(&[1, 1, 0]).is_err() && Request::decode(&[2, 1]).is_err());
        for answer in [Ok(Vec::new()), Ok(rows(&[row(), row()])), Err("no".to_owned())] {
            assert_eq!(decode(&encode(&answer)), Ok(answer));
        }
        assert_eq!(encode(&Err("no".to_owned())), [1, 2, 2, 0, b'n', b'o']);
        // What is said is as long as it may be read.
        let long = encode(&Err("é".repeat(WHY_BYTES_MAX)));
        assert_eq!(decode(&long), Ok(Err("é".repeat(WHY_BYTES_MAX / 2))));
        for wrong in [&[][..], &[1], &[1, 3], &[2, 1], &[1, 2, 1, 0]] {
            assert!(decode(wrong).is_err(), "{wrong:?}");
        }
        let said = rows(&[row(), row()]);
        assert_eq!(rows_in(&said), Ok(vec![row(), row()]));
        assert!((0..said.len()).all(|end| rows_in(&said[..end]).is_err()));
        assert!(rows_in(&u32::MAX.to_le_bytes()).is_err());
        let known = Levels::from([(0, BTreeSet::from([1, 3])), (7, BTreeSet::new())]);
        let said = levels(&known);
        assert_eq!(levels_in(&said), Ok(known));
        assert!((0..said.len()).all(|end| levels_in(&said[..end]).is_err()));
        assert!(levels_in(&u32::MAX.to_le_bytes()).is_err());
    }
}
