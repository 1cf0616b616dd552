//! What a shard's leader and its replicas pay for a batch, in nanoseconds: medians of rounds.
//!
//! `cargo run --release -p plimsoll-server --example shard_figures`, on a quiet machine.
#![expect(clippy::print_stdout, reason = "it is what it is for")]

use std::time::Instant;

use bytes::Bytes;
use plimsoll_server::shard::{
    Draft, Item, Open, Opening, PartitionId, Producers, Proposer, Settings, State, Submission,
    TopicId,
};

const ENTRIES: usize = 200;
const BATCHES: usize = 100;
const ROUNDS: usize = 9;

fn main() {
    println!("partitions  producers  propose (ns a batch)  apply (ns a batch)");
    for partitions in [1, 1_000, 100_000] {
        for is_idempotent in [false, true] {
            let mut rounds: Vec<[u64; 2]> =
                (0..ROUNDS).map(|_| round(partitions, is_idempotent)).collect();
            let [propose, apply] = [0, 1].map(|column| {
                rounds.sort_unstable_by_key(|round| round[column]);
                rounds[ROUNDS / 2][column]
            });
            println!("{partitions:10}  {is_idempotent:9}  {propose:20}  {apply:18}");
        }
    }
}

/// Nanoseconds for each batch: drafting its entry, and applying it on a replica.
fn round(partitions: u32, is_idempotent: bool) -> [u64; 2] {
    let mut state = State::default();
    state.pass(1, 1).unwrap();
    let mut replica = state.clone();
    let mut outcomes = Vec::new();
    for entry in openings(partitions) {
        let index = state.applied() + 1;
        state.apply(index, &entry, &mut outcomes).unwrap();
        replica.apply(index, &entry, &mut outcomes).unwrap();
    }
    let mut proposer = Proposer::new(&state, 0);
    let (mut proposing, mut applying) = (0, 0);
    let mut number = 0_u32;
    for _ in 0..ENTRIES {
        for _ in 0..BATCHES {
            let of = number.wrapping_mul(7919) % partitions;
            let sequence = is_idempotent.then_some((number / partitions).cast_signed());
            let (ticket, connection, opening) = (0, u64::from(of % 16), opening(of));
            proposer.submit(Submission { ticket, connection, opening, batch: batch(sequence) });
            number += 1;
        }
        let mut answers = Vec::new();
        let begun = Instant::now();
        let proposal = proposer.draft(&state, 0, &mut answers).expect("batches wait");
        proposing += begun.elapsed().as_nanos();
        let entry = proposal.bytes;
        let index = state.applied() + 1;
        state.apply(index, &entry, &mut outcomes).unwrap();
        proposer.applied(index, &mut answers);
        proposer.durable(index);
        outcomes.clear();
        let begun = Instant::now();
        replica.apply(index, &entry, &mut outcomes).unwrap();
        applying += begun.elapsed().as_nanos();
        assert_eq!(answers.len(), BATCHES);
    }
    [proposing, applying].map(|nanos| u64::try_from(nanos).unwrap() / (ENTRIES * BATCHES) as u64)
}

/// Entries that open so many partitions.
fn openings(partitions: u32) -> Vec<Bytes> {
    let settings = Settings {
        retention_ms: None,
        retention_bytes: None,
        batch_bytes_max: 1 << 20,
        append_timestamps: false,
        compaction: None,
    };
    let all: Vec<u32> = (0..partitions).collect();
    let entry = |some: &[u32]| {
        let mut draft = Draft::new();
        for number in some {
            let (opening, producers) = (opening(*number), Producers::default());
            draft.push(&Item::Open(Open { opening, base_epoch: 0, start: 0, settings, producers }));
            draft.push(&Item::Ceiling { opening, ceiling: Some(1 << 30) });
        }
        draft.finish(0)
    };
    all.chunks(10_000).map(entry).collect()
}

fn opening(number: u32) -> Opening {
    Opening { partition: PartitionId { topic: TopicId([7; 16]), number }, number: 1 }
}

/// A batch of 1 KiB with one record, of no producer or of one.
#[expect(clippy::big_endian_bytes, reason = "Kafka's integers are big-endian")]
fn batch(sequence: Option<i32>) -> Bytes {
    let mut bytes = vec![0; 1024];
    bytes[8..12].copy_from_slice(&1012_u32.to_be_bytes());
    bytes[16] = 2;
    let (producer, epoch) = if sequence.is_some() { (5_i64, 0_i16) } else { (-1, -1) };
    bytes[43..51].copy_from_slice(&producer.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.unwrap_or(-1).to_be_bytes());
    bytes[57..61].copy_from_slice(&1_u32.to_be_bytes());
    bytes.into()
}
