//! A commit log whose appenders never wait for a disk that they did not ask to wait for.
//!
//! A write is safe in degrees, and each costs more than the one before ([`Ack`]):
//!
//! | an append returns when the record is | it survives | it cost |
//! | --- | --- | --- |
//! | [`Ack::Buffered`]: in the ring | nothing; a crash of the process if the ring is a file ([`Ring::File`]) | a copy in memory |
//! | [`Ack::Written`]: with the kernel | a crash of the process | a write |
//! | [`Ack::Durable`]: covered by a good sync | a crash of the system, a power cut | a sync, shared by all who wait |
//!
//! A [`Policy`] says when the log syncs by itself, and which of these an append gives unless it asks
//! for another.
//!
//! ```
//! use plimsoll_log::{Ack, Log, Options, Policy};
//! # let tmp = tempfile::tempdir()?;
//! # let path = tmp.path();
//! let (log, recovery) = Log::open(path, Options::default())?; // a sync a second, in the background
//! assert!(recovery.created);
//!
//! let first = log.append(b"as fast as memory")?;
//! let last = log.append_batch(&["all of these", "or none"])?;
//! log.append_with(b"and this one survives a power cut", Ack::Durable)?;
//! assert!(log.durable() > *last.end()); // and so does everything before it
//!
//! let mut reader = log.read_from(first)?;
//! while let Some(record) = reader.next_record()? {
//!     println!("{}: {}", record.index, String::from_utf8_lossy(record.payload));
//! }
//! log.close()?; // everything is durable
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Threads and tasks.** A log has four threads of its own, and needs no runtime. A task appends
//! buffered and awaits the record ([`Log::wait`]); it holds up no thread meanwhile.
//!
//! **Errors.** A file whose write or sync failed is never written or synced again. What was not
//! durable is still in the ring and goes to another segment; only if that fails too does the log stop,
//! and everybody who waits is told. A full disk refuses new records and keeps its word for the old ones.
//!
//! **After a crash** [`Log::open`] tells a torn tail (unfinished, and nothing in the log says that it
//! was durable: cut off, and reported in [`Recovery`]) from corruption (durable bytes that changed: an
//! error that names them; nothing is cut). Format and recovery are drawn in `docs/log-format.md` and
//! `docs/recovery.md`.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod append;
mod clock;
mod commit;
mod crew;
mod error;
mod files;
mod held;
mod log;
mod open;
mod options;
mod read;
mod segment;
mod shim;
mod stats;
mod wait;

pub use clock::Clock;
pub use commit::heal::Checked;
pub use crew::{Crew, CrewOptions};
pub use error::{Corruption, Error, Result};
pub use files::retain::Retain;
pub use log::{LOCK, Log};
pub use open::mend::{Recovery, TornTail};
pub use options::{Ack, Options, Policy, Ring};
pub use read::follower::Follower;
pub use read::reader::{Reader, Record};
pub use read::view::{Dumped, SegmentReport, SegmentState, View};
pub use segment::damage::Damage;
pub use segment::format::{Frame, Kind, VERSION};
pub use segment::header::Header;
pub use segment::link::Link;
pub use stats::{Distribution, Event, Observer, Stats};
pub use wait::Wait;

/// The README's first program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
