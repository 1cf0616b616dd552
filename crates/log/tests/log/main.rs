//! The promises of a log's public face, by question.
#![cfg(not(shuttle))]

mod append;
mod common;
mod cut;
mod full_disk;
mod heal;
mod lookup;
mod neighbours;
mod open;
mod options;
mod read;
mod retain;
mod ring;
mod turns;
mod view;
mod wait;
mod wrapped;
