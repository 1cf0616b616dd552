//! Measures what durability costs on this disk, whether it is kept, and where the time goes.
//!
//! From [`session::Options`] through the [`runner`] (interleaved arms) to samples, [`summary`],
//! [`warning`] and [`report`]; each stage is a file, results are saved as they come ([`result`]),
//! and reports are made from saved results.
//!
//! An [`experiment`] is a question with arms; [`experiments::ALL`] lists them. What makes the numbers
//! trustworthy is in [`stats`] (no distribution assumed), [`attribution`] (where the time went),
//! [`verdict`] (did it really sync, and was it left in peace).
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod arm;
pub mod attribution;
pub mod claim;
pub mod compare;
pub mod conclusion;
pub mod conditions;
pub mod counters;
pub mod device;
pub mod durability_profile;
pub mod environment;
mod error;
pub mod experiment;
pub mod experiments;
pub mod harness;
pub mod ladder;
pub mod layout;
pub mod mount;
pub mod pace;
mod pairing;
pub mod report;
pub mod result;
pub mod results_dir;
pub mod runner;
pub mod scratch;
pub mod session;
pub mod stats;
pub mod student;
pub mod summary;
pub mod units;
pub mod usage;
pub mod verdict;
pub mod warning;
pub mod writer;
pub mod yardstick;

pub use error::{Error, Result};
