//! The ship: how deep what is at risk lets her lie.
//!
//! Cargo is what is acknowledged and not durable. The water stands at her side where a scale of bytes
//! says; at the load line, the circle with a line through it, a sync is due by its size; at the deck the
//! ring is full, and producers wait. The scale goes by the square root, so that small loads are seen.

use maud::{Markup, html};

use super::units;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) at_risk_bytes: u64,
    /// The most of the last minutes.
    pub(super) highest_bytes: u64,
    /// Where a sync is due by size, if one ever is.
    pub(super) line_bytes: Option<u64>,
    /// Where producers wait.
    pub(super) ring_bytes: u64,
}

/// The drawing's sides, and where keel and deck are.
const WIDE: f64 = 720.0;
const HIGH: f64 = 300.0;
const KEEL: f64 = 262.0;
const DECK: f64 = 82.0;

impl Load {
    /// Where so many bytes let the water stand.
    fn level(self, bytes: u64) -> f64 {
        let share = units::float(bytes) / units::float(self.ring_bytes.max(1));
        KEEL - share.clamp(0.0, 1.0).sqrt() * (KEEL - DECK)
    }

    pub(super) fn draw(self) -> Markup {
        let water = self.level(self.at_risk_bytes);
        let said = format!(
            "{} of at most {} are at risk",
            units::bytes(self.at_risk_bytes),
            units::bytes(self.ring_bytes)
        );
        html! {
            svg.ship viewBox={ "0 0 " (WIDE) " " (HIGH) } role="img" aria-label=(said) {
                // Above the deck: a house, a funnel, a mast.
                path.rigging d="M118 82V34M118 42L222 82M118 42L76 82" {}
                path.house d="M484 82V56H500V38H556V56H580V82Z" {}
                path.funnel d="M512 38V14H540V38Z" {}
                path.hull d="M52 64C60 74 68 82 84 82H616L648 74C650 130 634 200 612 262H118C86 220 62 140 52 64Z" {}
                (scale(self))
                @if let Some(line) = self.line_bytes {
                    (load_line(self.level(line)))
                }
                (sea(water))
                @if self.highest_bytes > self.at_risk_bytes {
                    path.highest d={ "M84 " (round(self.level(self.highest_bytes))) "H628" } {}
                }
            }
        }
    }
}

/// Draught marks at her bow: a quarter of the bytes is half of the height.
fn scale(load: Load) -> Markup {
    html! {
        g.scale {
            @for shift in [6, 4, 2, 0] {
                @let bytes = load.ring_bytes >> shift;
                @let y = load.level(bytes);
                // The highest is the deck: its number stands below it.
                @let is_deck = shift == 0;
                @if !is_deck { path d={ "M138 " (round(y)) "h12" } {} }
                text x="156" y=(round(y + if is_deck { 17.0 } else { 4.5 })) {
                    (units::bytes(bytes))
                }
            }
        }
    }
}

/// Samuel Plimsoll's mark.
fn load_line(y: f64) -> Markup {
    html! {
        g.line {
            circle cx="360" cy=(round(y)) r="15" {}
            path d={ "M332 " (round(y)) "H388" } {}
            text x="398" y=(round(y + 4.0)) { "a sync is due" }
        }
    }
}

fn sea(y: f64) -> Markup {
    // Waves of 60, as far as the drawing goes.
    let waves: String = (0..12).map(|_| "q15 -5 30 0t30 0").collect();
    html! {
        path.sea d={ "M0 " (round(y)) (waves) "V" (HIGH) "H0Z" } {}
    }
}

fn round(number: f64) -> String {
    format!("{number:.1}")
}

/// A line of values, the newest at its right end; at least this high. Nothing for fewer than two.
pub(super) fn line(values: &[f64], least_top: f64) -> Markup {
    const SECONDS: f64 = 120.0;
    let top = values.iter().copied().fold(least_top.max(1e-9), f64::max);
    let count = units::float(values.len() as u64);
    let from = SECONDS - count;
    let mut place = from;
    let mut points = String::new();
    for value in values {
        place += 1.0;
        points += &format!("{:.1},{:.2} ", place, 30.0 - value / top * 27.0);
    }
    html! {
        svg.trend viewBox="0 0 121 32" preserveAspectRatio="none" aria-hidden="true" {
            @if values.len() > 1 {
                polygon points={ (round(from + 1.0)) ",31 " (points) (round(place)) ",31" } {}
                polyline points=(points.trim_end()) {}
            }
        }
    }
}
