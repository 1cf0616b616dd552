//! What nodes ask the controller for, as bytes: each has it do what its own clients asked for.
//!
//! ```text
//! a request
//! 0 version   u8   1
//! 1 kind      u8   1 look   2 change
//! 2 body           a change: its bytes, as control agrees on them
//!
//! an answer
//! 0 version   u8   1
//! 1 kind      u8
//! 2 catalog   u64  how many changes made the controller's catalog what it is now
//! 10 body
//!
//! 1 done            first i64         the first of the ids of producers that were given away
//! 2 not controller                    nothing was done
//! 3 impossible      which u8, and what it says: a name as text, a count u64, or a number u32
//! 4 full            there u64 · max u64
//! 5 unknown                           it may be done, or be done later
//! 6 lacking         node u64          it is away, or would not know what was agreed on
//! ```
//!
//! Little-endian; text is length u16 · UTF-8. Of the shards of partitions only the count is taken: the controller looks
//! whether there is room, and places them.
//!
//! A request is asked once. Whoever has no answer to one that was sent does not know whether it is done, and says so.

use std::time::Duration;

use tokio::time::timeout;

use super::agreed::{Agreed, PRODUCERS, Refused};
use super::company::Company;
use crate::control::{Change, Impossible, PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX};
use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
/// How long the controller is waited for: less than clients wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the controller is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// How far its catalog is.
    Look,
    /// To have a change agreed on.
    Change(Change),
}

/// What it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The version of its catalog.
    pub(super) catalog: u64,
    pub(super) outcome: Outcome,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done { first: i64 },
    NotController,
    Impossible(Impossible),
    Full { there: u64, max: u64 },
    Unknown,
    Lacking { node: u64 },
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Look => vec![VERSION, 1],
            Self::Change(change) => {
                let mut to = vec![VERSION, 2];
                to.extend_from_slice(&change.encode());
                to
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a request to the controller");
        match from.array()? {
            [VERSION, 1] => from.end().map(|()| Self::Look),
            [VERSION, 2] => {
                let change = Change::decode(from.rest())?;
                match change {
                    Change::Create { .. }
                    | Change::Grow { .. }
                    | Change::Alter { .. }
                    | Change::Delete { .. }
                    | Change::Move { .. }
                    | Change::Shed { .. }
                    | Change::Producers(1..=PRODUCERS) => Ok(Self::Change(change)),
                    // The controller does these by itself, or nobody asks for so many.
                    Change::Gone { .. }
                    | Change::Moved { .. }
                    | Change::Feature(_)
                    | Change::Producers(_) => {
                        Err(Malformed::Field("a change that is asked for", bytes.len() as u64))
                    }
                }
            }
            [VERSION, kind] => Err(Malformed::Field("the kind of a request", kind.into())),
            [version, _] => Err(Malformed::Field("the version of a request", version.into())),
        }
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION, 0];
        to.extend_from_slice(&self.catalog.to_le_bytes());
        to[1] = match &self.outcome {
            Outcome::Done { first } => {
                to.extend_from_slice(&first.to_le_bytes());
                1
            }
            Outcome::NotController => 2,
            Outcome::Impossible(why) => match push_impossible(why, &mut to) {
                Some(()) => 3,
                None => 5,
            },
            Outcome::Full { there, max } => {
                to.extend_from_slice(&there.to_le_bytes());
                to.extend_from_slice(&max.to_le_bytes());
                4
            }
            Outcome::Unknown => 5,
            Outcome::Lacking { node } => {
                to.extend_from_slice(&node.to_le_bytes());
                6
            }
        };
        to
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "an answer of the controller");
        let [version, kind] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of an answer", version.into()));
        }
        let catalog = from.u64()?;
        let outcome = match kind {
            1 => Outcome::Done { first: from.offset("an id of a producer")? },
            2 => Outcome::NotController,
            3 => Outcome::Impossible(read_impossible(&mut from)?),
            4 => Outcome::Full { there: from.u64()?, max: from.u64()? },
            5 => Outcome::Unknown,
            6 => Outcome::Lacking { node: from.u64()? },
            other => return Err(Malformed::Field("the kind of an answer", other.into())),
        };
        from.end()?;
        Ok(Self { catalog, outcome })
    }

    /// What whoever asked knows by it.
    pub(super) fn agreed(self) -> Result<Agreed, Refused> {
        let number = |number| usize::try_from(number).unwrap_or(usize::MAX);
        match self.outcome {
            Outcome::Done { first } => Ok(Agreed { first, version: self.catalog }),
            Outcome::NotController => Err(Refused::not_controller()),
            Outcome::Impossible(why) => Err(why.into()),
            Outcome::Full { there, max } => {
                Err(Refused::Full { there: number(there), max: number(max) })
            }
            Outcome::Unknown => Err(Refused::Unknown),
            Outcome::Lacking { node } => Err(Refused::Lacking { node }),
        }
    }
}

/// Nothing of what nobody asks for.
fn push_impossible(why: &Impossible, to: &mut Vec<u8>) -> Option<()> {
    let (which, name) = match why {
        Impossible::Exists(name) => (1, Some(name)),
        Impossible::IdExists => (2, None),
        Impossible::NoSuchTopic => (3, None),
        Impossible::Deleted(name) => (4, Some(name)),
        Impossible::TooManyPartitions(count) => {
            to.push(5);
            to.extend_from_slice(&(*count as u64).to_le_bytes());
            return Some(());
        }
        Impossible::Exhausted => (6, None),
        Impossible::NoSuchPartition(number) | Impossible::NoSuchShard(number) => {
            to.push(if matches!(why, Impossible::NoSuchShard(_)) { 8 } else { 7 });
            to.extend_from_slice(&number.to_le_bytes());
            return Some(());
        }
        Impossible::NotDeleted(_) | Impossible::Backwards(..) | Impossible::HasMoved(_) => {
            return None;
        }
    };
    to.push(which);
    if let Some(name) = name {
        push_text(name, to);
    }
    Some(())
}

fn read_impossible(from: &mut Cursor<'_>) -> Result<Impossible, Malformed> {
    let [which] = from.array()?;
    let mut name = || Ok(from.text(TOPIC_NAME_BYTES_MAX, "a topic's name")?.to_owned());
    Ok(match which {
        1 => Impossible::Exists(name()?),
        2 => Impossible::IdExists,
        3 => Impossible::NoSuchTopic,
        4 => Impossible::Deleted(name()?),
        5 => {
            let count = usize::try_from(from.u64()?).unwrap_or(usize::MAX);
            Impossible::TooManyPartitions(count.max(PARTITIONS_MAX + 1))
        }
        6 => Impossible::Exhausted,
        7 => Impossible::NoSuchPartition(from.u32()?),
        8 => Impossible::NoSuchShard(from.u32()?),
        other => return Err(Malformed::Field("why it is impossible", other.into())),
    })
}

/// Asks the controller once.
pub(super) async fn ask(company: &Company, controller: u64, request: &Request) -> Answer {
    use crate::peer::Error;
    let asked = company.ask_controller(controller, request.encode());
    let outcome = match timeout(PATIENCE, asked).await {
        // Its shards are being closed, or it knows of no such request.
        Ok(Ok(answer)) if answer.is_empty() => Outcome::NotController,
        Ok(Ok(answer)) => match Answer::decode(&answer) {
            Ok(answer) => return answer,
            Err(why) => {
                tracing::warn!(%why, controller, "the answer of the controller is none");
                Outcome::Unknown
            }
        },
        // Nothing was sent.
        Ok(Err(Error::Unreachable { .. } | Error::Busy { .. } | Error::TooLarge { .. })) => {
            Outcome::NotController
        }
        Ok(Err(Error::Gone { .. } | Error::Refused { .. })) | Err(_) => Outcome::Unknown,
    };
    Answer { catalog: 0, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::TopicSettings;
    use crate::shard::TopicId;

    #[test]
    fn requests_are_read_as_they_were_written_and_no_others() {
        let id = TopicId([7; 16]);
        let (name, settings) = ("orders".to_owned(), TopicSettings::default());
        let create = Change::Create { id, name, shards: vec![2, 2], settings };
        let to_move = Change::Move { id, partitions: vec![(0, 4), (1, 6)] };
        let to_shed = Change::Shed { id, partition: 1, start: 9 };
        let delete = Change::Delete { id };
        for change in [create, delete, Change::Producers(PRODUCERS), to_move, to_shed] {
            let request = Request::Change(change);
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        assert_eq!(Request::decode(&[1, 1]), Ok(Request::Look));
        let many = Change::Producers(PRODUCERS + 1);
        for change in [Change::Gone { id, epoch: 1 }, Change::Feature(1), many] {
            assert!(Request::decode(&Request::Change(change).encode()).is_err());
        }
        for bytes in [&[][..], &[1], &[2, 1], &[1, 3], &[1, 1, 0], &[1, 2]] {
            assert!(Request::decode(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn answers_are_read_as_they_were_written_and_no_others() {
        let orders = || "orders".to_owned();
        let impossible = [
            Impossible::Exists(orders()),
            Impossible::IdExists,
            Impossible::NoSuchTopic,
            Impossible::Deleted(orders()),
            Impossible::TooManyPartitions(PARTITIONS_MAX + 1),
            Impossible::Exhausted,
            Impossible::NoSuchPartition(9),
            Impossible::NoSuchShard(9),
        ];
        let outcomes = [
            Outcome::Done { first: 7000 },
            Outcome::NotController,
            Outcome::Full { there: 3, max: 4 },
            Outcome::Unknown,
            Outcome::Lacking { node: 3 },
        ];
        for outcome in outcomes.into_iter().chain(impossible.map(Outcome::Impossible)) {
            let answer = Answer { catalog: 258, outcome };
            let bytes = answer.encode();
            for end in 0..bytes.len() {
                assert!(Answer::decode(&bytes[..end]).is_err());
            }
            assert_eq!(Answer::decode(&bytes), Ok(answer));
        }
        let done = Answer { catalog: 258, outcome: Outcome::Done { first: 7 } };
        let golden = [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(done.encode(), golden);
    }
}
