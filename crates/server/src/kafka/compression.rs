//! [`Compression`]: how the records of a batch are compressed, all together.
//!
//! What is decompressed comes from strangers. It is bounded by the caller in bytes, and memory is
//! taken as bytes come and not as they are announced, but for what a method needs for its window:
//! never more than the bound or 8 MiB, whichever is more.

use std::fmt;
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// What stands before the blocks that Java makes of snappy: two numbers of versions follow it.
const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_BYTES: usize = 16;
/// No three bytes of snappy stand for more than 64.
const SNAPPY_RATIO_MAX: usize = 22;
/// The window that every decoder of zstd is advised to have.
const ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// A method, by the number that Kafka gives it in a batch's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As they are.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Raw, or in the blocks of Java's library.
    Snappy = 2,
    /// In frames.
    Lz4 = 3,
    /// RFC 8878.
    Zstd = 4,
}

/// Why bytes were not decompressed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// They may be a bomb: the rest was not looked at.
    #[error("{compression} of more than the {limit_bytes} bytes that are allowed")]
    TooLarge {
        /// How they are compressed.
        compression: Compression,
        /// How many bytes were allowed.
        limit_bytes: usize,
    },
    /// They are no such bytes.
    #[error("damaged {compression}")]
    Damaged {
        /// How they are said to be compressed.
        compression: Compression,
        /// What the decoder says.
        source: io::Error,
    },
}

impl Compression {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// What people call it, and Kafka's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The bytes, compressed.
    #[must_use]
    pub fn compress(self, bytes: Vec<u8>) -> Vec<u8> {
        let compressed = match self {
            Self::None => Ok(bytes),
            Self::Gzip => to_gzip(&bytes),
            Self::Snappy => {
                snap::raw::Encoder::new().compress_vec(&bytes).map_err(io::Error::other)
            }
            Self::Lz4 => to_lz4(&bytes),
            Self::Zstd => Ok(compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest)),
        };
        compressed.expect("memory takes what is written to it, and no batch is 4 GiB")
    }

    /// The bytes that these were before they were compressed; at most so many.
    pub fn decompress(self, bytes: &Bytes, limit_bytes: usize) -> Result<Bytes, Error> {
        let mut taken = Vec::new();
        let is_all = match self {
            Self::None => return Ok(bytes.clone()),
            Self::Gzip => take(MultiGzDecoder::new(&bytes[..]), limit_bytes, &mut taken),
            Self::Snappy => from_snappy(bytes, limit_bytes, &mut taken),
            Self::Lz4 => from_lz4(bytes, limit_bytes, &mut taken),
            Self::Zstd => from_zstd(bytes, limit_bytes, &mut taken),
        };
        match is_all {
            Ok(true) => Ok(taken.into()),
            Ok(false) => Err(Error::TooLarge { compression: self, limit_bytes }),
            Err(source) => Err(Error::Damaged { compression: self, source }),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn to_gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut to = GzEncoder::new(Vec::new(), flate2::Compression::default());
    to.write_all(bytes)?;
    to.finish()
}

fn to_lz4(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut to = FrameEncoder::new(Vec::new());
    to.write_all(bytes)?;
    Ok(to.finish()?)
}

/// Appends all that is read; false if `taken` would be more than the limit.
fn take(from: impl Read, limit_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    let left = u64::try_from(limit_bytes - taken.len()).unwrap_or(u64::MAX);
    from.take(left.saturating_add(1)).read_to_end(taken)?;
    Ok(taken.len() <= limit_bytes)
}

fn from_lz4(mut bytes: &[u8], limit_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    while !bytes.is_empty() {
        if !take(FrameDecoder::new(&mut bytes), limit_bytes, taken)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn from_zstd(mut bytes: &[u8], limit_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    let window = ZSTD_WINDOW_BYTES.max(u64::try_from(limit_bytes).unwrap_or(u64::MAX));
    while !bytes.is_empty() {
        let frame = StreamingDecoder::new_with_max_window_size(&mut bytes, window);
        if !take(frame.map_err(io::Error::other)?, limit_bytes, taken)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn from_snappy(bytes: &[u8], limit_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    if !bytes.starts_with(XERIAL_MAGIC) {
        return from_snappy_block(bytes, limit_bytes, taken);
    }
    let mut blocks = bytes.get(XERIAL_HEADER_BYTES..).ok_or(io::ErrorKind::UnexpectedEof)?;
    while !blocks.is_empty() {
        let length = blocks.try_get_u32().map_err(io::Error::other)? as usize;
        let (block, rest) = blocks.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        if !from_snappy_block(block, limit_bytes, taken)? {
            return Ok(false);
        }
        blocks = rest;
    }
    Ok(true)
}

fn from_snappy_block(block: &[u8], limit_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    let length = snap::raw::decompress_len(block)?;
    if length > block.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(io::Error::other("it says that it is longer than it can be"));
    }
    let before = taken.len();
    if length > limit_bytes - before {
        return Ok(false);
    }
    taken.resize(before + length, 0);
    snap::raw::Decoder::new().decompress(block, &mut taken[before..])?;
    Ok(true)
}
