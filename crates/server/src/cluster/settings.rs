//! What the engine is told, and why. What is not named is as the engine has it.

use openraft::{Config, SnapshotPolicy};

/// After so long without a leader's word every other replica campaigns.
pub(crate) const ELECTION_MS: u64 = 1000;

/// The engine's settings for every group.
pub(crate) fn settings() -> Config {
    Config {
        cluster_name: "plimsoll".to_owned(),

        // A leader that comes back with a shorter log would go on in its term without an election,
        // and give two payloads one log id. The engine's default is to do that.
        enable_leader_restore: Some(false),
        // A follower that forgot the end of its log is sent it again, and not left behind for ever
        // in silence. Safe only with the rule of re-entry, under which such a replica neither votes
        // nor leads.
        allow_log_reversion: Some(true),
        // A replica that was away disturbs no leader. `network` must then refuse where it cannot
        // ask: the engine's default grants.
        enable_pre_vote: Some(true),
        // Nobody campaigns before `core` allows it: a vote that is durable while the first
        // membership is not would leave a replica that is neither new nor a member.
        enable_elect: false,

        // Snapshots and what is purged are the shard's: at or below what is durable on a quorum. A
        // replica that is far behind is seeded before its engine starts, never by the engine.
        snapshot_policy: SnapshotPolicy::Never,
        replication_lag_threshold: u64::MAX,
        max_in_snapshot_log_to_keep: u64::MAX,
        // It adds this to an index.
        purge_batch_size: u64::MAX / 2,

        // A lost leader is replaced within about a second and a half, and a pause of the process of a
        // quarter of a second is none. The engine wakes up some ten times a second for that, in each
        // group.
        heartbeat_interval: 100,
        election_timeout_min: 500,
        election_timeout_max: ELECTION_MS,

        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_valid_and_a_leader_never_restores_itself() {
        let settings = settings().validate().unwrap();
        assert_eq!(settings.enable_leader_restore, Some(false));
        assert_eq!(settings.snapshot_policy, SnapshotPolicy::Never);
    }
}
