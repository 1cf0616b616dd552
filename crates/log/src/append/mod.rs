//! What an append does: records go into a ring in memory, and marks say how far they have come since.
//! Nothing here knows a disk.
//!
//! * [`ring`]: records that are not durable yet; [`ring_file`]: the same in a file that outlives the
//!   process.
//! * [`intake`]: accepts records, one append at a time: room, turn and gate.
//! * [`watermark`]: how far records have come, to wait on.

pub(crate) mod intake;
pub(crate) mod ring;
pub(crate) mod ring_file;
pub(crate) mod watermark;
