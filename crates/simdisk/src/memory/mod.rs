//! The disk in memory: [`SimDir`], a directory that forgets, tears and fails on demand.
//!
//! ```text
//!   SimDir, SimFile      the seam: what a caller asks
//!        │
//!     Machine            numbers each operation, meets it with a fault, records it
//!        │
//!      Disk              names and files: page cache, device cache, medium; pure
//!        │
//!      crash             one state that a crash may leave of it, by a seed
//! ```

mod crash;
mod directory;
mod disk;
mod fault;
mod file;
mod fs;
mod history;
mod inode;
mod machine;
mod moment;

pub use fault::{Fault, FaultKind, Operation, Times};
pub use fs::{DiskOptions, Persistence, SimDir, Tear};
pub use history::Step;
pub use moment::Moment;
