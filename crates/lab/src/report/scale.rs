//! From values to places on paper: scales, their ticks, and how wide a text is. Pure.
//!
//! Values come from saved results and may be anything. A value that has no place (it is not finite,
//! or not above zero on a logarithmic scale) gets the nearest place, and a scale is never empty.

/// What keeps two ticks or two labels apart, in pixels.
const GAP: f64 = 10.0;

/// A mapping from values to pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// How values are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    /// By tens, with ticks at 1, 10, 100, or at 1, 2, 5 where there is room.
    Decimal,
    /// By twos, as sizes and numbers of threads are.
    Binary,
}

impl Scale {
    /// From zero to a round number that is not below any of `values`.
    pub(super) fn from_zero(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let high = usable(values).fold(0.0, f64::max).min(1e200);
        let high = if high > 0.0 { round_up(high) } else { 1.0 };
        Self { kind: Kind::Linear, low: 0.0, high, from, to }
    }

    /// Exactly from `low` to `high`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { kind: Kind::Linear, low, high, from, to }
    }

    /// By tens, around all of `values`, ending on 1, 2 or 5 times a power of ten.
    pub(super) fn decimal(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = ends(values);
        let (low, high) = (round_down(low), round_up(high));
        let high = if high > low { high } else { low * 10.0 };
        Self { kind: Kind::Decimal, low, high, from, to }
    }

    /// By twos, exactly around `values`.
    pub(super) fn binary(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = ends(values);
        let high = if high > low { high } else { low * 2.0 };
        Self { kind: Kind::Binary, low, high, from, to }
    }

    /// The largest value on it.
    pub(super) fn high(self) -> f64 {
        self.high
    }

    /// The same values on another stretch of paper.
    pub(super) fn onto(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// The place of a value, which is never off the paper.
    pub(super) fn at(self, value: f64) -> f64 {
        let value = if value.is_nan() { self.low } else { value.clamp(self.low, self.high) };
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Decimal | Kind::Binary => {
                (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
            }
        };
        self.from + share * (self.to - self.from)
    }

    /// Round values to mark, so few that labels of `label_px` do not touch.
    pub(super) fn ticks(self, label_px: f64) -> Vec<f64> {
        let room = (self.to - self.from).abs() / (label_px + GAP);
        match self.kind {
            Kind::Linear => {
                // The span may be too small to count in steps of its own size.
                let step = round_up((self.high - self.low) / room.max(1.0));
                let first = (self.low / step).ceil();
                let ticks = (0..100u8).map(|number| (first + f64::from(number)) * step);
                ticks.take_while(|&tick| tick <= self.high * (1.0 + 1e-9)).collect()
            }
            Kind::Decimal => {
                let decades = (self.high / self.low).log10();
                if decades * 3.0 <= room {
                    self.powers(10.0, &[1.0, 2.0, 5.0], 1)
                } else {
                    self.powers(10.0, &[1.0], stride(decades, room))
                }
            }
            Kind::Binary => {
                let doublings = (self.high / self.low).log2();
                self.powers(2.0, &[1.0], stride(doublings, room))
            }
        }
    }

    /// `steps` times every `stride`-th power of `base`, as far as they lie on the scale.
    fn powers(self, base: f64, steps: &[f64], stride: u16) -> Vec<f64> {
        let first = (self.low.ln() / base.ln() + 1e-9).floor();
        let inside =
            |&tick: &f64| tick >= self.low * (1.0 - 1e-9) && tick <= self.high * (1.0 + 1e-9);
        let mut ticks = Vec::new();
        for number in 0..=2100u16 {
            let power = base.powf(first + f64::from(number));
            if power > self.high * (1.0 + 1e-9) {
                break;
            }
            ticks.extend(steps.iter().map(|step| power * step).filter(inside));
        }
        // The first power may lie below the scale; every `stride`-th of those on it.
        ticks.into_iter().step_by(usize::from(stride.max(1))).collect()
    }
}

/// If there is room for `room` marks, every how many-th of `count` steps may have one.
fn stride(count: f64, room: f64) -> u16 {
    let stride = (count / room.max(0.1)).ceil().clamp(1.0, 1000.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1000")]
    let whole = stride as u16;
    whole
}

/// The smallest and the largest value that a logarithmic scale can show.
fn ends(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (low, high) = usable(values)
        .filter(|&value| value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    // Far from the limits of f64, so that rounding cannot pass them.
    if low <= high { (low.clamp(1e-200, 1e200), high.clamp(1e-200, 1e200)) } else { (1.0, 10.0) }
}

fn usable(values: impl IntoIterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.into_iter().filter(|value| value.is_finite())
}

/// The next of 1, 2, 5, 10 … that is not below `value`, which is above zero.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| power * step >= value * (1.0 - 1e-9));
    power * step.unwrap_or(10.0)
}

/// The next of 1, 2, 5, 10 … that is not above `value`, which is above zero.
fn round_down(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let step = [5.0, 2.0, 1.0].into_iter().find(|step| power * step <= value * (1.0 + 1e-9));
    power * step.unwrap_or(1.0)
}

/// How wide a text is at most, in the sans-serif fonts of common systems: a little more than most
/// of them need, as text that is cut off is worse than space that is left.
pub(super) fn text_px(text: &str, size_px: f64) -> f64 {
    let em = |letter: char| match letter {
        'i' | 'j' | 'l' | 't' | 'f' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.36,
        '(' | ')' | '[' | ']' | '/' | '-' | 'r' => 0.43,
        'm' | 'w' | 'M' | 'W' | '%' => 0.95,
        '+' | '=' | '~' | 'A'..='Z' => 0.74,
        'a'..='z' | '0'..='9' | '_' | 'µ' | '–' => 0.62,
        _ => 1.0,
    };
    text.chars().map(em).sum::<f64>() * size_px
}

/// Lines no wider than `width_px`, broken after blanks and the signs that join the parts of a name;
/// a part that is too wide alone is broken anywhere.
pub(super) fn wrap(text: &str, size_px: f64, width_px: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in text.split_inclusive([' ', '/', '+', ',']) {
        let line = lines.last_mut().expect("there is always one");
        if text_px(line, size_px) + text_px(part.trim_end(), size_px) <= width_px {
            line.push_str(part);
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for letter in part.chars() {
            let line = lines.last_mut().expect("there is always one");
            if !line.is_empty() && text_px(line, size_px) + size_px > width_px + size_px * 0.5 {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always one").push(letter);
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Which labels to keep (each a centre and a width, left to right): those that leave a gap to the
/// label kept before.
pub(super) fn without_overlap(labels: &[(f64, f64)]) -> Vec<bool> {
    let mut free_from = f64::NEG_INFINITY;
    let mut keep = |&(centre, width): &(f64, f64)| {
        let fits = centre - width / 2.0 >= free_from;
        if fits {
            free_from = centre + width / 2.0 + GAP;
        }
        fits
    };
    labels.iter().map(&mut keep).collect()
}

/// Moves centres (top to bottom) apart until each is `apart` from the next, none of them below
/// `lowest`.
pub(super) fn pushed_apart(wanted: &[f64], apart: f64, lowest: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places: Vec<f64> = wanted.iter().map(|place| place.min(lowest)).collect();
    for pair in order.windows(2) {
        places[pair[1]] = places[pair[1]].max(places[pair[0]] + apart);
    }
    let mut lowest = lowest;
    for &number in order.iter().rev() {
        places[number] = places[number].min(lowest);
        lowest = places[number] - apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_scale_puts_equal_ratios_at_equal_distances() {
        let scale = Scale::decimal([10.0, 10_000.0], 0.0, 300.0);
        assert!((scale.at(10.0) - 0.0).abs() < 1e-9);
        assert!((scale.at(100.0) - 100.0).abs() < 1e-9);
        assert!((scale.at(10_000.0) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn a_scale_holds_all_values_between_round_ends() {
        let scale = Scale::decimal([23.0, 4_870.0], 0.0, 100.0);
        assert_eq!((scale.low, scale.high), (20.0, 5_000.0));
        let scale = Scale::from_zero([0.3, 7.2], 100.0, 0.0);
        assert_eq!((scale.low, scale.high), (0.0, 10.0));
        assert!((scale.at(10.0) - 0.0).abs() < 1e-9, "a scale may run upwards");
    }

    #[test]
    fn ticks_are_decades_where_room_is_short_and_finer_where_it_is_not() {
        let decades = Scale::decimal([1_000.0, 1_000_000.0], 0.0, 300.0).ticks(40.0);
        assert_eq!(decades.len(), 4, "{decades:?}");
        let fine = Scale::decimal([1_000.0, 10_000.0], 0.0, 600.0).ticks(40.0);
        let rounded: Vec<f64> = fine.iter().map(|tick| tick.round()).collect();
        assert_eq!(rounded, [1_000.0, 2_000.0, 5_000.0, 10_000.0]);
        let few = Scale::decimal([1.0, 1e12], 0.0, 200.0).ticks(40.0);
        assert!(few.len() <= 5 && few.len() > 1, "{few:?}");
    }

    #[test]
    fn labels_at_the_ticks_never_overlap() {
        let scales = [
            Scale::decimal([3.0, 8e9], 0.0, 190.0),
            Scale::decimal([20.0, 50.0], 0.0, 190.0),
            Scale::binary([4096.0, 1e9], 0.0, 500.0),
            Scale::binary([1.0, 256.0], 0.0, 150.0),
            Scale::from_zero([0.0, 33.0], 0.0, 250.0),
            Scale::linear(0.0, 60_000.0, 0.0, 250.0),
        ];
        for scale in scales {
            let ticks = scale.ticks(45.0);
            assert!(!ticks.is_empty(), "{scale:?}");
            for pair in ticks.windows(2) {
                assert!(scale.at(pair[1]) - scale.at(pair[0]) >= 45.0, "{scale:?}: {ticks:?}");
            }
        }
    }

    #[test]
    fn binary_ticks_are_powers_of_two() {
        let ticks = Scale::binary([4096.0, 1_073_741_824.0], 0.0, 700.0).ticks(50.0);
        assert!(ticks.iter().all(|tick| (tick.log2() - tick.log2().round()).abs() < 1e-6));
        assert!((ticks[0] - 4096.0).abs() < 1e-3, "{ticks:?}");
    }

    #[test]
    fn hostile_values_have_a_place_too() {
        let hostile = [f64::NAN, f64::INFINITY, -1.0, 0.0, f64::MAX, f64::MIN_POSITIVE];
        for scale in [
            Scale::decimal(hostile, 0.0, 100.0),
            Scale::binary(hostile, 0.0, 100.0),
            Scale::from_zero(hostile, 0.0, 100.0),
            Scale::decimal([], 0.0, 100.0),
            Scale::decimal([5.0], 0.0, 100.0),
        ] {
            for value in hostile {
                let at = scale.at(value);
                assert!((-1e-6..=100.000_001).contains(&at), "{scale:?} at {value}: {at}");
            }
            assert!(scale.ticks(20.0).len() < 200, "{scale:?}");
        }
    }

    #[test]
    fn names_are_broken_where_their_parts_join() {
        let lines = wrap("sync_file_range+fdatasync, same descriptor", 12.0, 150.0);
        assert_eq!(lines, ["sync_file_range+", "fdatasync, same", "descriptor"]);
        let narrow = wrap(&"x".repeat(100), 12.0, 100.0);
        assert!(narrow.iter().all(|line| text_px(line, 12.0) <= 112.0), "{narrow:?}");
        assert_eq!(narrow.concat().len(), 100);
        assert!(wrap("", 12.0, 100.0).is_empty());
    }

    #[test]
    fn a_label_that_would_touch_its_neighbour_is_left_out() {
        assert_eq!(
            without_overlap(&[(0.0, 40.0), (30.0, 40.0), (60.0, 40.0)]),
            [true, false, true]
        );
        assert_eq!(pushed_apart(&[50.0, 10.0, 52.0], 15.0, 99.0), [50.0, 10.0, 65.0]);
        assert_eq!(pushed_apart(&[50.0, 10.0, 52.0], 15.0, 55.0), [40.0, 10.0, 55.0]);
    }
}
