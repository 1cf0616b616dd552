//! A batch that is sent again to another leader.

use plimsoll_server::broker::Options;
use plimsoll_server::kafka::batch::Producer;
use plimsoll_server::kafka::compression::Compression;
use plimsoll_server::kafka::error::ErrorCode;
use plimsoll_server::kafka::message::ElectLeadersRequest;
use plimsoll_server::kafka::records::Draft;

use super::forwarded::{metadata, three, until};
use super::unsynced;

const SHARED: usize = 2;
/// Which of three is preferred to lead it.
const PREFERRED: u64 = 2;

/// What the one before had acknowledged was in memory, as nothing was wrong then; a new leader is guarded at first. It said at
/// once that it had the batch, though on no disk.
#[test]
fn a_batch_that_is_sent_again_is_durable_before_a_guarded_leader_says_that_it_has_it() {
    let root = tempfile::tempdir().unwrap();
    let mut brokers = three(root.path(), &Options { spreads_leaders: false, ..unsynced() });
    until("it waits for disks no more", || {
        let shard = &brokers[&1].node.shards()[SHARED];
        shard.leads && !shard.is_guarded
    });
    let mut draft = Draft::default();
    draft.push(1_000, None, Some(b"once"), &[]);
    let producer = Some(Producer { id: 7, epoch: 0, base_sequence: 0 });
    let batch = bytes::Bytes::from(draft.batch(Compression::None, producer).pieces().concat());
    let first = brokers.get_mut(&1).unwrap().produce_bytes("votes", batch.clone());
    assert_eq!(first.error_code, ErrorCode::None, "{first:?}");
    brokers.get_mut(&1).unwrap().client.call(ElectLeadersRequest::default()).unwrap();
    let preferred = brokers.get_mut(&PREFERRED).unwrap();
    until("another leads", || {
        metadata(preferred, "votes", false).topics[0].partitions[0].leader_id == 2
    });
    let before = preferred.node.shards()[SHARED].clone();
    assert!(
        before.is_guarded && before.durable < before.committed,
        "nothing is tested: {before:?}"
    );
    let again = preferred.produce_bytes("votes", batch);
    assert_eq!((again.error_code, again.base_offset), (ErrorCode::None, first.base_offset));
    let after = preferred.node.shards()[SHARED].clone();
    assert!(after.durable >= before.committed, "{} of {}", after.durable, before.committed);
    for (_, broker) in brokers {
        broker.close();
    }
}
