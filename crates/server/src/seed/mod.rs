//! A node that lacks what the others have let go of is given it: chapters, a snapshot, and the log behind that.
//!
//! The leader tells a replica that it lacks what is not in the log any more (`cluster/behind.rs`). While that node goes on, its
//! shard is fetched from another node, beside what it has; once all of it is durable the node is to be opened again, and
//! puts it in place before its engines begin (`broker/seeded.rs`).
//!
//! | file | what |
//! | --- | --- |
//! | `seeding.rs` | [`Seeding`]: looks what a node lacks, and has it fetched, from whoever has it |
//! | `fetch.rs` | one shard, fetched as a backup is taken |
//! | `remote.rs` | the directory of another node, as a directory that is only read |
//! | `lender.rs` | what other nodes are given to read |
//! | `message.rs` | what is asked and answered, drawn |
//!
//! Invariants: nobody is given anything but files of shards. What is fetched is verified as a backup's is, by the hashes of
//! runs, the checksums of snapshots, manifests and entries. Files of the giver may change while they are read: that shows, and it is
//! begun again.

mod fetch;
mod lender;
mod message;
mod remote;
mod seeding;

pub use self::fetch::fetch;
pub use self::seeding::Seeding;

/// The door at which nodes ask for what they lack: no shard has this number.
const DOOR: u32 = u32::MAX - 1;
