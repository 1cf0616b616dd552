//! Blows at the worst moment: when what is agreed on is far ahead of what disks have.
//!
//! A troubled group is guarded nearly always, and then D is C: nothing that loses its power has anything to lose.
//! So all is well here until nobody is guarded, and a majority loses its power only then.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::life::Life;
use super::world::End;

/// A group that is well is guarded for ten seconds.
const UNGUARDED_WITHIN: Duration = Duration::from_secs(30);

impl Life {
    /// C runs ahead of D, or other voters come, and a majority loses its power at once.
    pub(super) async fn strikes(&mut self) {
        if !self.is_unguarded().await {
            self.count("a group that stayed guarded");
            return;
        }
        let struck = if self.drawn.random_ratio(1, 2) {
            self.runs_ahead().await;
            self.count("a blow while C was ahead of D");
            vec![self.target.clone()]
        } else {
            self.other_voters_come().await;
            self.count("a blow while others came to vote");
            let mut sets = self.configs.clone();
            sets.push(self.target.clone());
            sets
        };
        // What D was shown a moment before holds.
        self.world.look();
        let mut falls: BTreeSet<u64> = struck.iter().flatten().copied().collect();
        if self.drawn.random_ratio(1, 2) {
            // As few as forget together: a majority of one set.
            let set = &struck[self.drawn.random_range(0..struck.len())];
            falls = self.draw_some(set, set.len() / 2 + 1);
        }
        self.tell(&format!("{falls:?} lose their power at once"));
        for id in falls {
            self.ends_anyhow(id, End::PowerCut);
        }
        if self.drawn.random_ratio(3, 4) {
            self.operator().await;
        }
    }

    /// Waits until somebody leads unguarded, and nothing is changed.
    async fn is_unguarded(&mut self) -> bool {
        let ends = Instant::now() + UNGUARDED_WITHIN;
        while Instant::now() < ends {
            self.step().await;
            self.changes();
            self.clients(20);
            let is_free = |id| !self.world.group(id).is_guarded();
            if self.is_settled() && self.world.leads().is_some_and(is_free) {
                return true;
            }
        }
        false
    }

    /// Clients go on, and no disk is asked for anything. Half of the time members and those who make topics go on too: D follows what
    /// they are told, and no more.
    async fn runs_ahead(&mut self) {
        let ends = Instant::now() + Duration::from_millis(self.drawn.random_range(50..2500));
        let syncs = (self.has_members || self.has_topics) && self.drawn.random_ratio(1, 2);
        self.syncs.store(syncs, Ordering::Relaxed);
        while Instant::now() < ends {
            self.step().await;
            self.clients(2);
        }
        self.syncs.store(true, Ordering::Relaxed);
    }

    /// Others are to vote, and nobody else asks for anything, up to some moment of that or right behind it.
    async fn other_voters_come(&mut self) {
        self.other_target().await;
        let is_done = self.drawn.random_ratio(2, 3);
        let most = Duration::from_millis(self.drawn.random_range(0..1500));
        let ends = Instant::now() + if is_done { UNGUARDED_WITHIN } else { most };
        self.syncs.store(false, Ordering::Relaxed);
        while Instant::now() < ends && !self.is_settled() {
            self.changes();
            self.step().await;
        }
        self.syncs.store(true, Ordering::Relaxed);
    }

    /// Some of these, so many.
    fn draw_some(&mut self, of: &BTreeSet<u64>, count: usize) -> BTreeSet<u64> {
        let mut left: Vec<_> = of.iter().copied().collect();
        let mut some = BTreeSet::new();
        while some.len() < count
            && let Some(one) = self.draw(&left)
        {
            some.insert(one);
            left.retain(|id| *id != one);
        }
        some
    }
}
