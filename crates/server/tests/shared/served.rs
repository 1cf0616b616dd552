//! [`Served`]: a node on a simulated disk, which serves at a socket, and a connection to it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_server::broker::{Failed, Node, Options};
use plimsoll_server::client::Connection;
use plimsoll_server::net::{Limits, Listener};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Dir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Whoever waits longer than this for an answer gets none.
const PATIENCE: Duration = Duration::from_secs(60);
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(crate) struct Served {
    pub(crate) node: Arc<Node>,
    pub(crate) client: Connection,
    stop: watch::Sender<bool>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) fn start(disk: &Arc<SimDir>, options: Options) -> Result<Self, Failed> {
        let dir: Arc<dyn Dir> = Arc::clone(disk) as _;
        let node = Node::open_in(&dir, PathBuf::from("data"), options)?;
        let listener = node.runtime().block_on(Listener::bind(ANYWHERE, Limits::default()));
        Ok(Self::serve(node, listener.unwrap()))
    }

    pub(crate) fn serve(node: Node, listener: Listener) -> Self {
        let node = Arc::new(node);
        let address = listener.address().unwrap().to_string();
        let (stop, stopped) = watch::channel(false);
        let serving = node.runtime().spawn(listener.serve(Arc::clone(&node), stopped));
        let client = Connection::open(&address, PATIENCE).unwrap();
        Self { node, client, stop, serving }
    }

    /// Serves nobody any more.
    pub(crate) fn stop(self) -> Node {
        let Self { node, stop, serving, client, .. } = self;
        drop(client);
        stop.send(true).unwrap();
        node.runtime().clone().block_on(serving).unwrap().unwrap();
        Arc::into_inner(node).unwrap()
    }
}
