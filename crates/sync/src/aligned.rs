//! Bytes at an aligned address, as direct I/O wants them.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A buffer of fixed length whose first byte lies at a multiple of an alignment.
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes at a multiple of `alignment`.
    ///
    /// # Panics
    /// If `alignment` is not a power of two.
    #[must_use]
    pub fn zeroed(len: usize, alignment: usize) -> Self {
        assert!(alignment.is_power_of_two(), "alignment {alignment} is not a power of two");
        let bytes = vec![0; len + alignment - 1];
        let start = bytes.as_ptr().align_offset(alignment);
        Self { bytes, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_multiple_of_the_alignment() {
        for alignment in [1, 512, 4096] {
            let buf = AlignedBuf::zeroed(700, alignment);
            assert_eq!(buf.as_ptr().addr() % alignment, 0);
            assert_eq!(buf.len(), 700);
        }
    }
}
