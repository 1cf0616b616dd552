//! How many bytes, as people type and read it: whole numbers and binary units.

/// Each unit with how far it shifts, the largest first.
const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// `4096`, `512 B`, `64KiB`, `1 MiB`, `2GiB`, `1TiB`; `None` if it is none of these, or more than 64 bits hold.
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let in_units = UNITS.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = in_units.unwrap_or_else(|| (text.strip_suffix('B').unwrap_or(text), 0));
    let number = number.trim();
    // A number may have a sign for the library, and has none for us.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(1 << shift)
}

/// What [`parse_bytes`] reads as the same number, as short as that can be said.
#[must_use]
pub fn size(bytes: u64) -> String {
    let divides = |&&(_, shift): &&(&str, u32)| bytes > 0 && bytes.trailing_zeros() >= shift;
    match UNITS.iter().find(divides) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_size_has_a_binary_unit_or_none() {
        let known = [("64MiB", 64 << 20), ("512 KiB", 512 << 10), ("4096", 4096), ("7B", 7)];
        for (text, bytes) in known.into_iter().chain([("1GiB", 1 << 30), ("3TiB", 3 << 40)]) {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        let wrong = ["", "MiB", "64MB", "1.5GiB", "-1", "+1", "1 2", "1GB", "17179869184GiB"];
        assert_eq!(wrong.map(parse_bytes), [None; 9]);
    }

    proptest! {
        #[test]
        fn a_size_reads_back_as_it_is_said(bytes: u64, shift in 0u32..64) {
            let bytes = bytes >> shift << (shift / 2);
            prop_assert_eq!(parse_bytes(&size(bytes)), Some(bytes));
        }
    }
}
