//! Clients of a group, which propose, are told, and read.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng;
use tokio::time::sleep;

use super::life::Life;
use super::world::lock;

impl Life {
    /// Clients propose, one in so many steps.
    pub(super) fn clients(&mut self, one_in: u32) {
        if !self.drawn.random_ratio(1, one_in) {
            return;
        }
        let leads = |id: &u64| self.world.group(*id).leadership().is_some();
        let leaders: Vec<_> = self.world.up().into_iter().filter(leads).collect();
        let Some(leader) = self.draw(&leaders) else { return };
        for _ in 0..self.drawn.random_range(1..5) {
            self.proposes(leader);
        }
    }

    fn proposes(&mut self, leader: u64) {
        let group = Arc::clone(self.world.group(leader));
        let Some(leadership) = group.leadership() else { return };
        self.proposed += 1;
        let may_sync = self.syncs.load(Ordering::Relaxed);
        let kind = if may_sync && self.drawn.random_ratio(1, 20) { "sync" } else { "some" };
        let bytes = match self.drawn.random_range(0..20) {
            0 => self.drawn.random_range(1000..9000),
            _ => self.drawn.random_range(0..200),
        };
        let payload = Bytes::from(format!("{kind} {} {}", self.proposed, "x".repeat(bytes)));
        let oracle = Arc::clone(&self.world.oracle);
        let after = Duration::from_millis(self.drawn.random_range(0..30));
        let proposed = async move {
            sleep(after).await;
            let was_guarded = group.is_guarded();
            let pending = group.submit(leadership, payload.clone()).await;
            let Ok(pending) = pending else { return };
            let term = leadership.term;
            match pending.await {
                Ok(committed) => {
                    let whose = (leader, group.generation());
                    oracle.acknowledges(whose, committed.index, term, &payload);
                    oracle.count(if was_guarded {
                        "an acknowledgement while guarded"
                    } else {
                        "an acknowledgement while not guarded"
                    });
                }
                Err(_) => oracle.count("a proposal without an answer"),
            }
        };
        let client = tokio::spawn(proposed).abort_handle();
        self.world.nodes.get_mut(&leader).unwrap().clients.push(client);
    }

    /// A client reads.
    pub(super) fn reads(&mut self) {
        let Some(node) = self.draw(&self.world.up()) else { return };
        let group = self.world.group(node);
        let Some(applied) = group.applied() else { return };
        let from = self.drawn.random_range(0..=applied);
        let read = match group.read(from, 1000) {
            Ok(read) => read,
            Err(why) => return self.meets(&why),
        };
        let known = lock(&self.world.nodes[&node].applied);
        for (index, payload) in read {
            let (_, applied) = &known[usize::try_from(index).unwrap()];
            assert_eq!(&payload, applied, "node {node} reads another entry {index}");
        }
    }
}
