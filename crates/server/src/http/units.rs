//! Numbers as people read them: three digits and a unit.

const BYTES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// `512 B`, `1.5 KiB`, `24 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    bytes_of(float(bytes))
}

/// As [`bytes`], of what is no whole number.
pub(super) fn bytes_of(mut bytes: f64) -> String {
    let mut unit = 0;
    while bytes >= 1023.5 && unit + 1 < BYTES.len() {
        bytes /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(bytes, unit > 0), BYTES[unit])
}

/// `25 µs`, `1 ms`, `2.5 s`.
pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", short(float(us) / 1e3, true)),
        _ => format!("{} s", short(float(us) / 1e6, true)),
    }
}

/// `12 345 678`: a thin space every three digits.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut said = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            said.push('\u{202f}');
        }
        said.push(digit);
    }
    said
}

/// A rate: `0`, `3.4`, `12 345`.
pub(super) fn rate(a_second: f64) -> String {
    if a_second >= 100.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        let whole = a_second.round() as u64;
        return count(whole);
    }
    short(a_second, a_second > 0.0)
}

/// One digit behind the point where that says something.
fn short(number: f64, with_tenths: bool) -> String {
    if with_tenths && number < 9.95 {
        let said = format!("{number:.1}");
        return said.strip_suffix(".0").map_or(said.clone(), str::to_owned);
    }
    format!("{number:.0}")
}

/// Near enough to be drawn.
pub(super) fn float(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "it is drawn, or said in three digits")]
    let float = number as f64;
    float
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_three_digits_and_its_unit() {
        let all = [0, 1, 1023, 1024, 1536, 10 << 20, (10 << 20) - 1, u64::MAX].map(bytes);
        let said = ["0 B", "1 B", "1023 B", "1 KiB", "1.5 KiB", "10 MiB", "10 MiB", "16777216 TiB"];
        assert_eq!(all, said);
        let all = [0, 999, 1_000, 2_500, 25_000, 1_000_000, 10_000_000].map(micros);
        assert_eq!(all, ["0 µs", "999 µs", "1 ms", "2.5 ms", "25 ms", "1 s", "10 s"]);
        let all = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(all, ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
        let all = [0.0, 0.25, 3.0, 12.3, 12_345.6].map(rate);
        assert_eq!(all, ["0", "0.2", "3", "12", "12\u{202f}346"]);
    }
}
