//! The commands, one file each.

pub(crate) mod ask;
pub(crate) mod backup;
pub(crate) mod broker;
pub(crate) mod chapter;
pub(crate) mod clean;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod disk;
pub(crate) mod lab;
pub(crate) mod log;
pub(crate) mod man;
pub(crate) mod report;
pub(crate) mod serve;
