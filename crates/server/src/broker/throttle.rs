//! [`Throttle`]: how fast records are taken while chapters wait to be settled, or disks are behind ([`Lag`](super::lag::Lag)).
//!
//! Two chapters may wait. With three, records are taken as fast as a chapter was settled last, with four slower, and with more
//! none are: who produces is slowed down before it has to stop.

use std::time::{Duration, Instant};

/// Chapters that may wait to be settled before producers wait for that.
pub(super) const UNSETTLED_MAX: usize = 4;
/// Chapters that may wait before producers are slowed down.
const UNSLOWED_MAX: usize = 2;

/// What a producer is told to wait at most.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long nothing is said again: a disk that is slow comes and goes with each sync.
const SAYS_EVERY: Duration = Duration::from_secs(10);

/// How fast records are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pace {
    /// As they come.
    #[default]
    Free,
    /// So many bytes a second.
    Slow(u64),
    /// Not at all.
    Stopped,
}

/// Takes records at a pace.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    pub(super) pace: Pace,
    /// When what was taken last is paid for.
    free_at: Option<Instant>,
    /// The kind of pace that was said last, and when.
    said: Option<(std::mem::Discriminant<Pace>, Instant)>,
}

impl Pace {
    /// Where so many chapters wait, and so many bytes a second were settled last; 0: that is not known.
    pub(super) fn of(unsettled: usize, settled_a_second: u64) -> Self {
        if unsettled > UNSETTLED_MAX {
            return Self::Stopped;
        }
        match unsettled.saturating_sub(UNSLOWED_MAX) {
            0 => Self::Free,
            _ if settled_a_second == 0 => Self::Free,
            1 => Self::Slow(settled_a_second),
            _ => Self::Slow((settled_a_second / 2).max(1)),
        }
    }

    /// The slower of two.
    pub(super) fn slower(self, other: Self) -> Self {
        match (self, other) {
            (Self::Free, pace) | (pace, Self::Free) => pace,
            (Self::Slow(one), Self::Slow(other)) => Self::Slow(one.min(other)),
            (Self::Stopped, _) | (_, Self::Stopped) => Self::Stopped,
        }
    }
}

impl Throttle {
    /// Goes on at another pace. Says so, where it is of another kind than what was said, and that is a while ago.
    pub(super) fn turn(&mut self, pace: Pace, unsettled: usize, unsynced: u64) {
        self.pace = pace;
        let (kind, now) = (std::mem::discriminant(&pace), Instant::now());
        let (last, at) = self.said.unzip();
        let is_known = last.unwrap_or(std::mem::discriminant(&Pace::Free)) == kind;
        if is_known || at.is_some_and(|at| now.duration_since(at) < SAYS_EVERY) {
            return;
        }
        self.said = Some((kind, now));
        match pace {
            Pace::Free => tracing::info!("records are taken as they come"),
            Pace::Slow(bytes_a_second) => tracing::warn!(
                unsettled,
                unsynced,
                bytes_a_second,
                "records are taken as fast as disks have them: chapters wait to be settled, or bytes to be synced"
            ),
            Pace::Stopped => {
                tracing::warn!(unsettled, "producers wait until chapters are settled");
            }
        }
    }

    /// So many bytes were taken now.
    pub(super) fn took(&mut self, bytes: usize, now: Instant) {
        self.free_at = match self.pace {
            Pace::Slow(bytes_a_second) => {
                let ms = (bytes as u64).saturating_mul(1000) / bytes_a_second;
                Some(self.free_at.map_or(now, |at| at.max(now)) + Duration::from_millis(ms))
            }
            Pace::Free | Pace::Stopped => None,
        };
    }

    /// Whether more may be taken.
    pub(super) fn takes(&self, now: Instant) -> bool {
        match self.pace {
            Pace::Free => true,
            Pace::Slow(_) => self.free_at.is_none_or(|at| at <= now),
            Pace::Stopped => false,
        }
    }

    /// For how long nothing is taken; no longer than [`PAUSE_MAX`], as it is seen again by then.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        let pause = match self.pace {
            Pace::Free => Duration::ZERO,
            Pace::Slow(_) => self.free_at.map_or(Duration::ZERO, |at| at.duration_since(now)),
            Pace::Stopped => PAUSE_MAX,
        };
        pause.min(PAUSE_MAX)
    }

    /// Waits until what was taken is paid for; for ever where nothing is to be.
    pub(super) async fn paid(&self) {
        match self.free_at.filter(|_| matches!(self.pace, Pace::Slow(_))) {
            Some(at) if Instant::now() < at => tokio::time::sleep_until(at.into()).await,
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn who_produces_is_slowed_down_before_it_has_to_stop() {
        let paces: Vec<Pace> = (0..7).map(|unsettled| Pace::of(unsettled, 8 * MIB)).collect();
        let [free, slow, slower] = [Pace::Free, Pace::Slow(8 * MIB), Pace::Slow(4 * MIB)];
        assert_eq!(paces, [free, free, free, slow, slower, Pace::Stopped, Pace::Stopped]);
        // How fast it settles is known once one was.
        assert_eq!((Pace::of(4, 0), Pace::of(5, 0)), (Pace::Free, Pace::Stopped));
    }

    #[test]
    fn bytes_are_taken_at_the_pace_and_debts_end_with_it() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut throttle = Throttle::default();
        throttle.took(1 << 30, begun);
        assert!(throttle.takes(begun));
        throttle.turn(Pace::Slow(MIB), 3, 0);
        assert!(throttle.takes(begun), "what was taken before is not counted");
        throttle.took(1 << 19, begun);
        assert!(!throttle.takes(after(499)));
        assert!(throttle.takes(after(500)));
        // What producers are told.
        let pauses = [0, 200, 500, 600].map(|ms| throttle.pause(after(ms)).as_millis());
        assert_eq!(pauses, [500, 300, 0, 0]);
        throttle.took(1 << 20, after(900));
        assert!(!throttle.takes(after(1_899)), "time in which nothing came is not saved up");
        throttle.turn(Pace::Free, 0, 0);
        assert!(throttle.takes(after(901)));
        assert_eq!(throttle.pause(after(901)), Duration::ZERO);
        throttle.turn(Pace::Stopped, 5, 0);
        assert_eq!(throttle.pause(after(901)), PAUSE_MAX);
    }
}
