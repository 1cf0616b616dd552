//! How far it is, for whoever watches.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on stderr, if somebody watches; `what` is counted.
pub(super) fn bar(length: u64, what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!(
        "{{prefix}} {{bar:24}} {{pos}} of {{len}} {what}, {{per_sec}}, {{eta}} left {{msg}}"
    );
    let style = ProgressStyle::with_template(&template).expect("it is well formed");
    let target = ProgressDrawTarget::stderr_with_hz(4);
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}
