//! What only the controller may do, asked of other brokers: three in one process, that reach each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_server::broker::{Node, Options, Seat, found};
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::{
    CreatePartitionsRequest, DeleteTopicsRequest, GrowingTopic, InitProducerIdRequest,
    MetadataRequest, MetadataRequestTopic, MetadataResponse,
};
use plimsoll_server::net::{Limits, Listener};

use super::{Broker, CreatableTopic, CreateTopicsRequest, unsynced};

/// Long beside an election.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Three brokers that vote together, by their ids.
pub(super) fn three(root: &Path, options: &Options) -> BTreeMap<u64, Broker> {
    three_in(root, options, [None; 3])
}

/// The same, each in its rack.
pub(super) fn three_in(
    root: &Path,
    options: &Options,
    racks: [Option<&str>; 3],
) -> BTreeMap<u64, Broker> {
    let cluster = found(&root.join("1")).unwrap();
    three_of(&cluster, |id, seat| {
        let rack = racks[usize::try_from(id).unwrap() - 1].map(str::to_owned);
        let options = Options { seat: Some(Seat { rack, ..seat }), ..options.clone() };
        Node::open(&root.join(id.to_string()), options).unwrap()
    })
}

/// A loopback address for these only: a port that is free there now nobody else is given before it is taken.
fn host() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    if !cfg!(target_os = "linux") {
        return Ipv4Addr::LOCALHOST.into();
    }
    let [low, high, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, high | 0x80, low, NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// The same, each opened where the caller has it.
pub(super) fn three_of(cluster: &str, open: impl Fn(u64, Seat) -> Node) -> BTreeMap<u64, Broker> {
    let host = host();
    let held = [1, 2, 3].map(|id| (id, TcpListener::bind((host, 0)).unwrap()));
    let members: BTreeMap<u64, SocketAddr> =
        held.iter().map(|(id, held)| (*id, held.local_addr().unwrap())).collect();
    drop(held);
    let brokers = members.iter().map(|(id, listen)| {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let seat = Seat {
            cluster: cluster.to_owned(),
            node: *id,
            members: members.iter().map(|(id, at)| (*id, at.to_string())).collect(),
            listen: *listen,
            clients: (address.ip().to_string(), address.port()),
            rack: None,
        };
        let node = open(*id, seat);
        // Held until now, as others look for ports too.
        drop(listener);
        let listener = node.runtime().block_on(Listener::bind(address, Limits::default()));
        (*id, Broker::serve(node, listener.unwrap()))
    });
    let mut brokers = brokers.collect();
    // All vote on all once a topic has three replicas, which the founder knows first.
    until("all vote", || {
        let first = BTreeMap::get_mut(&mut brokers, &1).unwrap();
        create(first, "votes", 3) == ErrorCode::None
    });
    until("all know who leads", || {
        let led = |broker: &mut Broker| metadata(broker, "votes", false).controller_id > 0;
        brokers.values_mut().all(led)
    });
    brokers
}

#[expect(clippy::disallowed_methods, reason = "it asks again and again")]
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn create(broker: &mut Broker, name: &str, replication_factor: i16) -> ErrorCode {
    let name = name.to_owned();
    let topic =
        CreatableTopic { name, num_partitions: 1, replication_factor, ..Default::default() };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    broker.client.call(request).unwrap().topics[0].error_code
}

pub(super) fn metadata(broker: &mut Broker, name: &str, creates: bool) -> MetadataResponse {
    let topic = MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
    let topics = Some(vec![topic]);
    let allow_auto_topic_creation = creates;
    let request = MetadataRequest { topics, allow_auto_topic_creation, ..Default::default() };
    broker.client.call(request).unwrap()
}

fn producer(broker: &mut Broker) -> Result<i64, ErrorCode> {
    let given = broker.client.call(InitProducerIdRequest::default()).unwrap();
    match given.error_code {
        ErrorCode::None => Ok(given.producer_id),
        why => Err(why),
    }
}

#[test]
fn any_broker_has_the_controller_do_what_only_that_may() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &unsynced());
    let asked = brokers.get_mut(&1).unwrap();
    let controller = u64::try_from(metadata(asked, "votes", false).controller_id).unwrap();
    let other = [1, 2, 3].into_iter().find(|id| *id != controller).unwrap();
    let mut given = BTreeSet::new();
    {
        let other = brokers.get_mut(&other).unwrap();
        assert_eq!(create(other, "orders", 3), ErrorCode::None);
        assert_eq!(create(other, "orders", 3), ErrorCode::TopicAlreadyExists);
        let grows = GrowingTopic { name: "orders".to_owned(), count: 3, ..Default::default() };
        let request = CreatePartitionsRequest { topics: vec![grows], ..Default::default() };
        let grown = other.client.call(request).unwrap();
        assert_eq!(grown.results[0].error_code, ErrorCode::None, "{grown:?}");
        other.alter("orders", "retention.ms", "1000");
        assert_eq!(metadata(other, "orders", false).topics[0].partitions.len(), 3);
        let made = metadata(other, "wished", true);
        assert_eq!(made.topics[0].error_code, ErrorCode::None, "{made:?}");
    }
    {
        // It was made elsewhere, just now.
        let controller = brokers.get_mut(&controller).unwrap();
        assert_eq!(create(controller, "made", 3), ErrorCode::None);
    }
    let topic_names = vec!["made".to_owned()];
    let delete = DeleteTopicsRequest { topic_names, ..Default::default() };
    let deleted = brokers.get_mut(&other).unwrap().client.call(delete).unwrap();
    assert_eq!(deleted.responses[0].error_code, ErrorCode::None);
    for broker in brokers.values_mut() {
        for _ in 0..3 {
            assert!(given.insert(producer(broker).unwrap()), "an id is given once");
        }
    }
    // The controller ends, and another goes on.
    brokers.remove(&controller).unwrap().close();
    let other = brokers.get_mut(&other).unwrap();
    until("there is another controller", || {
        matches!(create(other, "later", 3), ErrorCode::None | ErrorCode::TopicAlreadyExists)
    });
    for broker in brokers.values_mut() {
        // More than a block: this node asks whoever is the controller now.
        for _ in 0..1001 {
            until("an id", || match producer(broker) {
                Ok(id) => given.insert(id) || panic!("{id} was given twice"),
                Err(why) => {
                    assert_eq!(why, ErrorCode::CoordinatorLoadInProgress);
                    false
                }
            });
        }
    }
    drop(brokers);
}
