//! [`Http`]: takes connections, reads requests within bounds, and has them answered.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_io_timeout::TimeoutStream;

use super::command::{Command, is_operators};
use super::history::{EVERY, Look};
use super::host::Hosts;
use super::reply::Reply;
use super::route::{Route, TIMEOUT_MAX};
use super::view::View;
use super::wrong::Wrong;
use crate::broker::Node;
use crate::net::Counters;

/// Connections at once: operators and their tools, no crowd. One more ends the oldest.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of a request's head, and headers in it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// A head comes within this, the next one too.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Of an answer some is taken within this: who takes none keeps others from being answered.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// A connection ends then, whatever it does: a wait fits in.
const LIFE: Duration = TIMEOUT_MAX.saturating_mul(2);
/// How long answers may take, once no more requests are taken.
const GRACE: Duration = Duration::from_secs(2);

/// An address on which operators are answered. It is taken until the last clone of this is gone.
#[derive(Debug, Clone)]
pub struct Http {
    pub(super) listener: Arc<std::net::TcpListener>,
    hosts: Hosts,
}

impl Http {
    /// Listens on an address.
    ///
    /// # Errors
    /// As of bind(2): above all that the address is in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener: Arc::new(listener), hosts: Hosts::default() })
    }

    /// Answers requests that call this machine by this name, too; an IP address and `localhost` are
    /// always understood.
    #[must_use]
    pub fn advertise(mut self, host: String) -> Self {
        self.hosts.advertised = Some(host);
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` is true; holds the node no more on return. Must be called on a runtime.
    ///
    /// # Errors
    /// The address cannot be listened at any more; nobody was answered.
    pub async fn serve(
        self,
        node: Arc<Node>,
        counters: Arc<Counters>,
        stop: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener.try_clone()?)?;
        let view = View { node, counters, history: Arc::default(), stop: stop.clone() };
        let answer = |stream| {
            let (hosts, view) = (self.hosts.clone(), view.clone());
            talk(stream, view.stop.clone(), move |request| {
                let (route, view) = (check(&request, &hosts), view.clone());
                async move {
                    match route {
                        Ok(route) => view.answer(route).await,
                        Err(refused) => refused,
                    }
                }
            })
        };
        let looking = async {
            let mut seconds = interval(EVERY);
            seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                seconds.tick().await;
                view.history.note(Look::now(&view.node, &view.counters));
            }
        };
        tokio::select! {
            () = take(listener, stop, GRACE, answer) => Ok(()),
            () = looking => Ok(()),
        }
    }
}

/// Takes connections and has each served, until `stop` is true: then those that are there end, within the grace.
pub(super) async fn take<S: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    mut stop: watch::Receiver<bool>,
    grace: Duration,
    serve: impl Fn(TcpStream) -> S,
) {
    let (mut connections, mut oldest) = (JoinSet::new(), VecDeque::<AbortHandle>::new());
    while !*stop.borrow() {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    oldest.retain(|connection| !connection.is_finished());
                    // Who holds many, and asks nothing or waits, keeps nobody from asking how this node is.
                    if oldest.len() >= CONNECTIONS_MAX && let Some(ended) = oldest.pop_front() {
                        ended.abort();
                    }
                    oldest.push_back(connections.spawn(serve(stream)));
                }
                // Of descriptors there are none, or the client is gone.
                Err(error) => {
                    tracing::debug!(%error, "no connection can be taken");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = stop.changed() => break,
        }
    }
    drop(listener);
    let all_answered = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, all_answered).await.is_err() {
        connections.shutdown().await;
    }
}

/// Answers the requests of a connection, one after the other, until `stop` is true.
pub(super) async fn talk<R: Future<Output = Reply>>(
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
    answer: impl Fn(Request<Incoming>) -> R,
) {
    let answer = service_fn(|request| {
        let reply = answer(request);
        async { Ok::<Response<Full<Bytes>>, Infallible>(reply.await.into_response()) }
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(TAKEN_WITHIN));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), answer);
    let mut connection = std::pin::pin!(connection);
    let lived = timeout(LIFE, async {
        tokio::select! {
            // What is there is answered.
            biased;
            served = &mut connection => return served,
            _ = stop.wait_for(|is_stopping| *is_stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await
    });
    if let Ok(Err(error)) = lived.await {
        tracing::debug!(%error, "an operator's connection is closed");
    }
}

/// What a request asks for, if it may. Its body, if it has one, is never read.
fn check(request: &Request<Incoming>, hosts: &Hosts) -> Result<Route, Reply> {
    let (uri, headers) = (request.uri(), request.headers());
    let asked = match *request.method() {
        Method::GET | Method::HEAD => Route::of(uri.path(), uri.query()),
        Method::POST => Command::of(uri.path(), uri.query()).map(Route::Command),
        _ => {
            let said = "GET looks, POST has something done; nothing else is answered";
            return Err(Reply::problem(StatusCode::METHOD_NOT_ALLOWED, said));
        }
    };
    check_host(request, hosts)?;
    let route = asked.map_err(|wrong| match wrong {
        Wrong::Path(said) => Reply::problem(StatusCode::NOT_FOUND, &said),
        Wrong::Query(said) => Reply::problem(StatusCode::BAD_REQUEST, &said),
    })?;
    let refused = match &route {
        Route::Wait(wait) if wait.sync && is_from_elsewhere(headers) => {
            "a page of another site may not ask for syncs"
        }
        Route::Command(_) if is_from_elsewhere(headers) || !is_operators(headers) => {
            "a command needs the header `X-Plimsoll: operator`, which no page of another site can send"
        }
        _ => return Ok(route),
    };
    Err(Reply::problem(StatusCode::FORBIDDEN, refused))
}

fn check_host(request: &Request<Incoming>, hosts: &Hosts) -> Result<(), Reply> {
    let mut said = request.headers().get_all(HOST).iter();
    let (host, another) = (said.next(), said.next());
    let is_old = request.version() < Version::HTTP_11;
    let refused = match host.map(|host| host.to_str().unwrap_or_default()) {
        None if is_old => return Ok(()),
        None => "a request needs one Host header".to_owned(),
        Some(_) if another.is_some() => "a request needs one Host header".to_owned(),
        Some(host) if hosts.allow(host) => return Ok(()),
        Some(host) => format!(
            "{host:?} is no name of this broker: use its IP address, localhost, or the host that \
             --advertise says"
        ),
    };
    Err(Reply::problem(StatusCode::MISDIRECTED_REQUEST, &refused))
}

/// Whether a browser says that a page of another site has it ask.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    /// As many as are taken at once, of which none took its answers, kept `/health` from being answered for ten minutes.
    #[tokio::test(start_paused = true)]
    async fn who_takes_no_answer_does_not_stay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (_stop, stopping) = watch::channel(false);
        let begun = Instant::now();
        // More than a socket keeps for who does not read it.
        let answer = "x".repeat(64 << 20);
        talk(stream, stopping, |_| async { Reply::problem(StatusCode::OK, &answer) }).await;
        let took = begun.elapsed();
        assert!((TAKEN_WITHIN..2 * TAKEN_WITHIN).contains(&took), "{took:?}");
    }
}
