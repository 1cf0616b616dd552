//! Bars, as an SVG that reads on light and on dark. Pure: values in, text out.

use std::fmt::Write;

/// One question and its bars.
pub(crate) struct Panel {
    pub(crate) title: String,
    /// What is better, and the unit.
    pub(crate) note: String,
    pub(crate) logarithmic: bool,
    pub(crate) bars: Vec<Bar>,
}

/// One bar; the whisker goes from the least to the most of the rounds.
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) value: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Rival,
    Raw,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 13.0;
const STEP: f64 = 20.0;
const HEAD: f64 = 44.0;
const GAP: f64 = 22.0;
const CAPTION: f64 = 30.0;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 14px; font-weight: 600 }
  .note { fill: #57606a }
  .page { fill: #ffffff }
  .ours { fill: #0969da } .rival { fill: #b4bcc6 } .raw { fill: none; stroke: #57606a; stroke-dasharray: 3 2 }
  .whisker { stroke: #24292f; stroke-width: 1 }
  .bold { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .note { fill: #9198a1 } .page { fill: #0d1117 }
    .ours { fill: #4493f8 } .rival { fill: #4a525c } .raw { stroke: #9198a1 }
    .whisker { stroke: #e6edf3 }
  }
";

/// The panels below each other, and a line that says what was measured.
pub(crate) fn draw(caption: &str, panels: &[Panel]) -> String {
    let height: f64 = CAPTION
        + panels.iter().map(|panel| HEAD + STEP * panel.bars.len() as f64 + GAP).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>The log beside its rivals</title>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
    );
    let mut top = 0.0;
    for panel in panels {
        draw_panel(&mut svg, panel, top).expect("a string takes it");
        top += HEAD + STEP * panel.bars.len() as f64 + GAP;
    }
    writeln!(svg, "<text class=\"note\" x=\"12\" y=\"{}\">{}</text>", top + 6.0, escape(caption))
        .expect("a string takes it");
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, panel: &Panel, top: f64) -> std::fmt::Result {
    writeln!(
        svg,
        "<text class=\"title\" x=\"12\" y=\"{}\">{}</text>",
        top + 20.0,
        escape(&panel.title)
    )?;
    writeln!(
        svg,
        "<text class=\"note\" x=\"12\" y=\"{}\">{}</text>",
        top + 36.0,
        escape(&panel.note)
    )?;
    let scale = Scale::of(panel);
    for (i, bar) in panel.bars.iter().enumerate() {
        let y = top + HEAD + STEP * i as f64;
        let (class, bold) = match bar.kind {
            Kind::Ours => ("ours", " class=\"bold\""),
            Kind::Rival => ("rival", ""),
            Kind::Raw => ("raw", ""),
        };
        let middle = y + BAR - 2.0;
        writeln!(
            svg,
            "<text{bold} x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escape(&bar.label)
        )?;
        let end = scale.place(bar.value);
        writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>",
            end - LEFT
        )?;
        let (least, most) = (scale.place(bar.least), scale.place(bar.most));
        if most - least > 1.0 {
            let y = y + BAR / 2.0;
            writeln!(
                svg,
                "<line class=\"whisker\" x1=\"{least:.1}\" x2=\"{most:.1}\" y1=\"{y}\" y2=\"{y}\"/>"
            )?;
        }
        writeln!(
            svg,
            "<text{bold} x=\"{:.1}\" y=\"{middle}\">{}</text>",
            end.max(most) + 6.0,
            escape(&bar.text)
        )?;
    }
    Ok(())
}

/// From a value to a place: from zero, or by tens from below the least.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Scale {
    fn of(panel: &Panel) -> Self {
        let high =
            panel.bars.iter().map(|bar| bar.most.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
        let least = panel.bars.iter().map(|bar| bar.least.min(bar.value)).fold(high, f64::min);
        let low = if panel.logarithmic {
            10_f64.powf((least.max(f64::MIN_POSITIVE).log10() - 0.2).floor())
        } else {
            0.0
        };
        Self { logarithmic: panel.logarithmic, low, high }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
        } else {
            value / self.high
        };
        LEFT + (WIDTH - LEFT - RIGHT) * share.clamp(0.0, 1.0)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(value: f64) -> Bar {
        Bar {
            label: "a < b".to_owned(),
            value,
            least: value,
            most: value,
            text: String::new(),
            kind: Kind::Ours,
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let bars = vec![bar(10.0), bar(5.0)];
        let panel = Panel { title: String::new(), note: String::new(), logarithmic: false, bars };
        let scale = Scale::of(&panel);
        assert!((scale.place(10.0) - (WIDTH - RIGHT)).abs() < 1e-9);
        assert!((scale.place(5.0) - LEFT - (WIDTH - LEFT - RIGHT) / 2.0).abs() < 1e-9);
        assert!(draw("", &[panel]).contains("a &lt; b"));
    }
}
