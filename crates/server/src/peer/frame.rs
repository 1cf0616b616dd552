//! Frames: messages that go together, as bytes.
//!
//! ```text
//!  byte offset  bytes
//!            0      4  "PLPF"
//!            4      2  version: 1
//!            6      2  zeros
//!            8      4  length of the frame, with all that is drawn here
//!           12      4  count of messages; 0: a sign of life
//!           16     16  cluster
//!           32      8  node that sends it
//!           40      8  its incarnation
//!           48      8  node that it is sent to
//!           56      8  its incarnation
//!           64      8  sequence: 1 for the first frame of a side, and one more for each
//!           72     20  each message: kind u8 · why u8 · zeros u16 · shard u32 · call u64 · length u32
//!            …      …  their bodies, in this order
//!            …      8  XXH3-64 of all before, seeded with the nonces of the connection
//! ```
//!
//! Little-endian. Kinds: 1 request, 2 answer, 3 refused. *Why* is 0, and of what is refused 1 busy, 2 failed,
//! 3 too large; that has no body. A call is a number that its asker drew for this connection; an answer has
//! that of its request.
//!
//! A length is held against the bound when 16 bytes are there, before room is made for the rest. Then comes
//! the checksum, then everything else: what is said of a frame that fails is about bytes that were sent so.

use std::hash::Hasher;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::Peer;
use super::error::Refusal;
use crate::cursor::{Cursor, Malformed};

/// The versions of frames that we speak: the lowest and the highest.
pub(super) const VERSIONS: (u16, u16) = (1, 1);
/// Of a frame without messages.
pub(super) const EMPTY_BYTES: usize = HEAD_BYTES + CHECKSUM_BYTES;
/// What stands before the bodies, for each message.
pub(super) const MESSAGE_BYTES: usize = 20;
/// A frame has room for so much at least: for one message of a byte.
pub(super) const LEAST_FRAME_BYTES: usize = EMPTY_BYTES + MESSAGE_BYTES + 1;

const MAGIC: [u8; 4] = *b"PLPF";
const HEAD_BYTES: usize = 72;
const CHECKSUM_BYTES: usize = 8;
/// Magic, version and length.
const PREFIX_BYTES: usize = 16;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Answer,
    Refused(Refusal),
}

/// A message in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message<Body> {
    pub(super) kind: Kind,
    pub(super) shard: u32,
    pub(super) call: u64,
    pub(super) body: Body,
}

/// What frames in one direction of a connection have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) version: u16,
    pub(super) cluster: u128,
    pub(super) from: Peer,
    pub(super) to: Peer,
    /// Made of the nonces of both.
    pub(super) seed: u64,
}

/// Why bytes are not the next frame. The connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadFrame {
    #[error("a frame of {0} bytes")]
    Oversized(u32),
    #[error(transparent)]
    Damaged(#[from] Malformed),
    #[error("frame {found} came where {expected} is next")]
    NotNext { expected: u64, found: u64 },
    #[error("a frame that is not of this connection")]
    Elsewhere,
}

/// The bytes of a frame, in pieces: what stands before the bodies, the bodies as they are, and the checksum.
pub(super) fn encode(lane: &Lane, sequence: u64, messages: &[Message<Vec<Bytes>>]) -> Vec<Bytes> {
    let body_bytes =
        |message: &Message<Vec<Bytes>>| message.body.iter().map(Bytes::len).sum::<usize>();
    let bytes = EMPTY_BYTES + messages.iter().map(|m| MESSAGE_BYTES + body_bytes(m)).sum::<usize>();
    let number = |number: usize| u32::try_from(number).expect("a frame is bounded");
    let mut head = Vec::with_capacity(HEAD_BYTES + MESSAGE_BYTES * messages.len());
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&lane.version.to_le_bytes());
    head.extend_from_slice(&[0; 2]);
    head.extend_from_slice(&number(bytes).to_le_bytes());
    head.extend_from_slice(&number(messages.len()).to_le_bytes());
    head.extend_from_slice(&lane.cluster.to_le_bytes());
    let Lane { from, to, .. } = lane;
    for field in [from.node, from.incarnation, to.node, to.incarnation, sequence] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    for message in messages {
        let (kind, why) = match message.kind {
            Kind::Request => (1, 0),
            Kind::Answer => (2, 0),
            Kind::Refused(why) => (3, why as u8),
        };
        head.extend_from_slice(&[kind, why, 0, 0]);
        head.extend_from_slice(&message.shard.to_le_bytes());
        head.extend_from_slice(&message.call.to_le_bytes());
        head.extend_from_slice(&number(body_bytes(message)).to_le_bytes());
    }
    let bodies = messages.iter().flat_map(|message| &message.body);
    let mut pieces = Vec::with_capacity(2 + messages.len());
    pieces.push(Bytes::from(head));
    pieces.extend(bodies.filter(|piece| !piece.is_empty()).cloned());
    let mut hasher = XxHash3_64::with_seed(lane.seed);
    for piece in &pieces {
        hasher.write(piece);
    }
    pieces.push(Bytes::copy_from_slice(&hasher.finish().to_le_bytes()));
    pieces
}

/// How long the frame is that begins here, if so much of it is there.
pub(super) fn announced(received: &[u8], most: u32) -> Result<Option<usize>, BadFrame> {
    let Some(prefix) = received.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let mut from = Cursor::new(prefix, "the head of a frame");
    if from.array()? != MAGIC {
        return Err(Malformed::Field("the first byte of a frame", u64::from(prefix[0])).into());
    }
    from.bytes(4)?;
    let said = from.u32()?;
    if said > most {
        return Err(BadFrame::Oversized(said));
    }
    let length = usize::try_from(said).ok().filter(|length| *length >= EMPTY_BYTES);
    Ok(Some(length.ok_or(Malformed::Field("the length of a frame", u64::from(said)))?))
}

/// The messages of a whole frame, which must be the next one of its lane. Bodies are slices of it.
pub(super) fn decode(
    frame: &Bytes,
    lane: &Lane,
    sequence: u64,
) -> Result<Vec<Message<Bytes>>, BadFrame> {
    const SHORT: Malformed = Malformed::Short("a frame");
    if announced(frame, u32::MAX)? != Some(frame.len()) {
        return Err(SHORT.into());
    }
    let (checked, checksum) = frame.split_last_chunk().ok_or(SHORT)?;
    let mut hasher = XxHash3_64::with_seed(lane.seed);
    hasher.write(checked);
    let (expected, found) = (u64::from_le_bytes(*checksum), hasher.finish());
    if expected != found {
        return Err(Malformed::Checksum { expected, found }.into());
    }
    let mut from = Cursor::new(checked, "a frame");
    from.bytes(MAGIC.len())?;
    let version = from.u16()?;
    if version != lane.version {
        return Err(Malformed::Field("the version of a frame", u64::from(version)).into());
    }
    from.zeros(2, "a byte behind the version")?;
    from.u32()?;
    let count = from.u32()?;
    let cluster = u128::from_le_bytes(from.array()?);
    let sender = Peer { node: from.u64()?, incarnation: from.u64()? };
    let receiver = Peer { node: from.u64()?, incarnation: from.u64()? };
    if (cluster, sender, receiver) != (lane.cluster, lane.from, lane.to) {
        return Err(BadFrame::Elsewhere);
    }
    let found = from.u64()?;
    if found != sequence {
        return Err(BadFrame::NotNext { expected: sequence, found });
    }
    let fits =
        usize::try_from(count).ok().filter(|count| *count <= from.rest().len() / MESSAGE_BYTES);
    let count = fits.ok_or(Malformed::Field("the count of messages", u64::from(count)))?;
    let mut at = HEAD_BYTES + count * MESSAGE_BYTES;
    let end = checked.len();
    let mut messages = Vec::with_capacity(count);
    for _ in 0..count {
        let [kind, why] = from.array()?;
        from.zeros(2, "a byte behind the kind of a message")?;
        let (shard, call, length) = (from.u32()?, from.u64()?, from.u32()?);
        let kind = kind_of(kind, why, length)?;
        let after = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
        let after = after.filter(|after| *after <= end);
        let after = after.ok_or(Malformed::Field("the length of a message", u64::from(length)))?;
        messages.push(Message { kind, shard, call, body: frame.slice(at..after) });
        at = after;
    }
    if at != end {
        return Err(Malformed::Trailing(end - at, "a frame").into());
    }
    Ok(messages)
}

fn kind_of(kind: u8, why: u8, length: u32) -> Result<Kind, Malformed> {
    match (kind, why, length) {
        (1, 0, _) => Ok(Kind::Request),
        (2, 0, _) => Ok(Kind::Answer),
        (3, _, 0) => {
            let refusal = Refusal::ALL.into_iter().find(|refusal| *refusal as u8 == why);
            let refusal =
                refusal.ok_or(Malformed::Field("why a request is refused", u64::from(why)));
            refusal.map(Kind::Refused)
        }
        _ => Err(Malformed::Field("the kind of a message", u64::from(kind))),
    }
}
