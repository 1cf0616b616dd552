//! Files that are made ready ahead of the writer: zero-filled, header durable.
//!
//! One is kept ready once a quarter of the active segment is used. It is also the reserve: when the
//! disk is full, what the ring holds still has room in it.

use std::io::ErrorKind;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::accept::Gate;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::place::{Blocks, Layout, SPARE, Spare};
use crate::shim::lock;
use crate::stats::Event;

/// Used files that are kept for later.
const USED_MAX: usize = 2;

/// A ready file in `place`, or a new one.
pub(crate) fn take(core: &Core, place: usize) -> Result<Spare> {
    if let Some(ready) = take_ready(core, place) {
        return Ok(ready);
    }
    // Somebody may be making one; then it is waited for. Not for what is made on a disk that hangs.
    let _preparing = lock(&core.preparing[place]);
    match take_ready(core, place) {
        Some(ready) => Ok(ready),
        None => prepare(core, place),
    }
}

fn take_ready(core: &Core, place: usize) -> Option<Spare> {
    let mut spares = lock(&core.spares);
    let ready = spares.ready.iter().position(|spare| spare.place == place)?;
    Some(spares.ready.swap_remove(ready))
}

/// Makes one ready if it is time. Returns whether it did.
pub(crate) fn keep_ready(core: &Core, place: usize) -> Result<bool> {
    let _preparing = lock(&core.preparing[place]);
    if !is_due(core) {
        return Ok(false);
    }
    let spare = prepare(core, place)?;
    let mut spares = lock(&core.spares);
    spares.ready.push(spare);
    // The log may have gone on elsewhere meanwhile.
    if core.place.load(SeqCst) == place as u64 {
        core.raise_room_limit(core.certain_room_of_spare());
    }
    Ok(true)
}

/// Whether it is time to make one ready.
pub(crate) fn is_due(core: &Core) -> bool {
    let place = core.place.load(SeqCst);
    let spares = lock(&core.spares);
    spares.wanted && !spares.is_ready(place)
}

/// Keeps the file of a segment that is not part of the log any more, or removes it.
pub(crate) fn give_back(core: &Core, place: usize, name: &str) -> Result<()> {
    let dir = &core.places[place].dir;
    // Where writes go elsewhere, an old file is worth no more than a new one.
    let keeps =
        core.places[place].layout == Layout::Zeroed && lock(&core.spares).used.len() < USED_MAX;
    if keeps {
        let spare = spare_name(core.new_header()?.salt);
        match dir.rename(name, &spare) {
            Ok(()) => lock(&core.spares).used.push((place, spare)),
            // A write to it may still come.
            Err(error) if error.kind() == Some(ErrorKind::ResourceBusy) => dir.remove(name)?,
            Err(error) => return Err(error.into()),
        }
    } else {
        dir.remove(name)?;
    }
    if std::mem::take(&mut lock(&core.spares).out_of_space) {
        core.set_gate(Gate::Open);
        core.preparer_signal().wake();
        core.writer_signal.wake();
    }
    Ok(())
}

/// In the preparing turn, and under no other lock: it writes a whole file.
fn prepare(core: &Core, place: usize) -> Result<Spare> {
    let _span = tracing::debug_span!("prepare", place).entered();
    let header = core.new_header()?;
    let recycled = {
        let mut spares = lock(&core.spares);
        let used = spares.used.iter().position(|(of, _)| *of == place);
        used.map(|used| spares.used.swap_remove(used).1)
    };
    let (blocks, name) = match recycled {
        Some(name) => (Blocks::Used, name),
        None if core.is_bulk.load(Relaxed) => (Blocks::Quick, spare_name(header.salt)),
        None => (Blocks::Best, spare_name(header.salt)),
    };
    match core.places[place].prepare(place, name, header, blocks) {
        Ok(spare) => {
            if std::mem::take(&mut lock(&core.spares).out_of_space) {
                core.set_gate(Gate::Open);
            }
            Ok(spare)
        }
        Err(error) if error.is_out_of_space() => {
            if !std::mem::replace(&mut lock(&core.spares).out_of_space, true) {
                tracing::warn!("no room for another segment");
                core.tell(Event::OutOfSpace);
            }
            core.set_gate(Gate::OutOfSpace);
            Err(Error::OutOfSpace { last_index: core.last.get() })
        }
        Err(error) => Err(error),
    }
}

fn spare_name(salt: u64) -> String {
    format!("{salt:016x}{SPARE}")
}
