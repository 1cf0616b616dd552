//! What a shard agrees on, and what that makes of its partitions: pure functions of entries.
//!
//! A shard's log holds [`Entry`]s. The leader *stamps* ([`Leading`]): it gives each batch its base
//! offset and epoch before the entry is agreed on, from a state that knows its own entries in flight.
//! Every replica *applies* ([`State::apply`]): it recomputes what was stamped, and a difference stops
//! the shard ([`Diverged`]), so that a bug of a leader never becomes two records with one offset.
//!
//! Invariants: nothing here reads a clock, a configuration or a place in a file. Time comes in
//! entries; what a partition may do came in its `Open`. So an entry reads without state, the state is
//! a function of the entries, and equal on every replica.
//!
//! | file | what |
//! | --- | --- |
//! | `entry.rs` | the bytes of an entry, drawn; reading and drafting one |
//! | `item.rs` | what an entry holds: batches, and acts on partitions and on the shard |
//! | `batch.rs` | the fields of a record batch that a shard reads, and the two that it stamps |
//! | `name.rs` | which partition, and which of its stays in a shard |
//! | `state.rs` | all partitions; what an entry does to them |
//! | `partition.rs` | one of them: offsets, ceiling, what is live |
//! | `epochs.rs` | where each leader epoch began and ended, and the gaps that fences left |
//! | `producers.rs` | the last batches of each idempotent producer |
//! | `points.rs` | where a partition's batches lie in the log |
//! | `leading.rs` | what the leader's entries in flight will make of the state |
//! | `fair.rs` | whose batch is next |
//! | `proposer.rs` | what producers sent, made into entries |
//! | `tail.rs` | the newest entries, in memory by reference |
//! | `snapshot.rs` | the bytes of a state, drawn |

mod batch;
mod entry;
mod epochs;
mod fair;
mod item;
mod leading;
mod name;
mod partition;
mod points;
mod producers;
mod proposer;
mod snapshot;
mod state;
mod tail;

pub use crate::cursor::Malformed;
pub use batch::{Batch, NotABatch, Sequenced, stamp};
pub use entry::{BATCH_OVERHEAD_BYTES, Draft, ENTRY_BYTES_MAX, Entry, VERSION};
pub use epochs::{Epoch, Gap};
pub use fair::{Fair, QUANTUM_BYTES};
pub use item::{Fence, Generation, Item, Open, Settings, Why};
pub use leading::{Admission, Leading, Refused};
pub use name::{Opening, PartitionId, TopicId};
pub use partition::{Partition, Unfit};
pub use points::Point;
pub use producers::{Misplaced, Producer, Producers};
pub use proposer::{Answer, IDLE_MS, Proposal, Proposer, Submission};
pub use state::{Diverged, Ended, Mismatch, Outcome, State};
pub use tail::{Fetched, Held, Tail, fetch, let_go};
