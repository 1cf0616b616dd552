//! A number of bytes as an option says it.

use plimsoll_simdisk::block::parse_bytes;

/// `64MiB`, `512 KiB`, `4096`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = "not a whole number and a unit: B, KiB, MiB, GiB or TiB, like 64MiB";
    parse_bytes(text).ok_or_else(|| wrong.to_owned())
}
