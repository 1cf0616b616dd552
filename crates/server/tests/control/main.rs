//! Control without its engine: changes are applied as if they were agreed on, and a shard follows.

mod catalog;
mod golden;
mod hostile;
mod settings;
mod shard;

#[path = "../shared/testdata.rs"]
mod testdata;

use plimsoll_server::control::{Change, TopicSettings};
use plimsoll_server::shard::TopicId;

fn id(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn create(number: u8, name: &str, shards: &[u32]) -> Change {
    let (name, shards) = (name.to_owned(), shards.to_vec());
    Change::Create { id: id(number), name, shards, settings: TopicSettings::default() }
}

fn settings(all: &[(&str, &str)]) -> TopicSettings {
    let mut settings = TopicSettings::default();
    for (name, value) in all {
        settings.set(name, Some(value)).unwrap();
    }
    settings
}
