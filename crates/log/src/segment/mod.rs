//! One segment file by itself: its bytes, how they are written, and how they are read. Nothing here
//! knows which other segments there are.
//!
//! * [`format`]: header, frame and link as bytes; [`sparse`]: where some records begin.
//! * [`active`]: a segment that is being written; [`flusher`]: writes made while more is staged.
//! * [`head`]: header and link of a file; [`cursor`]: walks frames, checking each, over a [`window`] on
//!   the file that two threads may fill ([`ahead`]).
//! * [`scan`]: what a whole segment holds, and why it ends.

pub(crate) mod active;
pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod flusher;
pub(crate) mod format;
pub(crate) mod head;
pub(crate) mod scan;
pub(crate) mod sparse;
pub(crate) mod window;
