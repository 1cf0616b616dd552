//! [`IdentityFile`]: keeps who this replica is and what it promised, so that neither a crash nor
//! one bad sector makes it forget.
//!
//! The file `identity` has two slots (see [`super::slot`]), each in a block of 4 KiB of its own. A
//! save writes the first and syncs it, and then the same to the second. So
//!
//! * a save that a crash interrupts leaves the state from before it or the new one whole, and the
//!   slot that was torn is the only one that is bad;
//! * **once a save has returned both slots hold it**, and damage to either takes nothing back. With
//!   slots that take turns the older one would be found, and the vote would go back: to vote twice
//!   in a term.
//!
//! It costs a second sync for each vote. Votes are rare.
//!
//! The file gets its name once it is whole ([`crate::whole`]), so what has the name was never empty. It is
//! in the directory of the log, whose lock keeps others out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_sync::{Dir, File, SyncMethod};

use super::error::{Error, Result};
use super::slot::{self, BadSlot, Identity, SLOT_BYTES};
use crate::whole;

/// The file, beside the log's.
pub(crate) const IDENTITY: &str = "identity";

/// Where each slot begins.
const SLOTS: [u64; 2] = [0, 4096];

/// The identity in memory and on the disk.
#[derive(Debug)]
pub(crate) struct IdentityFile {
    file: Arc<dyn File>,
    /// Sequence of the newest save; held through a save, so that saves come one after the other.
    sequence: Mutex<u64>,
    /// What is durable.
    known: Mutex<Identity>,
}

impl IdentityFile {
    /// Opens the identity of this node, or makes one where there is none and `may_be_new` says that
    /// nothing can have been promised yet. Both slots hold it on return.
    pub(crate) fn open(dir: &dyn Dir, node: u64, may_be_new: bool) -> Result<Self> {
        let file = match whole::open(dir, IDENTITY)? {
            Some(file) => file,
            None if may_be_new => {
                let identity = Identity { node, vote: None, purged: None, generation: 0 };
                whole::create(dir, IDENTITY, |file| write(file, 1, &identity))?
            }
            None => {
                return Err(Error::IdentityLost { why: "it is not there, and the log is" });
            }
        };
        let (sequence, identity, is_mirrored) = read(&*file)?;
        if identity.node != node {
            return Err(Error::OtherNode { found: identity.node, asked: node });
        }
        let (sequence, known) = (Mutex::new(sequence), Mutex::new(identity));
        let opened = Self { file, sequence, known };
        if !is_mirrored {
            // What is used from now on must not hang on one slot.
            opened.save(|_| {})?;
        }
        Ok(opened)
    }

    /// What is durable.
    pub(crate) fn known(&self) -> Identity {
        lock(&self.known).clone()
    }

    /// Changes the identity. Durable in both slots on return; if it fails the file takes nothing
    /// more, and which of the two states is found later is open.
    pub(crate) fn save(&self, change: impl FnOnce(&mut Identity)) -> Result<()> {
        let mut sequence = lock(&self.sequence);
        let mut identity = self.known();
        change(&mut identity);
        *sequence += 1;
        write(&*self.file, *sequence, &identity)?;
        *lock(&self.known) = identity;
        Ok(())
    }
}

/// The log of this node is gone: it has let go of nothing of the next. Durable on return.
pub(crate) fn begin_anew(dir: &dyn Dir, node: u64) -> Result<()> {
    let file = IdentityFile::open(dir, node, false)?;
    if file.known().purged.is_some() {
        file.save(|identity| identity.purged = None)?;
    }
    Ok(())
}

/// Writes one slot after the other, each durable before the next is touched.
pub(super) fn write(
    file: &dyn File,
    sequence: u64,
    identity: &Identity,
) -> plimsoll_sync::Result<()> {
    let slot = slot::encode(sequence, identity);
    for byte_offset in SLOTS {
        file.write_sync_at(&slot, byte_offset, SyncMethod::ORDINARY)?;
    }
    Ok(())
}

/// The newest sequence and identity, and whether both slots hold it.
pub(super) fn read(file: &dyn File) -> Result<(u64, Identity, bool)> {
    let mut slots = Vec::new();
    for byte_offset in SLOTS {
        let mut bytes = [0; SLOT_BYTES];
        file.read_at(&mut bytes, byte_offset)?;
        slots.push(slot::decode(&bytes));
    }
    // A version that is not known may hold a newer promise than the slot beside it.
    if let Some(version) = slots.iter().find_map(|slot| match slot {
        Err(BadSlot::Version(version)) => Some(*version),
        _ => None,
    }) {
        return Err(Error::Version { version });
    }
    let is_mirrored = slots[0].is_ok() && slots[0] == slots[1];
    let newest = slots.into_iter().flatten().max_by_key(|(sequence, _)| *sequence);
    let (sequence, identity) =
        newest.ok_or(Error::IdentityLost { why: "both slots are damaged" })?;
    Ok((sequence, identity, is_mirrored))
}

/// A panic of who held it left it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::SimDir;
    use plimsoll_sync::Crash;

    use super::*;
    use crate::cluster::types::{Vote, log_id};

    fn open(dir: &SimDir) -> Result<IdentityFile> {
        IdentityFile::open(dir, 3, true)
    }

    fn vote(identity: &mut Identity, term: u64) {
        identity.vote = Some(Vote::new(term, 3));
    }

    fn term(file: &IdentityFile) -> u64 {
        file.known().vote.map_or(0, |vote| vote.leader_id.term)
    }

    #[test]
    fn an_identity_is_as_it_was_saved() {
        let dir = SimDir::new();
        let file = open(&dir).unwrap();
        file.save(|identity| vote(identity, 7)).unwrap();
        file.save(|identity| identity.purged = Some(log_id(5, 41))).unwrap();
        let saved = file.known();
        drop(file);
        let again = open(&dir.crash(Crash::Process, 0)).unwrap();
        assert_eq!(again.known(), saved);
    }

    #[test]
    fn no_power_cut_takes_back_a_saved_vote() {
        let dir = SimDir::new();
        open(&dir).unwrap();
        let moments = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&moments);
        dir.watch(move |moment| {
            let images = (0..20).map(|seed| moment.crash(Crash::PowerCut, seed));
            lock(&seen).extend(images);
        });
        let file = open(&dir).unwrap();
        for saved in 1..6 {
            file.save(|identity| vote(identity, saved)).unwrap();
            for image in lock(&moments).drain(..) {
                let found = term(&open(&image).unwrap());
                assert!(found == saved - 1 || found == saved, "{found} after {saved} began");
            }
            for seed in 0..50 {
                assert_eq!(term(&open(&dir.power_cut(seed)).unwrap()), saved);
            }
        }
    }

    /// The sync of its name was left to whoever made it, who may have died before.
    #[test]
    fn an_identity_that_was_opened_once_is_there_after_a_power_cut() {
        for dir in whole::killed_while(|dir| drop(IdentityFile::open(dir, 3, true).unwrap())) {
            open(&dir).unwrap();
            for seed in 0..20 {
                IdentityFile::open(&dir.power_cut(seed), 3, false).unwrap();
            }
        }
    }

    #[test]
    fn a_vote_found_after_a_crash_is_not_taken_back_by_the_next() {
        // The first slot alone has the new vote: once it was found it may have been acted upon.
        let dir = SimDir::new();
        open(&dir).unwrap().save(|identity| vote(identity, 1)).unwrap();
        let file = dir.open(IDENTITY, SyncMethod::ORDINARY.access()).unwrap();
        let newer = Identity { node: 3, vote: Some(Vote::new(2, 3)), purged: None, generation: 0 };
        let first = slot::encode(9, &newer);
        file.write_sync_at(&first, SLOTS[0], SyncMethod::ORDINARY).unwrap();
        drop(file);
        assert_eq!(term(&open(&dir).unwrap()), 2);
        let file = dir.open(IDENTITY, SyncMethod::ORDINARY.access()).unwrap();
        file.write_sync_at(&[0; SLOT_BYTES], SLOTS[0], SyncMethod::ORDINARY).unwrap();
        drop(file);
        assert_eq!(term(&open(&dir).unwrap()), 2);
    }

    #[test]
    fn damage_to_any_byte_takes_no_vote_back() {
        for at in SLOTS.into_iter().flat_map(|slot| slot..slot + SLOT_BYTES as u64 + 8) {
            let dir = SimDir::new();
            open(&dir).unwrap().save(|identity| vote(identity, 7)).unwrap();
            change_byte(&dir, at);
            assert_eq!(term(&open(&dir).unwrap()), 7, "byte {at}");
        }
    }

    #[test]
    fn damage_to_both_slots_is_told() {
        for (one, other) in [(0, 4096), (71, 4096 + 16), (40, 4096 + 71)] {
            let dir = SimDir::new();
            open(&dir).unwrap();
            change_byte(&dir, one);
            change_byte(&dir, other);
            assert!(matches!(open(&dir), Err(Error::IdentityLost { .. })));
        }
    }

    fn change_byte(dir: &SimDir, at: u64) {
        let file = dir.open(IDENTITY, SyncMethod::ORDINARY.access()).unwrap();
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        byte[0] ^= 0x55;
        file.write_sync_at(&byte, at, SyncMethod::ORDINARY).unwrap();
    }

    #[test]
    fn a_log_without_its_identity_is_not_opened() {
        let lost = IdentityFile::open(&SimDir::new(), 3, false);
        assert!(matches!(lost, Err(Error::IdentityLost { .. })));
    }

    #[test]
    fn the_directory_of_another_node_is_refused() {
        let dir = SimDir::new();
        open(&dir).unwrap();
        let other = IdentityFile::open(&dir, 4, true);
        assert!(matches!(other, Err(Error::OtherNode { found: 3, asked: 4 })));
    }
}
