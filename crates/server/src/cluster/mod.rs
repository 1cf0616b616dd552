//! The only door to the consensus engine, and its log on ours.
//!
//! A [`Group`] takes opaque payloads, agrees on their order, and hands each to [`Apply`]. The
//! engine is openraft, pinned exactly; nothing of it is in what this room shows. *Alone is a
//! cluster of one*: one voter goes the same way as three, through the same engine, so that one node
//! becomes three without moving data.
//!
//! | file | what |
//! | --- | --- |
//! | `group`, `recovered` | the door, and what is behind it before it opens |
//! | `core` | the engine on its thread |
//! | `settings`, `network`, `types` | what it is told, whom it talks to, its types |
//! | `state`, `apply` | committed entries on their way to the shard |
//! | `log_store`, `log_reader` | what the engine writes and reads |
//! | `storage`, `tail` | the log, the identity, the newest entries in memory |
//! | `record`, `membership` | an entry as a record of the log |
//! | `place` | where a snapshot stands among the entries |
//! | `copy` | log and identity, copied while a node may be changing them |
//! | `identity`, `slot` | who this replica is and what it promised |
//! | `options`, `error` | what a group is opened with; why it does not go on |
//! | `patience` | how long whoever opens or ends one waits for a disk that is full |
//! | `suite` | the engine's own tests of a store, 37 of which ours passes |
//!
//! What must stay true, and is asserted or tested where it is kept:
//!
//! * the log's index of an entry is the engine's plus one, always (`record`);
//! * a vote is durable in two places before it counts, and never goes back (`identity`);
//! * the engine is told of an entry once it is as far as the promise says; of memberships and what
//!   must sync, and all behind them, once they are durable (`log_store`);
//! * a leader never resumes its term after a restart (`settings`);
//! * a payload commits in the leadership it was proposed in, or not at all (`group`);
//! * the engine neither snapshots nor purges (`state`, `settings`): whoever has the state does.

mod apply;
mod copy;
mod core;
mod error;
mod group;
mod identity;
mod log_reader;
mod log_store;
mod membership;
mod network;
mod options;
mod patience;
mod place;
mod record;
mod recovered;
mod settings;
mod slot;
mod state;
mod storage;
#[cfg(test)]
mod suite;
mod tail;
mod types;

pub use self::apply::{Apply, Stop};
pub(crate) use self::copy::{Copied, LogCopy, end_of};
pub use self::error::{Error, Result};
pub use self::group::{Committed, Group};
pub(crate) use self::identity::IDENTITY;
pub use self::options::Options;
pub(crate) use self::patience::patient;
pub use self::place::Place;
pub use self::record::NotAnEntry;
pub(crate) use self::record::payload;
#[cfg(fuzzing)]
pub use self::record::record_again;
pub use self::recovered::Recovered;
pub(crate) use self::slot::Identity;
#[cfg(fuzzing)]
pub use self::slot::slot_again;
pub use self::state::Leadership;
