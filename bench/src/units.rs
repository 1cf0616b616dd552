//! How figures are written.

use crate::figures::Figure;

/// `275k`, `1.94 M`.
pub(crate) fn count(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{} M", three(v / 1e6)),
        v if v >= 1000.0 => format!("{}k", three(v / 1e3)),
        v => three(v),
    }
}

/// Nanoseconds, in the unit that suits.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        v if v >= 999.5e6 => format!("{} s", three(v / 1e9)),
        v if v >= 999.5e3 => format!("{} ms", three(v / 1e6)),
        v if v >= 999.5 => format!("{} µs", three(v / 1e3)),
        v => format!("{v:.0} ns"),
    }
}

/// Three digits.
pub(crate) fn three(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A figure as `write` writes values, with the least and the most of the rounds; a dagger if half of the
/// rounds met slow flushes.
pub(crate) fn spread(figure: Option<Figure>, write: impl Fn(f64) -> String) -> String {
    let Some(figure) = figure else { return "–".to_owned() };
    let dagger = if figure.slow * 2 >= figure.rounds.max(1) { " †" } else { "" };
    let range = if figure.rounds > 1 {
        format!(" ({}–{})", write(figure.min), write(figure.max))
    } else {
        String::new()
    };
    format!("{}{range}{dagger}", write(figure.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(count(274_900.0), "275k");
        assert_eq!(count(8_123_000.0), "8.12 M");
        assert_eq!(time(44_900.0), "44.9 µs");
        assert_eq!(time(999.6), "1.00 µs");
        assert_eq!(time(187.4), "187 ns");
    }
}
