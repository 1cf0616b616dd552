//! What nodes ask each other for an operator's sake, as bytes.
//!
//! ```text
//! a request
//! 0 version   u8   1
//! 1 kind      u8   1 may you lead   2 have it led
//! 2 shard     u32  of 2
//! 6 node      u64  of 2: who is to lead it
//!
//! an answer
//! 0 version   u8   1
//! 1 kind      u8   1 yes, or done   2 no
//! 2 why       text of 2
//! ```
//!
//! Little-endian; text is length u16 · UTF-8, nothing behind it.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::timeout;

use super::company::{Company, Door, OPERATORS};
use super::leaders::{Leaders, NotLed};
use crate::cursor::{Cursor, Malformed, push_text};
use crate::peer::Peer;

const VERSION: u8 = 1;
/// What is said of why, in bytes.
const WHY_BYTES_MAX: usize = 1024;
/// How long a node may take: it hands over within that, or gives up.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Whether it may lead, or is about to be stopped.
    May,
    /// To have another lead what it leads.
    Move { number: u32, to: u64 },
}

impl Request {
    fn encode(self) -> Vec<u8> {
        match self {
            Self::May => vec![VERSION, 1],
            Self::Move { number, to } => {
                let mut bytes = vec![VERSION, 2];
                bytes.extend_from_slice(&number.to_le_bytes());
                bytes.extend_from_slice(&to.to_le_bytes());
                bytes
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "what a node asks for an operator");
        let [version, kind] = from.array()?;
        let request = match (version, kind) {
            (VERSION, 1) => Self::May,
            (VERSION, 2) => Self::Move { number: from.u32()?, to: from.u64()? },
            (VERSION, other) => return Err(Malformed::Field("what is asked", other.into())),
            (other, _) => return Err(Malformed::Field("a version", other.into())),
        };
        from.end()?;
        Ok(request)
    }
}

fn encode(answer: &Result<(), String>) -> Vec<u8> {
    match answer {
        Ok(()) => vec![VERSION, 1],
        Err(why) => {
            let mut bytes = vec![VERSION, 2];
            let mut ends = (0..=WHY_BYTES_MAX.min(why.len())).rev();
            let end = ends.find(|end| why.is_char_boundary(*end)).unwrap_or(0);
            push_text(&why[..end], &mut bytes);
            bytes
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Result<(), String>, Malformed> {
    let mut from = Cursor::new(bytes, "an answer to what was asked for an operator");
    let [version, kind] = from.array()?;
    let answer = match (version, kind) {
        (VERSION, 1) => Ok(()),
        (VERSION, 2) => Err(from.text(WHY_BYTES_MAX, "why")?.to_owned()),
        (VERSION, other) => return Err(Malformed::Field("an answer", other.into())),
        (other, _) => return Err(Malformed::Field("a version", other.into())),
    };
    from.end()?;
    Ok(answer)
}

/// Asks a node, once.
pub(super) async fn ask(company: &Company, node: u64, request: Request) -> Result<(), NotLed> {
    let said = |why: String| NotLed::Said { node, why };
    let asked = company.ask(node, OPERATORS, request.encode());
    let answer = match timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|why| said(why.to_string()))?,
        Err(_late) => return Err(said("it did not answer in time".to_owned())),
    };
    let answer = decode(&answer).map_err(|_why| said("it knows of no such request".to_owned()))?;
    answer.map_err(said)
}

/// Where other nodes ask. It does not hold what it asks.
#[derive(Debug)]
pub(super) struct Operators(pub(super) Weak<Leaders>);

impl Door for Operators {
    fn answer(&self, _: Peer, request: &Bytes) -> BoxFuture<'static, Vec<Bytes>> {
        let (leaders, request) = (self.0.upgrade(), Request::decode(request));
        async move {
            let Some(leaders) = leaders else { return Vec::new() };
            match request {
                Ok(request) => vec![encode(&leaders.answer(request).await).into()],
                Err(why) => {
                    tracing::warn!(%why, "a node asks for what is not understood");
                    Vec::new()
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_read_as_they_were_written_and_no_others() {
        let moved = Request::Move { number: 2, to: 258 };
        for request in [Request::May, moved] {
            let bytes = request.encode();
            for end in 0..bytes.len() {
                assert!(Request::decode(&bytes[..end]).is_err());
            }
            assert_eq!(Request::decode(&bytes), Ok(request));
        }
        assert_eq!(moved.encode(), [1, 2, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert!(Request::decode(&[1, 1, 0]).is_err() && Request::decode(&[2, 1]).is_err());
        for answer in [Ok(()), Err("no".to_owned())] {
            assert_eq!(decode(&encode(&answer)), Ok(answer));
        }
        assert_eq!(encode(&Err("no".to_owned())), [1, 2, 2, 0, b'n', b'o']);
        // What is said is as long as it may be read.
        let long = encode(&Err("é".repeat(WHY_BYTES_MAX)));
        assert_eq!(decode(&long), Ok(Err("é".repeat(WHY_BYTES_MAX / 2))));
        for wrong in [&[][..], &[1], &[1, 3], &[2, 1], &[1, 1, 0], &[1, 2, 1, 0]] {
            assert!(decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
