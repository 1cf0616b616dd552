//! Chapters without their broker: a log in memory is applied and settled, on a disk in memory.

mod between;
mod crashes;
mod flipped;
mod golden;
mod healed;
mod hostile;
mod hot;
mod log;
mod mended;
mod model;
mod races;
mod replica;
mod stories;

#[path = "../shard/batch.rs"]
mod batch;
#[path = "../shared/seeds.rs"]
mod seeds;
#[path = "../shared/testdata.rs"]
mod testdata;
