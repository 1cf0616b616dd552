//! Room on the disk: how many blocks a write needs, and which are held until the next sync. Pure.
//!
//! Where bytes are overwritten in place, a page needs a block once. Where they go elsewhere (btrfs), a
//! page that holds bytes needs another block when it is written again, and the old one is held until
//! the file is synced: the medium still leads to it. A block that was reserved and never written takes
//! its first bytes itself, as btrfs does it.
//!
//! ```text
//!   written       ──► fresh ──── sync ──► settled ──► written again: needs a block, holds the old one
//!   reserved      ──► (neither) ────────────────────► written: needs none
//! ```
//!
//! With delayed allocation ([`FillsAt::Sync`]) what a write needs is owed until the file is synced, and
//! only then missed.
//!
//! Invariants: settled and fresh pages have blocks. Where there is no limit nothing is counted.

use std::ops::Range;

use plimsoll_sync::Overwrite;

use super::options::{DiskOptions, FillsAt, Overwriting};
use crate::sparse::{PAGE, Ranges};

/// How much there is, and what takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    capacity_blocks: Option<u64>,
    overwriting: Overwriting,
    fills_at: FillsAt,
}

/// What one file has to do with room, beside the blocks that it has.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileRoom {
    /// Overwritten in place, as it was asked for.
    in_place: bool,
    /// That is on the medium.
    in_place_durable: bool,
    /// Pages whose bytes a sync has covered.
    settled: Ranges,
    /// Pages that were written since.
    fresh: Ranges,
    /// Pages for which a block was needed and not taken: the next sync must find it.
    owed: Ranges,
}

/// What blocks are needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A write into the page cache.
    Write,
    /// A write past it: its blocks are needed at once.
    DirectWrite,
    /// Blocks without bytes, which are needed at once.
    Reserve,
}

impl Room {
    pub(crate) fn new(options: &DiskOptions) -> Self {
        Self {
            capacity_blocks: options.capacity_bytes.map(|bytes| bytes / PAGE),
            overwriting: options.overwriting,
            fills_at: options.fills_at,
        }
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.capacity_blocks.is_none()
    }

    /// Blocks that are left when so many are taken.
    pub(crate) fn spare(&self, taken: u64) -> u64 {
        self.capacity_blocks.map_or(u64::MAX, |capacity| capacity.saturating_sub(taken))
    }

    /// Blocks that a file takes: its own, and the old ones of pages that were written again.
    pub(crate) fn taken(&self, file: &FileRoom, blocks: &Ranges) -> u64 {
        let held = |pages: Range<u64>| file.fresh.count_in(&pages);
        let held: u64 = if self.copies(file) { file.settled.iter().map(held).sum() } else { 0 };
        (blocks.count() + held).saturating_sub(file.owed())
    }

    /// The beginning of `pages` that needs no more than so many blocks: its end.
    pub(crate) fn fitting_end(
        &self,
        file: &FileRoom,
        blocks: &Ranges,
        pages: &Range<u64>,
        claim: Claim,
        spare: u64,
    ) -> u64 {
        if claim == Claim::Write && self.fills_at == FillsAt::Sync {
            return pages.end;
        }
        let fits = |end| self.needed(file, blocks, &(pages.start..end), claim) <= spare;
        if fits(pages.end) {
            return pages.end;
        }
        let (mut least, mut beyond) = (pages.start, pages.end);
        while beyond - least > 1 {
            let middle = least + (beyond - least) / 2;
            if fits(middle) { least = middle } else { beyond = middle }
        }
        least
    }

    /// The file has room for these pages, and is about to write or reserve them.
    pub(crate) fn claim(
        &self,
        file: &mut FileRoom,
        blocks: &Ranges,
        pages: Range<u64>,
        claim: Claim,
    ) {
        if self.is_endless() {
            return;
        }
        if claim == Claim::Write && self.fills_at == FillsAt::Sync {
            let need = self.in_need(file, blocks, &pages, claim);
            need.iter().for_each(|pages| file.owed.insert(pages));
        }
        if claim != Claim::Reserve {
            file.fresh.insert(pages);
        }
    }

    /// Asks that the file, which is empty, is overwritten in place; says whether it is.
    pub(crate) fn keep_in_place(&self, file: &mut FileRoom) -> bool {
        match self.overwriting {
            Overwriting::InPlace | Overwriting::Memory => true,
            Overwriting::Elsewhere { in_place_on_request } => {
                file.in_place |= in_place_on_request;
                file.in_place
            }
        }
    }

    /// Blocks that these pages need which the file does not have.
    fn needed(&self, file: &FileRoom, blocks: &Ranges, pages: &Range<u64>, claim: Claim) -> u64 {
        self.in_need(file, blocks, pages, claim).count()
    }

    /// Those of these pages that need a block which the file does not have.
    fn in_need(
        &self,
        file: &FileRoom,
        blocks: &Ranges,
        pages: &Range<u64>,
        claim: Claim,
    ) -> Ranges {
        let mut need = Ranges::default();
        need.insert(pages.clone());
        blocks.overlaps(pages).for_each(|there| need.remove(there));
        if claim != Claim::Reserve && self.copies(file) {
            file.settled.overlaps(pages).for_each(|again| need.insert(again));
            file.fresh.overlaps(pages).for_each(|copied| need.remove(copied));
        }
        need
    }

    fn copies(&self, file: &FileRoom) -> bool {
        matches!(self.overwriting, Overwriting::Elsewhere { .. }) && !file.in_place
    }
}

impl FileRoom {
    /// Blocks that the next sync must find.
    pub(crate) fn owed(&self) -> u64 {
        self.owed.count()
    }

    /// Whether it is overwritten in place because it was asked for.
    pub(crate) fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// These pages (all if `None`) were synced: the blocks that they had before are free, and whatever
    /// was owed is there.
    pub(crate) fn settle(&mut self, pages: Option<&Range<u64>>) {
        self.in_place_durable = self.in_place;
        self.owed = Ranges::default();
        for synced in self.take_fresh(pages) {
            self.settled.insert(synced);
        }
    }

    /// A sync of these pages failed, and nothing will write them again: of what was to be copied the old
    /// blocks stay. Unless it `paid`, pages that were new have blocks in the page cache only, and stay
    /// owed.
    pub(crate) fn give_up(&mut self, pages: Option<&Range<u64>>, paid: bool) {
        if paid {
            self.owed = Ranges::default();
        }
        for lost in self.take_fresh(pages) {
            self.settled.overlaps(&lost).for_each(|copied| self.owed.remove(copied));
        }
    }

    /// The file was cut to so many pages.
    pub(crate) fn cut(&mut self, pages: u64) {
        self.punch(pages..u64::MAX);
    }

    /// The file has no blocks for these pages any more.
    pub(crate) fn punch(&mut self, pages: Range<u64>) {
        self.settled.remove(pages.clone());
        self.fresh.remove(pages.clone());
        self.owed.remove(pages);
    }

    /// The file was found after a crash, with these blocks, all of them written.
    pub(crate) fn found(&mut self, blocks: &Ranges) {
        *self = Self {
            in_place: self.in_place_durable,
            in_place_durable: self.in_place_durable,
            settled: blocks.clone(),
            ..Self::default()
        };
    }

    fn take_fresh(&mut self, pages: Option<&Range<u64>>) -> Vec<Range<u64>> {
        let all = 0..u64::MAX;
        let pages = pages.unwrap_or(&all);
        let taken = self.fresh.overlaps(pages).collect();
        self.fresh.remove(pages.clone());
        taken
    }
}

impl Overwriting {
    /// What the directory says of itself.
    pub(crate) const fn said(self) -> Overwrite {
        match self {
            Self::InPlace => Overwrite::InPlace,
            Self::Elsewhere { .. } => Overwrite::Elsewhere,
            Self::Memory => Overwrite::Memory,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A file that is told what becomes of its pages, on a disk of ten blocks.
    struct Story {
        room: Room,
        file: FileRoom,
        blocks: Ranges,
    }

    impl Story {
        fn new(overwriting: Overwriting, fills_at: FillsAt) -> Self {
            let options = DiskOptions {
                capacity_bytes: Some(10 * PAGE),
                overwriting,
                fills_at,
                ..DiskOptions::default()
            };
            let room = Room::new(&options);
            Self { room, file: FileRoom::default(), blocks: Ranges::default() }
        }

        fn taken(&self) -> u64 {
            self.room.taken(&self.file, &self.blocks)
        }

        fn pays(&self) -> bool {
            self.file.owed() <= self.room.spare(self.taken())
        }

        /// How many of these pages go in.
        fn claim(&mut self, pages: Range<u64>, claim: Claim) -> u64 {
            let spare = self.room.spare(self.taken());
            let Self { room, file, blocks } = self;
            let end = room.fitting_end(file, blocks, &pages, claim, spare);
            room.claim(file, blocks, pages.start..end, claim);
            blocks.insert(pages.start..end);
            end - pages.start
        }
    }

    const ELSEWHERE: Overwriting = Overwriting::Elsewhere { in_place_on_request: true };

    #[test]
    fn in_place_a_page_needs_a_block_once() {
        for overwriting in [Overwriting::InPlace, Overwriting::Memory] {
            let mut story = Story::new(overwriting, FillsAt::Write);
            assert_eq!(story.claim(0..8, Claim::Write), 8);
            story.file.settle(None);
            assert_eq!(story.claim(2..8, Claim::Write), 6);
            assert_eq!((story.taken(), story.claim(6..20, Claim::Write)), (8, 4));
        }
    }

    #[test]
    fn elsewhere_a_synced_page_needs_another_block_and_holds_the_old_one_until_the_next_sync() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Write);
        assert_eq!(story.claim(0..8, Claim::Write), 8);
        assert_eq!(story.claim(0..8, Claim::Write), 8, "nothing leads to the first bytes yet");
        story.file.settle(None);
        assert_eq!(story.claim(0..8, Claim::Write), 2);
        assert_eq!(story.taken(), 10);
        assert_eq!(story.claim(0..2, Claim::Write), 2, "their blocks are new");
        assert_eq!(story.claim(2..3, Claim::Write), 0);
        story.file.settle(Some(&(0..1)));
        assert_eq!(story.taken(), 9);
        story.file.settle(None);
        assert_eq!(story.taken(), 8);
        assert_eq!(story.claim(2..4, Claim::Write), 2);
    }

    #[test]
    fn elsewhere_reserved_blocks_take_their_first_bytes_and_no_more() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Write);
        assert_eq!(story.claim(0..10, Claim::Reserve), 10);
        assert_eq!(story.claim(0..10, Claim::Write), 10);
        story.file.settle(None);
        assert_eq!(story.claim(0..10, Claim::Reserve), 10, "what is there needs no room");
        assert_eq!(story.claim(0..1, Claim::Write), 0);
    }

    #[test]
    fn a_file_that_is_kept_in_place_needs_no_room_to_be_overwritten() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Write);
        assert!(story.room.keep_in_place(&mut story.file));
        assert_eq!(story.claim(0..10, Claim::Reserve), 10);
        for _ in 0..3 {
            assert_eq!(story.claim(0..10, Claim::Write), 10);
            story.file.settle(None);
        }
        story.file.found(&story.blocks.clone());
        assert_eq!(story.claim(0..10, Claim::Write), 10);
        let mut refused =
            Story::new(Overwriting::Elsewhere { in_place_on_request: false }, FillsAt::Write);
        assert!(!refused.room.keep_in_place(&mut refused.file));
    }

    #[test]
    fn that_a_file_is_kept_in_place_is_lost_unless_it_was_synced() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Write);
        assert!(story.room.keep_in_place(&mut story.file));
        story.claim(0..10, Claim::Write);
        story.file.found(&story.blocks.clone());
        assert!(!story.file.is_in_place());
        assert_eq!(story.claim(0..1, Claim::Write), 0);
    }

    #[test]
    fn a_disk_that_fills_at_the_sync_takes_everything_and_pays_later() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Sync);
        assert_eq!(story.claim(0..30, Claim::Write), 30);
        assert_eq!(story.taken(), 0);
        assert!(!story.pays());
        story.file.cut(10);
        story.blocks.remove(10..u64::MAX);
        assert!(story.pays());
        story.file.settle(None);
        assert_eq!(story.taken(), 10);
        assert_eq!(story.claim(0..1, Claim::Write), 1);
        assert!(!story.pays(), "the copy needs a block");
        assert_eq!(story.claim(20..22, Claim::DirectWrite), 0, "what is needed at once is missed");
        assert_eq!(story.claim(20..22, Claim::Reserve), 0);
    }

    #[test]
    fn a_failed_sync_holds_no_blocks() {
        let mut story = Story::new(ELSEWHERE, FillsAt::Write);
        story.claim(0..5, Claim::Write);
        story.file.settle(None);
        story.claim(0..5, Claim::Write);
        assert_eq!(story.taken(), 10);
        story.file.give_up(None, true);
        assert_eq!(story.taken(), 5);
        let mut story = Story::new(ELSEWHERE, FillsAt::Sync);
        story.claim(0..5, Claim::Write);
        story.file.settle(None);
        story.claim(0..8, Claim::Write);
        story.file.give_up(None, false);
        assert_eq!((story.file.owed(), story.taken()), (3, 5), "of copies nothing is owed");
    }

    #[test]
    fn what_was_owed_for_punched_pages_is_owed_no_more_and_nothing_else_is_forgiven() {
        let mut story = Story::new(Overwriting::InPlace, FillsAt::Sync);
        story.claim(0..5, Claim::Write);
        story.file.settle(None);
        story.claim(0..9, Claim::Write);
        assert_eq!((story.file.owed(), story.taken()), (4, 5), "the first five are there");
        story.file.punch(4..8);
        story.blocks.remove(4..8);
        assert_eq!((story.file.owed(), story.taken()), (1, 4));
    }

    /// What became of a page, told one by one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Told {
        Reserved,
        Fresh { holds: bool },
        Settled,
    }

    proptest! {
        /// Beside a model that looks at each page by itself; and whatever happens, no more is taken than
        /// there is.
        #[test]
        fn room_is_counted_as_if_page_by_page(
            in_place: bool,
            steps in prop::collection::vec((0u64..14, 1u64..8, 0..7), 0..40),
        ) {
            let mut story = Story::new(ELSEWHERE, FillsAt::Write);
            if in_place {
                story.room.keep_in_place(&mut story.file);
            }
            let mut told = BTreeMap::new();
            for (at, count, step) in steps {
                let pages = at..at + count;
                match step {
                    0 => {
                        story.file.settle(Some(&pages));
                        for (_, page) in told.range_mut(pages) {
                            if matches!(page, Told::Fresh { .. }) {
                                *page = Told::Settled;
                            }
                        }
                    }
                    1 => {
                        story.file.cut(at);
                        story.blocks.cut(at);
                        told.retain(|&page, _| page < at);
                    }
                    2 => {
                        story.file.punch(pages.clone());
                        story.blocks.remove(pages.clone());
                        told.retain(|page, _| !pages.contains(page));
                    }
                    3 => {
                        let end = at + story.claim(pages.clone(), Claim::Reserve);
                        for page in at..end {
                            told.entry(page).or_insert(Told::Reserved);
                        }
                    }
                    _ => {
                        let end = at + story.claim(pages.clone(), Claim::Write);
                        for page in at..end {
                            let before = told.get(&page).copied();
                            let holds = !in_place
                                && matches!(before, Some(Told::Settled | Told::Fresh { holds: true }));
                            told.insert(page, Told::Fresh { holds });
                        }
                    }
                }
                let held = told.values().filter(|&&page| page == Told::Fresh { holds: true }).count();
                prop_assert_eq!(story.taken(), (told.len() + held) as u64);
                prop_assert!(story.taken() <= 10);
            }
        }
    }
}
