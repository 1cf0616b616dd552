//! `plimsoll disk`, as somebody would use it: on real filesystems, as root. Elsewhere each test says
//! SKIPPED and why, and with `realfs` in `PLIMSOLL_REQUIRE`, as in our CI, a skip is a failure.
//!
//! * `prepare.rs`, `record.rs`, `explore.rs`, `junit.rs`, `replay.rs`, `shrink.rs`, `cycle.rs`, `run.rs`:
//!   what the commands do.
//! * `common.rs`: workloads and checks, and the program itself.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "a skip must be seen")]

mod common;
mod cycle;
mod explore;
mod junit;
mod prepare;
mod record;
mod replay;
mod run;
mod shrink;
