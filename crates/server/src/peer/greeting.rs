//! [`Greeting`]: what two nodes tell each other when they connect, as bytes.
//!
//! The dialler introduces itself, the node that was dialled does, and the dialler agrees. Either says a
//! verdict with a reason instead, and the connection ends.
//!
//! ```text
//!  byte offset  bytes
//!            0      8  "PLIMPEER"
//!            8      1  kind: 1 the dialler's introduction, 2 that of who was dialled, 3 verdict
//!            9      1  priority: 1 urgent, 2 bulk
//!           10      2  lowest version of frames
//!           12      2  highest version of frames
//!           14      2  reason: 0, but in a verdict that refuses
//!           16     16  cluster
//!           32      8  node
//!           40      8  incarnation
//!           48      8  the node that is meant to read this
//!           56     16  nonce, drawn for this connection
//!           72      4  the largest frame that is taken, in bytes
//!           76      4  length of the hello, at most 4096; 0 in a verdict
//!           80      …  the hello
//!            …      8  XXH3-64 of all before, seeded with all nonces that were told before it
//! ```
//!
//! Little-endian. This layout stays in every version: it is where nodes learn which versions they share.
//! The seed is 0 before a nonce was told, and then XXH3-64 of the nonces, the dialler's first. So a greeting
//! or a frame of another connection never fits.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::{Peer, Priority};
use crate::cursor::{Cursor, Malformed};

/// The most that a node tells of itself.
pub(crate) const HELLO_BYTES_MAX: usize = 4096;
/// All before the hello.
pub(super) const HEAD_BYTES: usize = 80;
const CHECKSUM_BYTES: usize = 8;
const MAGIC: [u8; 8] = *b"PLIMPEER";

/// Drawn for one connection.
pub(super) type Nonce = [u8; 16];

/// What checksums are seeded with, once these were told.
pub(super) fn seed(nonces: &[Nonce]) -> u64 {
    if nonces.is_empty() { 0 } else { XxHash3_64::oneshot(nonces.as_flattened()) }
}

/// Which of the three a greeting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Dialler = 1,
    Dialled = 2,
    Verdict = 3,
}

/// What one side tells the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) kind: Kind,
    pub(super) priority: Priority,
    /// The lowest and the highest version of frames.
    pub(super) versions: (u16, u16),
    /// 0 is none.
    pub(super) reason: u16,
    pub(super) cluster: u128,
    pub(super) from: Peer,
    pub(super) to: u64,
    pub(super) nonce: Nonce,
    pub(super) frame_bytes: u32,
    pub(super) hello: Bytes,
}

/// How long a greeting with this head is.
pub(super) fn announced(head: &[u8; HEAD_BYTES]) -> Result<usize, Malformed> {
    let mut from = Cursor::new(head, "the head of a greeting");
    if from.array()? != MAGIC {
        return Err(Malformed::Field("the first byte of a greeting", u64::from(head[0])));
    }
    from.bytes(HEAD_BYTES - MAGIC.len() - 4)?;
    let length = from.u32()?;
    let fits = usize::try_from(length).ok().filter(|length| *length <= HELLO_BYTES_MAX);
    let length = fits.ok_or(Malformed::Field("the length of a hello", u64::from(length)))?;
    Ok(HEAD_BYTES + length + CHECKSUM_BYTES)
}

impl Greeting {
    pub(super) fn encode(&self, seed: u64) -> Vec<u8> {
        let Self { kind, priority, versions, reason, cluster, from, to, .. } = self;
        assert!(self.hello.len() <= HELLO_BYTES_MAX, "a hello is bounded when we start");
        let hello_bytes = u32::try_from(self.hello.len()).expect("it was just compared");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.hello.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[*kind as u8, *priority as u8]);
        for field in [versions.0, versions.1, *reason] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&cluster.to_le_bytes());
        for field in [from.node, from.incarnation, *to] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.nonce);
        bytes.extend_from_slice(&self.frame_bytes.to_le_bytes());
        bytes.extend_from_slice(&hello_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.hello);
        bytes.extend_from_slice(&XxHash3_64::oneshot_with_seed(seed, &bytes).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], seed: u64) -> Result<Self, Malformed> {
        const SHORT: Malformed = Malformed::Short("a greeting");
        let head = bytes.first_chunk().ok_or(SHORT)?;
        if announced(head)? != bytes.len() {
            return Err(SHORT);
        }
        let (body, checksum) = bytes.split_last_chunk().ok_or(SHORT)?;
        let expected = u64::from_le_bytes(*checksum);
        let found = XxHash3_64::oneshot_with_seed(seed, body);
        if expected != found {
            return Err(Malformed::Checksum { expected, found });
        }
        let mut from = Cursor::new(body, "a greeting");
        from.bytes(MAGIC.len())?;
        let [kind, priority] = from.array()?;
        let kind = match kind {
            1 => Kind::Dialler,
            2 => Kind::Dialled,
            3 => Kind::Verdict,
            other => return Err(Malformed::Field("the kind of a greeting", u64::from(other))),
        };
        let priority = match priority {
            1 => Priority::Urgent,
            2 => Priority::Bulk,
            other => return Err(Malformed::Field("a priority", u64::from(other))),
        };
        let versions = (from.u16()?, from.u16()?);
        let reason = from.u16()?;
        let cluster = u128::from_le_bytes(from.array()?);
        let peer = Peer { node: from.u64()?, incarnation: from.u64()? };
        let to = from.u64()?;
        let nonce = from.array()?;
        let frame_bytes = from.u32()?;
        from.u32()?;
        let hello = Bytes::copy_from_slice(from.rest());
        let is_odd = match kind {
            Kind::Verdict => !hello.is_empty(),
            Kind::Dialler | Kind::Dialled => reason != 0,
        };
        if is_odd {
            return Err(Malformed::Field("the reason of a greeting", u64::from(reason)));
        }
        let from = peer;
        Ok(Self { kind, priority, versions, reason, cluster, from, to, nonce, frame_bytes, hello })
    }
}
