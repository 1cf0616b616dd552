//! A disk that forgets, tears and fails on demand, the same way every time.
//!
//! [`SimDir`] implements [`plimsoll_sync::Dir`] in memory and passes the same contract as the real
//! disk. Unless told otherwise ([`Persistence`]) it is pessimistic: it keeps what POSIX and the sync
//! methods promise, and nothing that filesystems merely happen to do.
//!
//! * [`SimDir::crash`] returns one of the states that a crash could leave, chosen by a seed, as
//!   another `SimDir`; the first goes on. Each write, length change and directory entry that is not
//!   durable survives or not by itself, and writes tear ([`Tear`]).
//! * [`SimDir::inject`] makes operations fail, end early or lie ([`Fault`]). After a failed sync the
//!   disk behaves as Linux does: a retry would succeed and the bytes would be lost.
//! * [`SimDir::stop_at`] stops the machine between two operations, so that every moment of a run
//!   can be visited.
//! * [`SimDir::watch`] shows every moment of a run as it passes, so that each can be crashed while the
//!   run goes on.
//! * It has directories in directories, whose names must be synced too, and is full when its capacity is
//!   used up: in place or where bytes that are overwritten need room again ([`Overwriting`]), at the
//!   write or at the sync ([`FillsAt`]).
//! * [`SimDir::history`] tells what was done. The same operations, faults and seeds give the same
//!   history and the same crash states, on every machine.
//!
//! ```
//! use plimsoll_sync::{Dir, File, SyncMethod, System};
//! use plimsoll_simdisk::{DiskOptions, SimDir};
//!
//! let dir = SimDir::with(DiskOptions { system: System::Linux, ..DiskOptions::default() });
//! let method = SyncMethod::Fsync;
//! let file = dir.create("accounts", method.access())?;
//! file.write_sync_at(b"balance: 7", 0, method)?;
//! file.write_at(b"balance: 8", 0)?; // not synced
//!
//! for seed in 0..100 {
//!     let found = dir.power_cut(seed).open("accounts", method.access())?;
//!     let mut bytes = [0; 10];
//!     found.read_at(&mut bytes, 0)?;
//!     assert!(&bytes == b"balance: 7" || &bytes == b"balance: 8");
//! }
//! # Ok::<(), plimsoll_sync::Error>(())
//! ```
//!
//! What it does not show: real filesystems and their journals, broken firmware, reordering inside
//! one sector, and time.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod armed;
pub mod block;
mod memory;
#[cfg(all(feature = "mounted", target_os = "linux"))]
pub mod mounted;
mod sparse;
mod tier;

pub use armed::Times;
pub use memory::{
    DiskOptions, Fault, FaultKind, FillsAt, Moment, Operation, Overwriting, Persistence, SimDir,
    Step, Tear,
};
pub use tier::{Tier, TierState};
