//! Other nodes come to vote: what an operator asks for, as often as it takes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_server::cluster::Membership;
use rand::Rng;
use tokio::time::{sleep, timeout};

use super::life::Life;
use super::world::{End, lock};

/// A change of the voters that is under way; whether it is done.
pub(super) struct Change(Arc<Mutex<Option<bool>>>);

impl Life {
    /// Others are to vote, or to have the log.
    pub(super) async fn other_target(&mut self) {
        if !self.watchers.is_empty() && self.drawn.random_ratio(1, 2) {
            return self.vote_goes_over();
        }
        let next = self.world.nodes.keys().last().unwrap() + 1;
        if next > 7 {
            return;
        }
        let mut new = next..=next;
        match self.drawn.random_range(0..3) {
            0 if self.watchers.is_empty() => {
                self.count("a node that does not vote");
                self.watchers.insert(next);
            }
            1 if self.target.len() == 3 => {
                self.count("three that become five");
                new = next..=next + 1;
                self.target.extend(new.clone());
            }
            _ => {
                let gone = self.draw(&self.voters()).unwrap();
                self.count("a replica that is replaced");
                self.target.remove(&gone);
                self.target.insert(next);
            }
        }
        for id in new {
            self.world.buy(id);
            self.world.start(id, false).await;
        }
        self.tell(&format!("{:?} are to vote, and {:?} not", self.target, self.watchers));
    }

    /// One that does not vote is to, in the place of another.
    fn vote_goes_over(&mut self) {
        let watchers: Vec<_> = self.watchers.iter().copied().collect();
        let (from, to) = (self.draw(&self.voters()).unwrap(), self.draw(&watchers).unwrap());
        self.count("a vote that goes over to another node");
        self.target.remove(&from);
        self.target.insert(to);
        self.watchers.remove(&to);
        self.watchers.insert(from);
        self.tell(&format!("{to} is to vote in the place of {from}"));
    }

    /// Takes the next step to what is wanted.
    pub(super) fn changes(&mut self) {
        if let Some(Change(how)) = &self.change {
            let Some(is_done) = *lock(how) else { return };
            self.change = None;
            if is_done {
                self.count("a change of the voters");
                self.tell("the voters are as wanted");
                self.configs = vec![self.target.clone()];
                self.nodes = self.wanted();
                let all: Vec<_> = self.world.nodes.keys().copied().collect();
                for id in all.into_iter().filter(|id| !self.nodes.contains(id)) {
                    if self.world.nodes[&id].group.is_some() {
                        self.world.end(id, End::Killed);
                    }
                    self.returns.remove(&id);
                }
            }
            return;
        }
        if self.is_settled() {
            return;
        }
        let Some(leader) = self.world.leads() else { return };
        let group = Arc::clone(self.world.group(leader));
        let how = Arc::new(Mutex::new(None));
        let told = Arc::clone(&how);
        self.change = Some(Change(how));
        // Half of the time who is not to vote any more has it agreed on first that others do.
        let goes = !self.target.contains(&leader);
        if goes && (!self.watchers.contains(&leader) || self.drawn.random_ratio(1, 2)) {
            let voters = group.voters();
            let stays: Vec<_> =
                self.voters().into_iter().filter(|id| voters.contains(id)).collect();
            let Some(to) = self.draw(&stays) else { return self.change = None };
            self.count("a leader that is to go");
            self.tell(&format!("{leader} is to go, and hands over to {to}"));
            tokio::spawn(async move {
                drop(group.hand_over(to).await);
                sleep(Duration::from_secs(1)).await;
                *lock(&told) = Some(false);
            });
            return;
        }
        let (target, nodes) = (self.target.clone(), self.wanted());
        let mut config = target.clone();
        config.insert(leader);
        if !self.configs.contains(&config) {
            self.configs.push(config);
        }
        tokio::spawn(async move {
            let nodes = nodes.into_iter().map(|id| (id, String::new())).collect();
            let wanted = Membership { voters: target, nodes };
            let changed = timeout(Duration::from_secs(5), group.receiver().follow(&wanted)).await;
            let is_done = matches!(changed, Ok(Ok(()))) && group.membership() == wanted;
            if goes {
                sleep(Duration::from_secs(1)).await;
            }
            *lock(&told) = Some(is_done);
        });
    }
}
