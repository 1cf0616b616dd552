//! What one replica of a shard of records asks another for, where something of its chapters is damaged.
//!
//! ```text
//! request  0 version  u8  1
//!          1 kind     u8
//!          2 shard    u32
//!          6 opening      topic id 16 · partition u32 · opening u32
//! 1 a piece of the run    30 chapter u32 · first block u32
//! 2 batches               30 from i64 · end i64 · bytes u32
//!
//! answer   0 version  u8  1
//!          1 kind     u8
//! 0 it has none
//! 1 a piece               as drawn in `chapter/piece.rs`
//! 2 batches               one after the other, as Kafka's clients get them
//! ```
//!
//! Little-endian. Nothing of an answer is believed: a piece is held against the hash that is stored where it is damaged, and
//! a batch against its own checksum.

use bytes::Bytes;

use super::reading::Reading;
use crate::chapter::Piece;
use crate::cursor::{Cursor, Malformed};
use crate::kafka::batch;
use crate::shard::{Batch, Opening};

const VERSION: u8 = 1;
const NOTHING: u8 = 0;
const PIECE: u8 = 1;
const BATCHES: u8 = 2;
/// Bytes of batches that are given at once, at most, and the batch that goes beyond: a frame has room for them.
const BYTES_MAX: u32 = 4 << 20;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) shard: u32,
    pub(super) wanted: Wanted,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    /// Some blocks of a run, from this one on.
    Piece { opening: Opening, chapter: u32, from: u32 },
    /// Batches, to be read by somebody who waits.
    Batches(Reading),
}

/// What is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Nothing,
    Piece(Piece),
    Batches(Vec<Bytes>),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, opening) = match &self.wanted {
            Wanted::Piece { opening, .. } => (PIECE, opening),
            Wanted::Batches(reading) => (BATCHES, &reading.opening),
        };
        let mut to = vec![VERSION, kind];
        to.extend_from_slice(&self.shard.to_le_bytes());
        opening.encode(&mut to);
        match self.wanted {
            Wanted::Piece { chapter, from, .. } => {
                to.extend_from_slice(&chapter.to_le_bytes());
                to.extend_from_slice(&from.to_le_bytes());
            }
            Wanted::Batches(Reading { from, end, bytes_max, .. }) => {
                to.extend_from_slice(&from.to_le_bytes());
                to.extend_from_slice(&end.to_le_bytes());
                let bytes = u32::try_from(bytes_max).unwrap_or(u32::MAX).min(BYTES_MAX);
                to.extend_from_slice(&bytes.to_le_bytes());
            }
        }
        to
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a request to repair");
        let [version, kind] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a request to repair", version.into()));
        }
        let shard = from.u32()?;
        let opening = Opening::decode(&mut from)?;
        let wanted = match kind {
            PIECE => Wanted::Piece { opening, chapter: from.u32()?, from: from.u32()? },
            BATCHES => {
                let (first, end) = (from.offset("an offset")?, from.offset("an offset")?);
                let bytes_max = usize::try_from(from.u32()?.min(BYTES_MAX)).unwrap_or(0);
                Wanted::Batches(Reading { opening, from: first, end, bytes_max })
            }
            other => return Err(Malformed::Field("what is to be repaired", other.into())),
        };
        from.end()?;
        Ok(Self { shard, wanted })
    }
}

impl Answer {
    /// Its bytes, those of batches by reference.
    pub(super) fn encode(self) -> Vec<Bytes> {
        let (kind, rest) = match self {
            Self::Nothing => (NOTHING, Vec::new()),
            Self::Piece(piece) => (PIECE, piece.encode()),
            Self::Batches(batches) => (BATCHES, batches),
        };
        let mut to = vec![Bytes::copy_from_slice(&[VERSION, kind])];
        to.extend(rest);
        to
    }

    /// The answer that these bytes are; it shares them.
    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "an answer with what repairs");
        let [version, kind] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of what repairs", version.into()));
        }
        let mut rest = bytes.slice_ref(from.rest());
        match kind {
            NOTHING => Ok(Self::Nothing),
            PIECE => Piece::decode(&rest).map(Self::Piece),
            BATCHES => {
                let (mut batches, whole) = (Vec::new(), rest.len());
                while !rest.is_empty() {
                    let before = rest.clone();
                    let at = whole - rest.len();
                    batch::Batch::take(&mut rest)
                        .map_err(|_wrong| Malformed::Field("the place of a batch", at as u64))?;
                    batches.push(before.slice(..before.len() - rest.len()));
                }
                Ok(Self::Batches(batches))
            }
            other => Err(Malformed::Field("the kind of what repairs", other.into())),
        }
    }
}

/// Whether batches are what is to be read: they follow each other, and the first is the one that holds the first
/// offset, or behind it.
pub(super) fn are_of(batches: &[Bytes], reading: &Reading) -> bool {
    let mut next = reading.from;
    batches.iter().enumerate().all(|(nth, bytes)| {
        let Ok(read) = Batch::read(bytes) else { return false };
        let Some(end) = read.end() else { return false };
        let follows = if nth == 0 { end > next } else { read.base_offset >= next };
        next = end;
        follows && end <= reading.end
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::compression::Compression;
    use crate::kafka::records::Draft;
    use crate::shard::{PartitionId, TopicId};

    fn opening() -> Opening {
        Opening { partition: PartitionId { topic: TopicId([7; 16]), number: 3 }, number: 2 }
    }

    fn reading() -> Reading {
        Reading { opening: opening(), from: 0, end: 9, bytes_max: 1 << 30 }
    }

    fn batch(base: i64) -> Bytes {
        let mut draft = Draft::default();
        draft.push(1_000, None, Some(b"value"), &[]);
        let mut bytes = draft.batch(Compression::None, None).pieces().concat();
        #[expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]
        bytes[..8].copy_from_slice(&base.to_be_bytes());
        bytes.into()
    }

    #[test]
    fn what_replicas_ask_to_repair_is_as_ever() {
        let piece = Wanted::Piece { opening: opening(), chapter: 5, from: 64 };
        let batches = Answer::Batches(vec![batch(3), batch(4)]);
        let all = [
            Request { shard: 2, wanted: piece }.encode(),
            Request { shard: 3, wanted: Wanted::Batches(reading()) }.encode(),
            Answer::Nothing.encode().concat(),
            batches.encode().concat(),
        ];
        let bytes = all.concat();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/broker/testdata/repair-v1");
        if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
            std::fs::write(path, &bytes).unwrap();
        }
        assert_eq!(bytes, std::fs::read(path).unwrap());
        for request in &all[..2] {
            assert_eq!(Request::decode(request).unwrap().encode(), *request);
            assert!(Request::decode(&request[..request.len() - 1]).is_err());
            assert!(Request::decode(&[&request[..], &[0]].concat()).is_err());
        }
        for answer in &all[2..] {
            let decoded = Answer::decode(&answer.clone().into()).unwrap();
            assert_eq!(decoded.encode().concat(), *answer);
        }
        for bytes in [&[][..], &[1], &[2, 0], &[1, 3], &[1, 2, 0]] {
            assert!(Answer::decode(&Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_batch_that_is_damaged_or_of_elsewhere_is_not_read() {
        let good = Answer::Batches(vec![batch(3)]).encode().concat();
        for at in 2 + 21..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Answer::decode(&bad.into()).is_err(), "{at}");
        }
        for (bases, is_good) in [
            (&[3, 4][..], true),
            (&[3, 8], true),
            (&[4, 3], false),
            (&[3, 3], false),
            (&[3, 9], false),
        ] {
            let batches: Vec<_> = bases.iter().map(|base| batch(*base)).collect();
            assert_eq!(are_of(&batches, &reading()), is_good, "{bases:?}");
        }
        assert!(!are_of(&[batch(3)], &Reading { from: 4, ..reading() }));
    }
}
