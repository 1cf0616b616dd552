//! `plimsoll log` as a user meets it: what it prints where, what it leaves behind, how it ends.
//!
//! * `write.rs`: append and truncate.
//! * `read.rs`: cat, tail, stat and dump of a log that is whole.
//! * `damage.rs`: what is said of a log that is not.
//! * `help.rs`: what `--help` says, and the pages of the manual.
//! * `common.rs`: a directory, a log of numbers, and the program itself.

mod common;
mod damage;
mod help;
mod read;
mod write;
