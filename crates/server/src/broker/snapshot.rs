//! The state of a shard in a file, so that a start applies only what came after it, and the log can let
//! go of what nobody reads any more.
//!
//! ```text
//!  0 magic    8   "PLIMSNAP"
//!  8 version u32  1
//! 12 place   u32  length
//! 16 state   u64  length
//! 24 place · state
//! .. checksum u64 XXH3-64 of all before it
//! ```
//!
//! Little-endian. The file `state-N` is of shard N. A new one takes the name once it is durable, and what
//! it holds lies at or below D: so after a power cut the log has all that comes behind it.

use std::hash::Hasher;
use std::io::ErrorKind;

use plimsoll_sync::{Dir, File, SyncMethod};
use twox_hash::XxHash3_64;

use super::error::Failed;
use super::layout;
use crate::cluster::Place;
use crate::cursor::Malformed;
use crate::whole;

const MAGIC: [u8; 8] = *b"PLIMSNAP";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
/// Bytes that are checked at once.
const PIECE_BYTES: usize = 1 << 20;
/// Entries that a start applies at most, about, in bytes.
pub(super) const EVERY_BYTES: u64 = 128 << 20;

/// A state, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) place: Place,
    pub(crate) state: Vec<u8>,
}

/// The state of a shard, and where it stands; a new one if there is no snapshot.
pub(super) fn open<S: Default>(
    dir: &dyn Dir,
    number: u32,
    decode: impl FnOnce(&[u8]) -> Result<S, Malformed>,
) -> Result<(Option<Place>, S), Failed> {
    let Some(Snapshot { place, state }) = Snapshot::read(dir, number)? else {
        return Ok((None, S::default()));
    };
    let damaged = |_malformed| Failed::Damaged(layout::state(number));
    Ok((Some(place), decode(&state).map_err(damaged)?))
}

impl Snapshot {
    /// The snapshot of a shard, if there is one.
    fn read(dir: &dyn Dir, number: u32) -> Result<Option<Self>, Failed> {
        let name = layout::state(number);
        let Some(file) = whole::open(dir, &name).map_err(Failed::Directory)? else {
            return Ok(None);
        };
        let found = Self::load(&*file).map_err(Failed::Directory)?;
        found.map(Some).ok_or(Failed::Damaged(name))
    }

    /// The same, and changes nothing: of a directory that a node may have open.
    pub(crate) fn look(dir: &dyn Dir, number: u32) -> Result<Option<Self>, Failed> {
        let name = layout::state(number);
        let file = match dir.open(&name, SyncMethod::ORDINARY.access()) {
            Ok(file) => file,
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(None),
            Err(error) => return Err(Failed::Directory(error)),
        };
        let found = Self::load(&*file).map_err(Failed::Directory)?;
        found.map(Some).ok_or(Failed::Damaged(name))
    }

    /// Whether the snapshot of a shard is whole on the disk, read past the page cache where there is a way; `None`: there is none.
    pub(super) fn check(dir: &dyn Dir, number: u32) -> plimsoll_sync::Result<Option<bool>> {
        let file = match whole::open_past_cache(dir, &layout::state(number)) {
            Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(None),
            opened => opened?,
        };
        let length = file.len()?;
        let head = whole::read_at(&*file, 0, HEADER_BYTES)?;
        if head.first_chunk().and_then(|head| lengths(head, length)).is_none() {
            return Ok(Some(false));
        }
        let checked = length - CHECKSUM_BYTES as u64;
        let (mut hasher, mut at) = (XxHash3_64::new(), 0);
        while at < checked {
            let piece =
                usize::try_from(checked - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let read = whole::read_at(&*file, at, piece)?;
            if read.is_empty() {
                return Ok(Some(false));
            }
            hasher.write(&read);
            at += read.len() as u64;
        }
        let found = whole::read_at(&*file, checked, CHECKSUM_BYTES)?;
        Ok(Some(found == hasher.finish().to_le_bytes()))
    }

    /// Makes it the snapshot of a shard. Durable on return; it takes the place of the one before.
    pub(crate) fn write(&self, dir: &dyn Dir, number: u32) -> Result<(), Failed> {
        let written = whole::create(dir, &layout::state(number), |file| self.save(file));
        written.map(drop).map_err(Failed::Directory)
    }

    /// What a file holds, if it is a snapshot. No more memory is taken than the file has bytes, and none
    /// for one whose head says another length.
    fn load(file: &dyn File) -> Result<Option<Self>, plimsoll_sync::Error> {
        let mut head = [0; HEADER_BYTES];
        file.read_at(&mut head, 0)?;
        let Some((place_bytes, state_bytes)) = lengths(&head, file.len()?) else {
            return Ok(None);
        };
        let (mut place, mut state) = (vec![0; place_bytes], vec![0; state_bytes]);
        let mut checksum = [0; CHECKSUM_BYTES];
        let mut at = HEADER_BYTES as u64;
        for part in [&mut place[..], &mut state, &mut checksum] {
            // What is missing has become zeros, and no checksum.
            file.read_at(part, at)?;
            at += part.len() as u64;
        }
        let is_ours = checksum == checksum_of([&head, &place, &state]);
        let place = Place::decode(&place).filter(|_| is_ours);
        Ok(place.map(|place| Self { place, state }))
    }

    /// Writes it into a file. Durable on return.
    fn save(&self, file: &dyn File) -> Result<(), plimsoll_sync::Error> {
        let (place, state) = (self.place.encode(), &self.state);
        let head = head(&place, state);
        let checksum = checksum_of([&head, &place, state]);
        let mut at = 0;
        for part in [&head[..], &place, state, &checksum] {
            file.write_at(part, at)?;
            at += part.len() as u64;
        }
        file.sync(SyncMethod::ORDINARY).map(drop)
    }
}

fn head(place: &[u8], state: &[u8]) -> [u8; HEADER_BYTES] {
    let place_bytes = u32::try_from(place.len()).expect("a place is small");
    let mut head = [0; HEADER_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&place_bytes.to_le_bytes());
    head[16..].copy_from_slice(&(state.len() as u64).to_le_bytes());
    head
}

/// How long place and state are, if the head is ours and a file of that length holds them.
fn lengths(head: &[u8; HEADER_BYTES], file_bytes: u64) -> Option<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("in bounds"));
    let place_bytes = word(12);
    let state_bytes = u64::from_le_bytes(*head[16..].first_chunk().expect("in bounds"));
    let beside_state = (HEADER_BYTES + CHECKSUM_BYTES) as u64 + u64::from(place_bytes);
    let is_ours = head.starts_with(&MAGIC)
        && word(8) == VERSION
        && file_bytes.checked_sub(beside_state) == Some(state_bytes);
    let lengths = (usize::try_from(place_bytes).ok()?, usize::try_from(state_bytes).ok()?);
    is_ours.then_some(lengths)
}

fn checksum_of(parts: [&[u8]; 3]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = XxHash3_64::new();
    parts.into_iter().for_each(|part| hasher.write(part));
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    /// As it has been written since version 1.
    const GOLDEN: &[u8] = include_bytes!("testdata/state.v1");

    fn snapshot() -> Snapshot {
        let ids = [7, 99, 0, 0].map(u64::to_le_bytes).concat();
        // One set of voters with one, and where that one is.
        let members = [&[1, 0, 1, 0, 1][..], &[0; 7], &[1, 0, 1], &[0; 9]].concat();
        let place = Place::decode(&[ids, members].concat()).unwrap();
        Snapshot { place, state: b"what entries made".to_vec() }
    }

    fn file_of(dir: &dyn Dir, bytes: &[u8]) {
        let fill = |file: &dyn File| file.write_sync_at(bytes, 0, SyncMethod::ORDINARY).map(drop);
        whole::create(dir, &layout::state(2), fill).unwrap();
    }

    #[test]
    fn a_snapshot_is_written_as_version_1_has_it() {
        let dir = SimDir::new();
        snapshot().write(&dir, 2).unwrap();
        let file = dir.open("state-2", SyncMethod::ORDINARY.access()).unwrap();
        let mut bytes = vec![0; GOLDEN.len() + 1];
        let length = file.read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..length], GOLDEN);
        assert_eq!(Snapshot::read(&dir, 2).unwrap(), Some(snapshot()));
    }

    #[test]
    fn a_snapshot_that_was_read_once_is_there_after_a_power_cut() {
        for dir in whole::killed_while(|dir| snapshot().write(dir, 2).unwrap()) {
            let read = Snapshot::read(&dir, 2).unwrap();
            for dir in read.iter().flat_map(|_| (0..20).map(|seed| dir.power_cut(seed))) {
                assert_eq!(Snapshot::read(&dir, 2).unwrap(), read);
            }
        }
    }

    #[test]
    fn a_snapshot_with_any_byte_changed_added_or_gone_is_refused() {
        let changed = (0..GOLDEN.len()).map(|at| {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] ^= 0x80;
            bytes
        });
        let cut = (0..GOLDEN.len()).map(|length| GOLDEN[..length].to_vec());
        for bytes in changed.chain(cut).chain([[GOLDEN, &[0]].concat()]) {
            let dir = SimDir::new();
            file_of(&dir, &bytes);
            assert!(matches!(Snapshot::read(&dir, 2), Err(Failed::Damaged(_))), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_snapshot_is_checked_past_the_cache_of_a_real_directory() {
        let root = tempfile::tempdir().unwrap();
        let dir = plimsoll_sync::OsDir::open(root.path()).unwrap();
        assert_eq!(Snapshot::check(&dir, 2).unwrap(), None);
        let large = Snapshot { state: vec![7; 3 * PIECE_BYTES + 5], ..snapshot() };
        for written in [snapshot(), large] {
            written.write(&dir, 2).unwrap();
            assert_eq!(Snapshot::check(&dir, 2).unwrap(), Some(true));
            let file = dir.open("state-2", SyncMethod::ORDINARY.access()).unwrap();
            let last = file.len().unwrap() - 9;
            let mut byte = [0];
            file.read_at(&mut byte, last).unwrap();
            file.write_sync_at(&[byte[0] ^ 1], last, SyncMethod::ORDINARY).unwrap();
            assert_eq!(Snapshot::check(&dir, 2).unwrap(), Some(false));
        }
    }

    /// All that a damaged length said was allocated, and the broker died of it.
    #[test]
    fn a_file_of_another_length_than_its_head_says_takes_no_memory() {
        let dir = SimDir::new();
        file_of(&dir, GOLDEN);
        let file = dir.open("state-2", SyncMethod::ORDINARY.access()).unwrap();
        file.truncate(1 << 40).unwrap();
        assert!(matches!(Snapshot::read(&dir, 2), Err(Failed::Damaged(_))));
    }
}
