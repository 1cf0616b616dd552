//! Frames and greetings, as values.

use bytes::{Bytes, BytesMut};

use super::{CLUSTER, peer};
use crate::peer::Priority;
use crate::peer::error::Refusal;
use crate::peer::frame::{self, Kind, Lane, Message};
use crate::peer::greeting::{self, Greeting};
use crate::peer::judge::{Expected, Reason};

pub(super) fn lane() -> Lane {
    let nonces = [[1; 16], [2; 16]];
    let seed = greeting::seed(&nonces);
    Lane { version: 1, cluster: CLUSTER, from: peer(1, 5), to: peer(2, 9), seed }
}

pub(super) fn messages() -> Vec<Message<Vec<Bytes>>> {
    let pieces = |pieces: &[&'static [u8]]| pieces.iter().map(|p| Bytes::from_static(p)).collect();
    let refused = Kind::Refused(Refusal::TooLarge);
    vec![
        Message {
            kind: Kind::Request,
            shard: 0,
            call: 1,
            body: pieces(&[b"votes", b" and terms"]),
        },
        Message {
            kind: Kind::Answer,
            shard: u32::MAX,
            call: u64::MAX,
            body: pieces(&[b"granted"]),
        },
        Message { kind: refused, shard: 3, call: 7, body: Vec::new() },
        Message { kind: Kind::Request, shard: 4, call: 2, body: Vec::new() },
    ]
}

/// A frame as it goes over the wire.
pub(super) fn frame(lane: &Lane, sequence: u64, messages: &[Message<Vec<Bytes>>]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.extend(frame::encode(lane, sequence, messages));
    bytes.freeze()
}

/// The same messages, as their receiver has them.
pub(super) fn received(messages: &[Message<Vec<Bytes>>]) -> Vec<Message<Bytes>> {
    let received = messages.iter().map(|message| {
        let Message { kind, shard, call, body } = message;
        Message { kind: *kind, shard: *shard, call: *call, body: body.concat().into() }
    });
    received.collect()
}

pub(super) fn greeting() -> Greeting {
    Greeting {
        kind: greeting::Kind::Dialler,
        priority: Priority::Bulk,
        versions: (1, 3),
        reason: 0,
        cluster: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        from: peer(11, 12),
        to: 13,
        nonce: [14; 16],
        frame_bytes: 1 << 20,
        hello: Bytes::from_static(b"I am 11"),
    }
}

#[test]
fn a_frame_has_the_pieces_of_its_messages_and_not_copies_of_them() {
    let bodies: Vec<Bytes> = (0..100).map(|byte| Bytes::from(vec![byte; 300])).collect();
    let request = |body: &[Bytes]| {
        let body = body.to_vec();
        Message { kind: Kind::Request, shard: 0, call: 0, body }
    };
    let messages: Vec<_> = bodies.chunks(3).map(request).collect();
    let pieces = frame::encode(&lane(), 1, &messages);
    let inner = &pieces[1..pieces.len() - 1];
    let pointers = |pieces: &[Bytes]| pieces.iter().map(|p| p.as_ptr()).collect::<Vec<_>>();
    assert_eq!(pointers(inner), pointers(&bodies));
    let bytes = frame(&lane(), 1, &messages);
    let range = bytes.as_ptr_range();
    for message in frame::decode(&bytes, &lane(), 1).unwrap() {
        assert!(range.contains(&message.body.as_ptr()), "what comes is a slice of its frame");
    }
}

#[test]
fn a_frame_without_messages_is_a_sign_of_life() {
    let bytes = frame(&lane(), 3, &[]);
    assert_eq!(bytes.len(), frame::EMPTY_BYTES);
    assert_eq!(frame::decode(&bytes, &lane(), 3), Ok(Vec::new()));
}

#[test]
fn whom_we_do_not_talk_to_is_told_why() {
    let us = Expected {
        cluster: greeting().cluster,
        us: peer(13, 1),
        kind: greeting::Kind::Dialler,
        dialled: None,
    };
    let but = |change: &dyn Fn(&mut Greeting)| {
        let mut greeting = greeting();
        change(&mut greeting);
        us.judge(&greeting)
    };
    assert_eq!(but(&|_| ()), Ok(1));
    assert_eq!(but(&|said| said.cluster += 1), Err(Reason::ForeignCluster));
    assert_eq!(but(&|said| said.from.node = 13), Err(Reason::Ourselves));
    assert_eq!(but(&|said| said.to = 14), Err(Reason::WrongNode));
    assert_eq!(but(&|said| said.from.node = 14), Err(Reason::WrongSide));
    assert_eq!(but(&|said| said.versions = (2, 3)), Err(Reason::Version));
    assert_eq!(but(&|said| said.versions = (3, 1)), Err(Reason::Version), "no range");
    assert_eq!(but(&|said| said.frame_bytes = 100), Err(Reason::Damaged), "nothing fits");
    assert_eq!(but(&|said| said.kind = greeting::Kind::Dialled), Err(Reason::Damaged));

    let dialled = |node, priority| {
        let dialled = Some((node, priority));
        Expected { dialled, ..us }.judge(&greeting())
    };
    assert_eq!(dialled(11, Priority::Bulk), Ok(1));
    assert_eq!(dialled(12, Priority::Bulk), Err(Reason::WrongNode));
    assert_eq!(dialled(11, Priority::Urgent), Err(Reason::Damaged));
}

#[test]
fn every_reason_has_its_number_and_its_place() {
    for (place, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!((Reason::of(reason as u16), reason.place()), (Some(reason), place));
    }
    assert_eq!((Reason::of(0), Reason::of(999)), (None, None));
}
