//! The wire: what Kafka clients send and are answered, as bytes and values. No I/O.
//!
//! ```text
//! bytes received ──► frame::take ──► Request::decode ──► Header, Request
//!                                                          Batch::produced (records of a Produce)
//! pieces to send ◄── Response::encode ◄────────────────── Response
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `band.rs` | which APIs are spoken, in which versions: one table |
//! | `frame.rs` | where a request begins and ends, and its header |
//! | `message/` | what requests and responses say, a file for each family of APIs |
//! | `batch.rs` | a record batch: its header checked and stamped, its records never looked at |
//! | `records.rs` | the records of a batch, for those who must know them, and a batch of records |
//! | `compression.rs` | how they are compressed; decompressed up to a bound |
//! | `error.rs` | the codes in answers, and what a client does |
//! | `tags.rs` | fields that are told only where they say something |
//! | `wire.rs` | numbers, texts, bytes, arrays and tags |
//! | `value.rs` | bytes in several pieces, and ids of topics |
//!
//! **Invariant:** what a frame makes us allocate is bounded by its own bytes, and by
//! [`wire::ITEMS_MAX`], whatever it says. **Invariant:** records are slices of the frame they came
//! in, and pieces of the frame they leave in: not copied, and decompressed by `records.rs` alone.
//! **Deliberately absent:** transactions, consumer groups of the next protocol (KIP-848), flexible
//! versions where no client needs them.

pub mod band;
pub mod batch;
pub mod compression;
pub mod error;
pub mod frame;
pub mod message;
pub mod records;
mod tags;
#[cfg(test)]
mod tests;
pub mod value;
pub mod wire;
