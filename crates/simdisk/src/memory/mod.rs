//! The disk in memory: [`SimDir`], a directory that forgets, tears and fails on demand.
//!
//! ```text
//!   SimDir, SimFile      the seam: what a caller asks
//!        │
//!     Machine            numbers each operation, meets it with a fault, records it
//!        │
//!      Disk              names and files: page cache, device cache, medium; pure
//!        │
//!   crash, failure       one state that a crash, or a failed operation, may leave of it, by a seed
//! ```

mod crash;
mod directory;
mod disk;
mod failure;
mod fault;
mod file;
mod fs;
mod history;
mod inode;
mod machine;
mod moment;
mod options;
mod room;
mod watcher;

pub use fault::{Fault, FaultKind, Operation};
pub use fs::SimDir;
pub use history::Step;
pub use moment::Moment;
pub use options::{DiskOptions, FillsAt, Overwriting, Persistence, Tear};
