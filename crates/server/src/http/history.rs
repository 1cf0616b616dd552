//! [`History`]: the last minutes, a look a second: what rates and lines on the page are made of.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::units::float;
use crate::broker::Node;
use crate::kafka::band::Api;
use crate::net::{Counters, Latency};

/// How often it looks.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// How many looks it keeps: two minutes, and the one before.
const KEPT: usize = 121;
/// Rates are of so many of the last looks.
const RECENT: usize = 10;

/// One look.
#[derive(Debug, Clone)]
pub(super) struct Look {
    at: Instant,
    requests: u64,
    received_bytes: u64,
    sent_bytes: u64,
    produce: Latency,
    fetch: Latency,
    at_risk_bytes: u64,
    at_risk_ms: u64,
}

/// The last looks, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History(Mutex<VecDeque<Look>>);

/// What went on of late.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    /// Over so many seconds; 0 if that is not known yet.
    pub(super) seconds: f64,
    pub(super) requests_per_s: f64,
    pub(super) received_per_s: f64,
    pub(super) sent_per_s: f64,
    pub(super) produce: Latency,
    pub(super) fetch: Latency,
    /// A value for each second of the last two minutes, the newest last.
    pub(super) requests: Vec<f64>,
    pub(super) received: Vec<f64>,
    pub(super) sent: Vec<f64>,
    pub(super) at_risk_bytes: Vec<f64>,
    /// The most of the last two minutes.
    pub(super) at_risk_bytes_max: u64,
    pub(super) at_risk_ms_max: u64,
}

impl Look {
    pub(super) fn now(node: &Node, counters: &Counters) -> Self {
        let (at_risk_bytes, at_risk_ms) = node.at_risk();
        Self {
            at: Instant::now(),
            requests: Api::ALL.iter().map(|api| counters.latency(*api).count()).sum(),
            received_bytes: counters.received_bytes(),
            sent_bytes: counters.sent_bytes(),
            produce: counters.latency(Api::Produce),
            fetch: counters.latency(Api::Fetch),
            at_risk_bytes,
            at_risk_ms,
        }
    }
}

impl History {
    pub(super) fn note(&self, look: Look) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.push_back(look);
        if looks.len() > KEPT {
            looks.pop_front();
        }
    }

    pub(super) fn recent(&self) -> Recent {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = looks.back() else { return Recent::default() };
        let before = &looks[looks.len().saturating_sub(RECENT + 1)];
        let pairs = || looks.iter().zip(looks.iter().skip(1));
        let line = |of: fn(&Look) -> u64| pairs().map(|(a, b)| rate(a, b, of)).collect();
        Recent {
            seconds: (last.at - before.at).as_secs_f64(),
            requests_per_s: rate(before, last, |look| look.requests),
            received_per_s: rate(before, last, |look| look.received_bytes),
            sent_per_s: rate(before, last, |look| look.sent_bytes),
            produce: last.produce.since(&before.produce),
            fetch: last.fetch.since(&before.fetch),
            requests: line(|look| look.requests),
            received: line(|look| look.received_bytes),
            sent: line(|look| look.sent_bytes),
            at_risk_bytes: looks.iter().map(|look| float(look.at_risk_bytes)).collect(),
            at_risk_bytes_max: looks.iter().map(|look| look.at_risk_bytes).max().unwrap_or(0),
            at_risk_ms_max: looks.iter().map(|look| look.at_risk_ms).max().unwrap_or(0),
        }
    }
}

/// So much a second from one look to a later one.
fn rate(before: &Look, after: &Look, of: fn(&Look) -> u64) -> f64 {
    let seconds = (after.at - before.at).as_secs_f64();
    let more = float(of(after).saturating_sub(of(before)));
    if seconds > 0.0 { more / seconds } else { 0.0 }
}
