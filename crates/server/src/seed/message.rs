//! What a node asks another for that has what it lacks, as bytes.
//!
//! ```text
//! a request
//! 0 version   u8   1
//! 1 kind      u8   1 list   2 length   3 read   4 doubt
//! 2 directory      as text; empty: that of the node   of 1 to 3
//! .. file          as text: of 2 and 3
//! .. at       u64  of 3
//! .. bytes    u32  of 3: a MiB at most
//! 2 shard     u32  of 4: its log looked damaged to who was given it
//!
//! an answer
//! 0 version   u8   1
//! 1 kind      u8   1 list: count u32, each as text
//!                  2 length u64
//!                  3 read: XXH3-64 of the bytes u64 · the bytes, fewer only at the end of the file
//!                  4 there is no such file   5 it is not given   6 the disk failed
//!                  7 the log is read again
//! ```
//!
//! Little-endian; text is length u16 · UTF-8.

use twox_hash::XxHash3_64;

use crate::cursor::{Cursor, Malformed, push_text};

const VERSION: u8 = 1;
/// What is read at once, at most.
pub(super) const BYTES_MAX: usize = 1 << 20;
/// No file of a shard has a longer name.
pub(super) const NAME_BYTES_MAX: usize = 64;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    List { dir: String },
    Length { dir: String, file: String },
    Read { dir: String, file: String, at: u64, bytes: usize },
    Doubt { shard: u32 },
}

/// What is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    List(Vec<String>),
    Length(u64),
    Read(Vec<u8>),
    NotThere,
    NotGiven,
    Failed,
    Doubted,
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        match self {
            Self::List { dir } => {
                to.push(1);
                push_text(dir, &mut to);
            }
            Self::Length { dir, file } => {
                to.push(2);
                push_text(dir, &mut to);
                push_text(file, &mut to);
            }
            Self::Read { dir, file, at, bytes } => {
                to.push(3);
                push_text(dir, &mut to);
                push_text(file, &mut to);
                to.extend_from_slice(&at.to_le_bytes());
                let bytes = u32::try_from(*bytes).expect("it asks for a MiB at most");
                to.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Doubt { shard } => {
                to.push(4);
                to.extend_from_slice(&shard.to_le_bytes());
            }
        }
        to
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "a request for a file");
        let request = match kind(&mut from)? {
            1 => Self::List { dir: text(&mut from)? },
            2 => Self::Length { dir: text(&mut from)?, file: text(&mut from)? },
            3 => {
                let (dir, file, at) = (text(&mut from)?, text(&mut from)?, from.u64()?);
                let asked = from.u32()?;
                let bytes = usize::try_from(asked).ok().filter(|bytes| *bytes <= BYTES_MAX);
                let too_many = || Malformed::Field("bytes that are read", asked.into());
                Self::Read { dir, file, at, bytes: bytes.ok_or_else(too_many)? }
            }
            4 => Self::Doubt { shard: from.u32()? },
            other => return Err(Malformed::Field("the kind of a request", other.into())),
        };
        from.end().map(|()| request)
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        match self {
            Self::List(names) => {
                to.push(1);
                let count = u32::try_from(names.len()).expect("a directory has fewer files");
                to.extend_from_slice(&count.to_le_bytes());
                names.iter().for_each(|name| push_text(name, &mut to));
            }
            Self::Length(length) => {
                to.push(2);
                to.extend_from_slice(&length.to_le_bytes());
            }
            Self::Read(bytes) => {
                to.push(3);
                to.extend_from_slice(&XxHash3_64::oneshot(bytes).to_le_bytes());
                to.extend_from_slice(bytes);
            }
            Self::NotThere => to.push(4),
            Self::NotGiven => to.push(5),
            Self::Failed => to.push(6),
            Self::Doubted => to.push(7),
        }
        to
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Cursor::new(bytes, "an answer with a file");
        let answer = match kind(&mut from)? {
            1 => {
                let count = from.count(2, "the count of files")?;
                let names = (0..count).map(|_| text(&mut from)).collect::<Result<_, _>>()?;
                Self::List(names)
            }
            2 => Self::Length(from.u64()?),
            3 => {
                let expected = from.u64()?;
                let (bytes, found) = (from.rest(), XxHash3_64::oneshot(from.rest()));
                if expected != found {
                    return Err(Malformed::Checksum { expected, found });
                }
                if bytes.len() > BYTES_MAX {
                    return Err(Malformed::Field("bytes that were read", bytes.len() as u64));
                }
                return Ok(Self::Read(bytes.to_vec()));
            }
            4 => Self::NotThere,
            5 => Self::NotGiven,
            6 => Self::Failed,
            7 => Self::Doubted,
            other => return Err(Malformed::Field("the kind of an answer", other.into())),
        };
        from.end().map(|()| answer)
    }
}

fn kind(from: &mut Cursor<'_>) -> Result<u8, Malformed> {
    let [version, kind] = from.array()?;
    if version != VERSION {
        return Err(Malformed::Field("the version of a message", version.into()));
    }
    Ok(kind)
}

fn text(from: &mut Cursor<'_>) -> Result<String, Malformed> {
    let length = from.u16()?;
    if usize::from(length) > NAME_BYTES_MAX {
        return Err(Malformed::Field("the length of a name", length.into()));
    }
    let text = std::str::from_utf8(from.bytes(length.into())?);
    text.map(str::to_owned).map_err(|why| Malformed::Text("a name", why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each message with its length before it, as it has been written since version 1.
    const GOLDEN: &str = "src/seed/testdata/messages-v1";

    fn samples() -> (Vec<Request>, Vec<Answer>) {
        let (dir, file) = ("chapters-2".to_owned(), "00000007.chapter".to_owned());
        let requests = vec![
            Request::List { dir: dir.clone() },
            Request::Length { dir: String::new(), file: "state-2".to_owned() },
            Request::Read { dir, file: file.clone(), at: 1 << 33, bytes: BYTES_MAX },
            Request::Doubt { shard: 5 },
        ];
        let answers = vec![
            Answer::List(vec![file, "manifest".to_owned()]),
            Answer::Length(1 << 33),
            Answer::Read(b"bytes".to_vec()),
            Answer::NotThere,
            Answer::NotGiven,
            Answer::Failed,
            Answer::Doubted,
        ];
        (requests, answers)
    }

    #[test]
    fn messages_are_written_as_version_1_has_them() {
        let (requests, answers) = samples();
        let all = requests.iter().map(Request::encode).chain(answers.iter().map(Answer::encode));
        let mut written = Vec::new();
        for message in all {
            written.extend_from_slice(&u32::try_from(message.len()).unwrap().to_le_bytes());
            written.extend_from_slice(&message);
        }
        if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
            std::fs::write(GOLDEN, &written).unwrap();
        }
        assert_eq!(written, std::fs::read(GOLDEN).unwrap());
    }

    #[test]
    fn messages_come_back_as_they_were_and_cut_short_or_longer_are_none() {
        let (requests, answers) = samples();
        for request in requests {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Ok(request));
            assert!((0..bytes.len()).all(|end| Request::decode(&bytes[..end]).is_err()));
            Request::decode(&[&bytes[..], &[0]].concat()).unwrap_err();
        }
        for answer in answers {
            let bytes = answer.encode();
            assert_eq!(Answer::decode(&bytes), Ok(answer));
            assert!((0..bytes.len()).all(|end| Answer::decode(&bytes[..end]).is_err()));
            Answer::decode(&[&bytes[..], &[0]].concat()).unwrap_err();
        }
    }

    #[test]
    fn no_length_takes_memory_that_is_not_there() {
        let mut many = Answer::List(Vec::new()).encode();
        many[2..6].copy_from_slice(&u32::MAX.to_le_bytes());
        Answer::decode(&many).unwrap_err();
        let (dir, file) = (String::new(), String::new());
        let mut large = Request::Read { dir, file, at: 0, bytes: BYTES_MAX }.encode();
        let at = large.len() - 4;
        large[at..].copy_from_slice(&(1_u32 << 20 | 1).to_le_bytes());
        Request::decode(&large).unwrap_err();
    }
}
