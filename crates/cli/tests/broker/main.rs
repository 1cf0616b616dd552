//! `plimsoll serve` as a process, and the commands that ask it.
#![cfg(unix)]

mod backup;
mod chapters;
mod client;
mod cluster;
mod cluster_scrub;
#[cfg(target_os = "linux")]
mod disks;
mod joining;
mod loss;
mod moving;
mod operator;
mod rolling;
mod scrub;
mod seeding;
mod serving;
