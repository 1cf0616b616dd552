//! [`Turn`]: what a call does to a group.

use super::answer::{Answer, Refusal};
use super::change::Change;
use super::request::Ticket;
use super::settings::Settings;

/// What a call does to a group.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now: u64,
    pub(super) changes: Vec<Change>,
    pub(super) answers: Vec<(Ticket, Answer)>,
}

impl Turn<'_> {
    pub(super) fn answer(&mut self, ticket: Ticket, answer: Answer) {
        self.answers.push((ticket, answer));
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, why: Refusal) {
        self.answer(ticket, Answer::Refused(why));
    }

    pub(super) fn refuse_parked(&mut self, parked: Option<Ticket>, why: Refusal) {
        if let Some(ticket) = parked {
            self.refuse(ticket, why);
        }
    }
}
