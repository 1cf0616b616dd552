//! Consumer groups without their shard: changes are applied as if they were agreed on.
//!
//! What a coordinator does in the turns that matter is told in a story each, by the question that it
//! answers: `joining.rs`, `leaving.rs`, `static_members.rs`, `refusals.rs`, `offsets.rs`,
//! `administrators.rs`, `agreement.rs`.

mod administrators;
mod agreement;
mod golden;
mod hostile;
mod joining;
mod leaving;
mod model;
mod offsets;
mod refusals;
mod shard;
mod static_members;

#[path = "../shared/seeds.rs"]
mod seeds;
#[path = "../shared/testdata.rs"]
mod testdata;
