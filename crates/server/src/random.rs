//! Bytes that nobody had before: for ids, which are drawn once and agreed on.

/// Bytes of the system's randomness.
pub(crate) fn bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// The same as a number, which is not 0.
pub(crate) fn word() -> u64 {
    u64::from_le_bytes(*bytes().first_chunk().expect("there are 16")) | 1
}

/// The same as 32 digits.
pub(crate) fn hex() -> String {
    bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
