//! The engine's own tests of a store, run on ours, each with every promise.
//!
//! They append the first entry of an empty log wherever it suits them, which the engine never does;
//! so the log of each begins where its test does. Left out are
//!
//! * `purge_logs_upto_20`, `get_log_state`, `get_initial_state_last_log_lt_sm`,
//!   `get_initial_state_membership_from_sm_inlog_is_smaller` and `…_from_empty_log_and_sm`: they
//!   purge more than the log has, so that it begins behind its end. That is how an engine takes in
//!   a snapshot; here a log that ends before what its state knows has lost entries, and it is
//!   refused (`a_log_is_not_purged_beyond_its_end`);
//! * `snapshot_meta`, `snapshot_meta_optional` and `transfer_snapshot`: the engine has no snapshots
//!   here.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, SnapshotMeta, StorageError};
use plimsoll_log::{Ack, Options};
use plimsoll_simdisk::SimDir;
use plimsoll_sync::Dir;

use super::apply::{Apply, Stop};
use super::gone::Gone;
use super::log_store::LogStore;
use super::record::to_log;
use super::state::{Progress, State};
use super::storage::Storage;
use super::types::{LogId, StoredMembers, Types};
use super::watch;

struct Nothing;

impl Apply for Nothing {
    type Answer = ();

    fn apply(&mut self, _: u64, _: u64, _: Option<&Bytes>) -> Result<(), Stop> {
        Ok(())
    }
}

/// Our state machine, and the snapshot without which the engine opens no log that was purged.
struct WithSnapshot(State<Nothing>);

#[derive(Debug)]
struct Builder(SnapshotMetaOf<Types>);

impl RaftStateMachine<Types> for WithSnapshot {
    type SnapshotData = ();
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembers)> {
        self.0.applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        self.0.apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let (last_log_id, last_membership) = self.applied_state().await.unwrap();
        Builder(SnapshotMeta { last_log_id, last_membership })
    }

    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, (): ()) -> io::Result<()> {
        unreachable!("nothing has a snapshot to install")
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<Types, ()>>> {
        Ok(None)
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<Types, ()>> {
        Ok(SnapshotOf::<Types, ()> { meta: self.0.clone(), snapshot: () })
    }
}

/// The suite names a builder; each test here builds for itself.
struct Unused;

impl StoreBuilder<Types, LogStore, WithSnapshot> for Unused {
    async fn build(&self) -> Result<((), LogStore, WithSnapshot), StorageError<Types>> {
        unreachable!("each test builds for itself")
    }
}

type OnOurs = Suite<Types, LogStore, WithSnapshot, Unused, ()>;

const PROMISES: [Ack; 3] = [Ack::Buffered, Ack::Written, Ack::Durable];

fn store(first_index: u64, promise: Ack) -> LogStore {
    let dir: Arc<dyn Dir> = Arc::new(SimDir::new());
    let log = Options {
        first_index: to_log(first_index),
        segment_bytes: 256 << 10,
        ring_bytes: 64 << 10,
        ..Options::default()
    };
    LogStore::new(Arc::new(Storage::anywhere(&dir, log, promise, |_| false)))
}

fn machine() -> WithSnapshot {
    WithSnapshot(State::new(
        Nothing,
        None,
        Arc::new(Gone::new(None)),
        watch::Sender::new(Progress::default()),
    ))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // Their sleeps end at once.
    builder.enable_time().start_paused(true).build().unwrap().block_on(test)
}

macro_rules! on_ours {
    ($($first_index:literal $name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            for promise in PROMISES {
                run(OnOurs::$name(store($first_index, promise), machine())).unwrap();
            }
        }
    )*};
}

on_ours! {
    0 last_membership_in_log_initial,
    1 last_membership_in_log,
    1 last_membership_in_log_multi_step,
    0 get_membership_initial,
    1 get_membership_from_log_and_empty_sm,
    0 get_membership_from_empty_log_and_sm,
    1 get_membership_from_log_le_sm_last_applied,
    1 get_membership_from_log_gt_sm_last_applied_1,
    1 get_membership_from_log_gt_sm_last_applied_2,
    0 get_initial_state_without_init,
    0 get_initial_state_with_state,
    3 get_initial_state_membership_from_log_insm_is_smaller,
    0 get_initial_state_last_log_gt_sm,
    2 get_initial_state_inverted_log_order,
    2 get_initial_state_conflict_at_same_index,
    0 get_initial_state_log_ids,
    2 get_initial_state_re_apply_committed,
    0 save_vote,
    0 get_log_entries,
    0 limited_get_log_entries,
    0 leader_bounded_stream,
    0 entries_stream,
    0 try_get_log_entry,
    0 log_reader_reads_new_entries,
    0 initial_logs,
    0 get_log_id,
    0 last_id_in_log,
    0 last_applied_state,
    0 purge_logs_upto_0,
    0 purge_logs_upto_5,
    0 delete_logs_after_11,
    0 delete_logs_after_5,
    0 delete_logs_after_0,
    0 delete_logs_after_none,
    0 append_to_log,
    0 apply_single,
    0 apply_multiple,
}
