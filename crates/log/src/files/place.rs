//! [`Place`]: a directory that holds segments, and how records are best made durable in it: found by
//! trying, once, at open.

use std::sync::Arc;

use plimsoll_sync::{
    Access, AlignedBuf, Allocation, Dir, Error as DiskError, File, Overwrite, SyncMethod, System,
};

use super::notes;
use crate::error::Result;
use crate::segment::format::{BLOCK, BLOCK_BYTES};
use crate::segment::header::Header;

/// A file that shows what works.
pub(crate) const PROBE: &str = "probe.tmp";
/// Zeros are written in pieces of this size, so that commits get between them.
const ZEROS_BYTES: u64 = 1 << 20;

/// A directory, and what works in it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) dir: Arc<dyn Dir>,
    pub(crate) method: Method,
    pub(crate) layout: Layout,
}

/// How bytes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Method {
    /// How segments are opened.
    pub(crate) access: Access,
    /// One call that writes and makes durable what it writes.
    pub(crate) with_write: Option<SyncMethod>,
    /// The call that makes durable what was written before.
    pub(crate) call: SyncMethod,
}

/// What is done to a file before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Zeros are written, so that later writes change no metadata.
    Zeroed,
    /// Blocks are reserved: where writes go elsewhere, zeros would be a waste.
    Reserved,
    /// Nothing: there is no disk, or it cannot reserve.
    Growing,
}

/// What is to be done to a file that is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// What the place's layout says.
    Best,
    /// No zeros: the log is filled so fast that they would double what goes to the disk, and its
    /// writes are so large that they gain nothing.
    Quick,
    /// Nothing: the file was a segment before.
    Used,
}

/// A file that is ready to become a segment: its header is durable.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) name: String,
    pub(crate) file: Arc<dyn File>,
    pub(crate) header: Header,
}

/// What works on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    method: Method,
    layout: Layout,
}

impl Layout {
    const ALL: [Self; 3] = [Self::Zeroed, Self::Reserved, Self::Growing];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Zeroed => "zeroed",
            Self::Reserved => "reserved",
            Self::Growing => "growing",
        }
    }
}

impl Method {
    const fn new(with_write: Option<SyncMethod>, call: SyncMethod) -> Self {
        Self { access: call.access(), with_write, call }
    }

    /// What to try on a system, best first.
    fn candidates(system: System, direct: bool) -> Vec<Self> {
        if system != System::Linux {
            return vec![Self::plain(system)];
        }
        let past_the_cache = [
            Self::new(Some(SyncMethod::DirectRwfDsync), SyncMethod::DirectFdatasync),
            Self::new(None, SyncMethod::DirectFdatasync),
        ];
        let through_it =
            [Self::new(Some(SyncMethod::RwfDsync), SyncMethod::Fdatasync), Self::plain(system)];
        let first = if direct { &past_the_cache[..] } else { &[] };
        first.iter().chain(&through_it).copied().collect()
    }

    /// What works everywhere on a system.
    const fn plain(system: System) -> Self {
        let call = match system {
            System::Linux => SyncMethod::Fdatasync,
            System::Apple => SyncMethod::FullFsync,
            System::Windows => SyncMethod::FlushFileBuffers,
            System::OtherUnix => SyncMethod::Fsync,
        };
        Self::new(None, call)
    }

    /// As it is noted: the name alone does not tell how a call without a write of its own is made.
    fn noted(self) -> String {
        format!("{} {}", self.name(), self.call.name())
    }

    /// In words.
    pub(crate) fn name(self) -> String {
        self.with_write.unwrap_or(self.call).name().to_owned()
    }
}

impl Place {
    /// A directory on a device of which it is known what works.
    pub(crate) fn known(dir: Arc<dyn Dir>, known: Known) -> Self {
        let Known { method, layout } = known;
        Self { dir, method, layout }
    }

    /// What was found out.
    pub(crate) fn what_works(&self) -> Known {
        Known { method: self.method, layout: self.layout }
    }

    /// What works in `dir`: noted since the system started, or found out now.
    pub(crate) fn find(dir: Arc<dyn Dir>, direct: bool) -> Result<Self> {
        let Some(device) = dir.device() else { return Self::probe(dir, direct) };
        let candidates = Method::candidates(System::HERE, direct);
        let known = |text: String| {
            let (layout, method) = text.split_once(' ')?;
            let layout = Layout::ALL.into_iter().find(|known| known.name() == layout)?;
            let method = candidates.iter().copied().find(|known| known.noted() == method)?;
            // One that was asked not to be direct says nothing of what is.
            (method.access.direct == (direct && layout == Layout::Zeroed))
                .then_some(Known { method, layout })
        };
        if let Some(known) = notes::probed(&*dir, device)?.and_then(known) {
            return Ok(Self::known(dir, known));
        }
        let (method, layout) = match Self::try_probe(&dir, direct) {
            // Not for ever: there may be room later.
            Err(error) if error.is_out_of_space() => return Self::probe(dir, direct),
            probed => probed?,
        };
        let place = Self { dir, method, layout };
        let noted = format!("{} {}", place.layout.name(), place.method.noted());
        notes::write_probed(&*place.dir, device, &noted);
        Ok(place)
    }

    /// Finds out what works in `dir`, with one small file that is removed again. On a full disk nothing
    /// can be tried, and what works everywhere is taken: whoever opens the log may make room.
    pub(crate) fn probe(dir: Arc<dyn Dir>, direct: bool) -> Result<Self> {
        match Self::try_probe(&dir, direct) {
            Ok((method, layout)) => Ok(Self { dir, method, layout }),
            Err(error) if error.is_out_of_space() => {
                tracing::warn!("the disk is full: how it syncs best cannot be tried");
                let (method, layout) = (Method::plain(System::HERE), Layout::Reserved);
                Ok(Self { dir, method, layout })
            }
            Err(error) => Err(error),
        }
    }

    fn try_probe(dir: &Arc<dyn Dir>, direct: bool) -> Result<(Method, Layout)> {
        if dir.list()?.iter().any(|name| name == PROBE) {
            dir.remove(PROBE)?;
        }
        drop(dir.create(PROBE, Access::default())?);
        let probed = Self::probe_with_file(dir, direct);
        dir.remove(PROBE)?;
        probed
    }

    fn probe_with_file(dir: &Arc<dyn Dir>, direct: bool) -> Result<(Method, Layout)> {
        let plain = dir.open(PROBE, Access::default())?;
        let in_place = dir.overwrite() == Overwrite::InPlace;
        let layout = match plain.allocate(0, BLOCK_BYTES, Allocation::Reserved) {
            // Where nothing goes to a disk, room is reserved all the same.
            Ok(()) if !in_place => Layout::Reserved,
            Ok(()) => Layout::Zeroed,
            Err(error) if cannot(&error) && in_place => Layout::Zeroed,
            Err(error) if cannot(&error) => Layout::Growing,
            Err(error) => return Err(error.into()),
        };
        // Past the cache only where blocks are written in place: elsewhere it gains nothing.
        let direct = direct && layout == Layout::Zeroed;
        let mut why = None;
        for method in Method::candidates(System::HERE, direct) {
            match try_method(dir, method) {
                Ok(()) => return Ok((method, layout)),
                Err(error) if cannot(&error) => why = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Err(why.expect("each system has a candidate").into())
    }

    /// Makes a file ready: `name` is what it is called until it is a segment.
    pub(crate) fn prepare(&self, name: String, header: Header, blocks: Blocks) -> Result<Spare> {
        let prepared = self.try_prepare(&name, header, blocks);
        if prepared.is_err() {
            // Half a file is of no use, and its room is needed. If it cannot be removed either, the
            // next open does it.
            self.dir.remove(&name).ok();
        }
        Ok(Spare { name, file: prepared?, header })
    }

    fn try_prepare(&self, name: &str, header: Header, blocks: Blocks) -> Result<Arc<dyn File>> {
        if blocks != Blocks::Used {
            let new = self.dir.create(name, Access::default())?;
            // On a filesystem that copies on write a full disk would fail at any write.
            new.keep_in_place()?;
        }
        let file = self.dir.open(name, self.method.access)?;
        if blocks == Blocks::Used && file.len()? < header.segment_bytes {
            // It was a segment when they were smaller.
            file.allocate(0, header.segment_bytes, Allocation::Reserved)?;
        }
        if blocks != Blocks::Used {
            match self.layout {
                Layout::Zeroed if blocks == Blocks::Best => {
                    let mut done = 0;
                    while done < header.segment_bytes {
                        let piece = ZEROS_BYTES.min(header.segment_bytes - done);
                        file.allocate(done, piece, Allocation::Zeroed)?;
                        done += piece;
                    }
                }
                Layout::Zeroed | Layout::Reserved => {
                    file.allocate(0, header.segment_bytes, Allocation::Reserved)?;
                }
                Layout::Growing => {}
            }
        }
        let mut block = AlignedBuf::zeroed(BLOCK, file.alignment().max(BLOCK));
        let encoded = header.encode();
        block[..encoded.len()].copy_from_slice(&encoded);
        file.write_at(&block, 0)?;
        file.sync(self.method.call)?;
        Ok(file)
    }
}

/// Writes one block so, and syncs it.
fn try_method(dir: &Arc<dyn Dir>, method: Method) -> plimsoll_sync::Result<()> {
    let file = dir.open(PROBE, method.access)?;
    let block = AlignedBuf::zeroed(BLOCK, file.alignment().max(BLOCK));
    if file.alignment() > BLOCK {
        let reason = format!("it wants blocks of {} bytes", file.alignment());
        return Err(DiskError::Unsupported { method: method.call, path: PROBE.into(), reason });
    }
    match method.with_write {
        Some(with_write) => file.write_sync_at(&block, 0, with_write)?,
        None => file.write_sync_at(&block, 0, method.call)?,
    };
    file.sync(method.call).map(|_| ())
}

fn cannot(error: &DiskError) -> bool {
    use std::io::ErrorKind::{InvalidInput, Unsupported};
    matches!(error, DiskError::Unsupported { .. })
        || matches!(error.kind(), Some(InvalidInput | Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_method_and_linux_four() {
        for system in [System::Linux, System::Apple, System::Windows, System::OtherUnix] {
            let candidates = Method::candidates(system, true);
            assert_eq!(candidates.len(), if system == System::Linux { 4 } else { 1 });
            for method in candidates {
                assert!(method.call.is_call());
                assert!(method.with_write.is_none_or(|with| with.access() == method.access));
            }
        }
    }
}
