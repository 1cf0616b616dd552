//! [`Onlookers`]: whether others get what one voter commits by its own word.
//!
//! Who takes other nodes in is the only voter until they vote, and they apply what it says is committed. It must
//! not forget that: it would go on otherwise, and they would have applied what nobody else has. So what it has is
//! durable before it is told that there are others, and from there on what it acknowledges is, until several vote.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a set of voters of one has others beside it.
#[derive(Debug, Default)]
pub(crate) struct Onlookers {
    /// Somebody is being taken in, whom the membership may not show yet.
    come: AtomicBool,
    are_there: AtomicBool,
}

impl Onlookers {
    pub(crate) fn may_be_there(&self) -> bool {
        self.come.load(Ordering::SeqCst) || self.are_there.load(Ordering::SeqCst)
    }

    /// Another is about to get the log.
    pub(crate) fn come(&self) {
        self.come.store(true, Ordering::SeqCst);
    }

    /// These vote now, and so many get the log.
    pub(crate) fn see(&self, voters: &[BTreeSet<u64>], nodes: usize) {
        let is_sole = voters.iter().any(|set| set.len() == 1);
        self.are_there.store(is_sole && nodes > 1, Ordering::SeqCst);
        if !is_sole {
            self.come.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_some_from_when_they_come_until_several_vote() {
        let (one, three) = (BTreeSet::from([1]), BTreeSet::from([1, 2, 3]));
        let onlookers = Onlookers::default();
        onlookers.see(std::slice::from_ref(&one), 1);
        assert!(!onlookers.may_be_there());
        onlookers.come();
        onlookers.see(std::slice::from_ref(&one), 1);
        assert!(onlookers.may_be_there(), "the membership does not show it yet");
        onlookers.see(&[one, three.clone()], 3);
        assert!(onlookers.may_be_there(), "the one must still agree");
        onlookers.see(&[three], 3);
        assert!(!onlookers.may_be_there());
    }
}
