//! Numbers as people read them.

use std::time::Duration;

/// `950 ns`, `31.2 µs`, `4.10 ms`, `2.00 s`: three significant digits.
#[must_use]
pub fn time(ns: u64) -> String {
    let value = number(ns);
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", digits(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(value / 1e6)),
        _ => format!("{} s", digits(value / 1e9)),
    }
}

/// `1 µs`, `500 ns`, `2.5 ms`: like [`time`], without trailing zeros; for axes.
#[must_use]
pub fn short_time(ns: u64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((digits, unit)) if digits.contains('.') => {
            format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// The name of a value without its unit, and the value with it. The name ends in the unit:
/// `at_risk_bytes`, `per_file_us`, `held_share`, `throughput_mib_s`.
#[must_use]
pub fn quantity(name: &str, value: f64) -> (String, String) {
    let (stem, text) = if let Some(stem) = name.strip_suffix("_mib_s") {
        (stem, format!("{} MiB/s", figure(value)))
    } else if let Some(stem) = name.strip_suffix("_per_s") {
        (stem, format!("{} /s", figure(value)))
    } else if let Some(stem) = name.strip_suffix("_bytes") {
        (stem, bytes(whole(value)))
    } else if let Some(stem) = name.strip_suffix("_share") {
        (stem, percent(value))
    } else if let Some((stem, unit_ns)) = time_unit(name) {
        (stem, time(whole(value * unit_ns)))
    } else {
        (name, figure(value))
    };
    (stem.replace('_', " "), text)
}

/// The name without its unit of time, and how many nanoseconds that unit has.
fn time_unit(name: &str) -> Option<(&str, f64)> {
    let units = [("_ns", 1.0), ("_us", 1e3), ("_ms", 1e6), ("_s", 1e9)];
    units.into_iter().find_map(|(suffix, ns)| Some((name.strip_suffix(suffix)?, ns)))
}

/// `200 B`, `4 KiB`, `64 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            let value = number(bytes) / number(1 << shift);
            let whole = bytes.is_multiple_of(1 << shift);
            return if whole { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
    }
    format!("{bytes} B")
}

/// `1m 05s`, `42s`.
#[must_use]
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{}m {:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

/// `12 %`; below one percent with one more digit.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

/// A plain number: whole numbers as they are, others with three significant digits.
#[must_use]
pub fn figure(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// The words with a capital letter at their beginning.
#[must_use]
pub fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// One count as a share or a multiple of another. Of zero, every share is zero.
#[must_use]
pub fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { number(part) / number(whole) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
const fn number(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_that_count() {
        assert_eq!(time(950), "950 ns");
        assert_eq!(time(1_000), "1.00 µs");
        assert_eq!(time(31_249), "31.2 µs");
        assert_eq!(time(4_096_000), "4.10 ms");
        assert_eq!(time(128_930_500_000), "129 s");
    }

    #[test]
    fn axes_have_no_digits_that_say_nothing() {
        assert_eq!((short_time(1_000), short_time(20_000)), ("1 µs".into(), "20 µs".into()));
        assert_eq!((short_time(2_500_000), short_time(0)), ("2.5 ms".into(), "0 ns".into()));
    }

    #[test]
    fn a_value_is_read_by_the_unit_in_its_name() {
        let read = |name, value| {
            let (stem, text) = quantity(name, value);
            format!("{stem}: {text}")
        };
        assert_eq!(read("at_risk_bytes", 1_048_576.0), "at risk: 1 MiB");
        assert_eq!(read("at_risk_ms", 1.5), "at risk: 1.50 ms");
        assert_eq!(read("throughput_mib_s", 812.4), "throughput: 812 MiB/s");
        assert_eq!(read("records_per_s", 42_000.0), "records: 42000 /s");
        assert_eq!(read("per_file_us", 20.0), "per file: 20.0 µs");
        assert_eq!(read("held_share", 0.5), "held: 50 %");
        assert_eq!(read("writers", 8.0), "writers: 8");
    }

    #[test]
    fn sizes_are_binary_and_whole_where_they_are_whole() {
        assert_eq!(bytes(200), "200 B");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(11_264), "11 KiB");
        assert_eq!(bytes(1_600_000), "1.5 MiB");
    }

    #[test]
    fn durations_and_shares_read_like_speech() {
        assert_eq!(clock(Duration::from_secs(65)), "1m 05s");
        assert_eq!(clock(Duration::from_secs(9)), "9s");
        assert_eq!(percent(0.123), "12 %");
        assert_eq!(percent(0.004), "0.4 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!((figure(65_536.0), figure(1.234)), ("65536".to_owned(), "1.23".to_owned()));
    }
}
