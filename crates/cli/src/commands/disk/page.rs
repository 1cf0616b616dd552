//! The frame around a page of crash states: our look, what was run, and how a state is made again.

use std::path::Path;

use anyhow::{Context, Result};
use maud::{PreEscaped, html};
use plimsoll_lab::report::page::{frame, plimsoll_line, save};
use plimsoll_simdisk::block::{About, Trace};
use plimsoll_simdisk::mounted::{Findings, Page};

use crate::disk_args::ViewArgs;
use crate::output::plain;

/// What the lab's pages have no need for.
const MASTHEAD_STYLE: &str = "
.meta code { color: var(--ink); overflow-wrap: anywhere; }
.meta + .meta { margin-top: 0.2rem; }
";

/// Writes the page; at no time is there half of one under its name.
pub(super) fn write(
    path: &Path,
    trace: &Trace,
    view: &ViewArgs,
    findings: &Findings,
    found: &Page,
) -> Result<()> {
    let page = framed(trace, view, &findings.question.check, found);
    save(path, &page).with_context(|| format!("save {}", path.display()))
}

/// The whole page. What strangers wrote orders neither a browser nor a terminal about.
fn framed(trace: &Trace, view: &ViewArgs, check: &str, found: &Page) -> String {
    let body = html! {
        header.masthead {
            p.brand { (plimsoll_line()) " plimsoll disk" }
            h1 { (found.title) }
            @for (what, said) in beginning(&trace.about) {
                p.meta { (what) ": " code { (said) } }
            }
            p.meta { "Workload: " code { (trace.about.command.join(" ")) } }
            p.meta { "Check: " code { (check) } }
        }
        main { (PreEscaped(&found.main)) }
        footer { p {
            "Made by plimsoll " (env!("CARGO_PKG_VERSION")) ". A state is a trace, a point, a mode and a seed: "
            code { "plimsoll disk replay TRACE STATE" (view.to_string()) } " makes the same disk again, byte for byte. That no state
            failed means that none of these did, under this model, on this kernel."
        } }
    };
    let style = format!("{MASTHEAD_STYLE}{}", found.style);
    plain(&frame(&found.title, &style, &body))
}

/// What was on the disk at first, and which marks are not the workload's own.
fn beginning(about: &About) -> impl Iterator<Item = (&'static str, &str)> {
    let all = [("Copied", &about.from), ("Setup", &about.setup), ("Marks on", &about.mark_on)];
    all.into_iter().filter_map(|(what, said)| Some((what, said.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use plimsoll_simdisk::block::Platter;

    use super::*;

    const HOSTILE: &str = "\u{1b}[2J<script>alert(1)</script>";

    #[test]
    fn nothing_of_a_trace_is_more_than_text() {
        let setup = Some(HOSTILE.to_owned());
        let about = About { command: vec![HOSTILE.to_owned()], setup, ..About::default() };
        let trace = Trace { about, base: Platter::new(1 << 20), events: vec![], aftermath: vec![] };
        let view = ViewArgs { lying: false, cache: Some(4096), mount_options: HOSTILE.to_owned() };
        // What the library escaped still has its controls.
        let main = "<p>\u{1b}[2J&lt;script&gt;</p>".to_owned();
        let found = Page { title: HOSTILE.to_owned(), style: "", main };
        let page = framed(&trace, &view, HOSTILE, &found);
        assert!(page.contains("<p>\\u001b[2J&lt;script&gt;</p>"));
        assert!(!page.contains('\u{1b}') && !page.contains("<script"));
        assert!(page.contains("replay TRACE STATE --cache 4096"));
    }
}
