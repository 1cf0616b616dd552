//! One file: what the kernel has, what the medium has, and what is on its way.
//!
//! ```text
//!   write ──► live (page cache)          reads see this
//!               │ pending, in order:     Stage::Kernel ──► Stage::Device ──► applied to
//!               ▼                                                             │
//!             durable (medium)           a power cut leaves this, plus ◄──────┘
//!                                        any part of what is pending
//! ```
//!
//! A sync that fails hands a part of what is pending to the device and forgets the rest (`failure.rs`):
//! reads through the page cache go on showing it, and nobody will write it.
//!
//! A write of part of a sector takes the whole sector with it, as it is in the page cache: devices
//! write sectors.
//!
//! Invariants: effects are sorted by order. Of the effects on one page, those handed to the device
//! come before those that were not. Nothing becomes durable past a pending cut, unless the cut does
//! too: otherwise a later cut of the medium would take durable bytes with it.

use std::ops::Range;
use std::sync::Arc;

use super::room::FileRoom;
use crate::sparse::Ranges;
use crate::sparse::{PAGE, PAGE_BYTES, Page, SparseBytes, page_part, pages_of, pieces, sectors_of};

#[derive(Debug, Clone, Default)]
pub(crate) struct Inode {
    /// The last name it had, by which faults find it.
    pub(crate) name: String,
    /// Open handles.
    pub(crate) handles: usize,
    pub(crate) live: SparseBytes,
    pub(crate) durable: SparseBytes,
    pub(crate) pending: Vec<Effect>,
    pub(crate) room: FileRoom,
    /// A sync failed: the page cache holds bytes that nothing will write.
    pub(crate) forgot: bool,
}

/// How far something that is not durable has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the page cache.
    Kernel,
    /// In the device's volatile cache, after `epoch` barriers.
    Device { epoch: u64 },
}

/// Something that was done and is not durable yet.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    /// Effects of one operation share a number.
    pub(crate) order: u64,
    pub(crate) stage: Stage,
    pub(crate) change: Change,
}

#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// These sectors of a page are as in `content`.
    Sectors { page: u64, content: Arc<Page>, sectors: u8 },
    /// These pages are zeros.
    Zeros { pages: Range<u64> },
    /// These pages are zeros and have no blocks.
    Punched { pages: Range<u64> },
    /// The file grew to this length.
    Grown { len: u64 },
    /// The file was cut to this length.
    Cut { len: u64 },
}

impl Inode {
    /// Writes into the page cache; `lost` writes never leave it. The range must be valid.
    pub(crate) fn write(&mut self, order: u64, buf: &[u8], byte_offset: u64, lost: bool) {
        for piece in pieces(byte_offset, buf.len()) {
            let content = self.live.put(piece.page, piece.inside.clone(), &buf[piece.buf]);
            if !lost {
                self.push(
                    order,
                    Change::Sectors {
                        page: piece.page,
                        content,
                        sectors: sectors_of(&piece.inside),
                    },
                );
            }
        }
        if !buf.is_empty() {
            self.grow(order, byte_offset + buf.len() as u64);
        }
    }

    /// Writes zeros, without memory for them.
    pub(crate) fn zero(&mut self, order: u64, bytes: Range<u64>) {
        let whole = bytes.start.div_ceil(PAGE)..bytes.end / PAGE;
        if whole.start >= whole.end {
            // Less than two pages, and none of them whole.
            let zeros = [0; 2 * PAGE_BYTES];
            let len = usize::try_from(bytes.end - bytes.start).expect("less than two pages");
            return self.write(order, &zeros[..len], bytes.start, false);
        }
        let zeros = [0; PAGE_BYTES];
        let before = page_part(PAGE - bytes.start % PAGE);
        self.write(order, &zeros[..before], bytes.start, false);
        self.live.zero(whole.clone());
        self.push(order, Change::Zeros { pages: whole.clone() });
        self.write(order, &zeros[..page_part(bytes.end)], whole.end * PAGE, false);
        self.grow(order, bytes.end);
    }

    /// Gives blocks to the range and makes the file at least that long.
    pub(crate) fn reserve(&mut self, order: u64, bytes: Range<u64>) {
        self.live.blocks.insert(pages_of(&bytes));
        self.grow(order, bytes.end);
    }

    /// The parts of a range that are not whole pages, where the file reaches and has blocks.
    pub(crate) fn edges(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let pages = pages_of(bytes);
        let ends = [pages.start..pages.start + 1, pages.end - 1..pages.end];
        let ends = if pages.end - pages.start > 1 { &ends[..] } else { &ends[..1] };
        let part = |page: &Range<u64>| {
            let part = bytes.start.max(page.start * PAGE)..bytes.end.min(page.end * PAGE);
            let is_whole = part.end - part.start == PAGE;
            let reached = part.start..part.end.min(self.live.len);
            let is_edge = !is_whole && !reached.is_empty() && self.live.blocks.contains_all(page);
            is_edge.then_some(reached)
        };
        ends.iter().filter_map(part).collect()
    }

    /// Takes the blocks of the whole pages of a range, which then are zeros. A page that the end of the
    /// file lies in is whole if the range goes beyond it.
    pub(crate) fn punch(&mut self, order: u64, bytes: &Range<u64>) {
        let end = (bytes.end / PAGE).min(self.live.len.div_ceil(PAGE));
        let pages = bytes.start.div_ceil(PAGE)..end;
        if pages.is_empty() {
            return;
        }
        self.live.punch(pages.clone());
        self.room.punch(pages.clone());
        self.push(order, Change::Punched { pages });
    }

    pub(crate) fn truncate(&mut self, order: u64, len: u64) {
        if len < self.live.len {
            self.live.cut(len);
            self.room.cut(len.div_ceil(PAGE));
            self.push(order, Change::Cut { len });
        } else {
            self.grow(order, len);
        }
    }

    /// Data of these pages (all if `None`) goes to the device: only into blocks that the medium
    /// knows of and that are still the file's, unless metadata goes along.
    pub(crate) fn hand_over(&mut self, pages: Option<&Range<u64>>, metadata: bool, epoch: u64) {
        let device = Stage::Device { epoch };
        // That they are holes, and where they were filled again, is metadata.
        let mut holes = Ranges::default();
        for mut effect in std::mem::take(&mut self.pending) {
            if effect.is_hole() {
                effect.pages().into_iter().for_each(|pages| holes.insert(pages));
            }
            if effect.stage != Stage::Kernel {
                self.pending.push(effect);
                continue;
            }
            match effect.pages() {
                None => {
                    if metadata {
                        effect.stage = device;
                    }
                    self.pending.push(effect);
                }
                Some(_) => {
                    let (inside, outside) = effect.split(pages);
                    if let Some(mut inside) = inside {
                        let touched = inside.pages().expect("it is data");
                        let is_known = self.durable.blocks.contains_all(&touched)
                            && holes.count_in(&touched) == 0;
                        if metadata || is_known {
                            inside.stage = device;
                        }
                        self.pending.push(inside);
                    }
                    self.pending.extend(outside);
                }
            }
        }
    }

    /// Data of these pages (all if `None`) and the length are on the medium.
    pub(crate) fn persist(&mut self, pages: Option<&Range<u64>>) {
        let pages = pages.filter(|_| !self.cut_is_pending());
        for effect in std::mem::take(&mut self.pending) {
            let (inside, outside) = effect.split(pages);
            if let Some(inside) = inside {
                inside.change.apply(&mut self.durable);
            }
            self.pending.extend(outside);
        }
    }

    /// Whether a sync of these pages (all if `None`) has more to write than data in old blocks.
    pub(crate) fn changes_metadata(&self, pages: Option<&Range<u64>>) -> bool {
        self.pending.iter().any(|effect| match effect.pages() {
            None => true,
            Some(mine) => {
                let inside = pages.is_none_or(|p| mine.start < p.end && p.start < mine.end);
                inside && (effect.is_hole() || !self.durable.blocks.contains_all(&mine))
            }
        })
    }

    /// The length is on the medium, and the data that is in new blocks. What is overwritten in old
    /// ones still waits.
    pub(crate) fn persist_new(&mut self) {
        if self.cut_is_pending() {
            return self.persist(None);
        }
        if !self.pending.iter().any(|effect| effect.pages().is_none()) {
            return;
        }
        let old = self.durable.blocks.clone();
        for effect in parts(std::mem::take(&mut self.pending), &old) {
            if effect.is_new(&old) {
                effect.change.apply(&mut self.durable);
            } else {
                self.pending.push(effect);
            }
        }
    }

    /// As [`Inode::persist_new`], but into the device's volatile cache.
    pub(crate) fn hand_over_new(&mut self, epoch: u64) {
        if !self.pending.iter().any(|effect| effect.pages().is_none()) {
            return;
        }
        self.pending = parts(std::mem::take(&mut self.pending), &self.durable.blocks).collect();
        for effect in &mut self.pending {
            if effect.stage == Stage::Kernel && effect.is_new(&self.durable.blocks) {
                effect.stage = Stage::Device { epoch };
            }
        }
    }

    /// Whatever the device got before barrier `epoch` is on the medium.
    pub(crate) fn persist_before(&mut self, epoch: u64) {
        let early =
            |effect: &Effect| matches!(effect.stage, Stage::Device { epoch: e } if e < epoch);
        if !self.pending.iter().any(early) {
            return;
        }
        if self.cut_is_pending() {
            return self.persist(None);
        }
        for effect in std::mem::take(&mut self.pending) {
            if early(&effect) {
                effect.change.apply(&mut self.durable);
            } else {
                self.pending.push(effect);
            }
        }
    }

    /// What is read past the page cache: what the medium has and what is on its way there. After a
    /// failed sync that is less than the page cache shows.
    pub(crate) fn read_direct(&self, buf: &mut [u8], byte_offset: u64) -> usize {
        if !self.forgot {
            return self.live.read_at(buf, byte_offset);
        }
        let mut seen = self.durable.clone();
        for effect in &self.pending {
            effect.change.apply(&mut seen);
        }
        seen.len = self.live.len;
        seen.read_at(buf, byte_offset)
    }

    pub(crate) fn cut_is_pending(&self) -> bool {
        let cut = |effect: &Effect| matches!(effect.change, Change::Cut { .. });
        self.pending.iter().any(cut)
    }

    fn grow(&mut self, order: u64, len: u64) {
        if len > self.live.len {
            self.live.len = len;
            self.push(order, Change::Grown { len });
        }
    }

    fn push(&mut self, order: u64, change: Change) {
        self.pending.push(Effect { order, stage: Stage::Kernel, change });
    }
}

/// Effects of which each lies in `blocks` or outside them: what is in both is parted. Otherwise one would
/// overtake an older one on the same page, because of another page.
pub(crate) fn parts(
    effects: impl IntoIterator<Item = Effect>,
    blocks: &Ranges,
) -> impl Iterator<Item = Effect> {
    effects.into_iter().flat_map(|effect| effect.parts(blocks))
}

impl Effect {
    /// Whether it changes the length, or writes into blocks that the medium does not know.
    pub(crate) fn is_new(&self, old: &Ranges) -> bool {
        self.pages().is_none_or(|pages| !old.contains_all(&pages))
    }

    fn parts(self, blocks: &Ranges) -> Vec<Self> {
        let Some(mine) = self.pages().filter(|mine| mine.end - mine.start > 1) else {
            return vec![self];
        };
        let (mut parts, mut at) = (Vec::new(), mine.start);
        for known in blocks.overlaps(&mine) {
            parts.extend([at..known.start, known.clone()]);
            at = known.end;
        }
        parts.push(at..mine.end);
        let parts = parts.into_iter().filter(|pages| !pages.is_empty());
        parts.map(|pages| self.of_pages(pages)).collect()
    }

    /// Whether it takes blocks away.
    fn is_hole(&self) -> bool {
        matches!(self.change, Change::Punched { .. })
    }

    /// What it does to these of its pages.
    pub(crate) fn of_pages(&self, pages: Range<u64>) -> Self {
        let change = match self.change {
            Change::Zeros { .. } => Change::Zeros { pages },
            Change::Punched { .. } => Change::Punched { pages },
            _ => unreachable!("only zeros and holes span pages"),
        };
        Self { change, ..*self }
    }

    /// The pages it writes; none if it changes the length.
    pub(crate) fn pages(&self) -> Option<Range<u64>> {
        match &self.change {
            Change::Sectors { page, .. } => Some(*page..page + 1),
            Change::Zeros { pages } | Change::Punched { pages } => Some(pages.clone()),
            Change::Grown { .. } | Change::Cut { .. } => None,
        }
    }

    /// The part that lies in `pages` (all if `None`), and the rest. A length lies in every range.
    pub(crate) fn split(self, pages: Option<&Range<u64>>) -> (Option<Self>, Vec<Self>) {
        let (Some(pages), Some(mine)) = (pages, self.pages()) else {
            return (Some(self), Vec::new());
        };
        let both = mine.start.max(pages.start)..mine.end.min(pages.end);
        if both.is_empty() {
            return (None, vec![self]);
        }
        if both == mine {
            return (Some(self), Vec::new());
        }
        let part = |pages| self.of_pages(pages);
        let rest = [mine.start..both.start, both.end..mine.end];
        let rest = rest.into_iter().filter(|pages| !pages.is_empty());
        (Some(part(both)), rest.map(part).collect())
    }
}

impl Change {
    /// Does to a file what was done.
    pub(crate) fn apply(&self, file: &mut SparseBytes) {
        match self {
            Self::Sectors { page, content, sectors } => file.put_sectors(*page, content, *sectors),
            Self::Zeros { pages } => file.zero(pages.clone()),
            Self::Punched { pages } => file.punch(pages.clone()),
            Self::Grown { len } => file.len = *len,
            Self::Cut { len } => file.cut(*len),
        }
    }
}
