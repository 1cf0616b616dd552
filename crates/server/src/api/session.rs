//! [`Session`]: who asks, and of which node.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::watch;

use super::budget::Budget;
use super::hints::LeaderHint;
use crate::broker::{DataShard, Ends, Leader, Member, Node, Stays, Whereabouts};
use crate::control::{Catalog, FlushClass, Topic};
use crate::kafka::error::ErrorCode;
use crate::shard::Opening;

/// The isolation level `read_committed`.
pub(super) const READ_COMMITTED: i8 = 1;

/// A connection's view of its node. All its requests share one.
#[derive(Debug, Clone)]
pub(crate) struct Session(Arc<Connected>);

/// Who is connected, and to what.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) node: Arc<Node>,
    /// The number of the connection.
    pub(crate) connection: u64,
    /// Where the client is.
    pub(crate) peer: Arc<str>,
    /// Where clients are told to find the node.
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
    /// The memory of all sessions.
    pub(crate) budget: Arc<Budget>,
    /// True once the node is about to close: nobody waits for more then.
    pub(crate) stop: watch::Receiver<bool>,
    /// True once nobody is served any more. Held by all that hold the node for a client, also where its
    /// connection is gone.
    pub(crate) ended: watch::Receiver<bool>,
}

impl Session {
    pub(crate) fn of(connected: Connected) -> Self {
        Self(Arc::new(connected))
    }
}

impl Deref for Session {
    type Target = Connected;

    fn deref(&self) -> &Connected {
        &self.0
    }
}

/// Where a partition is, and what holds for it.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) shard: Arc<DataShard>,
    pub(crate) opening: Opening,
    /// Where it was before.
    pub(crate) stays: Stays,
    pub(crate) settings: Applied,
}

impl Located {
    /// The offsets of the partition, where it is led from here.
    pub(crate) fn ends(&self) -> Result<Ends, ErrorCode> {
        if !self.shard.is_read_here() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let ends = match self.copies_wanted() {
            None => self.shard.ends(self.opening),
            Some(copies) => self.shard.ends_with(self.opening, copies),
        };
        ends.map(|ends| self.with_stays(ends)).ok_or_else(|| self.not_here())
    }

    /// The same where the partition was in other shards before.
    pub(crate) fn with_stays(&self, ends: Ends) -> Ends {
        Ends { start: self.stays.start(ends.start), ..ends }
    }

    /// What a client is told where the partition is not in its shard.
    pub(crate) fn not_here(&self) -> ErrorCode {
        match self.opening.number {
            1 => ErrorCode::UnknownTopicOrPartition,
            // It comes from another shard in a moment.
            _ => ErrorCode::NotLeaderOrFollower,
        }
    }

    /// The oldest offset that can be read.
    pub(crate) fn start(&self) -> Result<i64, ErrorCode> {
        let own = self.shard.start(self.opening).ok_or_else(|| self.not_here())?;
        Ok(self.stays.start(own))
    }

    /// The offset that a client reads up to: of what is acknowledged, or with `read_committed` of what is
    /// stable.
    pub(crate) fn end(&self, ends: Ends, isolation_level: i8) -> i64 {
        match isolation_level {
            READ_COMMITTED if self.settings.committed_is_durable => ends.durable.min(ends.visible),
            _ => ends.visible,
        }
    }

    /// How many copies a record must have before it is acknowledged and seen, where that is more than being committed takes.
    pub(crate) fn copies_wanted(&self) -> Option<usize> {
        let copies = self.settings.copies;
        // The default asks for nothing, and then nothing is looked up.
        (copies > 1 && self.shard.group.is_above_majority(copies)).then_some(copies)
    }
}

/// What of a topic's settings requests look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applied {
    /// `read_committed` reads what is durable.
    pub(crate) committed_is_durable: bool,
    /// A record is acknowledged once it is durable.
    pub(crate) waits_for_disk: bool,
    /// A sync of a record begins so soon.
    pub(crate) flush_ms: Option<u64>,
    pub(crate) append_timestamps: bool,
    /// Of each key the newest record stays.
    pub(crate) is_compacted: bool,
    /// A record is acknowledged once so many voters have it, and a majority has.
    pub(crate) copies: usize,
}

/// A node, as clients are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
    pub(crate) rack: Option<String>,
}

impl Session {
    /// This node, as clients know it.
    pub(crate) fn here(&self) -> i32 {
        kafka_id(self.node.members().here())
    }

    /// All nodes that clients may connect to.
    pub(crate) fn brokers(&self) -> Vec<Broker> {
        let known = self.node.members().known();
        known.iter().filter_map(|(id, member)| self.broker_of(*id, member)).collect()
    }

    /// Who leads, if a client can connect to it.
    pub(crate) fn broker(&self, leader: Leader) -> Option<Broker> {
        let members = self.node.members();
        let id = leader.id(members.here())?;
        self.broker_of(id, members.known().get(&id)?)
    }

    /// Its id, as a client is told.
    pub(crate) fn id_of(&self, leader: Leader) -> i32 {
        self.broker(leader).map_or(-1, |broker| broker.id)
    }

    fn broker_of(&self, id: u64, member: &Member) -> Option<Broker> {
        let (host, port) = match &member.host {
            Some(host) => (host.clone(), member.port),
            None if id == self.node.members().here() => (self.host.to_string(), self.port),
            None => return None,
        };
        Some(Broker { id: kafka_id(id), host, port: port.into(), rack: member.rack.clone() })
    }

    /// The nodes that vote on the partitions of a shard. Clients and tools take the first to be the one that is preferred to lead.
    pub(crate) fn replicas(&self, shard: &DataShard) -> Vec<u64> {
        let mut voters = shard.group.voters();
        let preferred = self.node.topics.preferred(shard);
        let first = voters.iter().position(|id| Some(*id) == preferred).unwrap_or(0);
        voters.rotate_left(first);
        voters
    }

    /// Where a partition takes records.
    pub(crate) fn locate(
        &self,
        catalog: &Catalog,
        topic: &str,
        number: i32,
    ) -> Result<Located, ErrorCode> {
        let unknown = ErrorCode::UnknownTopicOrPartition;
        let (_, found) = catalog.find(topic).ok_or(unknown)?;
        let number = u32::try_from(number).map_err(|_negative| unknown)?;
        let placed = self.node.topics.find(catalog, topic, number);
        let Whereabouts { shard, opening, stays } = placed.ok_or(unknown)?;
        Ok(Located { shard, opening, stays, settings: self.applied(found) })
    }

    /// Who leads a partition, as far as is known here, if clients can connect to it.
    pub(super) fn leader(&self, topic: &str, number: i32) -> Option<LeaderHint> {
        let at = self.locate(&self.node.topics.catalog(), topic, number).ok()?;
        let epoch = at.shard.ends(at.opening)?.epoch;
        let broker = self.broker(self.node.leader_of(&at.shard))?;
        let port = u16::try_from(broker.port).ok()?;
        Some(LeaderHint { node: broker.id, epoch, host: broker.host, port, rack: broker.rack })
    }

    fn applied(&self, topic: &Topic) -> Applied {
        let settings = &topic.settings;
        let knee = self.node.options.knee.filter(|_| settings.flushes_at_the_knee());
        let knee = knee.and_then(|knee| u64::try_from(knee.as_millis()).ok());
        let of_partition = settings.of_partition();
        Applied {
            committed_is_durable: settings.committed_is_durable(),
            waits_for_disk: settings.flush_class() == FlushClass::Durable,
            flush_ms: settings.flush_ms().into_iter().chain(knee).min(),
            append_timestamps: of_partition.append_timestamps,
            is_compacted: of_partition.compaction.is_some(),
            copies: settings.copies(),
        }
    }
}

/// The id of a node, as clients are told.
pub(crate) fn kafka_id(id: u64) -> i32 {
    i32::try_from(id).expect("a cluster gives its nodes small ids")
}

/// Whether a client's leader epoch is that of the partition; -1 is any.
pub(crate) fn check_epoch(clients: i32, ours: i32) -> Result<(), ErrorCode> {
    match clients {
        -1 => Ok(()),
        _ if clients < ours => Err(ErrorCode::FencedLeaderEpoch),
        _ if clients > ours => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}
