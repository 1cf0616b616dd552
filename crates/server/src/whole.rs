//! Files that have their names once they are whole.
//!
//! One that is being made is called `NAME.new`. It takes its name, and the place of the one that had it,
//! once what is in it is durable. So what has the name was never half of itself, and what was left of one
//! that was being made is nobody's.

use std::io::ErrorKind;
use std::sync::Arc;

use plimsoll_sync::{AlignedBuf, Dir, Error, File, Result, SyncMethod};

/// The file of this name, if there is one: it stays, whatever becomes of the system.
pub(crate) fn open(dir: &dyn Dir, name: &str) -> Result<Option<Arc<dyn File>>> {
    if !forget_unfinished(dir, name)? {
        return Ok(None);
    }
    // Who gave the file its name may have died before that was durable.
    dir.sync()?;
    dir.open(name, SyncMethod::ORDINARY.access()).map(Some)
}

/// Makes the file of this name, in place of the one that had it. `fill` has what it writes durable by
/// itself; the name is durable on return.
pub(crate) fn create(
    dir: &dyn Dir,
    name: &str,
    fill: impl FnOnce(&dyn File) -> Result<()>,
) -> Result<Arc<dyn File>> {
    forget_unfinished(dir, name)?;
    let unfinished = unfinished(name);
    let file = dir.create(&unfinished, SyncMethod::ORDINARY.access())?;
    fill(&*file)?;
    dir.rename(&unfinished, name)?;
    Ok(file)
}

/// So many bytes of a file, or as many as there are; whatever it wants to be read in, past the cache.
pub(crate) fn read_at(file: &dyn File, at: u64, bytes: usize) -> Result<Vec<u8>> {
    let alignment = file.alignment();
    if alignment == 1 {
        let mut buffer = vec![0; bytes];
        let read = file.read_at(&mut buffer, at)?;
        buffer.truncate(read);
        return Ok(buffer);
    }
    let begin = at - at % alignment as u64;
    let before = usize::try_from(at - begin).expect("less than a block");
    let mut buffer = AlignedBuf::zeroed((before + bytes).next_multiple_of(alignment), alignment);
    let read = file.read_at(&mut buffer, begin)?;
    Ok(buffer[before.min(read)..(before + bytes).min(read)].to_vec())
}

/// The file of this name as it lies on the disk, past the page cache where there is a way; nothing is changed.
pub(crate) fn open_past_cache(dir: &dyn Dir, name: &str) -> Result<Arc<dyn File>> {
    match dir.open(name, SyncMethod::Direct.access()) {
        // There is no such way.
        Err(Error::Unsupported { .. }) => dir.open(name, SyncMethod::ORDINARY.access()),
        Err(why) if why.kind() == Some(ErrorKind::InvalidInput) => {
            dir.open(name, SyncMethod::ORDINARY.access())
        }
        opened => opened,
    }
}

/// Takes away what was left of one that was being made. Whether there is a whole one.
fn forget_unfinished(dir: &dyn Dir, name: &str) -> Result<bool> {
    let (names, unfinished) = (dir.list()?, unfinished(name));
    let has = |name: &str| names.iter().any(|found| found == name);
    if has(&unfinished) {
        dir.remove(&unfinished)?;
    }
    Ok(has(name))
}

fn unfinished(name: &str) -> String {
    format!("{name}.new")
}

/// What a process that is killed at each moment of `make` leaves.
#[cfg(test)]
pub(crate) fn killed_while(make: impl FnOnce(&dyn Dir)) -> Vec<plimsoll_simdisk::SimDir> {
    use std::sync::Mutex;

    let dir = plimsoll_simdisk::SimDir::new();
    let left = Arc::new(Mutex::new(Vec::new()));
    let leaves = Arc::clone(&left);
    dir.watch(move |moment| {
        leaves.lock().unwrap().push(moment.crash(plimsoll_sync::Crash::Process, 0));
    });
    make(&dir);
    std::mem::take(&mut left.lock().unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 3] = *b"all";

    fn make(dir: &dyn Dir) {
        let fill = |file: &dyn File| file.write_sync_at(&BYTES, 0, SyncMethod::ORDINARY).map(drop);
        create(dir, "file", fill).unwrap();
    }

    fn is_there(dir: &dyn Dir) -> bool {
        let Some(file) = open(dir, "file").unwrap() else { return false };
        let mut bytes = [0; BYTES.len() + 1];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), BYTES.len());
        assert_eq!(bytes[..BYTES.len()], BYTES);
        true
    }

    /// A process died between the rename and its sync; the next one read the file, acted on it, and lost
    /// it in a power cut.
    #[test]
    fn what_was_found_once_is_found_after_a_power_cut() {
        let found: Vec<_> = killed_while(make).into_iter().filter(|dir| is_there(dir)).collect();
        assert!(!found.is_empty());
        for (dir, seed) in found.iter().flat_map(|dir| (0..20).map(move |seed| (dir, seed))) {
            assert!(is_there(&dir.power_cut(seed)), "seed {seed}");
        }
    }

    #[test]
    fn a_file_is_found_whole_or_not_at_all_and_is_made_again() {
        for dir in killed_while(make) {
            for seed in 0..20 {
                let dir = dir.power_cut(seed);
                is_there(&dir);
                make(&dir);
                assert!(is_there(&dir));
                assert_eq!(dir.list().unwrap(), ["file"]);
            }
        }
    }
}
