//! Whose commits are taken; offsets and groups that are deleted or expire.

use std::collections::BTreeMap;

use super::answer::{Answer, Refusal};
use super::change::Change;
use super::group::{Group, State};
use super::offset::Committed;
use super::request::{Commit, Committing, Ticket, TopicPartition};
use super::settings::Settings;
use super::store::{Store, Stored};
use super::subscription;
use super::turn::Turn;

impl Group {
    /// Somebody says how far the group is.
    pub(super) fn commit(
        &mut self,
        commit: Commit,
        stored: Option<&Stored>,
        ticket: Ticket,
        turn: &mut Turn<'_>,
    ) {
        if let Err(why) = self.check_commit(&commit) {
            return turn.refuse(ticket, why);
        }
        if let Some(member) = self.members.get_mut(&commit.member) {
            member.renew(turn.now);
        }
        let is_new =
            |at: &TopicPartition| !stored.is_some_and(|it| it.has(&at.topic, at.partition));
        let more = commit.offsets.iter().filter(|(at, _)| is_new(at)).count();
        let before = stored.map_or(0, Stored::offset_count);
        if more > 0 && before.saturating_add(more) > turn.settings.offsets_max {
            return turn.refuse(ticket, Refusal::PolicyViolation);
        }
        let mut offsets = BTreeMap::new();
        let mut outcome = Vec::with_capacity(commit.offsets.len());
        for (at, committing) in commit.offsets {
            let taken = take(committing, turn.now, turn.settings);
            outcome.push(taken.map(|committed| {
                offsets.insert(at, committed);
            }));
        }
        turn.answer(ticket, Answer::Each(outcome));
        if !offsets.is_empty() {
            self.is_stored = true;
            turn.changes.push(Change::Commit { group: commit.group, offsets });
        }
    }

    /// Members of this generation may commit; anybody, as long as there are no members.
    fn check_commit(&self, commit: &Commit) -> Result<(), Refusal> {
        let Commit { generation, member, instance, .. } = commit;
        if *generation < 0 && self.state == State::Empty {
            return Ok(());
        }
        self.check_speaker(member, instance.as_deref(), *generation)?;
        // Who knows this generation must sync before it reads, and commit what it read before that.
        if self.state == State::Completing {
            return Err(Refusal::RebalanceInProgress);
        }
        Ok(())
    }

    /// Offsets are no longer wanted: of a group without members, or in topics that they do not
    /// read.
    pub(super) fn forget(
        &mut self,
        partitions: Vec<TopicPartition>,
        ticket: Ticket,
        turn: &mut Turn<'_>,
    ) {
        let is_consumer = self.protocol_type.as_deref() == Some("consumer");
        if self.state != State::Empty && !is_consumer {
            return turn.refuse(ticket, Refusal::NonEmptyGroup);
        }
        let check = |at: &TopicPartition| match self.may_read(&at.topic) {
            true => Err(Refusal::GroupSubscribedToTopic),
            false => Ok(()),
        };
        let outcome: Vec<_> = partitions.iter().map(check).collect();
        let allowed = partitions.into_iter().zip(&outcome).filter(|(_, taken)| taken.is_ok());
        let partitions: std::collections::BTreeSet<_> = allowed.map(|(at, _)| at).collect();
        if !partitions.is_empty() {
            turn.changes.push(Change::Forget { group: self.id.to_string(), partitions });
        }
        turn.answer(ticket, Answer::Each(outcome));
    }

    /// The group goes, if it has no members.
    pub(super) fn delete(&mut self, ticket: Ticket, turn: &mut Turn<'_>) {
        if self.state != State::Empty {
            return turn.refuse(ticket, Refusal::NonEmptyGroup);
        }
        self.pending.clear();
        self.is_stored = false;
        turn.changes.push(Change::Delete { group: self.id.to_string() });
        turn.answer(ticket, Answer::Done);
    }

    /// Lets go what was kept long enough since there were no members. Nothing of it is in flight.
    pub(super) fn expire(&mut self, store: &Store, turn: &mut Turn<'_>) {
        if self.state != State::Empty || !self.pending.is_empty() {
            return;
        }
        let Some(stored) = store.group(&self.id) else {
            self.is_stored = false;
            return;
        };
        let now = turn.now;
        let over = now.checked_sub(turn.settings.offsets_retention_ms);
        let had_members = self.protocol_type.is_some();
        let committed_by = over.filter(|over| !had_members || self.since <= *over).unwrap_or(0);
        let goes = |committed: &Committed| committed.is_expired(now, committed_by);
        let all_go = stored.offsets().all(|(_, _, committed)| goes(committed));
        if all_go || stored.offsets().any(|(_, _, committed)| goes(committed)) {
            self.is_stored = !all_go;
            let group = self.id.to_string();
            turn.changes.push(Change::Expire { group, now, committed_by });
        }
    }

    /// Whether a member may read it: where its metadata does not say what it reads, it may.
    fn may_read(&self, topic: &str) -> bool {
        let metadata = |member: &super::member::Member| {
            let mut offered = member.seat.protocols.iter();
            offered.any(|offered| {
                let topics = subscription::topics(&offered.metadata);
                topics.is_none_or(|topics| topics.contains(topic))
            })
        };
        self.members.values().any(metadata)
    }
}

fn take(committing: Committing, now: u64, settings: &Settings) -> Result<Committed, Refusal> {
    let Committing { offset, epoch, metadata, retention_ms } = committing;
    if metadata.as_ref().is_some_and(|text| text.len() > settings.offset_metadata_bytes_max) {
        return Err(Refusal::OffsetMetadataTooLarge);
    }
    let kept_until = retention_ms.map(|ms| now.saturating_add(ms).min(u64::MAX - 1));
    Ok(Committed { offset, epoch, time: now, kept_until, metadata })
}
