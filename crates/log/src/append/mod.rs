//! What an append does: records go into a ring in memory, and marks say how far they have come since.
//! Nothing here knows a disk.
//!
//! * [`intake`]: accepts records, one append at a time: [`gate`], [`tail`] (turn and queue), [`grant`]
//!   (how much of the ring), [`room`] (there is more again).
//! * [`ring`]: records that are not durable yet; [`ring_file`]: the same in a file that outlives the
//!   process.
//! * [`marks`]: how far records have come; each is a [`watermark`], on which [`waiters`] wait.
//!
//! Its words: a *batch* of records gets its *indexes* and goes into the *ring*, at a *position*. The *gate*
//! says whether, *grant* and *room* how much; who must wait stands in the *queue*. A *mark* says how far
//! records have come, a *waiter* waits for one, a *cut* takes it back.

pub(crate) mod gate;
mod grant;
pub(crate) mod intake;
pub(crate) mod marks;
pub(crate) mod ring;
pub(crate) mod ring_file;
pub(crate) mod room;
mod tail;
pub(crate) mod waiters;
pub(crate) mod watermark;
