//! All figures as Prometheus reads them (text format 0.0.4).
//!
//! Labels are APIs, error codes and shards, of which there are few: none is a topic, a partition or a
//! client, so that what is stored of them does not grow with use.

use std::fmt::{Display, Write};

use super::units::float;
use crate::broker::{ChaptersOverview, ShardOverview, Totals};
use crate::kafka::band::Api;
use crate::kafka::error::ErrorCode;
use crate::net::{BOUNDS_US, Counters, Latency};
use crate::peer::{self, Reason};

/// What is being written.
#[derive(Default)]
struct Text(String);

impl Text {
    /// A metric that samples follow of.
    fn metric(&mut self, name: &'static str, kind: &str, help: &str) -> Metric<'_> {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        Metric { text: self, name }
    }

    fn line(&mut self, line: impl Display) {
        writeln!(self.0, "{line}").expect("memory takes what is written");
    }
}

struct Metric<'a> {
    text: &'a mut Text,
    name: &'static str,
}

impl Metric<'_> {
    fn is(self, value: impl Display) {
        self.text.line(format_args!("{} {value}", self.name));
    }

    fn of_shards(self, shards: &[ShardOverview], value: impl Fn(&ShardOverview) -> Option<f64>) {
        for shard in shards {
            let Some(value) = value(shard) else { continue };
            self.text.line(format_args!("{}{{shard=\"{}\"}} {value}", self.name, shard.number));
        }
    }
}

/// `peers`: how many other nodes are connected, and what went over all connections to them, where there may be any.
pub(super) fn text(
    shards: &[ShardOverview],
    totals: Totals,
    counters: &Counters,
    peers: Option<&(usize, peer::Counters)>,
) -> String {
    let mut text = Text::default();
    let version = env!("CARGO_PKG_VERSION");
    let info = text.metric("plimsoll_info", "gauge", "What runs here");
    info.text.line(format_args!("plimsoll_info{{version=\"{version}\"}} 1"));
    requests(&mut text, counters);
    connections(&mut text, counters);
    if let Some((connected, counters)) = peers {
        of_peers(&mut text, *connected, counters);
    }
    for (name, help, count) in [
        ("plimsoll_topics", "Topics", totals.topics),
        ("plimsoll_partitions", "Partitions", totals.partitions),
        ("plimsoll_groups", "Groups of consumers", totals.groups),
    ] {
        text.metric(name, "gauge", help).is(count);
    }
    of_shards(&mut text, shards);
    text.0
}

fn requests(text: &mut Text, counters: &Counters) {
    let help =
        "From a request being read to its answer being ready, by API; a Fetch waits for records";
    text.metric("plimsoll_request_seconds", "histogram", help);
    for api in Api::ALL {
        histogram(text, *api, &counters.latency(*api));
    }
    let help =
        "Errors in answers, by API and code: one for each partition, or whatever was refused";
    text.metric("plimsoll_errors_total", "counter", help);
    for api in Api::ALL {
        for (error, count) in counters.errors(*api) {
            let (name, code) = named(error);
            text.line(format_args!(
                "plimsoll_errors_total{{api=\"{api:?}\",code=\"{code}\",error=\"{name}\"}} {count}"
            ));
        }
    }
}

fn histogram(text: &mut Text, api: Api, latency: &Latency) {
    let name = "plimsoll_request_seconds";
    let mut below = 0;
    for (bound_us, count) in BOUNDS_US.iter().zip(latency.buckets) {
        below += count;
        let bound = float(*bound_us) / 1e6;
        text.line(format_args!("{name}_bucket{{api=\"{api:?}\",le=\"{bound}\"}} {below}"));
    }
    let all = latency.count();
    text.line(format_args!("{name}_bucket{{api=\"{api:?}\",le=\"+Inf\"}} {all}"));
    let seconds = float(latency.total_us) / 1e6;
    text.line(format_args!("{name}_sum{{api=\"{api:?}\"}} {seconds}"));
    text.line(format_args!("{name}_count{{api=\"{api:?}\"}} {all}"));
}

/// A code as Kafka numbers it, and its name.
fn named(error: ErrorCode) -> (String, String) {
    match error {
        ErrorCode::Other(_) => ("Other".to_owned(), "other".to_owned()),
        error => (format!("{error:?}"), i16::from(error).to_string()),
    }
}

fn connections(text: &mut Text, counters: &Counters) {
    text.metric("plimsoll_connections", "gauge", "Connections of clients")
        .is(counters.connections());
    for (name, help, count) in [
        ("plimsoll_connections_taken_total", "Connections taken", counters.connections_taken()),
        (
            "plimsoll_connections_turned_away_total",
            "Connections closed at once, because there were too many",
            counters.connections_turned_away(),
        ),
        ("plimsoll_received_bytes_total", "Bytes that clients sent", counters.received_bytes()),
        ("plimsoll_sent_bytes_total", "Bytes that clients were sent", counters.sent_bytes()),
    ] {
        text.metric(name, "counter", help).is(count);
    }
}

fn of_peers(text: &mut Text, connected: usize, counters: &peer::Counters) {
    text.metric("plimsoll_peers_connected", "gauge", "Other nodes that are connected")
        .is(connected);
    for (name, help, count) in [
        ("plimsoll_peer_connections_total", "Connections agreed on", counters.connections),
        ("plimsoll_peer_frames_sent_total", "Frames written", counters.frames_sent),
        ("plimsoll_peer_frames_received_total", "Frames read", counters.frames_received),
        ("plimsoll_peer_messages_sent_total", "Messages in frames written", counters.messages_sent),
        (
            "plimsoll_peer_messages_received_total",
            "Messages in frames read",
            counters.messages_received,
        ),
        ("plimsoll_peer_sent_bytes_total", "Bytes written", counters.sent_bytes),
        ("plimsoll_peer_received_bytes_total", "Bytes read", counters.received_bytes),
        ("plimsoll_peer_busy_total", "Requests not sent, as too many wait", counters.busy),
        (
            "plimsoll_peer_turned_away_total",
            "Requests of other nodes not handled, as they have too many under way",
            counters.turned_away,
        ),
    ] {
        text.metric(name, "counter", help).is(count);
    }
    let name = "plimsoll_peer_refused_total";
    text.metric(
        name,
        "counter",
        "Connections between nodes that were refused, or ended so, by reason",
    );
    for reason in Reason::ALL {
        let count = counters.refused(reason);
        text.line(format_args!("{name}{{reason=\"{}\"}} {count}", reason.label()));
    }
}

fn of_shards(text: &mut Text, shards: &[ShardOverview]) {
    let mut gauge = |name, help, value: fn(&ShardOverview) -> Option<f64>| {
        text.metric(name, "gauge", help).of_shards(shards, value);
    };
    gauge("plimsoll_shard_offline", "1 if it takes no entries any more", |shard| {
        Some(if shard.offline.is_some() { 1.0 } else { 0.0 })
    });
    gauge("plimsoll_shard_leads", "1 if this node leads it", |shard| {
        Some(if shard.leads { 1.0 } else { 0.0 })
    });
    gauge(
        "plimsoll_shard_guarded",
        "1 if it leads it, and what is acknowledged is durable on a majority first",
        |shard| Some(if shard.is_guarded { 1.0 } else { 0.0 }),
    );
    gauge("plimsoll_shard_unwell_voters", "Voters that are not well, if it leads it", |shard| {
        Some(float(shard.unwell.len() as u64))
    });
    gauge(
        "plimsoll_shard_spare_voters",
        "Voters that may fail before it takes nothing, if it leads it and that is known",
        |shard| shard.spare.map(|spare| float(spare as u64)),
    );
    gauge(
        "plimsoll_shard_unmet_topics",
        "Topics that it refuses if it leads it, as fewer brokers are in sync than their min.insync.replicas",
        |shard| Some(float(shard.unmet.as_ref().map_or(0, |unmet| unmet.topics))),
    );
    gauge("plimsoll_shard_leader", "The node that leads it, if one does", |shard| {
        shard.leader.map(float)
    });
    gauge("plimsoll_shard_committed_entries", "C: entries that are acknowledged", |shard| {
        Some(float(shard.committed))
    });
    gauge("plimsoll_shard_durable_entries", "D: entries that a power cut leaves", |shard| {
        Some(float(shard.durable))
    });
    gauge(
        "plimsoll_shard_at_risk_bytes",
        "Bytes that are acknowledged and not durable, at most",
        |shard| Some(float(shard.at_risk_bytes)),
    );
    gauge(
        "plimsoll_shard_at_risk_seconds",
        "Age of the oldest entry that is acknowledged, was taken to be written, and is not durable",
        |shard| Some(float(shard.at_risk_ms) / 1e3),
    );
    gauge(
        "plimsoll_shard_ring_bytes",
        "Bytes that the ring takes before producers wait",
        |shard| Some(float(shard.ring_bytes)),
    );
    gauge("plimsoll_shard_tail_bytes", "Bytes of entries that are served from memory", |shard| {
        shard.tail_bytes.map(float)
    });
    gauge(
        "plimsoll_shard_log_damaged_stretches",
        "Stretches of its log that were found damaged, and are not healed",
        |shard| Some(float(shard.log_damaged)),
    );
    gauge(
        "plimsoll_shard_log_healed_records",
        "Records of its log that were healed since the start",
        |shard| Some(float(shard.log_healed)),
    );
    of_chapters(text, shards);
    sync_times(text, shards);
    let mut counter = |name, help, value: fn(&ShardOverview) -> u64| {
        text.metric(name, "counter", help).of_shards(shards, |shard| Some(float(value(shard))));
    };
    counter("plimsoll_shard_syncs_total", "Syncs of its log", |shard| shard.log.sync_ns.n);
    counter("plimsoll_shard_records_total", "Records appended to its log", |shard| {
        shard.log.records
    });
    counter("plimsoll_shard_written_bytes_total", "Bytes written to its log", |shard| {
        shard.log.written_bytes
    });
    counter("plimsoll_shard_stalls_total", "Appends to its log that waited for room", |shard| {
        shard.log.stall_ns.n
    });
    counter("plimsoll_shard_failovers_total", "Segments that failed and were replaced", |shard| {
        shard.log.failovers
    });
}

fn of_chapters(text: &mut Text, shards: &[ShardOverview]) {
    let mut gauge = |name, help, value: fn(&ChaptersOverview) -> u64| {
        let value = |shard: &ShardOverview| shard.chapters.as_ref().map(|of| float(value(of)));
        text.metric(name, "gauge", help).of_shards(shards, value);
    };
    gauge("plimsoll_shard_chapter_settled", "The last chapter that is settled", |of| of.settled);
    gauge("plimsoll_shard_chapters_waiting", "Chapters that ended and wait to be settled", |of| {
        of.waiting as u64
    });
    gauge("plimsoll_shard_chapter_open_bytes", "Bytes of entries since the last one ended", |of| {
        of.open_bytes
    });
    gauge("plimsoll_shard_chapter_files", "Files of chapters", |of| of.files as u64);
    gauge("plimsoll_shard_chapter_runs", "Runs in them that can be read", |of| of.runs as u64);
    gauge("plimsoll_shard_chapter_live_bytes", "Bytes of batches in these", |of| of.live_bytes);
    gauge("plimsoll_shard_chapter_file_bytes", "Bytes of the files", |of| of.file_bytes);
    gauge("plimsoll_shard_chapter_damaged_runs", "Runs that were found damaged", |of| {
        of.damaged as u64
    });
    gauge("plimsoll_shard_chapter_healed_runs", "Runs that were healed since the start", |of| {
        of.healed
    });
    let mut scrubbed = |name, help, value: fn(&ChaptersOverview) -> Option<f64>| {
        let value = |shard: &ShardOverview| shard.chapters.as_ref().and_then(value);
        text.metric(name, "gauge", help).of_shards(shards, value);
    };
    scrubbed(
        "plimsoll_shard_scrub_ended_timestamp_seconds",
        "When all chapters had last been read again, in seconds since 1970; none before the first time",
        |of| of.scrub_ended_ms.map(|ms| float(ms) / 1e3),
    );
    scrubbed(
        "plimsoll_shard_scrub_bytes",
        "Bytes of batches that there were to be read then",
        |of| of.scrub_bytes.map(float),
    );
}

fn sync_times(text: &mut Text, shards: &[ShardOverview]) {
    let name = "plimsoll_shard_sync_seconds";
    text.metric(name, "gauge", "How long syncs of its log took since the start, by quantile");
    for shard in shards.iter().filter(|shard| shard.log.sync_ns.n > 0) {
        let (number, times) = (shard.number, shard.log.sync_ns);
        for (quantile, ns) in
            [("0.5", times.p50), ("0.99", times.p99), ("0.999", times.p999), ("1", times.max)]
        {
            let seconds = float(ns) / 1e9;
            text.line(format_args!(
                "{name}{{shard=\"{number}\",quantile=\"{quantile}\"}} {seconds}"
            ));
        }
    }
}
