//! The log as a service: a broker that unmodified Kafka clients use.
//!
//! A *shard* is one consensus group on one Plimsoll log. It carries as many partitions as one likes:
//! a partition is a view of the shard and not a file, so what it costs does not grow with their
//! number. What is written together is synced and agreed on together.
//!
//! | room | what |
//! | --- | --- |
//! | `kafka` | the wire: what clients send and are answered, as bytes and values |
//! | `chapter` | where records live once they are settled, sorted by partition |
//! | `control` | what a cluster intends: topics, their settings, and where partitions are to be |
//! | `shard` | what a shard agrees on, and what that makes of its partitions: pure functions |
//! | `groups` | the coordinator of consumer groups, and what it has agreed on: pure functions |
//! | `client` | the other end: a small blocking client, for our own commands |
//! | `net` | sockets of clients |
//! | `peer` | how two brokers of a cluster talk: opaque requests and answers |
//! | `http` | what an operator sees: health, metrics, topics, a page |
//! | `cluster` | the only door to the consensus engine, and its log on ours |
//! | `backup` | a broker's data, kept in another directory, and brought back |
//! | `seed` | a node that lacks what the others have let go of is given it |
//! | `run` | what the last run of this broker left, and what is therefore known |
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod api;
pub mod backup;
pub mod broker;
pub mod chapter;
pub mod client;
pub mod cluster;
pub mod control;
mod cursor;
pub mod groups;
pub mod http;
pub mod kafka;
pub mod net;
pub mod peer;
mod random;
pub mod run;
pub mod seed;
pub mod shard;
mod whole;
