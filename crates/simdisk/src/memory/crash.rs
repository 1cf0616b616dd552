//! What a crash leaves: one possible state, chosen by a seed and by nothing else.
//!
//! Each write, length change and directory entry that is pending survives, or not, by itself; a
//! write of more than one sector may also leave a prefix, a suffix or any of its sectors. How many
//! survive is drawn first, from none to all, so that the extremes are as likely as the middle: of a
//! hundred coins, all heads would never be seen.
//!
//! With a journal ([`crate::Persistence::Journal`]) names and lengths survive up to some operation and
//! not beyond it, whatever file they belong to, and a length survives with what is in new blocks.
//!
//! Invariants: durable bytes that nothing pending touches are in every state. After barriers, what
//! is left of one epoch means that all of the earlier ones is left.

use std::cmp::Ordering;
use std::ops::Range;

use plimsoll_sync::Crash;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::directory::{Directory, EntryChange};
use super::disk::Disk;
use super::inode::{self, Change, Effect, Inode, Stage};
use super::options::{Persistence, Tear};

/// The disk as it is found after `crash`. Nobody has a file of it open.
///
/// A crash of the process loses nothing: what is pending still is. After a crash of the system what
/// the device had is still in its cache, and may be lost to a power cut that follows.
pub(crate) fn crash(disk: &Disk, crash: Crash, seed: u64) -> Disk {
    let mut after = disk.clone();
    for inode in after.files.values_mut() {
        inode.handles = 0;
    }
    if crash == Crash::Process {
        let order = after.order();
        after.directories.values_mut().for_each(|directory| directory.forgive(order));
    } else {
        let mut chooser = Chooser::new(disk, crash, seed);
        after.directories.values_mut().for_each(|directory| chooser.directory(directory));
        for inode in after.files.values_mut() {
            let order = after.next_order + 1;
            chooser.inode(inode, order, disk.epoch);
        }
        after.next_order += 1;
    }
    after.forget_unreachable();
    after
}

/// Draws what is left. Also of a sync that failed, which is a power cut to what it covers (`failure.rs`).
pub(super) struct Chooser {
    rng: Pcg64Mcg,
    crash: Crash,
    /// Whether a write can tear inside a page.
    tears_pages: bool,
    /// How many quarters of what may survive do.
    survival: u32,
    /// The last epoch of which anything reached the medium.
    last_epoch: u64,
    /// The epoch of what the device has not got.
    current_epoch: u64,
    /// The last operation whose names and lengths survive, if they do so in order.
    journal_end: Option<u64>,
}

/// What may happen to something pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Kept,
    Lost,
    Open,
}

/// What is left of a write.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Nothing,
    Everything,
    Prefix(u64),
    Suffix(u64),
    Any,
}

impl Chooser {
    pub(super) fn new(disk: &Disk, crash: Crash, seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let survival = rng.random_range(0..=4);
        let stages = disk.files.values().flat_map(|inode| &inode.pending);
        let stages = stages.map(|effect| effect.stage);
        let names = disk.directories.values().flat_map(|directory| &directory.pending);
        let stages = stages.chain(names.map(|change| change.stage));
        let epochs = stages.filter_map(|stage| match stage {
            Stage::Device { epoch } => Some(epoch),
            Stage::Kernel => None,
        });
        let first_epoch = epochs.min().unwrap_or(disk.epoch);
        let mut chooser = Self {
            crash,
            tears_pages: disk.tear == Tear::Bytes512,
            survival,
            last_epoch: rng.random_range(first_epoch..=disk.epoch),
            current_epoch: disk.epoch,
            rng,
            journal_end: None,
        };
        if disk.persistence == Persistence::Journal {
            chooser.journal_end = Some(chooser.draw_journal_end(disk));
        }
        chooser
    }

    fn draw_journal_end(&mut self, disk: &Disk) -> u64 {
        let lengths = disk.files.values().flat_map(|inode| &inode.pending);
        let lengths = lengths.filter(|effect| effect.pages().is_none());
        let names = disk.directories.values().flat_map(|directory| &directory.pending);
        let names = names.map(|change| (change.order, change.stage));
        let mut changes: Vec<(u64, Stage)> =
            lengths.map(|effect| (effect.order, effect.stage)).chain(names).collect();
        changes.sort_unstable_by_key(|&(order, _)| order);
        let verdicts = changes.iter().map(|&(order, stage)| (order, self.verdict(stage)));
        let (mut least, mut open) = (0, Vec::new());
        for (order, verdict) in verdicts {
            match verdict {
                Verdict::Kept => {
                    least = order;
                    open.clear();
                }
                Verdict::Open => open.push(order),
                Verdict::Lost => break,
            }
        }
        let kept = match self.survival {
            0 => 0,
            4 => open.len(),
            _ => self.rng.random_range(0..=open.len()),
        };
        kept.checked_sub(1).map_or(least, |last| open[last])
    }

    /// Whether a name or a length survives that is not decided yet.
    fn metadata_survives(&mut self, order: u64) -> bool {
        match self.journal_end {
            Some(end) => order <= end,
            None => self.survives(),
        }
    }

    fn directory(&mut self, directory: &mut Directory) {
        let kept = self.names(std::mem::take(&mut directory.pending));
        directory.live = directory.durable.clone();
        for change in &kept {
            change.apply(&mut directory.live);
        }
        if self.crash == Crash::PowerCut {
            directory.durable = directory.live.clone();
        } else {
            directory.pending = kept;
        }
    }

    /// What is left of changes of names.
    pub(super) fn names(&mut self, changes: Vec<EntryChange>) -> Vec<EntryChange> {
        let mut previous_kept = true;
        let mut kept = Vec::new();
        for mut change in changes {
            let survives = match self.verdict(change.stage) {
                Verdict::Kept => true,
                Verdict::Lost => false,
                Verdict::Open => self.metadata_survives(change.order),
            };
            previous_kept = survives && (previous_kept || !change.follows);
            if previous_kept {
                change.stage = self.stage_after(change.stage);
                kept.push(change);
            }
        }
        kept
    }

    fn inode(&mut self, inode: &mut Inode, order: u64, epoch: u64) {
        let pending = std::mem::take(&mut inode.pending);
        let mut kept = Vec::new();
        let shown = self.length_kept(&pending);
        for write in pending.chunk_by(|a, b| a.order == b.order) {
            if write[0].order > shown {
                self.write(write, &mut kept);
                continue;
            }
            // Data of new blocks goes out before the length that shows it.
            let shows =
                |effect: &Effect| effect.pages().is_some() && effect.is_new(&inode.durable.blocks);
            let write = inode::parts(write.iter().cloned(), &inode.durable.blocks);
            let (new, old): (Vec<Effect>, Vec<Effect>) = write.partition(shows);
            for mut effect in new {
                effect.stage = self.stage_after(effect.stage);
                kept.push(effect);
            }
            self.write(&old, &mut kept);
        }
        let mut found = inode.durable.clone();
        for effect in &kept {
            effect.change.apply(&mut found);
        }
        // What lies beyond the length that survived is gone for good: who finds the file cuts it.
        let len = found.len;
        let must_cut = found.reaches_beyond(len);
        found.cut(len);
        inode.live = found;
        // Whoever comes next has a page cache of its own.
        inode.forgot = false;
        inode.room.found(&inode.live.blocks);
        if self.crash == Crash::PowerCut {
            inode.durable = inode.live.clone();
            return;
        }
        if must_cut {
            kept.push(Effect {
                order,
                stage: Stage::Device { epoch },
                change: Change::Cut { len },
            });
        }
        inode.pending = kept;
    }

    /// The last operation whose length the journal keeps, 0 if there is none.
    fn length_kept(&self, pending: &[Effect]) -> u64 {
        let Some(end) = self.journal_end else { return 0 };
        let lengths = pending.iter().filter(|effect| effect.pages().is_none());
        lengths.map(|effect| effect.order).filter(|&order| order <= end).max().unwrap_or(0)
    }

    /// What is left of the effects of one operation.
    pub(super) fn write(&mut self, effects: &[Effect], kept: &mut Vec<Effect>) {
        let units = effects.iter().map(|effect| self.units(effect)).sum();
        let fate = self.fate(units);
        let mut unit = 0;
        for effect in effects {
            let mut effect = effect.clone();
            let first_unit = unit;
            unit += self.units(&effect);
            let survives = match self.verdict(effect.stage) {
                Verdict::Kept => true,
                Verdict::Lost => false,
                Verdict::Open => match &mut effect.change {
                    Change::Grown { .. } | Change::Cut { .. } => {
                        self.metadata_survives(effect.order)
                    }
                    Change::Sectors { sectors, .. } => {
                        *sectors = self.tear(*sectors, fate, first_unit, units);
                        *sectors != 0
                    }
                    Change::Zeros { pages } => {
                        *pages = self.part_of_zeros(pages.clone());
                        !pages.is_empty()
                    }
                    Change::Punched { pages } => {
                        let pages = pages.clone();
                        for left in self.parts_of_hole(pages) {
                            let stage = self.stage_after(effect.stage);
                            kept.push(Effect { stage, ..effect.of_pages(left) });
                        }
                        false
                    }
                },
            };
            if survives {
                effect.stage = self.stage_after(effect.stage);
                kept.push(effect);
            }
        }
    }

    /// How many parts of an effect can survive one without the other.
    fn units(&self, effect: &Effect) -> u64 {
        match &effect.change {
            Change::Sectors { sectors, .. } if self.tears_pages => u64::from(sectors.count_ones()),
            Change::Sectors { .. } => 1,
            _ => 0,
        }
    }

    fn fate(&mut self, units: u64) -> Fate {
        let tears = (1..=3).contains(&self.survival) && units > 1;
        if tears && self.rng.random_ratio(1, 2) {
            let left = self.rng.random_range(1..units);
            return match self.rng.random_range(0..3u32) {
                0 => Fate::Prefix(left),
                1 => Fate::Suffix(left),
                _ => Fate::Any,
            };
        }
        if self.survives() { Fate::Everything } else { Fate::Nothing }
    }

    /// What is left of these sectors of a page, which are `first_unit` and following of `units`.
    fn tear(&mut self, sectors: u8, fate: Fate, first_unit: u64, units: u64) -> u8 {
        if !self.tears_pages {
            let survives = self.unit_survives(fate, first_unit, units);
            return if survives { sectors } else { 0 };
        }
        let mut left = 0;
        let mut unit = first_unit;
        for bit in (0..8).map(|sector| 1 << sector) {
            if sectors & bit != 0 {
                if self.unit_survives(fate, unit, units) {
                    left |= bit;
                }
                unit += 1;
            }
        }
        left
    }

    fn unit_survives(&mut self, fate: Fate, unit: u64, units: u64) -> bool {
        match fate {
            Fate::Nothing => false,
            Fate::Everything => true,
            Fate::Prefix(left) => unit < left,
            Fate::Suffix(left) => unit >= units - left,
            Fate::Any => self.rng.random_ratio(1, 2),
        }
    }

    /// Zeros may span a whole disk, so what is left of them stays one range.
    fn part_of_zeros(&mut self, pages: Range<u64>) -> Range<u64> {
        let middle = self.rng.random_range(pages.start..=pages.end);
        match self.fate(2) {
            Fate::Nothing => pages.start..pages.start,
            Fate::Everything => pages,
            Fate::Prefix(_) => pages.start..middle,
            Fate::Suffix(_) => middle..pages.end,
            Fate::Any => middle..self.rng.random_range(middle..=pages.end),
        }
    }

    /// Any of its pages or, if it has many, of as many parts.
    fn parts_of_hole(&mut self, pages: Range<u64>) -> Vec<Range<u64>> {
        const PARTS: u64 = 64;
        let count = pages.end - pages.start;
        let part = match self.fate(count) {
            Fate::Nothing => return Vec::new(),
            Fate::Everything => pages,
            Fate::Prefix(left) => pages.start..pages.start + left,
            Fate::Suffix(left) => pages.end - left..pages.end,
            Fate::Any => {
                let each = count.div_ceil(PARTS);
                let parts = (0..count.div_ceil(each)).map(|part| pages.start + part * each);
                let parts = parts.map(|start| start..pages.end.min(start + each));
                return parts.filter(|_| self.rng.random_ratio(1, 2)).collect();
            }
        };
        vec![part]
    }

    fn survives(&mut self) -> bool {
        self.rng.random_ratio(self.survival, 4)
    }

    fn verdict(&self, stage: Stage) -> Verdict {
        let epoch = match (self.crash, stage) {
            (Crash::Process, _) | (Crash::System, Stage::Device { .. }) => return Verdict::Kept,
            (Crash::System, Stage::Kernel) => return Verdict::Open,
            (Crash::PowerCut, Stage::Device { epoch }) => epoch,
            (Crash::PowerCut, Stage::Kernel) => self.current_epoch,
        };
        match epoch.cmp(&self.last_epoch) {
            Ordering::Less => Verdict::Kept,
            Ordering::Equal => Verdict::Open,
            Ordering::Greater => Verdict::Lost,
        }
    }

    /// Where something that survived is: with the device, if it was not there before.
    fn stage_after(&self, stage: Stage) -> Stage {
        match stage {
            Stage::Kernel => Stage::Device { epoch: self.current_epoch },
            device @ Stage::Device { .. } => device,
        }
    }
}
