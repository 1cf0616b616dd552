//! Measures what durability costs on this disk, whether it is kept, and where the time goes.
//!
//! From [`session::Options`] through the [`runner`] (interleaved arms) to samples, summaries,
//! [`warning`]s and a [`report`]. Each stage is a file. Results are saved as they come
//! ([`result`]), and reports are made from saved results.
//!
//! An [`experiment`] is a question with arms; [`experiments::ALL`] lists them. Three files make the
//! numbers trustworthy: `stats` assumes no distribution, `attribution` says where the time went,
//! and `verdict` says whether an arm really synced and was left in peace.
//!
//! [`counters`] and [`environment`] are public because `bench/` measures with them, too.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod arm;
mod arm_result;
mod attribution;
mod cache;
pub mod claim;
pub mod compare;
pub mod conclusion;
pub mod counters;
mod device;
pub mod durability_profile;
pub mod environment;
mod error;
pub mod experiment;
pub mod experiments;
mod harness;
pub mod ladder;
mod layout;
mod least;
pub mod leftovers;
mod mount;
mod pace;
mod quiet;
pub mod report;
pub mod result;
mod results_dir;
pub mod runner;
mod scratch;
pub mod session;
mod shares;
mod stats;
mod summary;
pub mod units;
pub mod usage;
mod verdict;
pub mod warning;
mod writer;

pub use error::{Error, Result};
pub use scratch::CannotRun;
