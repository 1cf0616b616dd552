//! [`Scrubbed`]: what a node says of the scrub of a shard, as bytes.
//!
//! ```text
//!  0 version   u8   1
//!  1 phase     u8   0 never, 1 waiting, 2 running, 3 ended, 4 stopped
//!  2 shard     u32
//!  6 scrub     u64  whose pass it is: 0 the schedule's, or an operator's
//! 14 begun     u64  ms since 1970; 0: not yet
//! 22 ended     u64
//! 30 due       u64  bytes that were to be read
//! 38 read      u64
//! 46 damaged   u64  places that this pass found damaged: runs of chapters, and stretches of the log
//! 54 healed    u64  places that were healed since it began
//! 62 left      u64  places that are damaged now
//! 70 untried   u64  of these, those that nobody has tried to heal yet
//! 78 whole     u64  when all of it had last been read, ms since 1970; 0: not since the start
//! 86 whole     u64  bytes that there were then
//! 94 wounds    u32 count · text each   what is damaged, and why it is not healed
//! .. unread    u32 count · text each   what could not be read, and why
//! ```
//!
//! Little-endian; text is length u16 · UTF-8, at most 512 bytes.

use serde::{Serialize, Serializer};

use super::scrubber::{Phase, SCHEDULE};
use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
const TEXT_BYTES_MAX: usize = 512;
/// What of a shard is told in words: more is counted.
pub(super) const TEXTS_MAX: usize = 32;
/// What a row has at least.
const BYTES_MIN: usize = 102;

/// What a node says of the scrub of a shard of records: of the pass that is under way, or was the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    /// Which shard.
    pub shard: u32,
    /// How far the pass is.
    pub phase: Phase,
    /// The number of an operator's scrub, in hexadecimal digits; nothing of a pass of the schedule.
    #[serde(serialize_with = "digits")]
    pub scrub: u64,
    /// When it began, in ms since 1970; 0: not yet.
    pub begun_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Bytes that there were to be read.
    pub due_bytes: u64,
    /// Bytes of them that were read.
    pub read_bytes: u64,
    /// Places that it found damaged: runs of chapters, and stretches of the log.
    pub damaged: u64,
    /// Places that were healed since it began.
    pub healed: u64,
    /// Places that are damaged now.
    pub left: u64,
    /// Of these, those that nobody has tried to heal yet.
    pub untried: u64,
    /// When all of it had last been read, in ms since 1970; 0: not since the node was started.
    pub whole_ms: u64,
    /// Bytes that there were then.
    pub whole_bytes: u64,
    /// What is damaged, and why it is not healed.
    pub wounds: Vec<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn digits<S: Serializer>(scrub: &u64, to: S) -> Result<S::Ok, S::Error> {
    match *scrub {
        SCHEDULE => to.serialize_none(),
        // In JSON a number of 64 bits is rounded by many who read it.
        scrub => to.collect_str(&format_args!("{scrub:016x}")),
    }
}

impl Scrubbed {
    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&[VERSION, self.phase as u8]);
        to.extend_from_slice(&self.shard.to_le_bytes());
        let times = [self.scrub, self.begun_ms, self.ended_ms, self.due_bytes, self.read_bytes];
        let counts = [self.damaged, self.healed, self.left, self.untried];
        let whole = [self.whole_ms, self.whole_bytes];
        for field in times.into_iter().chain(counts).chain(whole) {
            to.extend_from_slice(&field.to_le_bytes());
        }
        for texts in [&self.wounds, &self.unread] {
            let count = texts.len().min(TEXTS_MAX);
            to.extend_from_slice(&u32::try_from(count).expect("there are few").to_le_bytes());
            texts[..count].iter().for_each(|text| push_text(cut(text), to));
        }
    }

    fn decode(from: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [version, phase] = from.array()?;
        if version != VERSION {
            return Err(Malformed::Field("the version of a scrub", version.into()));
        }
        let known = Phase::ALL.into_iter().find(|known| *known as u8 == phase);
        let phase = known.ok_or(Malformed::Field("the phase of a scrub", phase.into()))?;
        Ok(Self {
            shard: from.u32()?,
            phase,
            scrub: from.u64()?,
            begun_ms: from.u64()?,
            ended_ms: from.u64()?,
            due_bytes: from.u64()?,
            read_bytes: from.u64()?,
            damaged: from.u64()?,
            healed: from.u64()?,
            left: from.u64()?,
            untried: from.u64()?,
            whole_ms: from.u64()?,
            whole_bytes: from.u64()?,
            wounds: texts(from)?,
            unread: texts(from)?,
        })
    }
}

/// What a node says of all its shards.
pub(super) fn encode(all: &[Scrubbed]) -> Vec<u8> {
    let count = u32::try_from(all.len()).expect("there are few shards");
    let mut bytes = count.to_le_bytes().to_vec();
    all.iter().for_each(|of| of.encode(&mut bytes));
    bytes
}

/// The same, read.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Scrubbed>, Malformed> {
    let mut from = Cursor::new(bytes, "the scrubs of a node");
    let count = from.count(BYTES_MIN, "the count of scrubs")?;
    let all = (0..count).map(|_| Scrubbed::decode(&mut from)).collect::<Result<_, _>>()?;
    from.end()?;
    Ok(all)
}

fn texts(from: &mut Cursor<'_>) -> Result<Vec<String>, Malformed> {
    let count = from.count(2, "the count of texts")?;
    if count > TEXTS_MAX {
        return Err(Malformed::Field("the count of texts", count as u64));
    }
    (0..count).map(|_| from.text(TEXT_BYTES_MAX, "what is said").map(str::to_owned)).collect()
}

/// A text that is not too long.
fn cut(text: &str) -> &str {
    let mut ends = (0..=TEXT_BYTES_MAX.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed() -> Scrubbed {
        Scrubbed {
            shard: 2,
            phase: Phase::Ended,
            scrub: 0x0123_4567_89ab_cdef,
            begun_ms: 1,
            ended_ms: 2,
            due_bytes: 3,
            read_bytes: 4,
            damaged: 5,
            healed: 6,
            left: 7,
            untried: 8,
            whole_ms: 9,
            whole_bytes: 10,
            wounds: vec!["a run".to_owned(), String::new()],
            unread: vec!["a file".to_owned()],
        }
    }

    #[test]
    fn what_a_node_says_of_its_scrubs_is_read_as_it_was_written_and_nothing_else_is() {
        let all = vec![scrubbed(), Scrubbed { phase: Phase::Never, ..scrubbed() }];
        let bytes = encode(&all);
        assert_eq!(decode(&bytes), Ok(all));
        assert_eq!(bytes[..10], [2, 0, 0, 0, 1, 3, 2, 0, 0, 0]);
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
        assert!(decode(&[&bytes[..], &[0]].concat()).is_err());
        for (at, wrong) in [(4, 2), (5, 5)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(decode(&bytes).is_err(), "{at}");
        }
        assert!(decode(&u32::MAX.to_le_bytes()).is_err());
        // What is said is as much as may be read.
        let long = Scrubbed { wounds: vec!["é".repeat(TEXT_BYTES_MAX); 99], ..scrubbed() };
        let read = decode(&encode(&[long])).unwrap();
        assert_eq!(read[0].wounds, vec!["é".repeat(TEXT_BYTES_MAX / 2); TEXTS_MAX]);
    }
}
