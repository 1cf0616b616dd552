//! Bytes of the formats, and nodes that talk over loopback.

mod format;
mod golden;
mod hostile;
mod outbox;
mod sockets;
mod strangers;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::{Counters, Handler, Limits, Options, Peer, Peers};

const CLUSTER: u128 = 7;

/// What a node is asked, and who has connected to it.
#[derive(Default)]
struct Echo {
    asked: Mutex<Vec<(Peer, u32, Bytes)>>,
    connected: Mutex<Vec<(Peer, Bytes)>>,
    gone: Mutex<Vec<Peer>>,
}

/// Requests that nobody answers begin so.
const SILENCE: &[u8] = b"silence";

impl Handler for Echo {
    /// The request twice, in two pieces.
    fn handle(&self, from: Peer, shard: u32, request: Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        self.asked.lock().unwrap().push((from, shard, request.clone()));
        Box::pin(async move {
            if request.starts_with(SILENCE) {
                std::future::pending::<()>().await;
            }
            assert_ne!(&request[..], b"panic", "a handler fails");
            vec![request.clone(), request]
        })
    }

    fn connected(&self, peer: Peer, hello: Bytes) -> bool {
        self.connected.lock().unwrap().push((peer, hello));
        true
    }

    fn gone(&self, peer: Peer) -> BoxFuture<'static, ()> {
        self.gone.lock().unwrap().push(peer);
        Box::pin(std::future::ready(()))
    }
}

/// A node, and what it is asked.
struct Node {
    peers: Peers,
    echo: Arc<Echo>,
    address: SocketAddr,
}

/// Bounds with which no test waits for a clock, nor ends by one.
fn patient() -> Limits {
    Limits {
        ping: Duration::from_secs(600),
        silence: Duration::from_secs(600),
        write: Duration::from_secs(600),
        handshake: Duration::from_secs(600),
        redial: (Duration::from_millis(1), Duration::from_millis(10)),
        ..Limits::default()
    }
}

fn options(node: u64, incarnation: u64) -> Options {
    let hello = Bytes::from(format!("I am {node}"));
    Options { hello, limits: patient(), ..Options::new(CLUSTER, node, incarnation) }
}

impl Node {
    fn start(options: Options) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap(), options)
    }

    fn at(listener: TcpListener, options: Options) -> Self {
        let address = listener.local_addr().unwrap();
        let echo = Arc::new(Echo::default());
        let handler = Arc::clone(&echo) as Arc<dyn Handler>;
        let peers = Peers::start(listener, options, handler, &Handle::current()).unwrap();
        Self { peers, echo, address }
    }

    fn knows(&self, others: &[(u64, SocketAddr)]) {
        let addresses = others.iter().map(|(node, address)| (*node, address.to_string()));
        self.peers.set_addresses(addresses.collect::<BTreeMap<_, _>>());
    }

    /// Waits until both connections to each of these are there.
    async fn meets(&self, wanted: &[Peer]) {
        until(|| {
            let now = self.peers.connected();
            now.iter()
                .filter(|one| one.priorities.len() == 2)
                .map(|one| one.peer)
                .eq(wanted.iter().copied())
        })
        .await;
    }

    fn counters(&self) -> Counters {
        self.peers.counters()
    }
}

/// Nodes 1 and 2 in their first incarnation, that are connected.
async fn pair() -> (Node, Node) {
    pair_with(options(1, 1), options(2, 1)).await
}

async fn pair_with(one: Options, two: Options) -> (Node, Node) {
    let (a, b) = (one.us(), two.us());
    let (one, two) = (Node::start(one), Node::start(two));
    one.knows(&[(b.node, two.address)]);
    two.knows(&[(a.node, one.address)]);
    one.meets(&[b]).await;
    two.meets(&[a]).await;
    (one, two)
}

/// Waits until something holds, for as long as it takes.
async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

const fn peer(node: u64, incarnation: u64) -> Peer {
    Peer { node, incarnation }
}
