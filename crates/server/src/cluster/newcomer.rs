//! [`Newcomer`]: whether a replica that has nothing may take part.
//!
//! One that has nothing at all, no vote and no entry, is new, or has lost its disk; it cannot tell. If it lost it, it has
//! forgotten its votes, and might give one of them again: so before it does anything that another asks, it asks those that it
//! reaches whether it votes. *Whoever votes in a group and has nothing of it is lost*: it does nothing for that group, for ever.
//! One that a leader does not know as a voter is new.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use super::message::{Answer, Greeting, Request};
use super::network::Network;

/// How long the others may take to answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long it is waited until they are asked again.
const REST: Duration = Duration::from_millis(100);

/// What is known of a replica that has nothing.
#[derive(Debug)]
pub(crate) struct Newcomer(Mutex<Known>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// It has something, or is new.
    TakesPart,
    Lost,
}

impl Newcomer {
    pub(crate) fn new(has_nothing: bool) -> Self {
        Self(Mutex::new(if has_nothing { Known::Nothing } else { Known::TakesPart }))
    }

    pub(crate) fn takes_part(&self) -> bool {
        self.known() == Known::TakesPart
    }

    fn known(&self) -> Known {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, known: Known) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// Asks those nodes that `others` names until it is known whether a replica may take part. Whether it may.
pub(crate) async fn until_it_takes_part<F: Fn() -> Vec<u64>>(
    newcomer: Arc<Newcomer>,
    network: Network,
    others: F,
) -> bool {
    while newcomer.known() == Known::Nothing {
        let asks = others().into_iter().map(|other| {
            let asked = network.ask(other, &Request::Greet);
            async move { timeout(PATIENCE, asked).await.ok()?.ok() }
        });
        let answers: Vec<_> = join_all(asks).await.into_iter().flatten().collect();
        let says = |greeting| {
            answers.iter().any(|answer| matches!(answer, Answer::Greet(is) if *is == greeting))
        };
        match (says(Greeting::Votes), says(Greeting::New)) {
            (true, _) => newcomer.learn(Known::Lost),
            (false, true) => newcomer.learn(Known::TakesPart),
            (false, false) => sleep(REST).await,
        }
    }
    newcomer.takes_part()
}
