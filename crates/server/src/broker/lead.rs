//! [`Leads`]: what a node says of the shards that it leads, and whom it awaits.
//!
//! ```text
//! 0  leads    u32 count, of each:
//!      0 shard    u32
//!      4 flags    u8   1: guarded   2: it knows how many it can spare
//!      5 spare    u64  how many more voters may fail
//!     13 in sync  u64  of the topics that it refuses for want of replicas in sync; 0: it refuses none
//!     21 topics   u64  how many these are
//!     29 named    u32 count · text each, at most 3
//! .. awaited  u32 count · u64 each
//! ```
//!
//! Little-endian; text is length u16 · UTF-8.

use std::collections::{BTreeMap, BTreeSet};

use super::unmet::{NAMED_MAX, Unmet};
use crate::control::TOPIC_NAME_BYTES_MAX;
use crate::cursor::{Cursor, Malformed, push_text};

const GUARDED: u8 = 1;
const SPARES: u8 = 2;
/// What of a shard there is at least.
const BYTES_MIN: usize = 33;

/// What a leader says of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Lead {
    /// Whether what it acknowledges is durable on a majority first.
    pub(super) is_guarded: bool,
    /// How many more voters may fail before it takes nothing, if it knows that.
    pub(super) spare: Option<usize>,
    /// The topics that it refuses for want of replicas in sync, if it refuses any.
    pub(super) unmet: Option<Unmet>,
}

/// What a node says of what it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Leads {
    /// Of each shard that it leads.
    pub(super) of: BTreeMap<u32, Lead>,
    /// Nodes that it waits for as a founder, which runs alone until all are there.
    pub(super) awaited: BTreeSet<u64>,
}

impl Leads {
    pub(super) fn encode(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).expect("there are few").to_le_bytes();
        let mut bytes = count(self.of.len()).to_vec();
        for (shard, Lead { is_guarded, spare, unmet }) in &self.of {
            bytes.extend_from_slice(&shard.to_le_bytes());
            let guarded = if *is_guarded { GUARDED } else { 0 };
            bytes.push(guarded | if spare.is_some() { SPARES } else { 0 });
            bytes.extend_from_slice(&(spare.unwrap_or(0) as u64).to_le_bytes());
            let Unmet { in_sync, topics, named } = unmet.clone().unwrap_or_default();
            bytes.extend_from_slice(&in_sync.to_le_bytes());
            bytes.extend_from_slice(&topics.to_le_bytes());
            bytes.extend_from_slice(&count(named.len()));
            named.iter().for_each(|name| push_text(name, &mut bytes));
        }
        bytes.extend_from_slice(&count(self.awaited.len()));
        bytes.extend(self.awaited.iter().flat_map(|node| node.to_le_bytes()));
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "what a node says of what it leads");
        let mut leads = Self::default();
        for _ in 0..from.count(BYTES_MIN, "the count of shards")? {
            let shard = from.u32()?;
            let [flags] = from.array()?;
            let spare = usize::try_from(from.u64()?).ok().filter(|_| flags & SPARES != 0);
            let (in_sync, topics) = (from.u64()?, from.u64()?);
            let count = from.count(2, "the count of topics")?;
            if count > NAMED_MAX {
                return Err(Malformed::Field("the count of topics", count as u64));
            }
            let mut name =
                || Ok(from.text(TOPIC_NAME_BYTES_MAX, "the name of a topic")?.to_owned());
            let named = (0..count).map(|_| name()).collect::<Result<_, Malformed>>()?;
            let unmet = (topics > 0).then_some(Unmet { in_sync, topics, named });
            leads.of.insert(shard, Lead { is_guarded: flags & GUARDED != 0, spare, unmet });
        }
        let count = from.count(8, "the count of nodes")?;
        leads.awaited = (0..count).map(|_| from.u64()).collect::<Result<_, _>>()?;
        from.end()?;
        Ok(leads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_what_is_led_is_read_as_it_was_written_and_no_other_bytes_are() {
        let unmet = Unmet { in_sync: 2, topics: 7, named: vec!["a".to_owned(), "bc".to_owned()] };
        let of = BTreeMap::from([
            (0, Lead::default()),
            (2, Lead { is_guarded: true, spare: Some(1), unmet: Some(unmet) }),
        ]);
        let said = Leads { of, awaited: BTreeSet::from([2, 258]) };
        let bytes = said.encode();
        assert_eq!(bytes.len(), 4 + 2 * BYTES_MIN + 3 + 4 + 4 + 2 * 8);
        assert_eq!(Leads::decode(&bytes), Ok(said));
        assert!((0..bytes.len()).all(|end| Leads::decode(&bytes[..end]).is_err()));
        assert!(Leads::decode(&u32::MAX.to_le_bytes()).is_err());
    }
}
