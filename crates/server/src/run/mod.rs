//! What the last run of this broker left, and what is therefore known: did anything go that was
//! acknowledged?
//!
//! Records are acknowledged before a disk has them. A process that dies takes none of them along, a
//! system that dies may. *Innocence needs evidence*: a start knows that nothing is lost if the file
//! `run` says so, or if what the last run acknowledged is noted in memory that outlived it and
//! every log holds that much. Everything else may have lost, and the [`Loss`] becomes the fence
//! that consumers read about.
//!
//! | file | what |
//! | --- | --- |
//! | `mark.rs` | the file `run`, drawn: how the last run ended, and what was durable then |
//! | `witness.rs` | a file on tmpfs, drawn: what was acknowledged |
//! | `starts.rs` | the file `starts`, drawn: what each start of this directory drew |
//! | `verdict.rs` | what is known from both: a pure function, and its reasons as sentences |
//! | `running.rs` | [`Run`]: keeps both true while the broker works |
//! | `error.rs` | what can go wrong |
//!
//! **The order that keeps the proof.**
//!
//! 1. A start reads both, judges, and durably raises the incarnation before anybody hears of it.
//!    The old evidence goes last: the new witness is there before the mark that needs it, the old
//!    one until then. A start that is interrupted is judged as the one before it.
//!    Once the mark is durable, and what the start drew is, memory says so (`begun-N`): a directory that is found without that
//!    run went back to an earlier state, and is not to be begun with ([`Run::went_back`]).
//! 2. A doubt is durable before the caller knows of it, and stays until a fence is durable: logs
//!    that grow meanwhile do not hide it.
//! 3. The witness knows of an acknowledgement before it leaves.
//! 4. Nothing beyond a quiesced or clean mark is acknowledged before that is durably running again.
//!
//! In a group of several voters a log is cut below what it acknowledged, where another leader's entries take its
//! place. What was cut is taken out of mark and witness once it is gone: who dies in between is in doubt, and asks the
//! others.

mod error;
mod mark;
mod running;
mod starts;
mod verdict;
mod witness;

pub use error::{Error, Result};
pub use mark::{Ends, Mark, SHARDS_MAX, SLOT_BYTES, State};
pub use running::{Run, Start};
pub(crate) use starts::lack;
pub use starts::{Begun, Starts};
pub use verdict::{Doubt, How, Loss, Verdict, verdict};
pub use witness::Witness;
