//! [`Met`]: which starts of other nodes this one has met, so that one whose directory went back to an earlier state is known
//! for what it is, also after this one was started anew.
//!
//! ```text
//! DIR/met
//!
//!  0 magic     8   "PLIMSMET"
//!  8 version  u32  1
//! 12 count    u32  nodes, at most 4096
//! 16         24    each, ascending: node u64 · its highest incarnation u64 · what that start drew u64
//!  …checksum u64   XXH3-64 of all before it
//! ```
//!
//! Little-endian. A start that comes from an earlier state counts its incarnation once more, and the next counts it higher: it
//! is by the numbers that starts draw that it is told from one that remembers the start that was met. A file that
//! cannot be read is no evidence, and is written anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::layout::MET;
use crate::peer::Peer;
use crate::run::{Begun, lack};
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMSMET";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
const NODES_MAX: usize = 4096;

/// The starts that were met, and where they are kept.
#[derive(Debug)]
pub(super) struct Met {
    dir: Arc<dyn Dir>,
    starts: Mutex<Starts>,
    /// Held by who writes the file.
    writing: Mutex<()>,
}

/// Of each node the highest incarnation, and what that start drew; 0: it is of a version that draws nothing.
type Starts = BTreeMap<u64, Begun>;

impl Met {
    /// Those that were met before.
    pub(super) fn open(dir: &Arc<dyn Dir>) -> Self {
        let starts = Mutex::new(read(&**dir).unwrap_or_default());
        Self { dir: Arc::clone(dir), starts, writing: Mutex::default() }
    }

    /// Whether no later start of that node was met, nor one that it does not know of, by what it tells of its starts.
    pub(super) fn admits(&self, peer: Peer, told: &[Begun]) -> bool {
        self.lock().get(&peer.node).is_none_or(|then| remembers(peer.incarnation, told, *then))
    }

    /// It is met: whether that is new, and [to be kept](Self::keep). `None`: it is not admitted. Where no cluster is founded yet, as far as
    /// this node knows, nobody has anything to forget, and whoever comes last is met.
    pub(super) fn meets(&self, peer: Peer, told: &[Begun], is_founded: bool) -> Option<bool> {
        let own = told.last().filter(|(incarnation, _)| *incarnation == peer.incarnation);
        let now = (peer.incarnation, own.map_or(0, |(_, drawn)| *drawn));
        let mut starts = self.lock();
        let then = starts.get(&peer.node).copied();
        if is_founded && then.is_some_and(|then| !remembers(peer.incarnation, told, then)) {
            return None;
        }
        let has_room = starts.len() < NODES_MAX || then.is_some();
        let is_new = then.is_none_or(|then| now > then || !is_founded && now != then) && has_room;
        if is_new {
            starts.insert(peer.node, now);
        }
        Some(is_new)
    }

    /// Writes what is known by now. Durable on return.
    pub(super) fn keep(&self) -> plimsoll_sync::Result<()> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = encode(&self.lock());
        let fill = |file: &dyn File| file.write_sync_at(&bytes, 0, SyncMethod::ORDINARY).map(drop);
        whole::create(&*self.dir, MET, fill).map(drop)
    }

    /// All nodes that were ever met.
    pub(super) fn nodes(&self) -> BTreeSet<u64> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Starts> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a start that tells this is the one that was met, or comes behind it.
fn remembers(incarnation: u64, told: &[Begun], then: Begun) -> bool {
    incarnation >= then.0 && (then.1 == 0 || !lack(told, then))
}

fn read(dir: &dyn Dir) -> Option<Starts> {
    let file = dir.open(MET, SyncMethod::ORDINARY.access()).ok()?;
    let mut bytes = vec![0; HEAD_BYTES + NODES_MAX * NODE_BYTES + CHECKSUM_BYTES + 1];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let starts = decode(&bytes[..length]);
    if starts.is_none() {
        tracing::warn!(
            "the file 'met' is damaged: what starts of other brokers were met is not known"
        );
    }
    starts
}

fn encode(starts: &Starts) -> Vec<u8> {
    let count = u32::try_from(starts.len()).expect("they are bounded");
    let mut bytes = Vec::with_capacity(HEAD_BYTES + starts.len() * NODE_BYTES + CHECKSUM_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    for (node, (incarnation, drawn)) in starts {
        for word in [node, incarnation, drawn] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    let checksum = XxHash3_64::oneshot(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Starts> {
    let body = bytes.get(HEAD_BYTES..bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
    let word = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(*bytes[at..].first_chunk()?));
    let nodes = body.chunks_exact(NODE_BYTES);
    let starts = nodes.map(|node| Some((word(node, 0)?, (word(node, 8)?, word(node, 16)?))));
    let starts: Starts = starts.collect::<Option<_>>()?;
    // There is one way to write it.
    (starts.len() <= NODES_MAX && encode(&starts) == bytes).then_some(starts)
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Access;

    use super::*;

    const fn start(node: u64, incarnation: u64) -> Peer {
        Peer { node, incarnation }
    }

    /// One whose directory went back by one start counted the same incarnation again, and was taken for the one that was met:
    /// it voted and acknowledged with what it had then. Refused, it was started again, counted higher, and was admitted.
    #[test]
    fn a_start_that_does_not_know_of_the_one_that_was_met_is_not_admitted() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let met = Met::open(&dir);
        assert!(met.admits(start(3, 1), &[(1, 7)]));
        assert_eq!(met.meets(start(3, 2), &[(1, 5), (2, 7)], true), Some(true));
        assert!(met.admits(start(3, 2), &[(1, 5), (2, 7)]), "it connects again");
        assert_eq!(met.meets(start(3, 2), &[(1, 5), (2, 7)], true), Some(false), "that is known");
        assert!(!met.admits(start(3, 2), &[(1, 5), (2, 8)]));
        // Both may have been admitted before either was met.
        assert_eq!(met.meets(start(3, 2), &[(1, 5), (2, 8)], true), None);
        assert!(!met.admits(start(3, 1), &[(1, 5)]));
        for refused in [&[(1, 5), (2, 8), (3, 9)][..], &[(1, 5), (3, 9)], &[(2, 8), (3, 9), (4, 1)]]
        {
            let incarnation = refused.last().unwrap().0;
            assert!(!met.admits(start(3, incarnation), refused), "{refused:?}");
            assert_eq!(met.meets(start(3, incarnation), refused, true), None);
        }
        assert!(met.admits(start(3, 4), &[(2, 7), (3, 9), (4, 1)]), "it comes behind it");
        assert!(met.admits(start(3, 90), &[(80, 3), (90, 8)]), "that does not reach back so far");
        assert!(met.admits(start(2, 1), &[(1, 8)]));
        assert!(met.admits(start(3, 2), &[]), "an older version tells nothing");
        assert!(!met.admits(start(3, 1), &[]));
    }

    /// A cluster whose founder was started in a mistyped directory first could never be founded any more.
    #[test]
    fn before_a_cluster_is_founded_whoever_comes_last_is_met() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let met = Met::open(&dir);
        assert_eq!(met.meets(start(1, 1), &[(1, 7)], false), Some(true));
        assert_eq!(met.meets(start(1, 1), &[(1, 8)], false), Some(true));
        assert_eq!(met.meets(start(1, 1), &[(1, 8)], true), Some(false));
        assert_eq!(met.meets(start(1, 2), &[(1, 7), (2, 9)], true), None);
    }

    #[test]
    fn who_was_met_is_known_after_a_power_cut() {
        let disk = Arc::new(SimDir::new());
        let dir: Arc<dyn Dir> = Arc::clone(&disk) as _;
        let met = Met::open(&dir);
        for node in [2, 9] {
            assert_eq!(met.meets(start(node, node + 40), &[(node + 40, node)], true), Some(true));
            met.keep().unwrap();
        }
        for seed in 0..20 {
            let dir: Arc<dyn Dir> = Arc::new(disk.power_cut(seed));
            let met = Met::open(&dir);
            assert_eq!(met.nodes(), BTreeSet::from([2, 9]));
            assert!(!met.admits(start(9, 49), &[(49, 8)]) && met.admits(start(9, 49), &[(49, 9)]));
        }
    }

    #[test]
    fn a_damaged_file_says_nothing_and_is_written_anew() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let met = Met::open(&dir);
        met.meets(start(3, 2), &[(2, 7)], true);
        met.keep().unwrap();
        let length = encode(&met.lock()).len();
        for at in 0..length as u64 {
            let file = dir.open(MET, Access::default()).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 1], at).unwrap();
            assert_eq!(Met::open(&dir).nodes(), BTreeSet::new(), "byte {at}");
            met.keep().unwrap();
            assert_eq!(Met::open(&dir).nodes(), BTreeSet::from([3]));
        }
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn more_nodes_than_there_is_room_for_are_not_kept() {
        let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
        let met = Met::open(&dir);
        for node in 0..NODES_MAX as u64 {
            assert_eq!(met.meets(start(node, 1), &[(1, 1)], true), Some(true));
        }
        assert_eq!(met.meets(start(u64::MAX, 1), &[(1, 1)], true), Some(false));
        assert_eq!(met.meets(start(0, 2), &[(1, 1), (2, 1)], true), Some(true));
        met.keep().unwrap();
        assert_eq!(Met::open(&dir).nodes().len(), NODES_MAX);
    }
}
