//! A group of several replicas under its rule: what a quorum acknowledged from memory stays, whoever
//! forgets.

mod stories;
mod world;
