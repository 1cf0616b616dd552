//! The coordinator of consumer groups: who is a member, who reads which partitions, how far they
//! are.
//!
//! A pure core: no I/O, no clock, no threads, no randomness and no wire. Time and fresh member ids
//! come in as arguments; an answer that cannot be given yet is parked under the caller's ticket.
//!
//! *Decide, then apply.* [`Groups`] is the leader's: it decides what a request or the time does,
//! and returns that as [`Change`]s, numbered from 1. The caller has them agreed on and durable in
//! the groups' own shard, in that order; every replica applies them to its [`Store`], and only then
//! the leader is told ([`Groups::agreed`]). A leader that loses its shard resigns; the next one
//! loads the store. Sessions are the leader's: they are not in the store, and begin anew when it is
//! loaded.
//!
//! Invariants:
//! * An answer waits for every change of its group's membership that was decided before it, so
//!   nobody is told what a crash could undo. An answer to a commit waits for that commit.
//! * Members are stored twice in a generation: when all have joined, before anybody is told its
//!   number, and with what is assigned to them. So a generation's number never names two sets of
//!   members, and a restart goes on where the group stood, between joining and syncing too, without
//!   a rebalance. (Kafka stores the second only, and may give a number away twice.)
//! * Every parked ticket is answered: at the latest when its member, or the rebalance, runs out of
//!   time.
//! * Everything is bounded by [`Settings`]: groups, members, their bytes, offsets.
//!
//! Members of the next rebalance protocol (KIP-848) can stand on the same store. The names of
//! groups, [`Store`] with its offsets and their expiry, the format of [`Change`], tickets and the
//! rule that answers wait are shared; a group of that kind needs a kind of change of its own beside
//! [`Change::Roster`], and a room of its own beside `rebalance.rs`.
//!
//! | file | what |
//! | --- | --- |
//! | `coordinator.rs` | [`Groups`]: all groups; answers that wait, alarms, load and resign |
//! | `group.rs` | one group: its members, its phase, which protocol they share, who may speak |
//! | `rebalance.rs` | what joining, syncing, leaving, heartbeats and time do to a group |
//! | `member.rs` | one member: what is stored of it, its parked tickets, its session |
//! | `commits.rs` | whose commits are taken; offsets and groups that are deleted or expire |
//! | `turn.rs`, `phase.rs` | what a call does to a group; what a group is doing |
//! | `overview.rs` | how groups are described and listed |
//! | `subscription.rs` | the topics that a consumer's metadata names |
//! | `request.rs`, `answer.rs`, `settings.rs` | the values that go in and out, and the bounds |
//! | `change.rs` | what is agreed on, drawn |
//! | `roster.rs`, `offset.rs` | what is stored of members and of a committed offset, drawn |
//! | `store.rs`, `snapshot.rs` | what the changes make, and its bytes, drawn |
//! | `fields.rs` | fields that only groups have, written and read |

mod answer;
mod change;
mod commits;
mod coordinator;
mod fields;
mod group;
mod member;
mod offset;
mod overview;
mod phase;
mod rebalance;
mod request;
mod roster;
mod settings;
mod snapshot;
mod store;
mod subscription;
mod turn;

pub use answer::{Answer, Joined, Refusal, Step, Synced};
pub use change::Change;
pub use coordinator::Groups;
pub use offset::Committed;
pub use overview::{Described, DescribedMember, Listed};
pub use phase::Phase;
pub use request::{
    Beat, Commit, Committing, Join, Leave, Leaver, Protocol, Sync, Ticket, TopicPartition,
};
pub use roster::{Roster, Seat};
pub use settings::Settings;
pub use store::{Backwards, Store, Stored};
