//! Chapters: where records live once they are settled, sorted by partition.
//!
//! A shard's log is short. The leader ends a *chapter* of it by an entry; once that is durable each replica writes
//! the range again, sorted by partition, in a file that never changes: of each partition a *run*, its batches
//! as they came, with an index of blocks and hashes. A manifest names the files; only then the log may go. Who
//! reads behind the log reads runs, in large pieces, and everything that is read is verified.
//!
//! ```text
//! DIR/chapters-N/manifest           which files are the chapters of shard N
//! DIR/chapters-N/00000001.chapter   runs of one chapter, or of several that were merged
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `format.rs` | the bytes of a chapter's file, drawn |
//! | `writer.rs` | a range of the log, written again sorted by partition |
//! | `reader.rs` | a file of runs, opened to be read |
//! | `manifest.rs` | which files are the chapters of a shard, drawn |
//! | `gone.rs` | which runs of a file are not read any more |
//! | `books.rs` | what is on a shelf: files, and of each run a few words |
//! | `shelf.rs` | the chapters of a shard: which runs each partition has; settled, read, freed |
//! | `compact.rs` | of each key of a partition the newest record |
//! | `merge.rs` | what is left of some files, in one |
//! | `survey.rs` | the chapters of a shard looked at from outside: nothing is changed |
//! | `error.rs` | why a chapter cannot be written or read |
//!
//! Invariants: what the manifest names is durable. The content of a run is a function of the log: equal on every
//! replica, whenever it was settled, until it is compacted. A run is freed only once a durable snapshot of the shard says
//! that it is deleted, or a durable manifest has a compacted one in its place.

mod books;
mod compact;
mod error;
mod format;
mod gone;
mod manifest;
mod merge;
mod reader;
mod shelf;
mod survey;
mod writer;

pub use books::Size;
pub use error::Error;
pub use format::{BLOCK_BYTES, Block, Footer, Run, VERSION};
pub use gone::Gone;
pub use manifest::{Manifest, NAME as MANIFEST, Named, Settled};
pub use reader::Chapter;
pub use shelf::Shelf;
pub use survey::{Damage, Found, Opened, Survey, Why};
pub use writer::{Plan, Writer};
