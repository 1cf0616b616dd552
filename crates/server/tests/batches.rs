//! A batch is read in two rooms: once held against what it says, and then believed. Both see the same.

#[path = "shared/clients.rs"]
mod clients;

use clients::batches;
use plimsoll_server::{kafka, shard};

#[test]
fn what_is_believed_is_what_was_checked() {
    let batches = batches("");
    assert!(batches.len() > 5, "only {} batches", batches.len());
    for bytes in batches {
        let checked = kafka::batch::Batch::take(&mut bytes.clone()).unwrap().unwrap();
        let (header, believed) = (checked.header(), shard::Batch::read(&bytes).unwrap());
        let sequenced = header.producer().map(|producer| shard::Sequenced {
            producer: producer.id,
            epoch: producer.epoch,
            first: producer.base_sequence,
        });
        let expected = shard::Batch {
            base_offset: header.base_offset(),
            epoch: header.leader_epoch(),
            offsets: header.count().cast_unsigned(),
            max_timestamp: header.max_timestamp(),
            sequenced,
            bytes: u32::try_from(bytes.len()).unwrap(),
        };
        assert_eq!(believed, expected);

        let mut stamped = checked.clone();
        stamped.stamp(77, 5);
        let head = shard::stamp(&bytes, 77, 5).unwrap();
        assert_eq!(stamped.pieces().concat(), [&head[..], &bytes[head.len()..]].concat());
    }
}
