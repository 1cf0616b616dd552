//! A format's bytes, as they were when they were made: what was written stays readable.
//!
//! `PLIMSOLL_WRITE_GOLDEN=1` writes them anew: only for a new version of a format.

use std::fs;
use std::path::Path;

/// What stands in a file below `tests`.
pub(crate) fn golden(name: &str, now: &[u8]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("PLIMSOLL_WRITE_GOLDEN").is_some() {
        fs::write(&path, now).unwrap();
    }
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
