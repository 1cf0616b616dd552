//! What a cluster intends: topics, their settings, and in which shards their partitions are to be.
//!
//! Control *intends*, a data shard *decides*: the catalog says that a partition is to be open in a
//! shard; it is once that shard has applied its `Open`. Two logs have no common order, so neither waits
//! for the other: [`reconcile`] compares the catalog with a shard's state, and names what is left to
//! do there; where nothing is left, it names nothing.
//!
//! Invariants: a change is durable before it is answered. A topic's id and the leader epochs that its
//! name had are never used again: each opening begins above a *floor* that only rises.
//!
//! | file | what |
//! | --- | --- |
//! | `catalog.rs` | the topics, and what a change does to them |
//! | `change.rs` | the bytes of a change, drawn |
//! | `settings.rs` | what can be set for a topic, with its default and what it means here |
//! | `reconcile.rs` | what is left to do in a shard |
//! | `names.rs` | what a topic may be called |

mod catalog;
mod change;
mod names;
mod reconcile;
mod settings;

pub use catalog::{Catalog, Extent, Impossible, Topic};
pub use change::{Arrival, Change, LEVEL, PARTITIONS_MAX, SETTING_BYTES_MAX};
pub use names::{InvalidName, TOPIC_NAME_BYTES_MAX, check_name};
pub use reconcile::{Coming, Left, coming, reconcile, reconcile_topics};
pub use settings::{FlushClass, InvalidSetting, SETTINGS, Setting, TopicSettings};
