//! Record batches, as clients send them but for CRC-32C and records: a shard believes both.
#![expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]

use bytes::Bytes;
use plimsoll_server::shard::{Opening, PartitionId, Sequenced, TopicId};

/// A batch of so many records of ten bytes.
pub(crate) fn batch(records: u32, sequenced: Option<Sequenced>, max_timestamp: i64) -> Bytes {
    let mut bytes = vec![0; 61 + 10 * records as usize];
    let length = u32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[12..16].copy_from_slice(&(-1_i32).to_be_bytes());
    bytes[16] = 2;
    bytes[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    bytes[35..43].copy_from_slice(&max_timestamp.to_be_bytes());
    let none = Sequenced { producer: -1, epoch: -1, first: -1 };
    let Sequenced { producer, epoch, first } = sequenced.unwrap_or(none);
    bytes[43..51].copy_from_slice(&producer.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&first.to_be_bytes());
    bytes[57..61].copy_from_slice(&records.to_be_bytes());
    Bytes::from(bytes)
}

/// A stay of partition `number` of the one topic that most tests need.
pub(crate) fn opening(number: u32, stay: u32) -> Opening {
    Opening { partition: PartitionId { topic: TopicId([7; 16]), number }, number: stay }
}
