//! One segment file by itself: its bytes, how they are written, and how they are read. Nothing here
//! knows which other segments there are.
//!
//! * [`format`]: frames as bytes; [`header`]: the first block of a file; [`link`]: what a segment follows; [`damage`]: why bytes are not
//!   what they should be; [`sparse`]: where some records begin.
//! * [`active`]: a segment that is being written; [`handle`]: what others need of it; [`flusher`]: writes made while more is staged.
//! * [`head`]: header and link of a file; [`cursor`]: walks frames, checking each, over a [`window`] on
//!   the file that two threads may fill ([`ahead`]).
//! * [`scan`]: what a whole segment holds, and why it ends; [`gaps`]: what of a full one cannot be read, and the
//!   bytes that stood there.
//!
//! Its words: a file begins with a *header*, which has its *salt*; then come *frames*: records, a *link* to
//! what it follows, with its *generation*, *marks* of what is durable, and a *seal* with the *sparse index*.
//! Frames are *staged*, and go out in *blocks*, some of them in *flight*. They are read by a *cursor* over a
//! *window*; what is not a frame is *damage*.

pub(crate) mod active;
pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod damage;
pub(crate) mod flusher;
pub(crate) mod format;
pub(crate) mod gaps;
pub(crate) mod handle;
pub(crate) mod head;
pub(crate) mod header;
pub(crate) mod link;
pub(crate) mod scan;
pub(crate) mod sparse;
pub(crate) mod window;
