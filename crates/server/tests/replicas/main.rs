//! A group of several replicas under its rule: what a quorum acknowledged from memory stays, whoever
//! forgets.
//!
//! Lives are drawn from a seed (`life.rs`): three and five replicas, one that becomes three, three that become
//! five, a replica replaced, others that have the log and do not vote until one of them does in another's place; nodes are killed, lose their power or the memory that says what they acknowledged,
//! are cut off, one way or both; messages are lost, slow, or come seconds late, to another incarnation than
//! they were sent to; disks fail, and lose records that they had (`rot.rs`); leaders hand over; logs lose their beginning, and who lacks
//! that is seeded (`seeding.rs`). A majority loses its power when what is agreed on is far ahead of its disks (`strikes.rs`).
//!
//! The group carries three state machines of the broker (`machines.rs`), and whoever leads does for each what the broker's leader does
//! (`leads.rs`). Clients ask whoever says that it leads (`desk.rs`):
//!
//! | what | whoever leads | its clients | what they were told |
//! | --- | --- | --- | --- |
//! | a shard of records | `shard.rs` | `producers.rs` | `ledger.rs` |
//! | groups | `coordinating.rs` | `members.rs` | `commits.rs` |
//! | topics, and ids of producers | `controlling.rs` | `topics.rs` | `intents.rs` |
//!
//! What must hold whatever happens is in `oracle.rs`, of what clients were told in the last column, of messages in `net.rs`, and for
//! each replica in `World::look`; docs/testing.md has the list.
//!
//! All runs in one thread, with a clock of its own: the same seed is the same life, message by message
//! (`a_seed_is_one_life`). `PLIMSOLL_SEED=7 PLIMSOLL_TRACE=file` writes down the life of a seed that fails.

#![expect(clippy::print_stdout, reason = "it tells what was seen")]

mod changes;
mod clients;
mod commits;
mod controlling;
mod coordinating;
mod desk;
mod disks;
mod glance;
mod intents;
mod leads;
mod ledger;
mod life;
mod machines;
mod members;
mod net;
mod operators;
mod oracle;
mod panics;
mod producers;
mod rot;
mod seeding;
#[path = "../shared/seeds.rs"]
mod seeds;
mod shard;
mod stories;
mod strikes;
mod topics;
mod trace;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use life::Life;
use oracle::Counts;
use seeds::{is_replay, replayable, seeds};
use world::run;

/// So many by default.
const SEEDS: u64 = 500;

/// So many at once.
const JOBS: usize = 2;

#[test]
fn a_seed_is_one_life() {
    for seed in seeds(6) {
        panics::listen();
        let (first, second) = (run(Life::live(seed, true)).1, run(Life::live(seed, true)).1);
        assert!(first.len() > 1000, "seed {seed}: so little happened");
        for (at, (one, other)) in first.iter().zip(&second).enumerate() {
            assert_eq!(one, other, "line {at} of seed {seed}");
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn what_a_quorum_has_stays_whoever_forgets() {
    let seeds = seeds(SEEDS);
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Counts::new()));
    let live = || {
        // Where one has failed the others begin no more.
        let _ended = Ended(&next, seeds.end);
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < seeds.end
        {
            let (seen, _) = replayable(seed, || {
                panics::listen();
                run(Life::live(seed, is_replay()))
            });
            let mut total = total.lock().unwrap();
            for (what, times) in seen {
                *total.entry(what).or_default() += times;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(live);
        }
    });
    let total = total.into_inner().unwrap();
    println!("seeds {seeds:?}: {total:#?}");
    // What tests nothing has not passed.
    let wanted = [
        "a power cut",
        "a process that was killed",
        "a witness that was lost",
        "a node that ended with its disk",
        "a majority that ended at once",
        "all that ended at once",
        "a start that is dirty",
        "a replica that re-entered",
        "a node that was cut off",
        "a way that was cut",
        "a message that comes late",
        "a leadership handed over",
        "one that became three",
        "a leader that is to go",
        "a node that does not vote",
        "a vote that goes over to another node",
        "a node that was taken for gone",
        "a sole voter that ended while others got its log",
        "a change of the voters",
        "an acknowledgement while guarded",
        "an acknowledgement while not guarded",
        "an operator who had a majority go on with their disks",
        "a replica that went on in a newer generation",
        "an entry in the place of one that was lost",
        "a blow while C was ahead of D",
        "a blow while others came to vote",
        "records acknowledged that may be lost",
        "a batch that a producer was told of",
        "a batch that is sent again",
        "a fence that took what a producer was told of",
        "a producer that began anew after a loss",
        "an acknowledgement between replicas that was true",
        "a clock that jumped",
        "a record that a disk lost",
        "a damaged record that was met",
        "a damaged record that was healed",
        "a start with a log that is damaged",
        "a log that was let go of",
        "a replica that was seeded",
        "a group that was formed",
        "a group that was rebalanced",
        "an offset committed by a group",
        "offsets that a member went on from",
        "an answer of a group that came from a new leader",
        "a topic made",
        "a topic that was given partitions",
        "a setting of a topic",
        "a topic deleted",
        "a block of producer ids",
        "an answer of a new controller",
    ];
    let are_many = seeds.end.saturating_sub(seeds.start) >= SEEDS;
    for what in wanted.into_iter().filter(|_| are_many) {
        assert!(total.contains_key(what), "{what}");
    }
}

/// Has no seed begun any more once it is dropped.
struct Ended<'a>(&'a AtomicU64, u64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_max(self.1, Ordering::Relaxed);
    }
}
