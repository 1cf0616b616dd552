//! [`OpenRing`]: the ring of a log that is being opened, and what of it is in no segment.

use std::path::{Path, PathBuf};

use plimsoll_sync::Held;

use crate::append::ring::Ring;
use crate::append::ring_file::{Found, Left};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::files::notes::{self, RingNote};
use crate::options::{Options, Ring as RingPlace};

/// A ring, and what of it is not in a segment.
pub(super) struct OpenRing {
    pub(super) ring: Ring,
    /// Where the first record begins that is in no segment.
    pub(super) taken: u64,
    /// The last record in it, or of the segments if there is none.
    pub(super) accepted: u64,
    /// It has still to be made this log's.
    pub(super) is_new: bool,
    pub(super) token: u64,
    /// Why it could not be used, if it held anything, or may have.
    pub(super) ignored: Option<String>,
}

impl OpenRing {
    /// Finds the ring that the options name, for a log whose segments end with `last_index`. In a crew its
    /// memory comes with its use.
    pub(super) fn open(
        files: &Files,
        options: &Options,
        last_index: u64,
        in_crew: bool,
    ) -> Result<Self> {
        let (dir, capacity) = (files.dir(), options.ring_bytes);
        let note = notes::ring(dir)?.filter(RingNote::is_of_this_boot);
        if let Some(note) = &note {
            refuse_another_ring(note, &options.ring)?;
        }
        let RingPlace::File(path) = &options.ring else {
            notes::forget_ring(dir)?;
            let ring = match in_crew {
                true => Ring::in_sparse_memory(capacity)?,
                false => Ring::in_memory(capacity)?,
            };
            let mut open = Self::empty(ring, last_index, 0);
            open.ignored = note.map(|note| {
                let path = note.path.display();
                format!("the ring {path} is not here: what only it had is given up")
            });
            return Ok(open);
        };
        let path = canonical(path);
        let (ring, held) = Ring::in_file(&path, capacity)?;
        let token = files.clock.unique()?;
        let found = match held {
            Held::Nothing if note.is_some() => {
                Found::Unusable("it is gone, and with it what only it had")
            }
            Held::Nothing => Found::Nothing,
            Held::Words => ring.found(files.log_id, note.as_ref().map(|note| note.token)),
        };
        let mut open = Self::empty(ring, last_index, token);
        match found {
            Found::Records(records) => open.replay(&records, last_index),
            Found::Foreign => {
                return Err(Error::Options(format!(
                    "the ring {} belongs to another log: each needs its own; if that log is gone, so is what the ring adds to \
                     it: remove the ring",
                    path.display()
                )));
            }
            Found::Unusable(why) => open.ignored = Some(why.to_owned()),
            Found::Nothing => {}
        }
        let is_noted = note.is_some_and(|note| open.ring.has_token(note.token));
        // In this order a crash at any point leaves a ring and a note that agree.
        if !open.is_new {
            open.ring.expect_token(token);
        }
        match notes::write_ring(dir, &RingNote::now(token, path)) {
            // The note that stands is as good, if it is of this ring: nobody else has opened the log.
            Err(error) if error.is_out_of_space() && !open.is_new && is_noted => {
                tracing::debug!(%error, "the note of the ring stays as it is");
            }
            written => {
                written?;
                if !open.is_new {
                    open.ring.take_token(token);
                    open.ring.note_cut(None);
                }
            }
        }
        Ok(open)
    }

    fn empty(ring: Ring, last_index: u64, token: u64) -> Self {
        Self { ring, taken: 0, accepted: last_index, is_new: true, token, ignored: None }
    }

    fn replay(&mut self, records: &[Left], last_index: u64) {
        let first = records.first().map_or(last_index + 1, |left| left.index);
        let is_behind_a_gap = first > last_index + 1;
        let is_cut_off = is_behind_a_gap && self.ring.was_cut_to(last_index);
        if is_behind_a_gap && !is_cut_off {
            self.ignored = Some(format!("it begins with record {first}, after a gap"));
            return;
        }
        let records = if is_cut_off { &[] } else { records };
        let next = records.iter().find(|left| left.index > last_index);
        self.taken = next.map_or(self.ring.filled(), |left| left.position);
        self.accepted = records.last().map_or(last_index, |left| left.index).max(last_index);
        self.ring.release(self.taken);
        self.is_new = false;
    }
}

/// Refuses a ring that a note could not name. Changes nothing.
pub(super) fn check_path(ring: &RingPlace) -> Result<()> {
    let RingPlace::File(path) = ring else { return Ok(()) };
    if canonical(path).to_str().is_some() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the path of the ring {} is not text (UTF-8), and the note that leads to it could not name it: \
         choose another",
        path.display()
    )))
}

/// Refuses to go on without the ring that the note names, if it is there and may hold records.
fn refuse_another_ring(note: &RingNote, ring: &RingPlace) -> Result<()> {
    let named = matches!(ring, RingPlace::File(given) if canonical(given) == note.path);
    if named || !note.path.exists() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "the log's newest records may be in the ring {}: open it with that ring; or remove the file \
         'ring' from the log's directory, and give them up",
        note.path.display()
    )))
}

/// The same path from wherever a process looks, as far as that is known.
fn canonical(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    match (parent, path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}
