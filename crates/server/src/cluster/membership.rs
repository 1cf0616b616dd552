//! Who votes, as bytes.
//!
//! ```text
//!  u16  sets of voters, each of which must agree (two while a change is under way)
//!         u16  voters of the set
//!                u64  id, ascending
//!  u16  nodes, voters and learners
//!         u64  id, ascending
//!         u16  bytes of its address
//!           …  the address, UTF-8
//! ```
//!
//! Little-endian, and nothing behind it. There is one way to write a membership, so bytes that
//! decode are those that were encoded.

use std::collections::{BTreeMap, BTreeSet};

use openraft::BasicNode;

use super::types::Members;

/// Appends the members.
///
/// # Panics
/// There are more than 65,535 of something: nobody has such a cluster.
pub(crate) fn encode(members: &Members, to: &mut Vec<u8>) {
    let sets = members.get_joint_config();
    put_count(to, sets.len());
    for set in sets {
        put_count(to, set.len());
        set.iter().for_each(|id| to.extend_from_slice(&id.to_le_bytes()));
    }
    put_count(to, members.nodes().count());
    for (id, node) in members.nodes() {
        to.extend_from_slice(&id.to_le_bytes());
        put_count(to, node.addr.len());
        to.extend_from_slice(node.addr.as_bytes());
    }
}

/// The members that were encoded, if that is what it is.
pub(crate) fn decode(mut from: &[u8]) -> Option<Members> {
    let from = &mut from;
    let mut sets = Vec::new();
    for _ in 0..take_count(from)? {
        let mut set = BTreeSet::new();
        for _ in 0..take_count(from)? {
            let id = u64::from_le_bytes(take(from)?);
            if set.last().is_some_and(|last| *last >= id) {
                return None;
            }
            set.insert(id);
        }
        sets.push(set);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..take_count(from)? {
        let id = u64::from_le_bytes(take(from)?);
        if nodes.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return None;
        }
        let bytes = take_count(from)?;
        let (address, rest) = from.split_at_checked(usize::from(bytes))?;
        *from = rest;
        nodes.insert(id, BasicNode::new(str::from_utf8(address).ok()?));
    }
    if !from.is_empty() {
        return None;
    }
    Members::new(sets, nodes).ok()
}

fn put_count(to: &mut Vec<u8>, count: usize) {
    let count = u16::try_from(count).expect("a membership is small");
    to.extend_from_slice(&count.to_le_bytes());
}

fn take_count(from: &mut &[u8]) -> Option<u16> {
    take(from).map(u16::from_le_bytes)
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}
