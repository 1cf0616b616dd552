//! The disk that forgets, under real filesystems. Linux, as root.
//!
//! A FUSE filesystem shows the [`crate::block::Device`] as a file, a loop device makes a block device
//! of the file, and the kernel mounts ext4, xfs or btrfs on it. No kernel module, no device-mapper. A
//! flush of the filesystem becomes an fsync of the file, and that a flush of the device.
//!
//! * [`Rig`] is one such disk, mounted: run something on it, and take its [`crate::block::Trace`].
//! * [`explore()`] mounts what power cuts would have left of a trace, in memory, and has each checked.
//! * [`Search`] plans and explores, keeps each [`Finding`] beside the trace, goes on where it was stopped, and
//!   draws a [`Page`].
//! * [`Image`] is one of those states, mounted.
//! * [`keeper::enter`] makes a program whose children die with it.
//!
//! Everything is mounted in a mount namespace of the thread that asks ([`Rig`] and [`Image`] cannot go
//! to another), at the same path each time. Whatever ends the process, the namespace goes with it,
//! and with the namespace mounts, loop devices and images.

mod attribute;
mod backing_file;
mod check;
mod copy;
mod doctor;
mod error;
mod explore;
mod files;
mod filesystem;
mod finding;
mod findings;
mod fingerprint;
mod image;
pub mod keeper;
mod loop_device;
mod mark_on;
mod marks;
mod mkfs;
mod mount;
mod mount_options;
mod namespace;
mod page;
mod prepare;
mod processes;
mod question;
mod rig;
mod said;
mod search;
mod serve;
mod step;
mod tested;
mod write_back;

pub use attribute::{Owner, Owners};
pub use check::{Check, Situation, Verdict};
pub use doctor::tiers;
pub use error::{Error, Result};
pub use explore::{Explore, Visit, explore};
pub use files::{FileChange, Files};
pub use filesystem::Filesystem;
pub use finding::{Finding, Micros, Standing};
pub use findings::{Aside, Findings};
pub use fingerprint::unfollowed;
pub use image::{Image, Timings};
pub use mark_on::{MarkOn, Refused};
pub use page::Page;
pub use prepare::Preparation;
pub use processes::{Ended, Program};
pub use question::Question;
pub use rig::{Rig, RigOptions};
pub use search::{Search, SearchOptions};
pub use tested::{Summary, Tested, Untested};

/// Where the filesystem under test is mounted, in the namespace of whoever mounted it.
pub const DIRECTORY: &str = namespace::DIR;
