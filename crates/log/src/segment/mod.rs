//! One segment file by itself: its bytes, how they are written, and how they are read. Nothing here
//! knows which other segments there are.
//!
//! * [`format`]: frames as bytes; [`header`]: the first block of a file; [`link`]: what a segment follows; [`damage`]: why bytes are not
//!   what they should be; [`sparse`]: where some records begin.
//! * [`active`]: a segment that is being written; [`handle`]: what others need of it; [`flusher`]: writes made while more is staged.
//! * [`head`]: header and link of a file; [`cursor`]: walks frames, checking each, over a [`window`] on
//!   the file that two threads may fill ([`ahead`]).
//! * [`scan`]: what a whole segment holds, and why it ends.

pub(crate) mod active;
pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod damage;
pub(crate) mod flusher;
pub(crate) mod format;
pub(crate) mod handle;
pub(crate) mod head;
pub(crate) mod header;
pub(crate) mod link;
pub(crate) mod scan;
pub(crate) mod sparse;
pub(crate) mod window;
