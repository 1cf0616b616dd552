//! How the time for a run is shared among its experiments. Pure.
//!
//! Invariant: no experiment is planned with less than measuring each of its arms once may take, unless
//! the time for all of them is too short for that. If it is by more than a tenth, that is said before the
//! run begins. What then takes longer than planned takes from those after it.

use std::time::Duration;

use crate::experiment::Cost;
use crate::least::Speed;

/// The time of each experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shares {
    each: Vec<Duration>,
    /// What measuring every arm once may take.
    least: Duration,
}

impl Shares {
    /// Shares `budget`, or what the costs say if there is none, on a disk of this speed: each gets the
    /// least that it needs, and a share of the rest by how much more it asks for.
    #[must_use]
    pub(crate) fn of(costs: &[Cost], budget: Option<Duration>, disk: Speed) -> Self {
        let asked: Vec<(Duration, Duration)> =
            costs.iter().map(|cost| (cost.budget, cost.least.on(disk))).collect();
        Self::between(&asked, budget)
    }

    /// Shares among experiments that each ask for so much, and need so much at least.
    fn between(asked: &[(Duration, Duration)], budget: Option<Duration>) -> Self {
        let least: Duration = asked.iter().map(|(_, least)| *least).sum();
        let more = |&(asked, least): &(Duration, Duration)| asked.saturating_sub(least);
        let more_of_all: Duration = asked.iter().map(more).sum();
        let budget = budget.unwrap_or_else(|| asked.iter().map(|(asked, _)| *asked).sum());
        let each = asked.iter().map(|one| match budget.checked_sub(least) {
            None => one.1.mul_f64(share(budget, least)),
            Some(rest) if more_of_all.is_zero() => one.1 + rest / many(asked.len()),
            Some(rest) => one.1 + more(one).mul_f64(share(rest, more_of_all)),
        });
        let each: Vec<Duration> = each.collect();
        let is_enough = each.iter().zip(asked).all(|(each, (_, least))| each >= least);
        assert!(is_enough || budget < least, "{each:?} of {budget:?} for {asked:?}");
        Self { each, least }
    }

    /// The time of all experiments.
    #[must_use]
    pub(crate) fn sum(&self) -> Duration {
        self.each.iter().sum()
    }

    /// How long they may take instead, if that is by more than a tenth too short to measure every arm
    /// once.
    #[must_use]
    pub(crate) fn overrun(&self) -> Option<Duration> {
        (self.least > self.sum().mul_f64(1.1)).then_some(self.least)
    }

    /// What the experiment `number` may take if those before it took `elapsed`, and what those after it
    /// may. If those before took longer than planned, it is the less; never more.
    #[must_use]
    pub(crate) fn at(&self, number: usize, elapsed: Duration) -> (Duration, Duration) {
        let planned: Duration = self.each[number..].iter().sum();
        let left = self.sum().saturating_sub(elapsed).min(planned);
        let factor = share(left, planned);
        let own = self.each[number].mul_f64(factor);
        (own, left.saturating_sub(own))
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

fn many(costs: usize) -> u32 {
    u32::try_from(costs).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn shares(costs: &[(u64, u64)], budget_s: Option<u64>) -> Shares {
        let asked: Vec<_> = costs.iter().map(|&(asked, least)| (s(asked), s(least))).collect();
        Shares::between(&asked, budget_s.map(s))
    }

    /// Experiments whose share was shorter than a round of their arms took longer, and the whole run
    /// with them.
    #[test]
    fn a_budget_is_shared_so_that_every_arm_can_be_measured_once() {
        let costs = [(38, 6), (20, 9), (4, 3)];
        assert_eq!(shares(&costs, None).each, [s(38), s(20), s(4)]);
        let short = shares(&costs, Some(40));
        assert_eq!(short.sum().as_secs_f64().round(), 40.0);
        assert!(
            short.each.iter().zip([6, 9, 3]).all(|(each, least)| *each >= s(least)),
            "{short:?}"
        );
        assert_eq!(short.overrun(), None);
        let long = shares(&costs, Some(400));
        assert!(long.each[0] > s(200) && long.sum() > s(399), "{long:?}");
        assert_eq!(shares(&[(2, 2), (4, 4)], Some(16)).each, [s(7), s(9)]);
    }

    #[test]
    fn a_budget_that_is_too_short_for_every_arm_says_so() {
        let short = shares(&[(38, 6), (20, 9), (4, 3)], Some(9));
        assert_eq!((short.sum(), short.overrun()), (s(9), Some(s(18))));
        assert_eq!(shares(&[(38, 10)], Some(10)).overrun(), None);
    }

    #[test]
    fn what_ran_longer_than_planned_takes_time_from_those_after_it() {
        let shares = shares(&[(10, 0), (20, 0), (10, 0)], None);
        assert_eq!(shares.at(0, s(0)), (s(10), s(30)));
        assert_eq!(shares.at(1, s(25)), (s(10), s(5)));
        assert_eq!(shares.at(1, s(2)), (s(20), s(10)), "what ended early gives nothing away");
        assert_eq!(shares.at(2, s(100)), (s(0), s(0)));
    }
}
