//! The other end: a small blocking client, for our own commands. It speaks to any Kafka broker.
//!
//! | file | what |
//! | --- | --- |
//! | `connection.rs` | one connection: versions are agreed on, then a request and its answer |
//! | `cluster.rs` | which broker is asked what: leader, coordinator or controller |
//! | `member.rs` | a consumer in a group: joins, beats, commits and leaves |
//! | `error.rs` | what went wrong, grouped by what its user can do |
//!
//! **Deliberately absent:** transactions, TLS, several requests at once.

mod cluster;
mod connection;
mod error;
mod member;
#[cfg(test)]
mod tests;

pub use cluster::Cluster;
pub use connection::Connection;
pub use error::Error;
pub use member::Member;
