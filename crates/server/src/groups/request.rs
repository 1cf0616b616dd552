//! What is asked of a coordinator. The names of errors and requests are Kafka's, the bytes are not
//! here.

use bytes::Bytes;

/// Names a request to the caller, who gives it; its answer comes under the same.
pub type Ticket = u64;

/// A way to assign partitions that a member can do, and what it says of itself for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// Such as `range`.
    pub name: String,
    /// For the member that assigns; not read here, but for its topics.
    pub metadata: Bytes,
}

/// A member would like to take part (`JoinGroup`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Which group.
    pub group: String,
    /// The member's id, empty if it has none.
    pub member: String,
    /// The name that it keeps over restarts (`group.instance.id`).
    pub instance: Option<String>,
    /// What the client calls itself.
    pub client: String,
    /// Where it is.
    pub host: String,
    /// How long it may be silent, in ms.
    pub session_ms: i32,
    /// How long it may take to come to a rebalance, in ms. Version 0 has the session's.
    pub rebalance_ms: i32,
    /// Such as `consumer`.
    pub protocol_type: String,
    /// What it can do, what it likes best first.
    pub protocols: Vec<Protocol>,
    /// Whether it must have its id before it is a member (from version 4).
    pub needs_id: bool,
}

/// A member asks what is assigned to it; the leader says what is assigned (`SyncGroup`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// Which group.
    pub group: String,
    /// The generation that it joined.
    pub generation: i32,
    /// Its id.
    pub member: String,
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
    /// What the leader assigns, by member id.
    pub assignments: Vec<(String, Bytes)>,
}

/// A member is alive (`Heartbeat`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Which group.
    pub group: String,
    /// The generation that it joined.
    pub generation: i32,
    /// Its id.
    pub member: String,
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
}

/// Members go (`LeaveGroup`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// Which group.
    pub group: String,
    /// Who.
    pub members: Vec<Leaver>,
}

/// One that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Its id; may be empty if it has an instance.
    pub member: String,
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
}

/// A partition, by its topic's name. The caller knows that it is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number.
    pub partition: i32,
}

/// Somebody says how far a group is (`OffsetCommit`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Which group.
    pub group: String,
    /// The member's generation; -1 if the group has no members.
    pub generation: i32,
    /// The member's id; empty if the group has no members.
    pub member: String,
    /// The name that it keeps over restarts.
    pub instance: Option<String>,
    /// How far, of each partition.
    pub offsets: Vec<(TopicPartition, Committing)>,
}

/// How far a group is in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committing {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last record that was read, -1 if unknown.
    pub epoch: i32,
    /// Comes back as it went in, none too.
    pub metadata: Option<String>,
    /// How long to keep it, if that is said (versions 2 to 4).
    pub retention_ms: Option<u64>,
}
