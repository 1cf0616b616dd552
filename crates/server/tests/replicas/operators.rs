//! Operators, who have a majority go on with what their disks have, and those that hear of it later.

use std::collections::BTreeSet;

use std::time::Duration;

use plimsoll_server::cluster::{Basis, Outline};
use rand::Rng;
use tokio::time::{Instant, sleep};

use super::life::Life;
use super::world::End;

/// How long an election takes at most, where all can vote.
const LED_WITHIN: Duration = Duration::from_secs(60);

impl Life {
    /// A majority of those that vote goes on with what the disks have, in a newer generation; the others hear of it, or
    /// are told when they come up.
    pub(super) async fn operator(&mut self) {
        self.count("an operator who had a majority go on with their disks");
        let generation =
            1 + self.world.nodes.values().map(|node| node.generation).max().unwrap_or(0);
        let chosen = self.draw_majority();
        self.tell(&format!(
            "an operator has {chosen:?} go on with their disks, in generation {generation}"
        ));
        let worn = self.draw_worn(&chosen);
        for id in &chosen {
            if self.world.nodes[id].group.is_some() {
                // They are closed in order as seldom as not.
                let how = [End::Killed, End::PowerCut][self.drawn.random_range(0..2)];
                self.ends_anyhow(*id, how);
            }
            self.world.lift(*id);
            self.world.nodes.get_mut(id).unwrap().generation = generation;
        }
        self.world.oracle.loses_to_durable(generation);
        worn.into_iter().for_each(|id| self.wears(id));
        for id in &chosen {
            self.returns.remove(id);
            self.world.start(*id, false).await;
        }
        for id in &chosen {
            let is_damaged = self.world.group(*id).outline().is_damaged;
            if is_damaged && self.world.nodes[id].whole.is_none() {
                // What it has lost it has applied: nothing is decided before that is there again.
                self.count("a decision that waited until a disk had again what it had lost");
                self.world.end(*id, End::Killed);
                self.world.mends(*id);
                self.world.start(*id, false).await;
            }
        }
        // What each has was shown before anything was decided, and it is decided that the best of it stays.
        let all = chosen.iter().map(|id| (*id, self.world.group(*id).outline()));
        let all: Vec<_> = all.collect();
        // Who has the newest entry knows best who votes.
        let newest = all.iter().max_by_key(|(_, said)| said.last);
        let voters = newest.map_or(Vec::new(), |(_, said)| said.voters.clone());
        let shown = || all.iter().filter(|(id, _)| voters.contains(id)).map(|(_, said)| said);
        let usable = |(id, said): &(u64, Outline)| match said.is_damaged {
            true => self.world.nodes[id].whole,
            false => Some(said.last),
        };
        let votes = |(id, _): &&(u64, Outline)| voters.contains(id);
        let usable = all.iter().filter(votes).filter_map(usable).max();
        let least = usable.or(shown().map(|said| said.last).max()).unwrap_or((0, 0));
        self.tell(&format!("whoever leads has {least:?}"));
        for (id, said) in &all {
            self.world.end(*id, End::Killed);
            let node = self.world.nodes.get_mut(id).unwrap();
            node.basis = Basis { least, own: said.last };
            node.cuts = node.whole == Some(least) && said.last > least;
            self.world.start(*id, false).await;
        }
        self.go_on_alone(&chosen).await;
    }

    /// Those whose disks lose something of their logs, in a life in which what is behind D may be lost.
    fn draw_worn(&mut self, chosen: &BTreeSet<u64>) -> Vec<u64> {
        if !self.is_severe || self.drawn.random_ratio(1, 2) {
            return Vec::new();
        }
        chosen.iter().copied().filter(|_| self.drawn.random_ratio(2, 3)).collect()
    }

    /// Its disk loses an entry behind D.
    fn wears(&mut self, id: u64) {
        let first = self.world.oracle.guaranteed_now();
        let index = first + self.drawn.random_range(0..8);
        if self.rotten.insert(index) && self.world.rots(id, index) {
            self.count("a record behind D that a disk lost before it was decided to go on");
            self.tell(&format!("the disk of {id} loses entry {index}"));
        }
    }

    /// Half of the time nobody else comes before those that were asked have a leader: they need nobody.
    async fn go_on_alone(&mut self, chosen: &BTreeSet<u64>) {
        if self.drawn.random_ratio(1, 2) || chosen.iter().any(|id| self.fails.contains_key(id)) {
            return;
        }
        let others: Vec<u64> =
            self.world.up().into_iter().filter(|id| !chosen.contains(id)).collect();
        others.into_iter().for_each(|id| self.ends_anyhow(id, End::Killed));
        self.world.net.heal();
        let ends = Instant::now() + LED_WITHIN;
        let leads =
            |life: &Self| chosen.iter().any(|id| life.world.group(*id).outline().leader.is_some());
        while !leads(self) {
            sleep(Duration::from_millis(100)).await;
            self.world.look();
            assert!(
                Instant::now() < ends,
                "those that were asked elect nobody: {:#?}",
                self.said()
            );
        }
        self.count("those that were asked, who went on by themselves");
    }

    /// A majority of each set of voters that may have the say; all, half of the time.
    fn draw_majority(&mut self) -> BTreeSet<u64> {
        let mut chosen: BTreeSet<u64> = self.configs.iter().flatten().copied().collect();
        chosen.extend(&self.target);
        if self.drawn.random_ratio(1, 2) {
            return chosen;
        }
        let sets: Vec<_> = self.configs.iter().chain([&self.target]).cloned().collect();
        for id in chosen.clone() {
            let mut less = chosen.clone();
            less.remove(&id);
            let is_enough = |set: &BTreeSet<u64>| set.intersection(&less).count() > set.len() / 2;
            if self.drawn.random_ratio(1, 2) && sets.iter().all(is_enough) {
                chosen = less;
            }
        }
        chosen
    }

    /// Those that have met a newer generation begin again in it, at once.
    pub(super) async fn rises(&mut self) {
        for id in self.world.up() {
            let Some(newer) = self.world.group(id).newer() else { continue };
            self.count("a replica that went on in a newer generation");
            self.fails.remove(&id);
            self.world.end(id, End::Killed);
            let least = self.world.nodes[&newer.node].basis.least;
            let node = self.world.nodes.get_mut(&id).unwrap();
            node.generation = newer.generation;
            (node.basis, node.cuts) = (Basis { least, own: (0, 0) }, false);
            self.world.start(id, false).await;
        }
    }
}
