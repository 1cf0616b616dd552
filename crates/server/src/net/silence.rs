//! [`Silence`]: for how long nothing has happened, without a timer for each thing that happens.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Since when nothing has happened.
#[derive(Debug)]
pub(super) struct Silence {
    since: Instant,
    /// Set anew only where it would ring too late, or has rung too early.
    alarm: Pin<Box<Sleep>>,
}

impl Silence {
    /// From now on; it may be asked for so long, or longer.
    pub(super) fn begin(patience: Duration) -> Self {
        Self { since: Instant::now(), alarm: Box::pin(sleep(patience)) }
    }

    /// Something has happened.
    pub(super) fn ends(&mut self) {
        self.since = Instant::now();
    }

    /// Done once nothing has happened for so long.
    pub(super) async fn lasts(&mut self, patience: Duration) {
        let Some(until) = self.since.checked_add(patience) else {
            // That is never.
            return std::future::pending().await;
        };
        if until < self.alarm.deadline() {
            self.alarm.as_mut().reset(until);
        }
        loop {
            self.alarm.as_mut().await;
            if self.alarm.deadline() >= until {
                return;
            }
            self.alarm.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_secs(30);

    #[test]
    fn silence_lasts_from_what_happened_last_whatever_it_was_asked_for_before() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(async {
            let begun = Instant::now();
            let mut silence = Silence::begin(SHORT);
            // Others have their turn meanwhile, and it is asked again, as in a loop.
            for _ in 0..10 {
                assert!(timeout(SHORT / 2, silence.lasts(LONG)).await.is_err());
                silence.ends();
            }
            silence.lasts(SHORT).await;
            assert_eq!(begun.elapsed().as_secs(), 5 * 30 + 30);
            silence.ends();
            let asked = Instant::now();
            silence.lasts(LONG).await;
            assert_eq!(asked.elapsed().as_secs(), 600);
            silence.ends();
            assert!(timeout(LONG, silence.lasts(Duration::MAX)).await.is_err());
            silence.ends();
            advance(LONG).await;
            let late = Instant::now();
            silence.lasts(SHORT).await;
            assert!(late.elapsed() < Duration::from_millis(2), "it has lasted for longer");
        });
    }
}
