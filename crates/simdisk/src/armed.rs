//! Faults in force: what the faults of both disks have in common.
//!
//! A fault says the same four things on either disk: *on* which operation, *what kind* of thing happens
//! instead, *which* of the operations it is about (a name, a range, what is in it), and *when*. Only
//! the last is the same for both, and is here: a fault counts what it matches, happens from the nth on,
//! and then as often as it says. Nothing depends on time.
//!
//! Invariant: an operation meets one fault at most. Of several that are due the oldest happens; the others
//! are not spent, and happen to what they match next.

/// How often a fault happens, from its nth match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// So often.
    Count(u64),
    /// Every time.
    Sticky,
}

/// When a fault happens.
pub(crate) trait Due {
    /// From which match on, counted from 1.
    fn nth(&self) -> u64;
    /// And then how often.
    fn times(&self) -> Times;
}

/// Faults in force, with what they have seen.
#[derive(Debug, Clone)]
pub(crate) struct Armed<F> {
    faults: Vec<Counted<F>>,
}

#[derive(Debug, Clone)]
struct Counted<F> {
    fault: F,
    matched: u64,
    happened: u64,
}

impl<F: Due> Armed<F> {
    pub(crate) fn add(&mut self, fault: F) {
        assert!(fault.nth() > 0, "the first match is number 1");
        self.faults.push(Counted { fault, matched: 0, happened: 0 });
    }

    /// Counts an operation at every fault that it matches, and returns the one that happens. `may` is asked
    /// of each that is due, in order: what is left to chance is drawn there.
    pub(crate) fn meet(
        &mut self,
        matches: impl Fn(&F) -> bool,
        mut may: impl FnMut(&F) -> bool,
    ) -> Option<&F> {
        let mut met = None;
        for counted in self.faults.iter_mut().filter(|counted| matches(&counted.fault)) {
            counted.matched += 1;
            let fault = &counted.fault;
            let is_due = counted.matched >= fault.nth()
                && match fault.times() {
                    Times::Count(times) => counted.happened < times,
                    Times::Sticky => true,
                };
            if is_due && may(fault) && met.is_none() {
                counted.happened += 1;
                met = Some(&counted.fault);
            }
        }
        met
    }

    /// Each fault, and how often it happened.
    pub(crate) fn happened(&self) -> impl Iterator<Item = (&F, u64)> {
        self.faults.iter().map(|counted| (&counted.fault, counted.happened))
    }
}

impl<F> Default for Armed<F> {
    fn default() -> Self {
        Self { faults: Vec::new() }
    }
}

impl<F: Due> FromIterator<F> for Armed<F> {
    fn from_iter<I: IntoIterator<Item = F>>(faults: I) -> Self {
        let mut armed = Self::default();
        faults.into_iter().for_each(|fault| armed.add(fault));
        armed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Numbered(u64, Times);

    impl Due for Numbered {
        fn nth(&self) -> u64 {
            self.0
        }

        fn times(&self) -> Times {
            self.1
        }
    }

    /// Which faults happen at the first few operations, by their `nth`.
    fn met(faults: Vec<Numbered>, operations: usize) -> Vec<Option<u64>> {
        let mut armed: Armed<_> = faults.into_iter().collect();
        (0..operations).map(|_| armed.meet(|_| true, |_| true).map(|fault| fault.0)).collect()
    }

    #[test]
    fn a_fault_happens_from_its_nth_match_on_as_often_as_it_says() {
        let twice = Numbered(2, Times::Count(2));
        assert_eq!(met(vec![twice], 5), [None, Some(2), Some(2), None, None]);
        let sticky = Numbered(3, Times::Sticky);
        assert_eq!(met(vec![sticky], 5), [None, None, Some(3), Some(3), Some(3)]);
    }

    #[test]
    fn a_fault_that_came_second_is_not_spent() {
        let (older, younger) = (Numbered(2, Times::Count(1)), Numbered(1, Times::Count(2)));
        assert_eq!(met(vec![older, younger], 4), [Some(1), Some(2), Some(1), None]);
    }

    #[test]
    fn what_is_left_to_chance_is_drawn_where_it_is_due_and_nowhere_else() {
        let faults = [Numbered(1, Times::Sticky), Numbered(2, Times::Sticky)];
        let mut armed: Armed<_> = faults.into_iter().collect();
        let mut asked = Vec::new();
        let mut operation = |matches: bool| {
            armed.meet(|_| matches, |fault| (asked.push(fault.0), false).1).is_none()
        };
        assert!(operation(true) && operation(false) && operation(true));
        assert_eq!(asked, [1, 1, 2]);
    }
}
