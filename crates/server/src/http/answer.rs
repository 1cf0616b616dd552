//! What each route shows of what is looked at.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde::Serialize;
use tokio::time::timeout;

use super::reply::Reply;
use super::route::{Route, Wait};
use super::view::View;
use super::{health, metrics, page};
use crate::broker::{DomainsOverview, Level, Member, NoRecord, Promise, ShardOverview, Totals};

/// A node in short.
#[derive(Debug, Serialize)]
struct Status<'a> {
    version: &'static str,
    cluster: &'a str,
    dir: String,
    acknowledged: &'static str,
    connections: u64,
    received_bytes: u64,
    sent_bytes: u64,
    #[serde(flatten)]
    totals: Totals,
    /// Those that are there, by their numbers.
    brokers: BTreeMap<u64, Member>,
    domains: DomainsOverview,
    shards: Vec<ShardOverview>,
}

/// What became of a record that somebody waited for.
#[derive(Debug, Serialize)]
struct Waited<'a> {
    topic: &'a str,
    partition: u32,
    offset: i64,
    is: &'static str,
}

impl View {
    pub(super) async fn answer(self, route: Route) -> Reply {
        let route = match route {
            Route::Wait(wait) => return self.wait(&wait).await,
            Route::Command(command) => return command.run(&self.node).await,
            Route::Roll => return Reply::json(StatusCode::OK, &self.node.roll().await),
            Route::Scrubs => return Reply::json(StatusCode::OK, &self.node.scrubs.look().await),
            route => route,
        };
        // Looking at many partitions takes a while: not on the thread that serves requests.
        let shown = tokio::task::spawn_blocking(move || self.show(&route)).await;
        let failed = |_panic| {
            Reply::problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                "this is a bug, printed by the broker",
            )
        };
        shown.unwrap_or_else(failed)
    }

    fn show(&self, route: &Route) -> Reply {
        let node = &*self.node;
        match route {
            Route::Page => page::page(self),
            Route::Health => health::health(&node.shards(), node.domains().warning),
            Route::Ready => health::ready(&node.shards(), *self.stop.borrow()),
            Route::Metrics => {
                let peers = node.peer_counters();
                let (shards, totals) = (node.shards(), node.totals());
                Reply::metrics(metrics::text(&shards, totals, &self.counters, peers.as_ref()))
            }
            Route::Status => Reply::json(StatusCode::OK, &self.status()),
            Route::Topics => Reply::json(StatusCode::OK, &node.topics()),
            Route::Groups => Reply::json(StatusCode::OK, &node.groups()),
            Route::Topic(name) => match node.topic(name) {
                Some(topic) => Reply::json(StatusCode::OK, &topic),
                None => {
                    Reply::problem(StatusCode::NOT_FOUND, &format!("there is no topic {name:?}"))
                }
            },
            Route::Wait(_) | Route::Command(_) | Route::Roll | Route::Scrubs => {
                unreachable!("it is no look")
            }
        }
    }

    fn status(&self) -> Status<'_> {
        Status {
            version: env!("CARGO_PKG_VERSION"),
            cluster: self.node.cluster_id(),
            dir: self.node.dir().display().to_string(),
            acknowledged: match self.node.promise() {
                Promise::Memory => "in memory that outlives the process",
                Promise::Kernel => "with the kernel",
            },
            connections: self.counters.connections(),
            received_bytes: self.counters.received_bytes(),
            sent_bytes: self.counters.sent_bytes(),
            totals: self.node.totals(),
            brokers: self.node.members().known().clone(),
            domains: self.node.domains(),
            shards: self.node.shards(),
        }
    }

    async fn wait(mut self, wait: &Wait) -> Reply {
        let Wait { topic, number, offset, level, timeout: patience, sync } = wait;
        let (number, offset) = (*number, *offset);
        let is = match level {
            Level::Acknowledged => "acknowledged",
            Level::Durable => "durable",
        };
        let record = self.node.await_record(topic, number, offset, *level, *sync);
        tokio::select! {
            waited = timeout(*patience, record) => match waited {
                Ok(Ok(())) => {
                    Reply::json(StatusCode::OK, &Waited { topic, partition: number, offset, is })
                }
                Ok(Err(why)) => Reply::problem(code_of(&why), &why.to_string()),
                Err(_elapsed) => {
                    let ms = patience.as_millis();
                    let said = format!("offset {offset} is not {is} yet, after {ms} ms");
                    Reply::problem(StatusCode::REQUEST_TIMEOUT, &said)
                }
            },
            _ = self.stop.wait_for(|is_stopping| *is_stopping) => {
                Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "the broker is stopping")
            }
        }
    }
}

fn code_of(why: &NoRecord) -> StatusCode {
    match why {
        NoRecord::NoPartition { .. } => StatusCode::NOT_FOUND,
        NoRecord::Deleted { .. } | NoRecord::GivenUp { .. } => StatusCode::GONE,
        NoRecord::Offline { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}
