//! Who is in the cluster, as clients are told.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_server::broker::Member;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest,
};
use plimsoll_simdisk::SimDir;

use super::{Broker, unsynced};

#[test]
fn clients_are_told_of_every_member_that_can_be_found_and_of_who_leads() {
    let mut broker = Broker::open(&Arc::new(SimDir::new()), unsynced());
    broker.create("orders", &[]);
    let member = |host: Option<&str>| Member {
        host: host.map(str::to_owned),
        port: 9093,
        rack: Some("b".to_owned()),
        ..Member::default()
    };
    let known = BTreeMap::from([(2, member(Some("two.example"))), (3, member(None))]);
    broker.node.members().set(known);
    let told = broker.client.call(MetadataRequest { topics: None, ..Default::default() }).unwrap();
    let brokers: Vec<_> =
        told.brokers.iter().map(|one| (one.node_id, one.rack.as_deref())).collect();
    assert_eq!(brokers, [(1, None), (2, Some("b"))], "nobody knows where the third is");
    assert_eq!((&*told.brokers[1].host, told.brokers[1].port), ("two.example", 9093));
    assert_eq!(told.controller_id, 1);
    let partition = &told.topics[0].partitions[0];
    assert_eq!((partition.error_code, partition.leader_id), (ErrorCode::None, 1));
    assert_eq!((&*partition.replica_nodes, &*partition.isr_nodes), (&[1][..], &[1][..]));
    let described = broker.client.call(DescribeClusterRequest::default()).unwrap();
    assert_eq!((described.controller_id, described.brokers.len()), (1, 2));
    let found = broker.client.call(FindCoordinatorRequest::default()).unwrap();
    assert_eq!((found.error_code, found.node_id), (ErrorCode::None, 1));
    assert_eq!(found.port, told.brokers[0].port);
    broker.close();
}
