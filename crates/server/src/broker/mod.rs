//! A node: its shards, opened in a directory, each led by a task, and what is asked of them together.
//!
//! ```text
//! DIR/lock           one process at a time
//! DIR/cluster        the id of the cluster, and its checksum
//! DIR/shard-0        control: what topics there are to be         durable before it is answered
//! DIR/shard-1        groups: members, and committed offsets       durable before it is answered
//! DIR/shard-2, 4, 6  records of topics that are synced in the background
//! DIR/shard-3        records of topics with flush.messages=1      durable before they are answered
//! DIR/state-N        what the entries of shard N made, up to one of them
//! DIR/chapters-N     what is settled of shard N: see `chapter/`
//! DIR/known-N        the C and the D of shard N that were known a while ago, and what this node had of it
//! DIR/met            which starts of other nodes it has met
//! DIR/damaged-N      the log of shard N as it was found damaged, and its snapshot where that goes too, until the others have given
//!                    back what it lacks
//! DIR/loss-N         that shard N goes on after a loss: see `decided.rs`
//! DIR/seed-N         what this node is being given of shard N, but for files that lie beside their places: see `seeded.rs`
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `node.rs` | [`Node`]: all of it, and how it is closed |
//! | `opening.rs` | how it is opened: what the last run has left is judged, then it serves, then it meets the others |
//! | `chores.rs` | what a node does beside its shards, as long as it is open |
//! | `task.rs` | work of a shard that ends with it |
//! | `waiting.rs` | waiting for what a node does before anybody can ask it |
//! | `layout.rs` | the numbers of shards, what lies where, and the name that a directory was given |
//! | `options.rs` | what a node is opened with |
//! | `data.rs` | a shard of records: its group, its replica, its leader's door |
//! | `replica.rs` | what a shard's entries have made here, and who waits for more |
//! | `leadership.rs` | how a replica of a shard comes to lead, and stops |
//! | `placement.rs` | which nodes vote in which shard, and which is to lead it: pure |
//! | `leaders.rs` | which node leads which shard, and having another do so |
//! | `lead.rs`, `unmet.rs` | what a node says of what it leads, drawn; topics that it refuses for want of replicas in sync |
//! | `needed.rs` | why a shard would not go on at once without a node: pure |
//! | `operators.rs`, `operators_door.rs` | what nodes ask each other for an operator's sake, drawn; who answers it |
//! | `recovery.rs`, `row.rs`, `roll.rs`, `decided.rs`, `known.rs` | a shard goes on after a loss; what a node says of it, and what follows from what all say, drawn; what was decided, and what was known before, as files |
//! | `registrar.rs` | which nodes the cluster has: who comes, and who goes |
//! | `leader.rs` | has a shard of records agree on batches and acts, while it leads |
//! | `throttle.rs`, `lag.rs` | how fast records are taken while chapters wait, or disks are behind |
//! | `snapshot.rs` | the state of a shard in a file |
//! | `keeper.rs` | the task that writes it, and lets the log go |
//! | `compactor.rs` | the task that keeps the newest record of each key |
//! | `ends.rs` | how work on another thread is told to end |
//! | `scrubber.rs` | reads every chapter of a shard again, and its log, now and then or when it is asked to |
//! | `scrubs.rs`, `scrubbed.rs` | an operator has every node do that; what each says of it, drawn |
//! | `mender.rs`, `giver.rs`, `repair.rs` | what is damaged in chapters is asked of other nodes; what gives it there; and how that is said, drawn |
//! | `settler.rs` | the task that writes chapters, and has go what is past its retention in them |
//! | `room.rs` | whether the disk has room for records |
//! | `ailing.rs` | the disk has failed under one shard: all lead elsewhere |
//! | `read.rs`, `reading.rs` | reading a partition, from memory or from the log; what is asked for |
//! | `lately.rs` | what was read from the log lately |
//! | `topics.rs` | the control shard: what topics there are to be |
//! | `controller.rs`, `desk.rs` | what other nodes ask the controller for, drawn; and how it does that |
//! | `agreed.rs` | what becomes of a change, and why one is refused |
//! | `intended.rs` | what control intends, and having it done in a shard of records by whoever leads that |
//! | `acked.rs` | up to where the entries of a shard were durable and acknowledged, in memory that outlives the process |
//! | `damaged.rs` | what a disk has lost of a log is met at the start, and cut off |
//! | `kept.rs` | what was there of it then, for as long as it may be needed |
//! | `anew.rs` | a shard of which nothing can be used begins with nothing, and is given all of it |
//! | `aside.rs` | files that get their names later, as what is given has |
//! | `seeded.rs` | what a node was given of a shard is put in place |
//! | `deleting.rs` | topics that go: what is done of it by each leader |
//! | `moving.rs` | partitions that go on in other shards: what is done of it by whom |
//! | `stays.rs` | where a partition was before it moved, and what lies there |
//! | `neighbours.rs` | the replicas of all shards of a node: what a partition left in one another has to know |
//! | `coordinator.rs` | the groups' shard, and the task that coordinates |
//! | `doubts.rs` | why a replica may lack something, as its directory says |
//! | `look.rs` | what lies in a directory, looked at from outside: nothing is changed |
//! | `overview.rs` | what a node is doing, as values for whoever looks at it from outside |
//! | `error.rs` | what a node cannot go on without |
//! | `memory.rs` | what a node has in memory that outlives its process |
//! | `members.rs` | who is in the cluster, as clients see it |
//! | `domains.rs` | whether one failure takes a majority of the voters |
//! | `await_record.rs` | waiting until one record is as safe as somebody wants it |
//!
//! Tasks that belong to a shard run on the runtime of its engine: an entry that nobody waits for a
//! disk for costs no wake-up of a thread. What waits for a disk runs elsewhere.

mod acked;
mod agreed;
mod ailing;
mod anew;
pub(crate) mod aside;
mod await_record;
mod chores;
mod compactor;
mod company;
mod controller;
mod coordinator;
mod damaged;
mod data;
mod decided;
mod deleting;
mod desk;
mod domains;
mod doubts;
mod ends;
mod error;
mod giver;
mod intended;
mod keeper;
mod kept;
mod known;
mod lag;
mod lately;
pub(crate) mod layout;
mod lead;
mod leader;
mod leaders;
mod leadership;
mod look;
mod members;
mod memory;
mod mender;
mod met;
mod moving;
mod needed;
mod neighbours;
mod node;
mod opening;
mod operators;
mod operators_door;
mod options;
mod overview;
mod placement;
mod read;
mod reading;
mod recovery;
mod registrar;
mod repair;
mod replica;
mod roll;
mod room;
mod row;
mod scrubbed;
mod scrubber;
mod scrubs;
pub(crate) mod seeded;
mod settler;
mod snapshot;
mod stays;
mod task;
#[cfg(test)]
mod three;
mod throttle;
mod topics;
mod unmet;
mod waiting;

pub(crate) use self::agreed::Refused;
pub use self::await_record::{Level, NoRecord};
pub(crate) use self::company::Door;
pub(crate) use self::coordinator::Asked;
pub(crate) use self::data::{DataShard, Ends};
pub(crate) use self::domains::DomainsOverview;
pub(crate) use self::doubts::{doubts_of, durable_of};
pub use self::error::Failed;
pub(crate) use self::error::sentence;
pub(crate) use self::layout::{CONTROL, DURABLE, GROUPS, ID_DIGITS as CLUSTER_DIGITS, SHARED};
pub use self::layout::{SHARDS, cluster_in, found};
pub(crate) use self::leader::Appended;
pub use self::leaders::{DRAINS_WITHIN, Drained, NotLed};
pub(crate) use self::leadership::Leader;
pub use self::look::{Names, chapters_in, names_in, snapshot_of};
pub use self::members::{Member, Members};
pub use self::node::Node;
pub use self::operators::Said;
pub use self::options::{OnMajorityDirty, Options, Promise, Seat};
pub use self::overview::{
    ChaptersOverview, GapOverview, GroupOverview, PartitionOverview, SettingOverview,
    ShardOverview, TopicDetails, TopicOverview, Totals,
};
pub(crate) use self::read::Read;
pub(crate) use self::reading::Reading;
pub use self::recovery::{GoesOn, NotRecovered};
pub use self::registrar::{Joined, NotChanged};
pub use self::roll::{Condition, Roll};
pub use self::row::Row;
pub use self::scrubbed::Scrubbed;
pub use self::scrubber::Phase;
pub(crate) use self::scrubs::Scrubs;
pub use self::scrubs::{Begun, NodeScrubs};
pub(crate) use self::snapshot::Snapshot;
pub(crate) use self::stays::{Lies, Stays, Whereabouts};
pub use self::unmet::Unmet;
