//! Bytes that are no greeting and no frame: refused, never a panic, and never more memory than they have.

use std::hash::Hasher;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use super::format::{frame, greeting, lane, messages, received};
use super::peer;
use crate::peer::error::Refusal;
use crate::peer::frame::{BadFrame, Kind, Lane, Message, announced, decode};
use crate::peer::greeting::{self, Greeting, HEAD_BYTES};

#[test]
fn a_frame_with_one_changed_byte_is_refused() {
    let whole = frame(&lane(), 3, &messages());
    for at in 0..whole.len() {
        for by in [1, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[at] ^= by;
            let decoded = decode(&bytes.into(), &lane(), 3);
            assert!(matches!(decoded, Err(BadFrame::Damaged(_))), "byte {at}: {decoded:?}");
        }
    }
    for length in 0..whole.len() {
        let decoded = decode(&whole.slice(..length), &lane(), 3);
        assert!(matches!(decoded, Err(BadFrame::Damaged(_))), "{length} bytes");
    }
}

#[test]
fn a_frame_of_another_connection_is_refused() {
    let whole = frame(&lane(), 3, &messages());
    let lanes = [
        Lane { cluster: 8, ..lane() },
        Lane { from: peer(1, 4), ..lane() },
        Lane { from: peer(3, 5), ..lane() },
        Lane { to: peer(2, 8), ..lane() },
        Lane { to: peer(4, 9), ..lane() },
    ];
    for lane in lanes {
        assert_eq!(decode(&whole, &lane, 3), Err(BadFrame::Elsewhere));
    }
    let other = Lane { seed: greeting::seed(&[[1; 16], [3; 16]]), ..lane() };
    assert!(matches!(decode(&whole, &other, 3), Err(BadFrame::Damaged(_))));
    let newer = Lane { version: 2, ..lane() };
    assert!(matches!(decode(&whole, &newer, 3), Err(BadFrame::Damaged(_))));
}

#[test]
fn a_frame_that_came_before_or_after_one_that_did_not_is_refused() {
    for sequence in [2, 4] {
        let whole = frame(&lane(), sequence, &messages());
        let refused = BadFrame::NotNext { expected: 3, found: sequence };
        assert_eq!(decode(&whole, &lane(), 3), Err(refused));
    }
}

#[test]
fn a_frame_that_is_too_long_is_refused_before_anything_is_allocated() {
    let mut head = frame(&lane(), 1, &[])[..16].to_vec();
    for (length, is_taken) in
        [(79, false), (80, true), (1000, true), (1001, false), (u32::MAX, false)]
    {
        head[8..12].copy_from_slice(&length.to_le_bytes());
        let mut found = None;
        let memory = allocation_counter::measure(|| found = Some(announced(&head, 1000)));
        assert_eq!(found.unwrap().is_ok(), is_taken, "{length} bytes");
        assert_eq!(memory.bytes_total, 0);
    }
    assert_eq!(announced(&head, 1000), Err(BadFrame::Oversized(u32::MAX)));
    assert_eq!(announced(&head[..15], 1000), Ok(None), "more of it must come first");
}

/// With a checksum that is right.
#[test]
fn a_count_of_messages_is_not_believed() {
    for count in [5_u32, 1 << 20, u32::MAX] {
        let mut bytes = frame(&lane(), 3, &messages()).to_vec();
        bytes[12..16].copy_from_slice(&count.to_le_bytes());
        let bytes = sealed(bytes);
        let mut decoded = None;
        let memory = allocation_counter::measure(|| decoded = Some(decode(&bytes, &lane(), 3)));
        assert!(matches!(decoded, Some(Err(BadFrame::Damaged(_)))), "{count} messages");
        assert!(memory.bytes_max < 4096, "{} bytes for {count} messages", memory.bytes_max);
    }
}

#[test]
fn a_greeting_with_one_changed_byte_is_refused() {
    let seed = greeting::seed(&[[1; 16]]);
    let whole = greeting().encode(seed);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x11;
        assert!(Greeting::decode(&bytes, seed).is_err(), "byte {at}");
    }
    for length in 0..whole.len() {
        assert!(Greeting::decode(&whole[..length], seed).is_err(), "{length} bytes");
    }
    assert!(Greeting::decode(&whole, seed ^ 1).is_err(), "it is of another connection");
    let mut head: [u8; HEAD_BYTES] = *whole.first_chunk().unwrap();
    head[76..80].copy_from_slice(&4097_u32.to_le_bytes());
    assert!(greeting::announced(&head).is_err(), "a hello is bounded");
}

/// The bytes with the checksum that they should have.
fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let (body, checksum) = bytes.split_last_chunk_mut::<8>().unwrap();
    let mut hasher = XxHash3_64::with_seed(lane().seed);
    hasher.write(body);
    *checksum = hasher.finish().to_le_bytes();
    bytes.into()
}

fn sent() -> impl Strategy<Value = Message<Vec<Bytes>>> {
    let kind = prop_oneof![
        Just(Kind::Request),
        Just(Kind::Answer),
        Just(Kind::Refused(Refusal::Busy)),
        Just(Kind::Refused(Refusal::Failed)),
    ];
    let body = vec(vec(any::<u8>(), 0..40).prop_map(Bytes::from), 0..4);
    (kind, any::<u32>(), any::<u64>(), body).prop_map(|(kind, shard, call, mut body)| {
        if matches!(kind, Kind::Refused(_)) {
            body.clear();
        }
        Message { kind, shard, call, body }
    })
}

fn again(decoded: Vec<Message<Bytes>>) -> Vec<Message<Vec<Bytes>>> {
    let again = decoded.into_iter().map(|message| {
        let Message { kind, shard, call, body } = message;
        Message { kind, shard, call, body: vec![body] }
    });
    again.collect()
}

proptest! {
    #[test]
    fn what_is_sent_is_received(sequence: u64, messages in vec(sent(), 0..20)) {
        let whole = frame(&lane(), sequence, &messages);
        prop_assert_eq!(announced(&whole, u32::MAX), Ok(Some(whole.len())));
        prop_assert_eq!(decode(&whole, &lane(), sequence), Ok(received(&messages)));
    }

    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..300), magic: bool) {
        let mut bytes = bytes;
        if magic && bytes.len() >= 80 {
            bytes[..4].copy_from_slice(b"PLPF");
            let length = u32::try_from(bytes.len()).unwrap();
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
        }
        if let Ok(Some(length)) = announced(&bytes, 1 << 20) {
            prop_assert!(length <= 1 << 20);
        }
        prop_assert!(decode(&bytes.clone().into(), &lane(), 1).is_err());
        prop_assert!(Greeting::decode(&bytes, 0).is_err());
    }

    /// With a checksum that is right.
    #[test]
    fn a_frame_that_can_be_read_is_written_as_it_was(changes in vec((0_usize..200, any::<u8>()), 1..4)) {
        let mut bytes = frame(&lane(), 3, &messages()).to_vec();
        for (at, value) in changes {
            let at = at % (bytes.len() - 8);
            bytes[at] = value;
        }
        let bytes = sealed(bytes);
        if let Ok(decoded) = decode(&bytes, &lane(), 3) {
            prop_assert_eq!(frame(&lane(), 3, &again(decoded)), bytes);
        }
    }

    /// With a checksum that is right.
    #[test]
    fn a_greeting_that_can_be_read_is_written_as_it_was(at in 0_usize..80, value: u8) {
        let mut bytes = greeting().encode(0);
        bytes[at] = value;
        let (body, checksum) = bytes.split_last_chunk_mut::<8>().unwrap();
        *checksum = XxHash3_64::oneshot_with_seed(0, body).to_le_bytes();
        if let Ok(decoded) = Greeting::decode(&bytes, 0) {
            prop_assert_eq!(decoded.encode(0), bytes);
        }
    }
}
