//! Frames from strangers: whatever they say, they are refused or read, and little is allocated.

use bytes::Bytes;
use proptest::prelude::*;

use super::golden::{Golden, goldens};
use super::served;
use crate::kafka::band::{Api, Request, Response};
use crate::kafka::frame::Refused;
use crate::kafka::wire::{ITEMS_MAX, Malformed, Reader};

/// What may be allocated at once for each byte of a frame: a null text of two bytes becomes a value
/// of 24, and lists lie three deep.
const BYTES_FOR_EACH: u64 = 40;
const BYTES_FOR_ALL: u64 = 1024;

/// What two inputs did to the codec that is used most, which allocates as many items as a count
/// says: the first asked for 154,618,822,584 bytes, and the process was aborted.
#[test]
fn four_bytes_do_not_end_the_process() {
    for body in [&[0x7f, 0xff, 0xff, 0xff][..], &[0x03, 0, 0, 0x03, 0x3c, 0x0c, 0, 0xb6]] {
        for (api, version) in served() {
            bounded(body.len(), || {
                let from = || Reader::new(Bytes::from_static(body), api.layout(version));
                let _refused_or_read = Request::read(api, &mut from());
                let _refused_or_read = Response::read(api, &mut from());
            });
        }
    }
    let frame = [0, 3, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff];
    let why = Malformed::Short { wanted: 0x7fff_ffff * 2, left: 0 };
    let refused = Request::decode(Bytes::copy_from_slice(&frame)).unwrap_err();
    assert!(matches!(refused, Refused::Message { why: found, .. } if found == why), "{refused:?}");
}

#[test]
fn a_frame_that_is_cut_anywhere_is_refused() {
    for golden in goldens() {
        for cut in 4..golden.frame.len() {
            assert!(!decodes(&golden, golden.frame.slice(4..cut)), "{:?} at {cut}", golden.api);
        }
    }
}

#[test]
fn a_frame_with_bytes_left_over_is_refused() {
    for golden in goldens() {
        assert!(decodes(&golden, golden.frame.slice(4..)));
        let longer = [&golden.frame[4..], &[0]].concat();
        assert!(!decodes(&golden, longer.into()), "{:?} {}", golden.api, golden.version);
    }
}

#[test]
fn a_count_that_is_blown_up_anywhere_allocates_little() {
    let counts: [&[u8]; 8] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0, 0xff, 0xff, 0xff],
        &[0, 0, 0x7f, 0xff],
        &[0, 0, 0, 40],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff],
    ];
    for golden in goldens() {
        for place in 4..golden.frame.len() {
            for count in counts {
                let mut frame = golden.frame.to_vec();
                let end = frame.len().min(place + count.len());
                frame[place..end].copy_from_slice(&count[..end - place]);
                let frame = Bytes::from(frame).slice(4..);
                bounded(frame.len(), || decodes(&golden, frame));
            }
        }
    }
}

#[test]
fn all_lists_of_a_message_have_a_bound_together() {
    // 1,049 topics, each with 1,000 partitions, all of them there.
    let topic = [&[0, 0, 0, 0, 3, 0xe8][..], &[0; 4000]].concat();
    let topics = ITEMS_MAX / 1000 + 1;
    let count = u16::try_from(topics).unwrap().to_le_bytes();
    let mut body = vec![0, 0, 0, 0, count[1], count[0]];
    body.extend(topic.repeat(topics));
    let mut from = Reader::new(body.into(), Api::OffsetDelete.layout(0));
    assert_eq!(Request::read(Api::OffsetDelete, &mut from), Err(Malformed::Items));
}

#[test]
fn a_varint_has_32_bits() {
    for (last, why) in [
        (0x0f, Malformed::Short { wanted: u32::MAX as usize - 1, left: 0 }),
        (0x10, Malformed::Varint),
        (0xff, Malformed::Varint),
    ] {
        let body = Bytes::copy_from_slice(&[0xff, 0xff, 0xff, 0xff, last]);
        let mut from = Reader::new(body, Api::ApiVersions.layout(3));
        assert_eq!(Request::read(Api::ApiVersions, &mut from), Err(why));
    }
}

/// A field that we know, one that nobody knows, and the ways in which a length may lie.
#[test]
fn a_tagged_field_has_the_bytes_that_are_said() {
    let read = |tags: &[u8]| {
        // One topic, "t", with one partition: of each of its fields zeros, then its tags.
        let mut body = vec![2, 2, b't', 2];
        body.extend([0; 4 + 2 + 8 + 8 + 8]);
        body.extend([1, 0]);
        body.extend(tags);
        // The topic's tags, for how long it was held, and the message's tags.
        body.extend([0, 0, 0, 0, 0, 0]);
        let mut from = Reader::new(body.into(), Api::Produce.layout(10));
        let read = Response::read(Api::Produce, &mut from)?;
        from.finish()?;
        let Response::Produce(read) = read else { panic!() };
        let leader = &read.responses[0].partition_responses[0].current_leader;
        Ok((leader.leader_id, leader.leader_epoch))
    };
    let leader = [0, 0, 0, 2, 0, 0, 0, 9, 0];
    assert_eq!(read(&[0]), Ok((-1, -1)), "it is not there");
    assert_eq!(read(&[&[1, 0, 9][..], &leader].concat()), Ok((2, 9)));
    assert_eq!(read(&[&[2, 0, 9][..], &leader, &[77, 2, 1, 1]].concat()), Ok((2, 9)));
    assert_eq!(read(&[1, 77, 3, 1, 1, 1]), Ok((-1, -1)), "nobody knows 77");
    let short = Malformed::Short { wanted: 1, left: 0 };
    assert_eq!(read(&[&[1, 0, 8][..], &leader].concat()), Err(short), "it would go on");
    let left = Malformed::Left(1);
    assert_eq!(read(&[&[1, 0, 10][..], &leader, &[0]].concat()), Err(left), "it ends before");
    let past = read(&[1, 77, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(past, Err(Malformed::Short { wanted: u32::MAX as usize, left: 6 }));
    let endless = read(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let none = Err(Malformed::Short { wanted: 4, left: 0 });
    assert_eq!(endless, none, "of 4 billion tags the first has no bytes");
}

proptest! {
    // Each case is fed to each version.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_at_random_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (api, version) in served() {
            bounded(bytes.len(), || {
                let from = || Reader::new(bytes.clone().into(), api.layout(version));
                let _refused_or_read = Request::read(api, &mut from());
                let _refused_or_read = Response::read(api, &mut from());
            });
        }
    }
}

fn decodes(golden: &Golden, frame: Bytes) -> bool {
    if golden.is_request {
        Request::decode(frame).is_ok()
    } else {
        Response::decode(golden.api, golden.version, frame).is_ok()
    }
}

/// Does it, and holds what was allocated at once against a frame of so many bytes.
fn bounded<T>(frame_bytes: usize, decode: impl FnOnce() -> T) {
    let allocated = allocation_counter::measure(|| drop(decode()));
    let bound = BYTES_FOR_ALL + BYTES_FOR_EACH * frame_bytes as u64;
    assert!(allocated.bytes_max <= bound, "{allocated:?} for {frame_bytes} bytes");
}
