//! Student's t, and the two derivatives of the logarithm of the gamma function that its variances
//! are fitted with. Pure.

/// The chance that Student's t with `freedom` degrees of freedom is above `t`.
#[must_use]
pub(super) fn beyond(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
    if t >= 0.0 { tail } else { 1.0 - tail }
}

/// The t that is exceeded with this chance, which is at most a half: the inverse of [`beyond`].
#[must_use]
pub(super) fn exceeded_by(chance: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high, freedom) > chance && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if beyond(middle, freedom) > chance { low = middle } else { high = middle }
    }
    high
}

/// From here on the asymptotic series below are good to ten digits.
const ASYMPTOTIC_FROM: f64 = 10.0;

/// The first derivative of the logarithm of the gamma function, for `x` above zero (Abramowitz and
/// Stegun, 6.3.5 and 6.3.18).
#[must_use]
pub(super) fn digamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC_FROM {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum + x.ln() - 0.5 / x - y * (1.0 / 12.0 - y * (1.0 / 120.0 - y * (1.0 / 252.0 - y / 240.0)))
}

/// The second derivative (6.4.6 and 6.4.12).
#[must_use]
pub(super) fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < ASYMPTOTIC_FROM {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    sum + 1.0 / x + y / 2.0 + y / x * (1.0 / 6.0 - y * (1.0 / 30.0 - y * (1.0 / 42.0 - y / 30.0)))
}

/// The regularised incomplete beta function, by its continued fraction (Press et al., "Numerical
/// Recipes", §6.4).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast on one side only; the other is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the above, by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let not_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / not_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut product = d;
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / not_zero(1.0 + term * d);
            c = not_zero(1.0 + term / c);
            change = c * d;
            product *= change;
        }
        if (change - 1.0).abs() < 1e-14 {
            break;
        }
    }
    product
}

/// The logarithm of the gamma function, for `x` above zero (Abramowitz and Stegun, 6.1.41).
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < ASYMPTOTIC_FROM {
        below += x.ln();
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - below
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    fn close(ours: f64, by_hand: f64) {
        assert!((ours - by_hand).abs() < 1e-6 * by_hand.abs().max(1e-3), "{ours} {by_hand}");
    }

    #[test]
    fn tails_of_t_match_its_closed_forms_and_its_table() {
        // One degree of freedom is Cauchy's distribution, two have a closed form too.
        for t in [0.1, 1.0, 5.0, 80.0, 3000.0f64] {
            close(beyond(t, 1.0), t.recip().atan() / PI);
            close(beyond(t, 2.0), 0.5 - t / (2.0 * (2.0 + t * t).sqrt()));
            close(beyond(-t, 1.0), 1.0 - t.recip().atan() / PI);
        }
        close(beyond(0.0, 7.3), 0.5);
        for (chance, freedom, t) in [
            (0.025, 1.0, 12.7062),
            (0.025, 10.0, 2.22814),
            (0.0005, 4.0, 8.61030),
            (0.05, 30.0, 1.69726),
        ] {
            assert!((exceeded_by(chance, freedom) - t).abs() < 2e-5 * t, "{freedom}");
            close(beyond(exceeded_by(chance, freedom), freedom), chance);
        }
    }

    #[test]
    fn derivatives_of_the_gamma_function_match_what_is_known_of_them() {
        let euler = 0.577_215_664_9;
        close(digamma(1.0), -euler);
        close(digamma(0.5), -euler - 2.0 * 2f64.ln());
        close(digamma(12.0) - digamma(11.0), 1.0 / 11.0);
        close(trigamma(1.0), PI * PI / 6.0);
        close(trigamma(0.5), PI * PI / 2.0);
        close(ln_gamma(5.0), 24f64.ln());
        close(ln_gamma(0.5), PI.sqrt().ln());
    }
}
