//! Topics by their ids, and what newer versions say of leaders.

use std::sync::Arc;

use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{MetadataRequest, MetadataRequestTopic, MetadataTopic};
use plimsoll_server::kafka::value::Uuid;
use plimsoll_simdisk::SimDir;

use super::{Broker, unsynced};

impl Broker {
    fn described(&mut self, topic: MetadataRequestTopic) -> MetadataTopic {
        let question = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
        self.client.call(question).unwrap().topics.remove(0)
    }

    fn topic_id(&mut self, name: &str) -> Uuid {
        self.described(MetadataRequestTopic::named(name)).topic_id
    }
}

#[test]
fn a_topic_is_described_by_its_id_until_it_is_deleted() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    let by_id = |topic_id| MetadataRequestTopic { topic_id, name: None };
    let id = broker.topic_id("orders");
    assert_ne!(id, Uuid::ZERO);
    let found = broker.described(by_id(id));
    assert_eq!((found.error_code, found.topic_id), (ErrorCode::None, id));
    assert_eq!((found.name.as_deref(), found.partitions.len()), (Some("orders"), 1));

    // It has another one when it is made again: its records are others.
    broker.delete("orders");
    broker.create("orders", &[]);
    assert_ne!(broker.topic_id("orders"), id);
    let gone = broker.described(by_id(id));
    assert_eq!((gone.error_code, gone.name), (ErrorCode::UnknownTopicId, None));
    assert_eq!(gone.topic_id, id);

    // Kafka takes one or the other.
    let both = MetadataRequestTopic { topic_id: id, ..MetadataRequestTopic::named("orders") };
    assert_eq!(broker.described(both).error_code, ErrorCode::InvalidRequest);
    broker.close();
}
