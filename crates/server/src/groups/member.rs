//! [`Member`]: one member of a group, while this coordinator leads it.

use super::answer::{Answer, Refusal};
use super::request::Ticket;
use super::roster::Seat;
use super::turn::Turn;

/// A new member has no id to be heard under: it may wait so long to be told one (Kafka's figure).
const NEW_MEMBER_MS: u64 = 300_000;

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    /// What is stored of it.
    pub(super) seat: Seat,
    /// Its join, while that is parked: it has come to the rebalance.
    pub(super) join: Option<Ticket>,
    /// Its sync, while that is parked.
    pub(super) sync: Option<Ticket>,
    /// Whether it was never told that it is a member.
    pub(super) is_new: bool,
    /// Whether it was told of this generation and has not asked what is assigned to it.
    pub(super) owes_sync: bool,
    /// When it will have been silent for too long.
    expires: u64,
}

impl Member {
    /// One that joins for the first time.
    pub(super) fn new(seat: Seat, ticket: Ticket, now: u64) -> Self {
        let expires = now + NEW_MEMBER_MS;
        Self { seat, join: Some(ticket), sync: None, is_new: true, owes_sync: false, expires }
    }

    /// One that was stored.
    pub(super) fn load(seat: Seat, owes_sync: bool, now: u64) -> Self {
        let expires = now + u64::from(seat.session_ms);
        Self { seat, join: None, sync: None, is_new: false, owes_sync, expires }
    }

    /// It was heard: its session begins anew.
    pub(super) fn renew(&mut self, now: u64) {
        let session_ms = u64::from(self.seat.session_ms);
        self.expires = now + if self.is_new { NEW_MEMBER_MS } else { session_ms };
    }

    /// When it is given up. One that waits for our answer is not silent.
    pub(super) fn deadline(&self) -> Option<u64> {
        let waits = self.join.is_some() || self.sync.is_some();
        (self.is_new || !waits).then_some(self.expires)
    }

    /// Parks a join. The one before it, if any, is told to come again: it was sent again.
    pub(super) fn park_join(&mut self, ticket: Ticket, turn: &mut Turn<'_>) {
        self.renew(turn.now);
        let before = self.join.replace(ticket);
        turn.refuse_parked(before, Refusal::RebalanceInProgress);
    }

    /// Parks a sync, likewise.
    pub(super) fn park_sync(&mut self, ticket: Ticket, turn: &mut Turn<'_>) {
        let before = self.sync.replace(ticket);
        turn.refuse_parked(before, Refusal::RebalanceInProgress);
    }

    /// Answers what is parked: another has taken its place, or it is no member any more.
    pub(super) fn dismiss(&mut self, why: Refusal, turn: &mut Turn<'_>) {
        turn.refuse_parked(self.join.take(), why);
        turn.refuse_parked(self.sync.take(), why);
    }

    /// Answers its parked sync, if there is one.
    pub(super) fn answer_sync(&mut self, answer: Answer, turn: &mut Turn<'_>) {
        if let Some(ticket) = self.sync.take() {
            turn.answer(ticket, answer);
            self.renew(turn.now);
        }
    }
}
