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
//! | `settings`, `types`, `runtime`, `watch` | what it is told, its types, what it draws from and waits for |
//! | `carrier`, `network`, `message` | how messages come to other replicas, and what they say |
//! | `receiver` | what a replica does that another asks for |
//! | `standing`, `reentry` | whether it may vote, and how one that may have forgotten comes to vote again |
//! | `growth` | who votes: nodes are taken in, and let go |
//! | `handover`, `handing` | how a leader has another lead in its place |
//! | `disk`, `abdication` | whether the disk has failed or is full; what becomes then of a replica that leads |
//! | `onlookers` | whether others get what one voter commits by its own word |
//! | `generation` | after which loss it goes on |
//! | `heard`, `bereft` | which leader was heard lately; what follows where its process is seen to be gone |
//! | `level`, `copies` | which voters have what was committed a moment ago, and how many have an entry |
//! | `newcomer` | whether a replica that has nothing is new, or has lost it |
//! | `behind` | whether a replica lacks what its leader has let go of |
//! | `gone` | how far the log was let go of, and may be |
//! | `holes` | what a start cannot read of the log, and goes on without for a while |
//! | `terms` | in which terms the entries of the log are, kept beside it for such a start |
//! | `heal`, `wounds` | what a disk has lost of the log, fetched from another replica and put back |
//! | `durability`, `quorum` | D, and whether the quorum is so thin that all waits for it |
//! | `state`, `apply` | committed entries on their way to the shard |
//! | `log_store`, `log_reader` | what the engine writes and reads |
//! | `storage`, `tail` | the log, the identity, the newest entries in memory |
//! | `record`, `membership` | an entry as a record of the log |
//! | `place` | where a snapshot stands among the entries |
//! | `copy` | log and identity, copied while a node may be changing them |
//! | `identity`, `slot` | who this replica is and what it promised |
//! | `outline` | what a replica says of itself |
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
//! * a replica that may have forgotten what it acknowledged neither votes nor leads before it has what a
//!   leader named (`standing`, `receiver`);
//! * a replica whose log has a damaged record does not campaign, and does not count for D (`receiver`, `heal`);
//! * replicas of different generations do not hear each other (`generation`);
//! * a replica that has nothing does nothing for others before a leader has said that it does not vote (`newcomer`);
//! * an acknowledgement is known to the [`Testimony`] before it leaves (`log_store`);
//! * a replica whose disk has failed acknowledges nothing, and votes for nobody (`disk`, `receiver`, `log_store`);
//! * a payload commits in the leadership it was proposed in, or not at all (`group`);
//! * the engine neither snapshots nor purges (`state`, `settings`): whoever has the state does.

mod abdication;
mod apply;
mod behind;
mod bereft;
mod campaign;
mod carrier;
mod copies;
mod copy;
mod core;
#[cfg(test)]
mod defaults_tests;
mod disk;
mod durability;
mod error;
mod generation;
mod gone;
mod group;
mod growth;
mod handing;
mod handover;
mod heal;
mod heard;
mod holes;
mod identity;
mod level;
mod log_reader;
mod log_store;
mod membership;
mod message;
#[cfg(test)]
mod message_tests;
mod network;
mod newcomer;
mod onlookers;
mod options;
mod outline;
mod patience;
mod place;
mod quorum;
mod reading;
mod receiver;
mod record;
mod recovered;
mod reentry;
mod runtime;
mod settings;
mod slot;
mod standing;
mod state;
mod storage;
#[cfg(test)]
mod suite;
mod tail;
mod terms;
#[cfg(test)]
pub(crate) mod trio;
mod types;
mod watch;
mod wounds;

pub use self::apply::{Apply, Stop};
pub use self::behind::{Lack, Needed};
pub use self::carrier::{Answered, Carrier, Nobody, Unreached};
pub(crate) use self::copy::{Copied, LogCopy, end_of};
pub use self::durability::Unwell;
pub use self::error::{Error, Result};
pub use self::generation::Newer;
pub use self::group::{Committed, Group};
pub use self::growth::Membership;
pub(crate) use self::identity::{IDENTITY, begin_anew};
pub use self::options::{Begin, Options, Testimony};
pub use self::outline::Outline;
pub(crate) use self::patience::patient;
pub use self::place::Place;
pub(crate) use self::quorum::spare;
pub use self::receiver::Receiver;
pub use self::record::NotAnEntry;
pub(crate) use self::record::payload;
#[cfg(fuzzing)]
pub use self::record::record_again;
pub use self::recovered::{Recovered, cut_from};
pub(crate) use self::recovered::{others_vote, others_vote_now, others_voted_last};
pub use self::runtime::draw_from;
pub use self::slot::Identity;
#[cfg(fuzzing)]
pub use self::slot::slot_again;
pub use self::standing::Basis;
pub use self::state::Leadership;
#[cfg(fuzzing)]
pub use self::terms::terms_again;
