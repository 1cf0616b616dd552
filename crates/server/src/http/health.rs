//! Is it well, and may it be given work?

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde::Serialize;

use super::reply::Reply;
use crate::broker::ShardOverview;

/// How it is.
#[derive(Debug, Serialize)]
struct Health<'a> {
    status: &'static str,
    /// What is well, and worth less than it seems.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    shards: Vec<ShardHealth<'a>>,
}

#[derive(Debug, Serialize)]
struct ShardHealth<'a> {
    number: u32,
    holds: &'static str,
    leads: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<u64>,
    is_guarded: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unwell: &'a BTreeMap<u64, String>,
    /// Where it leads: how many more voters may fail before it takes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    spare: Option<usize>,
    /// Which topics it refuses, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmet: Option<String>,
    is_offline: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seeding: Option<&'a str>,
    /// Stretches of its log and runs of its chapters that were found damaged and are not healed.
    #[serde(skip_serializing_if = "is_zero")]
    damaged: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Whether all shards take records; if not, which do not and why. Topics that are refused are a warning: whoever starts a broker anew
/// that is not well makes it no better for them.
pub(super) fn health(shards: &[ShardOverview], warning: Option<String>) -> Reply {
    let places: u64 = shards.iter().map(damaged).sum();
    let damage = (places > 0).then(|| {
        format!("damaged places: {places} (`plimsoll cluster scrub` says which, and why they are not healed)")
    });
    let unmet = shards
        .iter()
        .filter_map(|shard| Some(format!("shard {}: {}", shard.number, shard.unmet.as_ref()?)));
    let warnings: Vec<_> = warning.into_iter().chain(damage).chain(unmet).collect();
    said(shards, "ok", (!warnings.is_empty()).then(|| warnings.join("; ")))
}

fn damaged(shard: &ShardOverview) -> u64 {
    shard.log_damaged + shard.chapters.as_ref().map_or(0, |chapters| chapters.damaged as u64)
}

/// Whether it takes work: all shards do, be it not of all topics, and it is not about to stop.
pub(super) fn ready(shards: &[ShardOverview], is_stopping: bool) -> Reply {
    if is_stopping {
        return Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "the broker is stopping");
    }
    said(shards, "ready", None)
}

fn said(shards: &[ShardOverview], well: &'static str, warning: Option<String>) -> Reply {
    let is_offline = shards.iter().any(|shard| shard.offline.is_some());
    let (code, status) = match is_offline {
        true => (StatusCode::SERVICE_UNAVAILABLE, "offline"),
        false => (StatusCode::OK, well),
    };
    let shards = shards.iter().map(|shard| ShardHealth {
        number: shard.number,
        holds: shard.holds,
        leads: shard.leads,
        leader: shard.leader,
        is_guarded: shard.is_guarded,
        unwell: &shard.unwell,
        spare: shard.spare,
        unmet: shard.unmet.as_ref().map(ToString::to_string),
        is_offline: shard.offline.is_some(),
        why: shard.offline.as_deref(),
        seeding: shard.seeding.as_deref(),
        damaged: damaged(shard),
    });
    Reply::json(code, &Health { status, warning, shards: shards.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Unmet;

    fn shard(number: u32, offline: Option<&str>) -> ShardOverview {
        ShardOverview {
            number,
            holds: "records",
            leads: true,
            leader: Some(1),
            voters: vec![1],
            is_in_doubt: false,
            is_guarded: false,
            is_exposed: false,
            unwell: BTreeMap::new(),
            spare: None,
            unmet: None,
            offline: offline.map(str::to_owned),
            seeding: None,
            committed: 0,
            durable: 0,
            at_risk_bytes: 0,
            at_risk_ms: 0,
            ring_bytes: 1,
            tail_bytes: None,
            log_damaged: 0,
            log_healed: 0,
            chapters: None,
            log: plimsoll_log::Stats::default(),
        }
    }

    #[test]
    fn a_shard_that_another_node_leads_is_well() {
        let follows = [ShardOverview { leads: false, leader: Some(3), ..shard(2, None) }];
        for reply in [health(&follows, None), ready(&follows, false)] {
            assert_eq!(reply.status, StatusCode::OK);
            let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(
                (&said["shards"][0]["leads"], &said["shards"][0]["leader"]),
                (&false.into(), &3.into())
            );
        }
    }

    #[test]
    fn a_leader_says_which_voters_are_not_well_and_is_well_itself() {
        let unwell = BTreeMap::from([(3, "no room on its disk".to_owned())]);
        let led = ShardOverview { is_guarded: true, spare: Some(0), unwell, ..shard(2, None) };
        let reply = health(&[led, shard(4, None)], None);
        let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(said["shards"][0]["unwell"]["3"], "no room on its disk");
        assert_eq!(said["shards"][0]["is_guarded"], true);
        assert_eq!(
            (&said["shards"][0]["spare"], said["shards"][1].get("spare")),
            (&0.into(), None)
        );
    }

    /// Their producers were told, and nobody else.
    #[test]
    fn a_broker_that_refuses_topics_for_want_of_replicas_in_sync_warns_of_it() {
        let unmet = Unmet { in_sync: 2, topics: 5, named: vec!["a".to_owned(), "b".to_owned()] };
        let shards = [shard(0, None), ShardOverview { unmet: Some(unmet), ..shard(2, None) }];
        let reply = health(&shards, None);
        let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(reply.status, StatusCode::OK, "others go on");
        assert_eq!((&said["status"], said["shards"][0].get("unmet")), (&"ok".into(), None));
        assert!(said["warning"].as_str().unwrap().starts_with("shard 2: producers to topics a, b"));
        let unmet = said["shards"][1]["unmet"].as_str().unwrap();
        assert!(unmet.starts_with("producers to topics a, b and 3 more get NOT_ENOUGH"), "{unmet}");
    }

    #[test]
    fn a_shard_that_is_being_seeded_says_how_far_that_is() {
        let far = "being seeded by node 2: 3 of 9 bytes of chapters, 0 of the log".to_owned();
        let seeded = [ShardOverview { seeding: Some(far.clone()), ..shard(2, None) }];
        let reply = health(&seeded, None);
        let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, &said["shards"][0]["seeding"]), (StatusCode::OK, &far.into()));
    }

    #[test]
    fn a_broker_with_damage_is_well_and_warns_of_it() {
        let shards = [shard(0, None), ShardOverview { log_damaged: 2, ..shard(2, None) }];
        let reply = health(&shards, Some("all in one rack".to_owned()));
        let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((reply.status, &said["status"]), (StatusCode::OK, &"ok".into()));
        assert_eq!(said["shards"][1]["damaged"], 2);
        assert_eq!(said["shards"][0].get("damaged"), None);
        let warning = said["warning"].as_str().unwrap();
        assert!(warning.starts_with("all in one rack; damaged places: 2 "), "{warning}");
    }

    #[test]
    fn a_shard_that_is_offline_is_named_with_its_reason() {
        let well = [shard(0, None), shard(2, None)];
        let warned = health(&well, Some("all in one rack".to_owned()));
        assert_eq!(warned.status, StatusCode::OK);
        let said: serde_json::Value = serde_json::from_slice(&warned.body).unwrap();
        assert_eq!(said["warning"], "all in one rack");
        assert_eq!(ready(&well, true).status, StatusCode::SERVICE_UNAVAILABLE);
        let ill = [shard(0, None), shard(2, Some("the disk has failed"))];
        for reply in [health(&ill, None), ready(&ill, false)] {
            assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
            let said: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(said["shards"][1]["why"], "the disk has failed");
            assert_eq!(said["shards"][0].get("why"), None);
        }
    }
}
