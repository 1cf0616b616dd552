//! A block device that forgets, tears and lies: what was asked of it, and what a power cut may leave.
//!
//! All of this takes values and returns values; `mounted` puts it under real filesystems.
//!
//! * [`Device`] is the live disk: it takes reads, writes, flushes and discards, meets its
//!   [`Fault`]s, and records each in order as an [`Event`].
//! * A [`Trace`] is a recording: the disk as it was, and the events. It can be saved and read back.
//! * [`Timeline`] knows when each write became durable: when its completion precedes the arrival of
//!   a flush that completed. That is the rule of dm-log-writes.
//! * A [`State`] is one thing that a power cut may leave: a point of the trace, a mode, a seed.
//!   [`Plan`] chooses which to visit, [`shrink()`] finds the fewest lost writes that still do
//!   harm, and [`Later`] the writes that came too late where nothing had to be lost.
//! * [`Latency`] says when a device of some kind would answer.

mod device;
mod event;
mod fault;
mod fault_text;
mod latency;
mod later;
mod plan;
mod platter;
mod points;
mod recording;
mod shrink;
mod size;
mod state_text;
mod states;
mod timeline;
mod trace;
mod trace_file;
mod trace_frame;

pub use device::{Device, Ticket};
pub use event::{End, Errno, Event};
pub use fault::{Fault, FaultKind, Faults, Operation};
pub use latency::{Latency, Model};
pub use later::{Lacking, Later};
pub use plan::{Coverage, Plan, Wanted};
pub use platter::Platter;
pub use recording::Keep;
pub use shrink::shrink;
pub use size::{parse_bytes, size};
pub use states::{Fate, Loss, Medium, Mode, State, Survivor, Toll};
pub use timeline::{Belief, Request, Timeline};
pub use trace::{About, Trace};
pub use trace_file::TraceError;
