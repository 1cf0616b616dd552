//! Notes: small files beside the segments, each of which says one thing.
//!
//! | name | says |
//! | --- | --- |
//! | `cutting` | segments that are no part of the log any more may be there: all heads are to be read |
//! | `ring` | the newest records may be in a ring in memory: where, since which boot, by which token |
//! | `closed` | where the log ended when it was closed, and that everything up to there was durable |
//! | `probed` | how the directory's device syncs best, found out since the system started |
//! | `second` | of earlier versions: records may be in a second directory |

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plimsoll_sync::{Access, Dir, SyncMethod, boot_id};

use crate::error::{Error, Result};
use crate::segment::format::{
    BLOCK_BYTES, FRAME_ALIGN, INDEX_END, SEGMENT_BYTES_MAX, hash, u64_at,
};
use crate::segment::scan::Closed;
use crate::segment::sparse::SparseIndex;

pub(crate) const CUTTING: &str = "cutting";
const RING: &str = "ring";
const CLOSED: &str = "closed";
const SECOND: &str = "second";
const PROBED: &str = "probed";
/// A note that is being written.
const UNFINISHED: &str = "note.tmp";

const CLOSED_MAGIC: [u8; 8] = *b"PLIMEND\n";
/// Bytes before the sparse index, checksum included.
const CLOSED_HEAD_BYTES: usize = 80;
/// More entries are not noted: with those, opening reads no more than a quarter of a MiB.
const CLOSED_ENTRIES_MAX: usize = 6144;
/// No note is longer.
const NOTE_BYTES_MAX: u64 = CLOSED_HEAD_BYTES as u64 + 16 * CLOSED_ENTRIES_MAX as u64;

/// Where the newest records may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingNote {
    pub(crate) boot: u128,
    pub(crate) token: u64,
    pub(crate) path: PathBuf,
}

/// From here on segments may be stale: whoever opens the log reads all their heads. Durable on return.
pub(crate) fn begin_cut(dir: &dyn Dir) -> Result<()> {
    match dir.create(CUTTING, Access::default()) {
        Ok(_) => Ok(()),
        // Left by an earlier attempt, which may not have synced it.
        Err(error) if error.kind() == Some(ErrorKind::AlreadyExists) => Ok(dir.sync()?),
        Err(error) => Err(error.into()),
    }
}

/// Removes the note: no stale segments remain.
pub(crate) fn end_cut(dir: &dyn Dir) -> Result<()> {
    remove(dir, CUTTING)
}

/// Whether it is a note that says by its name alone what it has to say: nobody opens it.
pub(crate) fn is_name_alone(name: &str) -> bool {
    name == CUTTING || name == SECOND
}

/// Refuses a log that an earlier version may have kept in two directories.
pub(crate) fn refuse_second(dir: &dyn Dir) -> Result<()> {
    if !dir.list()?.iter().any(|name| name == SECOND) {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the log may have records in a second directory, which this version does not know: close it with \
         the version that wrote it; or remove the file '{SECOND}' from the log's directory, and give \
         them up"
    )))
}

/// Where the newest records may be, if somebody had the log open with a ring in a file.
pub(crate) fn ring(dir: &dyn Dir) -> Result<Option<RingNote>> {
    Ok(read(dir, RING)?.and_then(|bytes| RingNote::decode(&bytes)))
}

/// From here on records may be in this ring only. Durable on return; never missing for a moment.
///
/// # Panics
/// If its path is not text: that is refused before a log is opened.
pub(crate) fn write_ring(dir: &dyn Dir, note: &RingNote) -> Result<()> {
    let RingNote { boot, token, path } = note;
    let path = path.to_str().expect("a ring's path is text");
    let text = format!("{boot:032x}\n{path}\n{token:016x}\n");
    write(dir, RING, text.as_bytes())
}

/// No record is in a ring only.
pub(crate) fn forget_ring(dir: &dyn Dir) -> Result<()> {
    remove(dir, RING)
}

/// Where the log ended when it was closed. A note that is damaged says nothing.
pub(crate) fn closed(dir: &dyn Dir) -> Result<Option<Closed>> {
    Ok(read(dir, CLOSED)?.and_then(|bytes| decode_closed(&bytes)))
}

/// Everything up to there is durable. Durable on return.
pub(crate) fn write_closed(dir: &dyn Dir, closed: &Closed) -> Result<()> {
    write(dir, CLOSED, &encode_closed(closed))
}

/// Something may be written behind the end. Durable on return.
pub(crate) fn forget_closed(dir: &dyn Dir) -> Result<()> {
    remove(dir, CLOSED)
}

/// What was found out of a device in this run of the system, if somebody did.
pub(crate) fn probed(dir: &dyn Dir, device: u64) -> Result<Option<String>> {
    let Some(bytes) = read(dir, PROBED)? else { return Ok(None) };
    let about = probed_about(device);
    let text = String::from_utf8(bytes).ok();
    Ok(text.and_then(|text| Some(text.strip_prefix(&about)?.trim_end().to_owned())))
}

/// What works on the device. A help only: a note that cannot be written is left out.
pub(crate) fn write_probed(dir: &dyn Dir, device: u64, what: &str) {
    if let Err(error) = write(dir, PROBED, format!("{}{what}\n", probed_about(device)).as_bytes()) {
        tracing::debug!(%error, "what works here is not noted");
    }
}

fn probed_about(device: u64) -> String {
    format!("{:032x} {device:016x} ", boot_id().unwrap_or(0))
}

/// Whether a file is the beginning of a note, to be removed.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name == UNFINISHED
}

/// Removes it, if it is still there.
pub(crate) fn remove_unfinished(dir: &dyn Dir) -> Result<()> {
    remove(dir, UNFINISHED)
}

impl RingNote {
    /// Of this run of the system.
    pub(crate) fn now(token: u64, path: PathBuf) -> Self {
        Self { boot: boot_id().unwrap_or(0), token, path }
    }

    /// Whether the ring that it names may still be there: memory does not survive the system.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot_id().unwrap_or(0)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok()?;
        let (boot, rest) = text.strip_suffix('\n')?.split_once('\n')?;
        let boot = u128::from_str_radix(boot, 16).ok()?;
        // Earlier versions had no token.
        let (path, token) = match rest.rsplit_once('\n') {
            Some((path, token)) => (path, u64::from_str_radix(token, 16).ok()?),
            None => (rest, 0),
        };
        Some(Self { boot, token, path: Path::new(path).to_owned() })
    }
}

/// ```text
///   0 magic · log id (16) · generation · first index · salt · last index · records end · frames end
///  72 XXH3-64 of all the rest · sparse index: index, byte offset …
/// ```
fn encode_closed(closed: &Closed) -> Vec<u8> {
    let mut bytes = CLOSED_MAGIC.to_vec();
    bytes.extend(closed.log_id.to_le_bytes());
    for field in [
        closed.generation,
        closed.first_index,
        closed.salt,
        closed.last_index,
        closed.records_end,
        closed.frames_end,
    ] {
        bytes.extend(field.to_le_bytes());
    }
    let sparse = closed.sparse.thinned(CLOSED_ENTRIES_MAX).encode();
    let checksum = hash(&[&bytes[..], &sparse].concat());
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(sparse);
    bytes
}

fn decode_closed(bytes: &[u8]) -> Option<Closed> {
    let (head, sparse) = bytes.split_at_checked(CLOSED_HEAD_BYTES)?;
    let fields = &head[..CLOSED_HEAD_BYTES - 8];
    if !head.starts_with(&CLOSED_MAGIC)
        || hash(&[fields, sparse].concat()) != u64_at(head, CLOSED_HEAD_BYTES - 8)
    {
        return None;
    }
    let field = |number: usize| u64_at(head, 24 + 8 * number);
    let frames_end = field(5);
    let closed = Closed {
        log_id: u128::from_le_bytes(head[8..24].try_into().expect("sixteen bytes")),
        generation: field(0),
        first_index: field(1),
        salt: field(2),
        last_index: field(3),
        records_end: field(4),
        frames_end,
        sparse: SparseIndex::decode(sparse, frames_end).ok()?,
    };
    is_possible(&closed).then_some(closed)
}

/// Whether a log may have ended so, whoever wrote it.
fn is_possible(closed: &Closed) -> bool {
    let Closed { generation, first_index, last_index, records_end, frames_end, .. } = *closed;
    let last_noted = closed.sparse.last().map_or(first_index, |(index, _)| index);
    (1..=last_index.saturating_add(1)).contains(&first_index)
        && last_index < INDEX_END
        && generation < INDEX_END
        && (BLOCK_BYTES..=frames_end).contains(&records_end)
        && frames_end <= SEGMENT_BYTES_MAX
        && records_end.is_multiple_of(FRAME_ALIGN)
        && frames_end.is_multiple_of(FRAME_ALIGN)
        && (first_index..=last_index.max(first_index)).contains(&last_noted)
        && closed.sparse.first().is_none_or(|(index, _)| index >= first_index)
}

/// What a note says, if it is there.
fn read(dir: &dyn Dir, name: &str) -> Result<Option<Vec<u8>>> {
    let file = match dir.open(name, Access::default()) {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => return Ok(None),
        file => file?,
    };
    let len = usize::try_from(file.len()?.min(NOTE_BYTES_MAX)).expect("bounded");
    let mut bytes = vec![0; len];
    let held = file.read_at(&mut bytes, 0)?;
    bytes.truncate(held);
    Ok(Some(bytes))
}

/// Writes a note, whole or not at all. Durable on return.
fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<()> {
    remove(dir, UNFINISHED)?;
    let file = dir.create(UNFINISHED, Access::default())?;
    file.write_sync_at(bytes, 0, SyncMethod::ORDINARY)?;
    Ok(dir.rename(UNFINISHED, name)?)
}

/// Removes a note, if it is there. Durable on return.
fn remove(dir: &dyn Dir, name: &str) -> Result<()> {
    match dir.remove(name) {
        Err(error) if error.kind() != Some(ErrorKind::NotFound) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use plimsoll_simdisk::SimDir;

    use super::*;

    #[test]
    fn a_ring_is_named_with_its_token_also_where_its_path_has_lines() {
        let dir = SimDir::new();
        assert_eq!(ring(&dir).unwrap(), None);
        let note = RingNote::now(7, PathBuf::from("/dev/shm/a\nring"));
        write_ring(&dir, &note).unwrap();
        assert_eq!(ring(&dir).unwrap(), Some(note));
        forget_ring(&dir).unwrap();
        forget_ring(&dir).unwrap();
        assert_eq!(ring(&dir).unwrap(), None);
    }

    #[test]
    fn a_damaged_byte_of_the_end_makes_it_say_nothing() {
        let dir = SimDir::new();
        let mut sparse = SparseIndex::default();
        (0..20).for_each(|number| sparse.note(number * 100 + 1, 4096 + number * (64 << 10)));
        let end = Closed {
            log_id: 1 << 100,
            generation: 2,
            first_index: 1,
            salt: 4,
            last_index: 5000,
            records_end: 2 << 20,
            frames_end: (2 << 20) + 24,
            sparse,
        };
        write_closed(&dir, &end).unwrap();
        assert_eq!(closed(&dir).unwrap(), Some(end.clone()));
        let good = encode_closed(&end);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(decode_closed(&bad), None, "byte {at}");
            assert_eq!(decode_closed(&good[..at]), None, "{at} bytes");
        }
    }
}
