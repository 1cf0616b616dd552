//! What a profile asks for: how long a trial is, and the arms.

use std::time::Duration;

use crate::experiment::Profile;
use crate::units;

/// What is measured, in the order of a block's lists. A block is one trial.
pub(super) const MEASURES: [&str; 3] = ["time for 1 MiB", "time at risk", "sync"];
pub(super) const AT_RISK: usize = 1;
pub(super) const SYNC: usize = 2;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
/// Bytes of a write.
pub(super) const WRITE_BYTES: u64 = 4 * KIB;
/// The article's intervals, and the one below them. Largest first.
const INTERVALS: [u64; 10] = [
    100 * MIB,
    10 * MIB,
    MIB,
    512 * KIB,
    256 * KIB,
    128 * KIB,
    64 * KIB,
    32 * KIB,
    16 * KIB,
    4 * KIB,
];

/// How much a trial writes, and when a costly one ends early.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

pub(super) const fn trial(profile: Profile) -> Trial {
    let ms = Duration::from_millis;
    match profile {
        Profile::Quick => Trial { bytes: 20 * MIB, time: ms(20) },
        Profile::Full => Trial { bytes: 200 * MIB, time: ms(250) },
        Profile::Article => Trial { bytes: 1024 * MIB, time: ms(3000) },
    }
}

/// When to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Never,
    End,
    Every(u64),
}

/// Which thread syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syncer {
    /// The thread that writes; it waits for each sync.
    Writer,
    /// Another thread, at most one interval behind.
    Background,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) when: When,
    pub(super) syncer: Syncer,
}

impl Schedule {
    /// `never`, `end`, `10MiB/writer`, `10MiB/background`.
    pub(super) fn name(self) -> String {
        let syncer = match self.syncer {
            Syncer::Writer => "writer",
            Syncer::Background => "background",
        };
        match self.when {
            When::Never => "never".to_owned(),
            When::End => "end".to_owned(),
            When::Every(bytes) => format!("{}/{syncer}", units::bytes(bytes).replace(' ', "")),
        }
    }

    /// How many bytes one sync covers, in a trial of `trial_bytes`.
    pub(super) fn batch_bytes(self, trial_bytes: u64) -> u64 {
        match self.when {
            When::Never | When::End => trial_bytes,
            When::Every(bytes) => bytes,
        }
    }

    /// The most bytes that a power cut can take. In the background, one interval is being synced
    /// while the next one is being written.
    pub(super) fn at_risk_bytes(self, trial_bytes: u64) -> u64 {
        match (self.when, self.syncer) {
            (When::Every(bytes), Syncer::Background) => 2 * bytes,
            _ => self.batch_bytes(trial_bytes),
        }
    }
}

/// The arms, for trials of so many bytes. An interval as long as a trial is left out: it is a sync
/// at the end.
pub(super) fn schedules(trial_bytes: u64) -> Vec<Schedule> {
    let syncer = Syncer::Writer;
    let mut schedules =
        vec![Schedule { when: When::Never, syncer }, Schedule { when: When::End, syncer }];
    for syncer in [Syncer::Writer, Syncer::Background] {
        let intervals = INTERVALS.into_iter().filter(|&bytes| bytes < trial_bytes);
        schedules.extend(intervals.map(|bytes| Schedule { when: When::Every(bytes), syncer }));
    }
    schedules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_as_long_as_a_trial_is_a_sync_at_its_end() {
        let quick = schedules(trial(Profile::Quick).bytes);
        let every = |bytes| Schedule { when: When::Every(bytes), syncer: Syncer::Background };
        assert!(quick.contains(&every(10 * MIB)) && !quick.contains(&every(100 * MIB)));
        assert_eq!(schedules(trial(Profile::Article).bytes).len(), 2 + 2 * INTERVALS.len());
        for profile in [Profile::Quick, Profile::Full, Profile::Article] {
            let bytes = trial(profile).bytes;
            assert!(bytes.is_multiple_of(WRITE_BYTES));
            assert!(INTERVALS.iter().all(|interval| interval.is_multiple_of(WRITE_BYTES)));
        }
    }

    #[test]
    fn in_the_background_two_intervals_are_at_risk() {
        let schedule = |when, syncer| Schedule { when, syncer };
        let every = When::Every(MIB);
        assert_eq!(schedule(every, Syncer::Writer).at_risk_bytes(20 * MIB), MIB);
        assert_eq!(schedule(every, Syncer::Background).at_risk_bytes(20 * MIB), 2 * MIB);
        assert_eq!(schedule(When::End, Syncer::Writer).at_risk_bytes(20 * MIB), 20 * MIB);
    }
}
