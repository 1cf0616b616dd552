//! Chapters: where records live once they are settled, sorted by partition.
//!
//! A shard's log is short. The leader ends a *chapter* of it by an entry; once that is durable each replica writes
//! the range again, sorted by partition, in a file that never changes: of each partition a *run*, its batches
//! as they came, with an index of blocks and hashes. A manifest names the files; only then the log may go. Who
//! reads behind the log reads runs, in large pieces, and everything that is read is verified.
//!
//! ```text
//! DIR/chapters-N/manifest           which files are the chapters of shard N
//! DIR/chapters-N/roll-up            which partition is in which chapters
//! DIR/chapters-N/hot                where they were read last, when the node was stopped
//! DIR/chapters-N/00000001.chapter   runs of one chapter, or of several that were merged
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `format.rs` | the bytes of a chapter's file, drawn |
//! | `writer.rs` | a range of the log, written again sorted by partition |
//! | `reader.rs` | a file of runs, opened to be read |
//! | `manifest.rs` | which files are the chapters of a shard, drawn |
//! | `ranges.rs` | a set of numbers: runs of a file that are not read any more, chapters of a partition |
//! | `table.rs` | the runs of a file, sorted: where to look for one |
//! | `lookup.rs` | a run, found by its name |
//! | `books.rs` | what is in memory of a shelf: files, and of each partition a few words |
//! | `rollup.rs` | the same in a file, drawn, so that a start reads no tables |
//! | `shelf.rs` | the chapters of a shard: which runs each partition has; settled, and read |
//! | `free.rs` | what is past its retention, and what is deleted: it leaves the shelf |
//! | `merge.rs` | what is left of some files, in one |
//! | `compaction.rs` | a partition on the shelf that is compacted |
//! | `compact.rs` | of each key of a partition the newest record |
//! | `piece.rs` | a part of a run, as one replica gives it to another, drawn |
//! | `heal.rs` | what is damaged, put right by what another replica has |
//! | `reread.rs` | all of a shelf, read again |
//! | `hot.rs` | where a shelf was read last, drawn |
//! | `warm.rs` | a start reads on from there |
//! | `mirror.rs` | the runs of a shelf, copied into another directory: those that it lacks |
//! | `survey.rs` | the chapters of a shard looked at from outside: nothing is changed |
//! | `scrub.rs` | the same, file by file past the page cache, while a node goes on |
//! | `error.rs` | why a chapter cannot be written or read |
//!
//! Invariants: what the manifest names is durable. The content of a run is a function of the log: equal on every
//! replica, whenever it was settled, until it is compacted. A run is freed only once a durable snapshot of the shard says
//! that it is deleted, or a durable manifest has a compacted one in its place.

mod books;
mod compact;
mod compaction;
mod error;
mod format;
mod free;
mod heal;
mod hot;
mod lookup;
mod manifest;
mod merge;
mod mirror;
mod piece;
mod ranges;
mod reader;
mod reread;
mod rollup;
mod scrub;
mod shelf;
mod survey;
mod table;
mod warm;
mod writer;

pub use books::Size;
pub use error::Error;
pub use format::{BLOCK_BYTES, Block, Footer, Run, VERSION};
pub use free::Expiring;
pub use heal::{Broken, Healing};
pub use manifest::{Manifest, NAME as MANIFEST, Named, Settled};
pub use mirror::Filled;
pub(crate) use mirror::{Mirror, Wanted};
pub use piece::Piece;
pub use ranges::Ranges;
pub use reader::Chapter;
pub use reread::Reread;
pub use scrub::Scrub;
pub use shelf::Shelf;
pub use survey::{Damage, Found, Opened, Survey, Why};
pub use writer::{Plan, Writer};
