//! What "durable" means on this machine, and the only door to the disk.
//!
//! * [`Dir`] and [`File`] are the seam: the real machine ([`OsDir`]) and the simulated disk of
//!   plimsoll-simdisk both implement it, and both pass one contract suite (feature `contract`).
//! * [`SyncMethod`] names every way to make a write durable; [`Promise`] says what each promises.
//!   Methods of different promise classes are never ranked together.
//! * [`probe()`] finds out which methods work in a directory, by trying.
//! * A failed write or sync is final for its file: see [`latch`].
//!
//! ```
//! use plimsoll_sync::{Dir, OsDir, Promise, SyncMethod};
//! # let tmp = tempfile::tempdir()?;
//! # let path = tmp.path();
//! let dir = OsDir::open(path)?;
//! let method = SyncMethod::Fsync;
//! let file = dir.create("accounts", method.access())?; // the entry is durable
//! let kept = file.write_sync_at(b"balance: 7", 0, method)?; // and now the bytes are
//! # #[cfg(target_os = "linux")]
//! assert_eq!(kept, Promise::Media);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod aligned;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
pub mod latch;
mod method;
mod os;
mod probe;
mod promise;
pub mod risky;
mod vfs;

pub use aligned::AlignedBuf;
pub use error::{Error, Result};
pub use method::{Access, SyncMethod, System, Through};
pub use os::{
    Batch, BatchWrite, Batched, Held, OsDir, Process, Words, boot_id, device_number, finest_timer,
    keep_freed_memory, space, step_back, thread_cpu_time,
};
#[cfg(target_os = "linux")]
pub use os::{BlockWrites, LoopDevice, start_write_out};
pub use probe::{Availability, probe};
pub use promise::{Crash, Promise};
pub use vfs::{Allocation, Dir, File, Lock, Overwrite, Space};
