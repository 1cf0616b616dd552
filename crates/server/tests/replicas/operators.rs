//! Operators, who have a majority go on with what their disks have, and those that hear of it later.

use std::collections::BTreeSet;

use rand::Rng;

use super::life::Life;
use super::world::End;

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
        for id in &chosen {
            self.returns.remove(id);
            self.world.start(*id, false).await;
        }
        // What each has was shown before anything was decided, and it is decided that the best of it stays.
        let all = chosen.iter().map(|id| (*id, self.world.group(*id).outline()));
        let all: Vec<_> = all.collect();
        // Who has the newest entry knows best who votes.
        let newest = all.iter().max_by_key(|(_, said)| said.last);
        let voters = newest.map_or(Vec::new(), |(_, said)| said.voters.clone());
        let shown = || all.iter().filter(|(id, _)| voters.contains(id)).map(|(_, said)| said);
        let is_all_damaged = shown().all(|said| said.is_damaged);
        let led = shown().filter(|said| is_all_damaged || !said.is_damaged);
        let least = led.map(|said| said.last).max().unwrap_or((0, 0));
        self.tell(&format!("whoever leads has {least:?}"));
        for id in chosen {
            self.world.end(id, End::Killed);
            self.world.nodes.get_mut(&id).unwrap().least = least;
            self.world.start(id, false).await;
        }
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
            let least = self.world.nodes[&newer.node].least;
            let node = self.world.nodes.get_mut(&id).unwrap();
            (node.generation, node.least) = (newer.generation, least);
            self.world.start(id, false).await;
        }
    }
}
