//! A page of ours, whatever it shows: its frame and its look, and how it is saved.
//!
//! What it shows may come from anybody: every text is escaped (maud does), and a content security
//! policy in the page forbids it to run or to fetch anything.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::error::{Error, Result};
use crate::result;
use crate::scratch::CannotRun;

/// What a page of ours is known by, in so many bytes at its beginning.
const GENERATOR: &str = "<meta name=\"generator\" content=\"plimsoll ";
const HEAD_BYTES: u64 = 4096;
/// How our pages look: ink on paper, light and dark, for desks, phones and printers.
const STYLE: &str = include_str!("style.css");
/// The page may load nothing from anywhere, and run no script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A page of ours: one file, which may neither fetch nor run anything. `more_style` is CSS that
/// only this page needs.
#[must_use]
pub fn frame(title: &str, more_style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                // GENERATOR: what a page of ours is known by.
                meta name="generator" content=(concat!("plimsoll ", env!("CARGO_PKG_VERSION")));
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(more_style)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// Checks that a page may be saved as `path`: nothing has that name, or a page of ours, which it
/// replaces.
pub fn check_place(path: &Path) -> std::result::Result<(), CannotRun> {
    let refuse = |reason: &str| {
        let (what, directory) = ("cannot write the page to", path.to_owned());
        Err(CannotRun { what, directory, reason: format!("{reason}; pass another name with -o") })
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => refuse(&error.to_string()),
        Ok(there) if !there.is_file() => refuse("it is not a file"),
        Ok(_) if is_ours(path) => Ok(()),
        Ok(_) => refuse("it is there already, and it is no page of plimsoll"),
    }
}

/// Whether the file says in its head that we made it.
fn is_ours(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.is_ok() && String::from_utf8_lossy(&head).contains(GENERATOR)
}

/// Writes the page. It is durable on return, and no half-written file ever has its name.
pub fn save(path: &Path, page: &str) -> Result<()> {
    let failed = |source| Error::Save { path: path.to_owned(), source };
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        let error = std::io::Error::other("not the name of a file");
        return Err(failed(plimsoll_sync::Error::io("create", path, error)));
    };
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    result::write_durably(dir, name, page.as_bytes()).map_err(failed)
}

/// The mark on the hull: a circle, and the line up to which she may be loaded.
#[must_use]
pub fn plimsoll_line() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 20" width="32" height="20" aria-hidden="true" {
            circle cx="16" cy="10" r="7.5" {}
            path d="M1 10H31" {}
        }
    }
}
