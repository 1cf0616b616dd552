//! Other nodes come to vote: what an operator asks for, as often as it takes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;
use tokio::time::{sleep, timeout};

use super::life::Life;
use super::world::{End, lock};

/// A change of the voters that is under way; whether it is done.
pub(super) struct Change(Arc<Mutex<Option<bool>>>);

impl Life {
    /// Others are to vote.
    pub(super) async fn other_target(&mut self) {
        let next = self.world.nodes.keys().last().unwrap() + 1;
        if next > 7 {
            return;
        }
        let new = if self.target.len() == 3 && self.drawn.random_ratio(1, 2) {
            self.count("three that become five");
            next..=next + 1
        } else {
            let gone = self.draw(&self.voters()).unwrap();
            self.count("a replica that is replaced");
            self.target.remove(&gone);
            next..=next
        };
        for id in new {
            self.world.buy(id);
            self.world.start(id, false).await;
            self.target.insert(id);
        }
        self.tell(&format!("{:?} are to vote", self.target));
    }

    /// Takes the next step to the voters that are wanted.
    pub(super) fn changes(&mut self) {
        if let Some(Change(how)) = &self.change {
            let Some(is_done) = *lock(how) else { return };
            self.change = None;
            if is_done {
                self.count("a change of the voters");
                self.tell("the voters are as wanted");
                self.configs = vec![self.target.clone()];
                let gone: Vec<_> = self.world.nodes.keys().copied().collect();
                for id in gone.into_iter().filter(|id| !self.target.contains(id)) {
                    if self.world.nodes[&id].group.is_some() {
                        self.world.end(id, End::Killed);
                    }
                    self.returns.remove(&id);
                }
            }
            return;
        }
        if self.configs == [self.target.clone()] {
            return;
        }
        let Some(leader) = self.world.leads() else { return };
        let (group, target) = (Arc::clone(self.world.group(leader)), self.target.clone());
        let how = Arc::new(Mutex::new(None));
        let told = Arc::clone(&how);
        if !target.contains(&leader) {
            let stays: Vec<_> =
                self.voters().into_iter().filter(|id| target.contains(id)).collect();
            let Some(to) = self.draw(&stays) else { return };
            self.count("a leader that is to go");
            self.tell(&format!("{leader} is to go, and hands over to {to}"));
            self.change = Some(Change(how));
            tokio::spawn(async move {
                drop(group.hand_over(to).await);
                sleep(Duration::from_secs(1)).await;
                *lock(&told) = Some(false);
            });
            return;
        }
        if !self.configs.contains(&target) {
            self.configs.push(target.clone());
        }
        self.change = Some(Change(how));
        tokio::spawn(async move {
            let change = async {
                for id in &target {
                    if !group.voters().contains(id) {
                        group.add(*id, "").await?;
                    }
                }
                group.set_voters(target.iter().copied()).await
            };
            let changed = timeout(Duration::from_secs(5), change).await;
            *lock(&told) = Some(matches!(changed, Ok(Ok(()))));
        });
    }
}
