//! What Kafka's clients have sent, from `testdata/kafka/clients.txt`.

use bytes::Bytes;
use plimsoll_server::kafka::batch::Batch;

/// The batches that clients of this name have produced; of all, if it is empty.
pub(crate) fn batches(client: &str) -> Vec<Bytes> {
    let lines = include_str!("../../testdata/kafka/clients.txt").lines();
    let produced = lines.filter(|line| line.starts_with(client) && line.contains(" Produce "));
    let mut found = Vec::new();
    for frame in produced.map(|line| bytes(line.rsplit(' ').next().unwrap())) {
        let batch = |at: usize| Batch::take(&mut frame.slice(at..)).ok().flatten();
        found.extend((0..frame.len()).filter_map(batch));
    }
    found.iter().map(|batch| batch.pieces().concat().into()).collect()
}

fn bytes(hex: &str) -> Bytes {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}
