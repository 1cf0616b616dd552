//! [`Listener`]: takes connections, until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection;
use super::counters::Counters;
use super::limits::Limits;
use crate::api::{Budget, Connected, Session};
use crate::broker::Node;

/// How long what was taken may take, once nothing more is.
const GRACE: Duration = Duration::from_secs(3);

/// An address on which clients are served.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    limits: Limits,
    /// What clients are told to connect to.
    advertised: Option<(String, u16)>,
    counters: Arc<Counters>,
}

impl Listener {
    /// Listens on an address. Must be called on a runtime.
    ///
    /// # Errors
    /// As of bind(2): above all that the address is in use.
    pub async fn bind(address: SocketAddr, limits: Limits) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, limits, advertised: None, counters: Arc::default() })
    }

    /// Has clients told another host and port than those it listens on.
    #[must_use]
    pub fn advertise(mut self, host: String, port: u16) -> Self {
        self.advertised = Some((host, port));
        self
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is true: then takes no more, answers what it has taken, and returns when all
    /// connections are closed.
    ///
    /// # Errors
    /// The address is not there any more.
    pub async fn serve(self, node: Arc<Node>, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        let address = self.address()?;
        let (host, port) = match self.advertised {
            Some((host, port)) => (host, port),
            None => (address.ip().to_string(), address.port()),
        };
        let host: Arc<str> = host.into();
        let budget = Arc::new(Budget::new(self.limits.memory_bytes));
        let mut connections = JoinSet::new();
        let (served, ended) = watch::channel(false);
        let mut number = 0;
        while !*stop.borrow() {
            let (stream, peer) = tokio::select! {
                taken = self.listener.accept() => match taken {
                    Ok(taken) => taken,
                    Err(error) if is_of_the_connection(&error) => continue,
                    Err(error) => {
                        // Of descriptors or memory there are none: some may be given back.
                        tracing::warn!(%error, "no connection can be taken");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                _ = stop.changed() => break,
            };
            if connections.len() >= self.limits.connections {
                self.counters.turned_away();
                tracing::warn!(%peer, "too many connections; this one is closed");
                continue;
            }
            number += 1;
            let session = Session::of(Connected {
                node: Arc::clone(&node),
                connection: number,
                peer: format!("/{}", peer.ip()).into(),
                host: Arc::clone(&host),
                port,
                budget: Arc::clone(&budget),
                stop: stop.clone(),
                ended: ended.clone(),
            });
            let (counters, limits) = (Arc::clone(&self.counters), self.limits);
            let runtime = node.runtime();
            // It is waited for there too.
            let stream = stream.into_std();
            let served = async move {
                match stream.and_then(TcpStream::from_std) {
                    Ok(stream) => connection::serve(stream, session, limits, counters).await,
                    Err(error) => tracing::warn!(%peer, %error, "a connection cannot be served"),
                }
            };
            connections.spawn_on(served, runtime);
        }
        drop(self.listener);
        let all_answered = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_answered).await.is_err() {
            connections.shutdown().await;
        }
        drop(ended);
        served.send_replace(true);
        // Once the last who holds the node for a client is gone.
        served.closed().await;
        Ok(())
    }
}

/// Whether an error is of a connection that went before it was taken.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
