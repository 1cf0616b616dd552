//! A node: its shards, opened in a directory, each led by a task, and what is asked of them together.
//!
//! ```text
//! DIR/lock           one process at a time
//! DIR/cluster        the id of the cluster, and its checksum
//! DIR/shard-0        control: what topics there are to be         durable before it is answered
//! DIR/shard-1        groups: members, and committed offsets       durable before it is answered
//! DIR/shard-2        records of topics that are synced in the background
//! DIR/shard-3        records of topics with flush.messages=1      durable before they are answered
//! DIR/state-N        what the entries of shard N made, up to one of them
//! DIR/chapters-N     what is settled of shard N: see `chapter/`
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `node.rs` | [`Node`]: all of it, opened and closed |
//! | `task.rs` | work of a shard that ends with it |
//! | `opening.rs` | waiting for what a node does before anybody can ask it |
//! | `layout.rs` | the numbers of shards, what lies where, and the name that a directory was given |
//! | `options.rs` | what a node is opened with |
//! | `data.rs` | a shard of records: its group, its replica, its leader's door |
//! | `replica.rs` | what a shard's entries have made here, and who waits for more |
//! | `leadership.rs` | how a replica of a shard comes to lead, and stops |
//! | `leader.rs` | has a shard of records agree on batches and acts, while it leads |
//! | `snapshot.rs` | the state of a shard in a file |
//! | `keeper.rs` | the task that writes it, and lets the log go |
//! | `compactor.rs` | the task that keeps the newest record of each key |
//! | `ends.rs` | how work on another thread is told to end |
//! | `scrubber.rs` | reads every chapter again now and then |
//! | `settler.rs` | the task that writes chapters, and has go what is past its retention in them |
//! | `room.rs` | whether the disk has room for records |
//! | `read.rs` | reading a partition, from memory or from the log |
//! | `lately.rs` | what was read from the log lately |
//! | `topics.rs` | the control shard: what topics there are to be |
//! | `controller.rs` | what the controller does for other nodes, drawn |
//! | `intended.rs` | what control intends, and having it done in a shard of records by whoever leads that |
//! | `deleting.rs` | topics that go: what is done of it by each leader |
//! | `coordinator.rs` | the groups' shard, and the task that coordinates |
//! | `look.rs` | what lies in a directory, looked at from outside: nothing is changed |
//! | `overview.rs` | what a node is doing, as values for whoever looks at it from outside |
//! | `error.rs` | what a node cannot go on without |
//! | `members.rs` | who is in the cluster, as clients see it |
//! | `await_record.rs` | waiting until one record is as safe as somebody wants it |
//!
//! Tasks that belong to a shard run on the runtime of its engine: an entry that nobody waits for a
//! disk for costs no wake-up of a thread. What waits for a disk runs elsewhere.

mod await_record;
mod compactor;
mod company;
mod controller;
mod coordinator;
mod data;
mod deleting;
mod ends;
mod error;
mod intended;
mod keeper;
mod lately;
pub(crate) mod layout;
mod leader;
mod leadership;
mod look;
mod members;
mod node;
mod opening;
mod options;
mod overview;
mod read;
mod replica;
mod room;
mod scrubber;
mod settler;
mod snapshot;
mod task;
#[cfg(test)]
mod three;
mod throttle;
mod topics;

pub use self::await_record::{Level, NoRecord};
pub(crate) use self::coordinator::Asked;
pub(crate) use self::data::{DataShard, Ends};
pub use self::error::Failed;
pub(crate) use self::layout::{CONTROL, GROUPS, ID_DIGITS as CLUSTER_DIGITS, SHARED};
pub use self::layout::{cluster_in, found};
pub(crate) use self::leader::Appended;
pub(crate) use self::leadership::Leader;
pub use self::look::{Names, chapters_in, names_in, snapshot_of};
pub use self::members::{Member, Members};
pub use self::node::Node;
pub use self::options::{Options, Promise, Seat};
pub use self::overview::{
    ChaptersOverview, GapOverview, GroupOverview, PartitionOverview, SettingOverview,
    ShardOverview, TopicDetails, TopicOverview, Totals,
};
pub(crate) use self::read::{Read, Reading};
pub(crate) use self::snapshot::Snapshot;
pub(crate) use self::topics::Refused;
