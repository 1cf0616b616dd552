//! The status page: one file that loads nothing, and is drawn whole before any script runs.
//!
//! What is acknowledged and not durable comes first: it is what no other broker shows. The script has
//! the page made again every two seconds and puts its `main` in place of the old one, so that there is
//! one place that draws and escapes. Names may come from anybody: maud escapes them.

use std::time::{SystemTime, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use plimsoll_log::Policy;

use super::history::Recent;
use super::mark::{self, Load};
use super::reply::Reply;
use super::units;
use super::view::View;
use crate::broker::{GroupOverview, Member, Promise, SHARED, ShardOverview, TopicOverview};
use crate::kafka::band::Api;
use crate::net::{BOUNDS_US, Counters, Latency};
use crate::random;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Rows of a table: more are at `/topics` and `/groups`.
const ROWS_MAX: usize = 100;

pub(super) fn page(view: &View) -> Reply {
    let nonce = random::hex();
    let node = &view.node;
    let recent = view.history.recent();
    let shards = node.shards();
    let promise = match node.promise() {
        Promise::Memory => "an acknowledged record is in memory that outlives the broker",
        Promise::Kernel => "an acknowledged record is with the kernel",
    };
    let brokers = node.members().known().clone();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { "plimsoll serve" }
                style nonce=(nonce) { (PreEscaped(STYLE)) }
            }
            body {
                header.masthead {
                    p.brand { (brand()) "plimsoll serve" }
                    p.meta {
                        "data in " code { (node.dir().display().to_string()) }
                        " · " (promise)
                    }
                }
                main {
                    (verdict(&shards))
                    (ship(view, &shards, &recent))
                    (traffic(&recent, &shards, &view.counters))
                    (topics(&node.topics(), node.options.auto_create))
                    (groups(&node.groups()))
                    (shard_table(&shards))
                    (apis(&view.counters))
                    p.meta { "as of " time { (clock()) } " UTC" }
                }
                footer {
                    p {
                        "plimsoll " (env!("CARGO_PKG_VERSION"))
                        " · cluster " code { (node.cluster_id()) }
                    }
                    @if brokers.len() > 1 {
                        p {
                            "brokers: "
                            @for (place, (number, member)) in brokers.iter().enumerate() {
                                @if place > 0 { ", " }
                                (number) " runs " (version_of(member))
                            }
                        }
                    }
                    p {
                        "for programs: "
                        @for path in ["/metrics", "/health", "/ready", "/status", "/topics", "/groups"] {
                            a href=(path) { (path) } " "
                        }
                    }
                }
                script nonce=(nonce) { (PreEscaped(SCRIPT)) }
            }
        }
    };
    Reply::page(page.into_string(), &nonce)
}

/// What a broker runs, if it says so.
fn version_of(broker: &Member) -> &str {
    if broker.version.is_empty() { "an older version" } else { &broker.version }
}

/// The mark on the hull: a circle, and the line up to which she may be loaded.
fn brand() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 20" width="32" height="20" aria-hidden="true" {
            circle cx="16" cy="10" r="7.5" {}
            path d="M1 10H31" {}
        }
    }
}

/// How it is, in a sentence.
fn verdict(shards: &[ShardOverview]) -> Markup {
    let offline: Vec<_> = shards.iter().filter(|shard| shard.offline.is_some()).collect();
    let bytes: u64 = shards.iter().map(|shard| shard.at_risk_bytes).sum();
    let oldest = shards.iter().map(|shard| shard.at_risk_ms).max().unwrap_or(0);
    html! {
        @for shard in &offline {
            p.alarm role="alert" {
                strong { "Shard " (shard.number) " (" (shard.holds) ") is offline: " }
                (shard.offline.as_deref().unwrap_or_default())
            }
        }
        @for shard in shards {
            @if let Some(unmet) = &shard.unmet {
                p.alarm role="alert" {
                    strong { "Shard " (shard.number) " (" (shard.holds) ") refuses: " }
                    (unmet)
                }
            }
        }
        @if bytes == 0 && !offline.is_empty() {
            h1 { "What a power cut would take now is not known here" }
            p.lead {
                "Every record that this broker knows to be acknowledged is durable. Of what is offline here others may have acknowledged more."
            }
        } @else if bytes == 0 {
            h1 { "A power cut would take nothing now" }
            p.lead { "Every record that was acknowledged is durable." }
        } @else {
            h1 { "A power cut would take at most " span.figure { (units::bytes(bytes)) } " now" }
            p.lead {
                "So much is acknowledged and not durable yet; the oldest of it "
                @if oldest == 0 { "has just come." }
                @else { "has waited for the disk for " (units::micros(oldest * 1000)) "." }
            }
        }
    }
}

/// She stands for the shard that acknowledges before the disk has it.
fn ship(view: &View, shards: &[ShardOverview], recent: &Recent) -> Markup {
    // The one that carries most; of several the first.
    let shared = shards.iter().rev().filter(|shard| SHARED.contains(&shard.number));
    let Some(shard) = shared.max_by_key(|shard| shard.at_risk_bytes) else {
        return Markup::default();
    };
    let (line_bytes, age) = match view.node.flush() {
        Policy::Interval { max_age, max_bytes } => {
            (Some(max_bytes.min(shard.ring_bytes / 4 * 3)), Some(max_age))
        }
        Policy::Always => (Some(shard.ring_bytes / 4 * 3), None),
        Policy::Never => (None, None),
    };
    let load = Load {
        at_risk_bytes: shard.at_risk_bytes,
        highest_bytes: recent.at_risk_bytes_max,
        line_bytes,
        ring_bytes: shard.ring_bytes,
    };
    let syncs = shard.log.sync_ns;
    html! {
        figure.load {
            (load.draw())
            figcaption {
                p {
                    "Her cargo is what is acknowledged and not durable, of shard " (shard.number) ". At the load line a sync is due"
                    @if let Some(age) = age {
                        ", or once a record is " (units::micros(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))) " old"
                    }
                    "; at the deck the ring is full, and producers wait."
                    @if recent.at_risk_bytes_max > 0 {
                        " Dotted: the most of the last two minutes, "
                        (units::bytes(recent.at_risk_bytes_max)) ", "
                        (units::micros(recent.at_risk_ms_max * 1000)) " old."
                    }
                }
                dl.facts {
                    div { dt { "C " small { "entries acknowledged" } } dd { (units::count(shard.committed)) } }
                    div { dt { "D " small { "of them durable" } } dd { (units::count(shard.durable)) } }
                    div { dt { "entries not durable" } dd { (units::count(shard.committed - shard.durable)) } }
                    div {
                        dt { "sync " small { "p50 · p99" } }
                        dd {
                            @if syncs.n == 0 { "–" }
                            @else { (units::micros(syncs.p50 / 1000)) " · " (units::micros(syncs.p99 / 1000)) }
                        }
                    }
                }
            }
        }
    }
}

fn traffic(recent: &Recent, shards: &[ShardOverview], counters: &Counters) -> Markup {
    let at_risk: u64 = shards.iter().map(|shard| shard.at_risk_bytes).sum();
    let is_known = recent.seconds > 0.0;
    let tile = |name: &str, value: String, unit: &str, values: &[f64], least: f64| {
        html! {
            div.tile {
                p.name { (name) }
                p.value { @if is_known { (value) " " small { (unit) } } @else { "–" } }
                (mark::line(values, least))
            }
        }
    };
    html! {
        section {
            h2 { "Traffic" }
            div.tiles {
                (tile("requests", units::rate(recent.requests_per_s), "a second", &recent.requests, 10.0))
                (tile("in", units::bytes_of(recent.received_per_s), "a second", &recent.received, 1024.0))
                (tile("out", units::bytes_of(recent.sent_per_s), "a second", &recent.sent, 1024.0))
                (tile("at risk", units::bytes(at_risk), "now", &recent.at_risk_bytes, 1024.0))
            }
            p.meta {
                (units::count(counters.connections())) " connections · "
                "Produce " (times(&recent.produce)) " · Fetch " (times(&recent.fetch))
                " · over the last " (format!("{:.0}", recent.seconds)) " s; lines: two minutes"
            }
        }
    }
}

/// The median and the 99th percentile.
fn times(latency: &Latency) -> String {
    if latency.count() == 0 {
        return "none".to_owned();
    }
    format!("p50 {}, p99 {}", at_most(latency, 500), at_most(latency, 990))
}

/// What so many thousandths of the answers took at most, as far as buckets tell.
fn at_most(latency: &Latency, thousandths: u64) -> String {
    match latency.at_most_us(thousandths) {
        Some(us) => format!("≤ {}", units::micros(us)),
        None => format!("> {}", units::micros(BOUNDS_US[BOUNDS_US.len() - 1])),
    }
}

fn topics(topics: &[TopicOverview], auto_create: bool) -> Markup {
    html! {
        section {
            h2 { "Topics " small { (units::count(topics.len() as u64)) } }
            @if topics.is_empty() {
                p.soft {
                    "There are none. "
                    @if auto_create { "One that is asked for is made." }
                    @else { "One that is asked for is not made: it is created first." }
                }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "topic" } th.number { "partitions" } th.number { "records" }
                        th.number { "bytes" } th.number { "not durable" }
                    } }
                    tbody {
                        @for topic in topics.iter().take(ROWS_MAX) {
                            tr title=(topic.promise) {
                                td.name { a href={ "/topics/" (topic.name) } { (topic.name) } }
                                td.number { (number(topic.partitions)) }
                                td.number { (signed(topic.records)) }
                                td.number { (units::bytes(topic.bytes)) }
                                td.number { (signed(topic.at_risk_records)) }
                            }
                        }
                    }
                } }
                (more(topics.len(), "/topics"))
            }
        }
    }
}

fn groups(groups: &[GroupOverview]) -> Markup {
    html! {
        section {
            h2 { "Groups " small { (units::count(groups.len() as u64)) } }
            @if groups.is_empty() {
                p.soft { "There are none." }
            } @else {
                div.scroll { table {
                    thead { tr {
                        th { "group" } th { "state" } th.number { "members" }
                        th.number { "partitions" } th.number { "lag" }
                    } }
                    tbody {
                        @for group in groups.iter().take(ROWS_MAX) {
                            tr {
                                td.name { (group.name) }
                                td { (group.state) }
                                td.number { (number(group.members)) }
                                td.number { (number(group.partitions)) }
                                td.number { (signed(group.lag)) }
                            }
                        }
                    }
                } }
                (more(groups.len(), "/groups"))
            }
        }
    }
}

fn more(all: usize, path: &str) -> Markup {
    html! {
        @if all > ROWS_MAX {
            p.soft { "and " (number(all - ROWS_MAX)) " more: " a href=(path) { (path) } }
        }
    }
}

fn shard_table(shards: &[ShardOverview]) -> Markup {
    html! {
        section {
            h2 { "Shards" }
            div.scroll { table {
                thead { tr {
                    th { "shard" } th { "state" } th.number { "C" } th.number { "D" }
                    th.number { "at risk" } th.number { "syncs" } th.number { "p50" }
                    th.number { "p99" } th.number { "longest" }
                } }
                tbody {
                    @for shard in shards {
                        @let syncs = shard.log.sync_ns;
                        tr {
                            td.name { (shard.number) " " span.soft { (shard.holds) } }
                            td {
                                @if shard.offline.is_some() { strong.loud { "offline" } }
                                @else if shard.leads { "leads" }
                                @else if let Some(leader) = shard.leader { "follows " (leader) }
                                @else { strong.loud { "no leader" } }
                            }
                            td.number { (units::count(shard.committed)) }
                            td.number { (units::count(shard.durable)) }
                            td.number { (units::bytes(shard.at_risk_bytes)) }
                            td.number { (units::count(syncs.n)) }
                            td.number { (units::micros(syncs.p50 / 1000)) }
                            td.number { (units::micros(syncs.p99 / 1000)) }
                            td.number { (units::micros(syncs.max / 1000)) }
                        }
                    }
                }
            } }
        }
    }
}

fn apis(counters: &Counters) -> Markup {
    let asked: Vec<(Api, Latency)> = Api::ALL
        .iter()
        .map(|api| (*api, counters.latency(*api)))
        .filter(|(_, latency)| latency.count() > 0)
        .collect();
    let mean = |latency: &Latency| latency.total_us / latency.count();
    html! {
        @if !asked.is_empty() {
            section {
                h2 { "Requests " small { "since the start" } }
                div.scroll { table {
                    thead { tr {
                        th { "API" } th.number { "answered" } th.number { "mean" }
                        th.number { "p50" } th.number { "p99" } th { "errors" }
                    } }
                    tbody {
                        @for (api, latency) in &asked {
                            tr {
                                td.name { (format!("{api:?}")) }
                                td.number { (units::count(latency.count())) }
                                td.number { (units::micros(mean(latency))) }
                                @for thousandths in [500, 990] {
                                    td.number { (at_most(latency, thousandths)) }
                                }
                                td { (errors(counters, *api)) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn errors(counters: &Counters, api: Api) -> String {
    let told = counters.errors(api);
    let said = told.iter().map(|(error, count)| format!("{error:?} {}", units::count(*count)));
    said.collect::<Vec<_>>().join(", ")
}

fn number(count: usize) -> String {
    units::count(count as u64)
}

fn signed(count: i64) -> String {
    units::count(u64::try_from(count).unwrap_or(0))
}

/// The time of day in UTC.
fn clock() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{:02}:{:02}:{:02}", since / 3600 % 24, since / 60 % 60, since % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_is_asked_for_is_said_to_be_made_only_where_it_is() {
        assert!(topics(&[], true).into_string().contains("One that is asked for is made."));
        assert!(topics(&[], false).into_string().contains("is not made"));
    }

    #[test]
    fn what_took_longer_than_any_bucket_tells_is_said_to_be_longer() {
        let mut latency = Latency::default();
        latency.buckets[0] = 1;
        latency.buckets[BOUNDS_US.len()] = 1;
        assert_eq!(times(&latency), "p50 ≤ 25 µs, p99 > 10 s");
        assert_eq!(times(&Latency::default()), "none");
    }
}
