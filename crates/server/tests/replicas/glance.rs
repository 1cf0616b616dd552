//! What a message says, read off its bytes by the drawing in `src/cluster/message.rs`: a second reader of the
//! format, which knows only what is held against the rule.

use bytes::Bytes;

use super::world::must_sync;

/// What was asked, as far as the rule speaks of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Append {
        term: u64,
        leader: u64,
        /// Term and index of the entry before.
        before: Option<(u64, u64)>,
        entries: Vec<Seen>,
    },
    /// For a vote, or whether one would be granted.
    Vote {
        term: u64,
        is_pre: bool,
    },
    ReEnter {
        own_term: u64,
    },
    Other,
}

/// An entry on its way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) term: u64,
    pub(crate) index: u64,
    /// The record but for the payload's place.
    pub(crate) record: Bytes,
    /// What is applied of it.
    pub(crate) payload: Option<Bytes>,
}

impl Seen {
    /// Whether it must be durable before it counts: it says who votes, or its payload asks for it.
    pub(crate) fn must_be_durable(&self) -> bool {
        self.record[1] == 3 || self.payload.as_ref().is_some_and(|payload| must_sync(payload))
    }
}

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// All that was sent is there, or all up to an entry.
    Appended {
        through: Option<(u64, u64)>,
    },
    Voted {
        is_granted: bool,
    },
    /// A leader of this term named the last entry of its log.
    ReEnter {
        term: u64,
        last: Option<u64>,
    },
    Other,
}

pub(crate) fn request(sealed: &Bytes) -> Asked {
    let bytes = &message(sealed);
    match bytes[1] {
        1 => {
            // Vote, the log ids before and committed, the count.
            let (mut entries, mut at) = (Vec::new(), 2 + 17 + 17 + 17);
            let count = u32_at(bytes, at);
            at += 4;
            for _ in 0..count {
                let end = at + 4 + u32_at(bytes, at) as usize;
                let record = bytes.slice(at + 4..end);
                entries.push(Seen {
                    term: u64_at(&record, 8),
                    index: u64_at(&record, 16),
                    payload: (record[1] == 2).then(|| record.slice(24..)),
                    record,
                });
                at = end;
            }
            let before = log_id_at(bytes, 2 + 17);
            Asked::Append { term: u64_at(bytes, 2), leader: u64_at(bytes, 10), before, entries }
        }
        kind @ (2 | 3) => Asked::Vote { term: u64_at(bytes, 2), is_pre: kind == 3 },
        4 => Asked::ReEnter { own_term: u64_at(bytes, 2) },
        _ => Asked::Other,
    }
}

pub(crate) fn answer(sealed: &Bytes) -> Answered {
    let bytes = &message(sealed);
    match bytes[1] {
        1 if bytes[2] == 0 => Answered::Appended { through: None },
        1 if bytes[2] == 1 => match log_id_at(bytes, 3) {
            Some(through) => Answered::Appended { through: Some(through) },
            None => Answered::Other,
        },
        2 => Answered::Voted { is_granted: bytes[2 + 17 + 17] == 1 },
        4 => Answered::ReEnter {
            term: u64_at(bytes, 2),
            last: (bytes[2 + 17] == 1).then(|| u64_at(bytes, 2 + 17 + 9)),
        },
        _ => Answered::Other,
    }
}

/// A message without the generation in front of it.
pub(crate) fn message(sealed: &Bytes) -> Bytes {
    sealed.slice(8..)
}

fn log_id_at(bytes: &[u8], at: usize) -> Option<(u64, u64)> {
    (bytes[at] == 1).then(|| (u64_at(bytes, at + 1), u64_at(bytes, at + 9)))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}
