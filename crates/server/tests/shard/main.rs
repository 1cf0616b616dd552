//! A shard without its engine: entries are applied as if they were agreed on.

mod batch;
mod fair;
mod golden;
mod hostile;
mod model;
mod stories;

#[path = "../shared/seeds.rs"]
mod seeds;
#[path = "../shared/testdata.rs"]
mod testdata;
